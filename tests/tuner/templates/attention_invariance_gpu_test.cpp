// Attention with invariant=batch on a device: a sequence has the same bits whatever its neighbours
// are and whichever candidate computes it. Also its sums if no score is the largest.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/random.h"
#include "support/text.h"
#include "tests/tuner/templates/template_checks.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

using Bytes = std::vector<std::byte>;

/// A sequence of a batch. `id` decides its queries, keys and values.
struct Member {
  int id, queries, keys;
};

/// Host memory for the tensors of one problem, which are contiguous and have heads inside.
class Batch {
 public:
  /// An element of q, k or v from the sequence's id and the place in the sequence.
  using Values = std::function<double(std::string_view tensor, int id, std::int64_t place)>;

  Batch(const BoundProblem& problem, std::vector<Member> members, const Values& values)
      : members_(std::move(members)) {
    const Scope& scope = problem.scope();
    const std::int64_t page = *scope.find("page"), columns = *scope.find("table_columns");
    const bool paged = page > 1;
    const bool ragged = *scope.find("lengths") == *scope.find("lengths_ragged");
    for (const TensorShape& shape : problem.shapes()) {
      tensors_[shape.name] = Bytes(static_cast<std::size_t>(shape.bytes()), std::byte{0xFF});
      if (shape.name == "lse") lse_tokens_ = shape.extent[2];
      if (shape.name == "o") o_row_ = shape.extent[2] * shape.extent[3];
    }
    heads_ = *scope.find("heads");
    std::int64_t queries = 0, keys = 0, pages = *scope.find("pages");
    for (std::size_t s = 0; s < members_.size(); ++s) {
      const Member& member = members_[s];
      const auto entry = static_cast<std::int64_t>(s);
      const std::int64_t first = ragged ? queries : entry * *scope.find("q_len");
      first_query_.push_back(first);
      put(problem, "q", first, 0, member.queries, member.id, values);
      const std::int64_t first_key = ragged ? keys : entry * *scope.find("kv_len");
      for (const char* name : {"k", "v"}) {
        if (!paged) put(problem, name, first_key, 0, member.keys, member.id, values);
      }
      for (std::int64_t column = 0; paged && column < columns; ++column) {
        const bool is_there = column * page < member.keys;
        whole("page_table", entry * columns + column, is_there ? --pages : 2147483647);
        if (!is_there) continue;
        for (const char* name : {"k", "v"}) {
          put(problem, name, pages * page - column * page, column * page,
              std::min<std::int64_t>(member.keys, (column + 1) * page), member.id, values);
        }
      }
      whole("q_offsets", entry, queries);
      whole("kv_offsets", entry, keys);
      whole("kv_lengths", entry, member.keys);
      whole("q_offsets", entry + 1, queries += member.queries);
      whole("kv_offsets", entry + 1, keys += member.keys);
    }
    for (std::size_t i = 0; tensors_.contains("sinks") && i < tensors_["sinks"].size() / 4; ++i) {
      store_element(tensors_["sinks"].data(), DType::fp32, static_cast<std::int64_t>(i),
                    0.25 * static_cast<double>(i));
    }
  }

  const Bytes& tensor(const std::string& name) const { return tensors_.at(name); }

  /// The bytes of o and lse that belong to the sequence with this id.
  Bytes results(const std::map<std::string, Bytes>& outputs, int id) const {
    Bytes of;
    for (std::size_t s = 0; s < members_.size(); ++s) {
      if (members_[s].id != id) continue;
      const auto add = [&](const char* name, std::int64_t first, std::int64_t bytes) {
        const auto from = outputs.at(name).begin() + first;
        of.insert(of.end(), from, from + bytes);
      };
      add("o", first_query_[s] * o_row_ * 2, members_[s].queries * o_row_ * 2);
      for (std::int64_t head = 0; lse_tokens_ > 0 && head < heads_; ++head) {
        const bool ragged =
            outputs.at("lse").size() == static_cast<std::size_t>(lse_tokens_ * heads_ * 4);
        const std::int64_t line =
            ragged ? head * lse_tokens_ + first_query_[s]
                   : (static_cast<std::int64_t>(s) * heads_ + head) * lse_tokens_;
        add("lse", line * 4, members_[s].queries * 4);
      }
    }
    return of;
  }

 private:
  /// Writes tokens [from, end) of a sequence whose token 0 is at row `first` of a tensor.
  void put(const BoundProblem& problem, const std::string& name, std::int64_t first,
           std::int64_t from, std::int64_t end, int id, const Values& values) {
    for (const TensorShape& shape : problem.shapes()) {
      if (shape.name != name) continue;
      const std::int64_t row = shape.extent[2] * shape.extent[3];
      for (std::int64_t i = from * row; i < end * row; ++i) {
        store_element(tensors_[name].data(), shape.dtype, first * row + i, values(name, id, i));
      }
    }
  }
  void whole(const std::string& name, std::int64_t index, std::int64_t value) {
    if (tensors_.contains(name)) {
      store_element(tensors_[name].data(), DType::int32, index, static_cast<double>(value));
    }
  }

