// Attention over latents on a device, beside the cases of its operation: every tile, ring and
// cluster, and the same bits of a sequence whatever its neighbours are.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/random.h"
#include "support/text.h"
#include "tests/tuner/templates/template_checks.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

/// A sequence of a batch. `id` decides its query and its keys.
struct LatentSequence {
  int id, keys;
};

class MlaAttentionGpuTest : public TemplateChecks {
 protected:
  void check_each(const std::string& text, const std::string& kernel_template,
                  const std::vector<std::string>& parameters) {
    const BoundProblem problem = bound(text);
    const CandidateList list = enumerate(problem);
    const std::vector<std::size_t> chosen = one_of_each(list, kernel_template, parameters);
    const int sm_arch = device_->profile().sm_arch;
    if (kernel_template == "mla_attention/swapped" && sm_arch != 90) {
      GTEST_SKIP() << kernel_template << " is for sm_90, and this GPU is sm_" << sm_arch;
    }
    ASSERT_FALSE(chosen.empty());
    check(problem, list, chosen, 7);
  }

  /// Returns the tensors of a batch, one query a sequence, with a cache that is contiguous.
  static std::map<std::string, std::vector<std::byte>> tensors_of(
      const BoundProblem& problem, const std::vector<LatentSequence>& members) {
    std::map<std::string, std::vector<std::byte>> tensors;
    for (const TensorShape& shape : problem.shapes()) {
      std::vector<std::byte>& to = tensors[shape.name];
      to.resize(static_cast<std::size_t>(shape.bytes()), std::byte{0xFF});
      if (shape.role == TensorRole::out) continue;
      const auto entries = static_cast<std::int64_t>(members.size());
      for (std::int64_t s = 0; s < entries; ++s) {
        const LatentSequence& member = members[static_cast<std::size_t>(s)];
        if (shape.name == "kv_lengths") {
          store_element(to.data(), shape.dtype, s, member.keys);
          continue;
        }
        const std::int64_t of_entry = shape.elements() / entries;
        const std::int64_t filled =
            shape.name == "q" ? of_entry : member.keys * shape.extent.back();
        for (std::int64_t i = 0; i < filled; ++i) {
          const std::uint64_t bits = hash_at(static_cast<std::uint64_t>(member.id) * 7919 +
                                                 static_cast<std::uint64_t>(shape.name.front()),
                                             static_cast<std::uint64_t>(i));
          store_element(to.data(), shape.dtype, s * of_entry + i,
                        static_cast<double>(bits >> 40) * 0x1p-22 - 2);
        }
      }
    }
    return tensors;
  }

  /// Returns the result of a batch's sequence `place`.
  std::vector<std::byte> result_of(const Candidate& candidate, const CompiledKernel& kernel,
                                   const std::map<std::string, std::vector<std::byte>>& tensors,
                                   std::size_t place, std::size_t sequences) {
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    const auto allocate = [&](std::int64_t bytes) {
      buffers.push_back(must(device_->allocate(bytes)));
      return buffers.back()->address();
    };
    LaunchArguments arguments;
    for (const TensorShape& shape : candidate.plan.tensors) {
      arguments.tensors.push_back(allocate(shape.bytes()));
      must(device_->upload(arguments.tensors.back(), tensors.at(shape.name)));
    }
    arguments.scalars = {0.05};
    if (candidate.plan.workspace_bytes() > 0) {
      arguments.workspace = allocate(candidate.plan.workspace_bytes());
      must(device_->fill(arguments.workspace, 0, candidate.plan.workspace_bytes()));
    }
    const auto program = must(device_->load(kernel.bits, candidate.plan));
    must(device_->run(*program, arguments));
    for (std::size_t i = 0; i < candidate.plan.tensors.size(); ++i) {
      const TensorShape& shape = candidate.plan.tensors[i];
      if (shape.name != "o") continue;
      const std::vector<std::byte> all = download<std::byte>(arguments.tensors[i], shape.bytes());
      const auto size = static_cast<std::ptrdiff_t>(all.size() / sequences);
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(place) * size;
      return {first, first + size};
    }
    return {};
  }
};

TEST_F(MlaAttentionGpuTest, EveryTileRingAndCluster) {
  for (const char* problem :
       {"batch=2 heads=16 kv_len=1500 dtype=bf16 lse=natural",
        "batch=3 heads=20 q_len=2 kv_len=700 kv_total=1500 page=16 dtype=fp16 "
        "sink=head lse=base2",
        "batch=3 heads=8 kv_len=900 kv_total=1700 page=1 dtype=bf16",
        "batch=2 heads=40 kv_len=1100 dtype=bf16 keys=apart query=split",
        "batch=2 heads=16 kv_len=700 dtype=bf16 rotary=none"}) {
    check_each(concat("mla_attention ", problem), "mla_attention/swapped",
               {"ROWS", "WGS", "STAGES", "CLUSTER", "SPLIT"});
    if (HasFatalFailure() || IsSkipped()) return;
  }
}

TEST_F(MlaAttentionGpuTest, EveryTileOfTheFallback) {
  for (const char* problem : {"batch=2 heads=16 kv_len=1500 dtype=bf16 lse=natural",
                              "batch=2 heads=5 q_len=3 kv_len=345 latent=33 rope=7 dtype=fp16"}) {
    check_each(concat("mla_attention ", problem), "mla_attention/tiled", {"TILE", "SPLIT"});
    if (HasFatalFailure()) return;
  }
}

TEST_F(MlaAttentionGpuTest, ASequenceHasTheSameBitsBesideAnyOthers) {
  const LatentSequence shared{1, 2100};
  const std::vector<std::vector<LatentSequence>> batches{
      {shared}, {{2, 5}, shared, {3, 0}}, {{4, 3000}, {5, 1024}, {6, 64}, shared, {7, 1}}};
  std::set<std::vector<std::byte>> bits;
  std::size_t candidates = 0;
  for (const std::vector<LatentSequence>& members : batches) {
    std::int64_t longest = 0, total = 0;
    std::size_t place = 0;
    for (std::size_t s = 0; s < members.size(); ++s) {
      longest = std::max<std::int64_t>(longest, members[s].keys);
      total += members[s].keys;
      if (members[s].id == shared.id) place = s;
    }
    const BoundProblem problem =
        bound(concat("mla_attention batch=", members.size(), " heads=16 kv_len=", longest,
                     " kv_total=", total, " dtype=bf16 cache=contiguous invariant=batch"));
    const auto tensors = tensors_of(problem, members);
    const CandidateList list = enumerate(problem);
    std::vector<std::size_t> chosen = some(list, "mla_attention/swapped", 4);
    if (chosen.empty()) chosen = some(list, "mla_attention/tiled", 4);
    const std::vector<Build> kernels = compile(list, chosen);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const CompileResult& kernel = kernels[i].get();
      ASSERT_TRUE(kernel) << kernel.error().message;
      bits.insert(
          result_of(list.candidates[chosen[i]], *kernel.value(), tensors, place, members.size()));
      ++candidates;
    }
  }
  EXPECT_GE(candidates, batches.size());
  EXPECT_EQ(bits.size(), 1U);
}

}  // namespace
}  // namespace kernwright
