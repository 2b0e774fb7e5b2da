// The headers of rows without a manifest, as a kernel of another operation would use them.

#include <gtest/gtest.h>

#include "compile/cubin.h"
#include "tests/compile/toolkit_world.h"

namespace kernwright {
namespace {

/// Rows of two kinds in one kernel, of other widths, types and ways: those of a are read straight
/// by eight warps each, those of b come through a ring to two groups, and others like those of b
/// through a ring of their own. y[row] is the product of the three sums.
constexpr const char* kProductOfSums = R"(
#include <kernwright/rows/feed.cuh>
#include <kernwright/rows/sums.cuh>

using namespace kernwright;

using A = rows::Row<bf16, rows::Sizes{.columns = 3001, .row_threads = 256, .kept = 2}>;
using B = rows::Row<float, rows::Sizes{.columns = 1000, .row_threads = 128, .block_rows = 2,
                                       .stages = 2, .kept = 2}>;
using C = rows::Row<float, rows::Sizes{.columns = 1000, .row_threads = 128, .block_rows = 2,
                                       .stages = 2, .kept = 2,
                                       .first_byte = (B::Feed<>::kSharedBytes + 127) / 128 * 128}>;
static_assert(A::kSkewed && A::kSteps == 2 && !B::kSkewed && B::kSteps == 2);

template <typename Row>
__device__ void multiply_by_sums(const typename Row::Element* x, float* y, long long row_count) {
  const typename Row::Element* const tensors[1] = {x};
  typename Row::Share share;
  typename Row::template Feed<> feed(tensors, row_count, share);
  do {
    typename Row::Vector kept[Row::kKept];
    feed.load(kept, 0);
    rows::VectorSums<typename Row::Element, false> sums;
#pragma unroll
    for (int step = 0; step < Row::kKept; ++step) sums.add(kept[step]);
    const float sum = feed.template reduce<Sum>(sums.elements());
    if (feed.active() && share.leads()) y[feed.row()] *= sum;
  } while (feed.next());
}

extern "C" __global__ void __launch_bounds__(256)
    product_of_sums(const bf16* a, const float* b, const float* c, float* y, long long rows_of_a,
                    long long row_count) {
  multiply_by_sums<A>(a, y, rows_of_a);
  multiply_by_sums<B>(b, y, row_count);
  multiply_by_sums<C>(c, y, row_count);
}
)";

class RowHeadersToolkitTest : public ToolkitWorld {
 protected:
  CompileResult compile(std::string source) const {
    CompileRequest request;
    request.name = "rows.cu";
    request.source = std::move(source);
    request.target = "sm_90a";
    for (const DeviceHeader& header : catalog_->headers()) {
      request.headers.emplace_back(header.name, header.text);
    }
    return pool_->submit(std::move(request)).get();
  }
};

TEST_F(RowHeadersToolkitTest, AKernelReadsRowsOfSeveralKinds) {
  const CompileResult result = compile(kProductOfSums);
  ASSERT_TRUE(result) << result.error().message;
  const CompiledKernel& kernel = **result;
  EXPECT_EQ(kernel.resources().spill_bytes(), 0);
  EXPECT_TRUE(kernel.warnings.empty()) << kernel.warnings.front();
  const auto counts = count_instructions(kernel.bits);
  ASSERT_TRUE(counts) << counts.error().message;
  ASSERT_EQ(counts->size(), 1U);
  const InstructionCounts& count = counts->front();
  EXPECT_GE(count.count("UBLKCP"), 2) << "a ring for each kind that has one";
  EXPECT_GE(count.count("LDG"), 2) << "both vectors of a row of a";
  EXPECT_EQ(count.count("LDL") + count.count("STL") + count.count("CALL"), 0);
}

TEST_F(RowHeadersToolkitTest, EachThatKnowsNoManifestCompilesAlone) {
  int compiled = 0;
  for (const DeviceHeader& header : catalog_->headers()) {
    if (!header.name.starts_with("kernwright/rows/")) continue;
    if (header.name.starts_with("kernwright/rows/manifest_")) continue;
    const CompileResult result = compile("#include <" + header.name + ">\n");
    EXPECT_TRUE(result) << header.name << ": " << result.error().message;
    ++compiled;
  }
  EXPECT_GE(compiled, 6);
}

}  // namespace
}  // namespace kernwright