  std::vector<Member> members_;
  std::map<std::string, Bytes> tensors_;
  std::vector<std::int64_t> first_query_;
  std::int64_t lse_tokens_ = 0, o_row_ = 0, heads_ = 0;
};

double random_value(std::string_view tensor, int id, std::int64_t place) {
  const std::uint64_t bits =
      hash_at(static_cast<std::uint64_t>(id) * 7919 + static_cast<std::uint64_t>(tensor.front()),
              static_cast<std::uint64_t>(place));
  return static_cast<double>(bits >> 40) * 0x1p-22 - 2;
}

class AttentionInvarianceGpuTest : public TemplateChecks {
 protected:
  /// A problem of these sequences.
  BoundProblem problem_of(const std::vector<Member>& members, std::string_view fixed) const {
    const bool ragged = fixed.find("lengths=ragged") != std::string_view::npos;
    std::int64_t q_len = 1, kv_len = 1, q_total = 0, kv_total = 0;
    for (const Member& member : members) {
      q_len = std::max<std::int64_t>(q_len, member.queries);
      kv_len = std::max<std::int64_t>(kv_len, member.keys);
      q_total += member.queries;
      kv_total += member.keys;
    }
    return bound(concat("attention batch=", members.size(), " q_len=", q_len, " kv_len=", kv_len,
                        ragged ? concat(" q_total=", q_total) : "", " kv_total=", kv_total, " ",
                        fixed, " dtype=bf16"));
  }

  std::map<std::string, Bytes> launch(const Candidate& candidate, const CompiledKernel& kernel,
                                      const Batch& batch) {
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    const auto allocate = [&](std::int64_t bytes) {
      buffers.push_back(device_->allocate(bytes).value());
      return buffers.back()->address();
    };
    LaunchArguments arguments;
    for (const TensorShape& shape : candidate.plan.tensors) {
      arguments.tensors.push_back(allocate(shape.bytes()));
      EXPECT_TRUE(device_->upload(arguments.tensors.back(), batch.tensor(shape.name)));
    }
    for (const Scalar& scalar : candidate.plan.scalars) {
      arguments.scalars.push_back(scalar.name == "scale" ? 0.11 : 30);
    }
    if (candidate.plan.workspace_bytes() > 0) {
      arguments.workspace = allocate(candidate.plan.workspace_bytes());
      EXPECT_TRUE(device_->fill(arguments.workspace, 0, candidate.plan.workspace_bytes()));
    }
    const auto program = device_->load(kernel.bits, candidate.plan);
    EXPECT_TRUE(program) << program.error().message;
    const Result<void> done = device_->run(**program, arguments);
    EXPECT_TRUE(done) << done.error().message;
    std::map<std::string, Bytes> outputs;
    for (std::size_t i = 0; i < candidate.plan.tensors.size(); ++i) {
      const TensorShape& shape = candidate.plan.tensors[i];
      if (shape.role == TensorRole::out) {
        outputs[shape.name] = download<std::byte>(arguments.tensors[i], shape.bytes());
      }
    }
    return outputs;
  }

  /// Calls visit(candidate, outputs) for so many candidates of each template that applies.
  template <typename Visit>
  void each(const BoundProblem& problem, const Batch& batch, std::size_t count,
            const Visit& visit) {
    const CandidateList list = enumerate(problem);
    std::vector<std::size_t> chosen;
    for (const KernelTemplate* made : catalog_->templates_of("attention")) {
      const std::vector<std::size_t> own = some(list, made->name, count);
      chosen.insert(chosen.end(), own.begin(), own.end());
    }
    const std::vector<Build> kernels = compile(list, chosen);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const Candidate& candidate = list.candidates[chosen[i]];
      SCOPED_TRACE(concat(problem.text(), ": ", candidate.id()));
      const CompileResult& kernel = kernels[i].get();
      ASSERT_TRUE(kernel) << kernel.error().message;
      visit(candidate, launch(candidate, *kernel.value(), batch));
    }
  }

  /// The different bits that a shared sequence has in some batches, by some candidates of each.
  std::set<Bytes> bits(std::string_view fixed, const std::vector<std::vector<Member>>& batches,
                       int shared, std::set<std::string>& templates) {
    std::set<Bytes> all;
    for (const std::vector<Member>& members : batches) {
      const BoundProblem problem = problem_of(members, fixed);
      const Batch batch(problem, members, random_value);
      each(problem, batch, 5, [&](const Candidate& candidate, const auto& outputs) {
        templates.insert(candidate.kernel_template->name);
        all.insert(batch.results(outputs, shared));
      });
    }
    return all;
  }
};

