// Products with invariant=batch on a device: a row has the same bits however many others there are,
// wherever it is among them, and whichever candidate computes it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/random.h"
#include "support/text.h"
#include "tests/tuner/templates/template_checks.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

using RowBytes = std::vector<std::byte>;

/// The shared row's place in every product, and the number that stands for its contents.
struct SharedRow {
  std::int64_t place;
  static constexpr std::int64_t kId = 1'000'000;
};

double value_of(std::string_view tensor, std::int64_t row, std::int64_t column) {
  const std::uint64_t bits =
      hash_at(static_cast<std::uint64_t>(tensor.front()) * 7919 + static_cast<std::uint64_t>(row),
              static_cast<std::uint64_t>(column));
  return static_cast<double>(bits >> 40) * 0x1p-22 - 2;
}

class MatmulInvarianceGpuTest : public TemplateChecks {
 protected:
  /// Returns the bits of the shared row of all outputs, of each product.
  std::set<RowBytes> launch(const Candidate& candidate, const CompiledKernel& kernel,
                            SharedRow shared) {
    const BoundProblem& problem = *candidate.problem;
    const std::int64_t m = *problem.scope().find("m"), batch = *problem.scope().find("batch");
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    LaunchArguments arguments;
    for (const TensorShape& shape : candidate.plan.tensors) {
      RowBytes host(static_cast<std::size_t>(shape.bytes()), std::byte{0xFF});
      const std::int64_t columns = shape.extent.back();
      const std::int64_t rows = shape.bytes() / bytes_of(columns, shape.dtype);
      for (std::int64_t row = 0; shape.role == TensorRole::in && row < rows; ++row) {
        const bool per_row = shape.name == "a" || shape.name == "residual";
        const bool is_shared = per_row && row % m == shared.place;
        const std::int64_t id = is_shared ? SharedRow::kId
                                : per_row ? row
                                          : row % std::max<std::int64_t>(rows / batch, 1);
        for (std::int64_t i = 0; i < columns; ++i) {
          store_element(host.data(), shape.dtype, row * columns + i, value_of(shape.name, id, i));
        }
      }
      buffers.push_back(must(device_->allocate(shape.bytes())));
      arguments.tensors.push_back(buffers.back()->address());
      EXPECT_TRUE(device_->upload(arguments.tensors.back(), host));
    }
    for (const Scalar& scalar : candidate.plan.scalars) {
      arguments.scalars.push_back(scalar.name == "alpha" ? 0.37 : 1.3);
    }
    if (candidate.plan.workspace_bytes() > 0) {
      buffers.push_back(must(device_->allocate(candidate.plan.workspace_bytes())));
      arguments.workspace = buffers.back()->address();
    }
    const auto program = must(device_->load(kernel.bits, candidate.plan));
    const Result<void> done = device_->run(*program, arguments);
    EXPECT_TRUE(done) << done.error().message;
    std::vector<RowBytes> of_products(static_cast<std::size_t>(batch));
    for (std::size_t i = 0; i < candidate.plan.tensors.size(); ++i) {
      const TensorShape& shape = candidate.plan.tensors[i];
      if (shape.role != TensorRole::out) continue;
      const auto all = download<std::byte>(arguments.tensors[i], shape.bytes());
      const std::int64_t row = bytes_of(shape.extent.back(), shape.dtype);
      for (std::int64_t product = 0; product < batch; ++product) {
        const auto from = all.begin() + (product * m + shared.place) * row;
        RowBytes& of = of_products[static_cast<std::size_t>(product)];
        of.insert(of.end(), from, from + row);
      }
    }
    return {of_products.begin(), of_products.end()};
  }

  /// Returns the different bits that the shared row has among some numbers of rows, by some
  /// candidates of each template.
  std::set<RowBytes> bits(std::string_view fixed, const std::vector<std::string>& sizes,
                          std::set<std::string>& templates) {
    std::set<RowBytes> all;
    for (const std::string& text : sizes) {
      const BoundProblem problem = bound(concat("matmul ", text, " ", fixed));
      const std::int64_t m = *problem.scope().find("m");
      const CandidateList list = enumerate(problem);
      std::vector<std::size_t> chosen;
      for (const KernelTemplate* made : catalog_->templates_of("matmul")) {
        const auto own = some(list, made->name, 3, static_cast<std::uint64_t>(m));
        chosen.insert(chosen.end(), own.begin(), own.end());
      }
      const std::vector<Build> kernels = compile(list, chosen);
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        const Candidate& candidate = list.candidates[chosen[i]];
        SCOPED_TRACE(concat(problem.text(), ": ", candidate.id()));
        const CompileResult& kernel = kernels[i].get();
        if (!kernel) continue;  // a candidate that does not compile is never served
        templates.insert(candidate.kernel_template->name);
        for (const std::int64_t place : {std::int64_t{0}, m / 2, m - 1}) {
          all.merge(launch(candidate, *kernel.value(), {place}));
        }
      }
    }
    return all;
  }
};

TEST_F(MatmulInvarianceGpuTest, ARowHasTheSameBitsAmongAnyOthers) {
  for (const char* fixed :
       {"n=1536 k=2056 dtype=bf16",
        "n=1536 k=2048 dtype=fp16 bias=column activation=silu residual=scaled scaling=alpha",
        "n=1536 k=1024 n_kv=256 dtype=bf16 split=qkv bias=column", "n=1003 k=517 dtype=bf16",
        "n=1003 k=520 dtype=bf16 bias=column residual=add", "n=1536 k=1024 dtype=bf16 b_layout=kn",
        "n=1024 k=2048 dtype=fp8_e4m3 out=bf16 scaling=alpha",
        "n=1024 k=2048 dtype=fp8_e4m3 out=bf16 accumulate=fast",
        "n=1024 k=1024 dtype=fp32 tf32=allow out=bf16",
        "n=768 k=1024 dtype=bf16 activation=gelu_tanh gate=stacked",
        "n=1024 k=1024 dtype=bf16 out=fp32"}) {
    SCOPED_TRACE(fixed);
    std::vector<std::string> sizes{"m=1", "m=7", "m=33", "m=300", "m=2100"};
    if (std::string_view(fixed).find("split") == std::string_view::npos) {
      sizes.emplace_back("m=50 batch=2");
    }
    std::set<std::string> templates;
    const auto equal = bits(concat(fixed, " invariant=batch"), sizes, templates);
    EXPECT_EQ(equal.size(), 1U);
    EXPECT_EQ(templates.size(), 1U);
  }
}

// So the test above can fail.
TEST_F(MatmulInvarianceGpuTest, WithoutItBitsDiffer) {
  std::set<std::string> templates;
  EXPECT_GT(bits("n=1536 k=4096 dtype=bf16", {"m=1", "m=40"}, templates).size(), 1U);
}

}  // namespace
}  // namespace kernwright