TEST_F(AttentionInvarianceGpuTest, ASequenceHasTheSameBitsBesideAnyOthers) {
  struct Case {
    std::string_view kernel_template, fixed;
    int queries, keys;
  };
  // On Hopper. Elsewhere attention/tiled takes all of them.
  for (const Case& one : std::vector<Case>{
           {"stream", "heads=8 kv_heads=2 head_dim=128 lengths=kv lse=natural", 1, 5000},
           {"stream", "heads=8 kv_heads=2 head_dim=64 lengths=kv mask=causal sink=head", 4, 2500},
           {"stream", "heads=4 head_dim=128 lengths=kv mask=window window=700", 16, 3000},
           {"stream", "heads=8 kv_heads=1 head_dim=128 lengths=kv cache=paged page=16", 1, 2333},
           {"stream", "heads=8 kv_heads=2 head_dim=128 lengths=kv kv=fp8_e4m3", 1, 3000},
           {"tiled", "heads=8 kv_heads=2 head_dim=128 lengths=kv kv=fp8_e4m3 mask=causal", 90, 700},
           {"wave", "heads=8 kv_heads=2 head_dim=128 lengths=ragged mask=causal lse=base2", 300,
            1500},
           {"wave", "heads=4 head_dim=64 lengths=ragged mask=window window=200", 270, 900},
           {"wave", "heads=4 head_dim=256 lengths=kv softcap=tanh bias=none", 130, 700},
           {"wave", "heads=4 head_dim=128 lengths=ragged cache=paged page=64 mask=causal", 3, 700},
           {"stream", "heads=8 kv_heads=2 head_dim=128 lengths=kv cache=paged page=24 lse=natural",
            1, 5000},
           {"wave",
            "heads=8 kv_heads=2 head_dim=64 lengths=ragged cache=paged page=24 "
            "mask=window window=150",
            200, 900},
           {"wave",
            "heads=8 kv_heads=2 head_dim=64 lengths=ragged cache=paged page=24 "
            "mask=causal",
            200, 900}}) {
    SCOPED_TRACE(one.fixed);
    const bool ragged = one.fixed.find("ragged") != std::string_view::npos;
    const auto other = [&](int id, int queries, int keys) {
      return Member{id, ragged ? queries : one.queries, keys};
    };
    const Member shared{1, one.queries, one.keys};
    const std::vector<std::vector<Member>> batches{
        {shared},
        {other(2, 1, 40), other(3, 700, 2000), shared, other(4, 0, 0), other(5, 65, 129)},
        {other(6, 20, 9000), shared}};
    std::set<std::string> templates;
    const std::set<Bytes> equal =
        bits(concat(one.fixed, " invariant=batch"), batches, 1, templates);
    if (HasFatalFailure()) return;
    EXPECT_EQ(equal.size(), 1U);
    EXPECT_EQ(templates.size(), 1U);
    if (device_->profile().sm_arch == 90) {
      EXPECT_TRUE(templates.contains(concat("attention/", one.kernel_template)));
    }
  }
}

// So the test above can fail.
TEST_F(AttentionInvarianceGpuTest, WithoutItBitsDiffer) {
  std::set<std::string> templates;
  EXPECT_GT(
      bits("heads=8 kv_heads=2 head_dim=128 lengths=kv", {{{1, 1, 5000}}}, 1, templates).size(),
      1U);
}

// All scores are equal and no whole number of the unit that sums are relative to: a factor that is
// off 1 by a rounding shows after so many tiles.
TEST_F(AttentionInvarianceGpuTest, SumsDoNotDriftWhereTheLargestScoreStays) {
  constexpr int kKeys = 65536;
  const double lse_scale = 0.11F;
  for (const char* fixed : {"heads=2 head_dim=64 lengths=kv lse=natural invariant=batch",
                            "heads=2 head_dim=64 lengths=kv lse=natural cache=paged page=24 "
                            "invariant=batch"}) {
    for (const int queries : {1, 70}) {
      for (const double key : {3.0, 5.0, 7.0, 9.0}) {
        const std::vector<Member> members{{1, queries, kKeys}};
        const BoundProblem problem = problem_of(members, fixed);
        const Batch batch(problem, members, [&](std::string_view tensor, int, std::int64_t) {
          return tensor == "k" ? key : 1.0;
        });
        const double right = lse_scale * 64 * key + std::log(static_cast<double>(kKeys));
        each(problem, batch, 2, [&](const Candidate&, const auto& outputs) {
          const Bytes& lse = outputs.at("lse");
          for (std::size_t i = 0; i < lse.size() / 4; ++i) {
            ASSERT_NEAR(load_element(lse.data(), DType::fp32, static_cast<std::int64_t>(i)), right,
                        4e-5);
          }
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace kernwright
