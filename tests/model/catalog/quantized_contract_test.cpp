// The contracts of the operations of quantized weights.

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/candidate/candidate.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using testing::HasSubstr;
using Extent = std::vector<std::int64_t>;

class QuantizedContractTest : public ::testing::Test {
 protected:
  static Result<BoundProblem> bind(std::string_view text) {
    return catalog().bind(Problem::parse(text).value());
  }
  static std::map<std::string, Extent> extents(std::string_view text) {
    std::map<std::string, Extent> all;
    const BoundProblem bound = bind(text).value();
    for (const TensorShape& shape : bound.shapes()) all[shape.name] = shape.extent;
    return all;
  }
  /// Returns whether the template takes a problem.
  static bool takes(std::string_view name, std::string_view text) {
    const BoundProblem problem = bind(text).value();
    return applies(**catalog().kernel_template(name), problem, h200()).has_value();
  }
};

TEST_F(QuantizedContractTest, PackedWeightsAreWholeBlocks) {
  const auto plain = extents("dequantize_weights n=65 k=72 group=32 dtype=bf16 zero=code");
  EXPECT_EQ(plain.at("b"), (Extent{2, 2 * 2048}));
  EXPECT_EQ(plain.at("b_scale"), (Extent{2, 3 * 64}));
  EXPECT_EQ(plain.at("b_zero"), (Extent{2, 3 * 64}));
  const auto bytes = extents("dequantize_weights n=64 k=64 dtype=bf16 weights=fp8_e4m3");
  EXPECT_EQ(bytes.at("b"), (Extent{1, 4096}));
  EXPECT_EQ(bytes.at("b_scale"), (Extent{1, 64}));
}

/// 8 gates and the 8 rows that they open are 16 rows of a block.
TEST_F(QuantizedContractTest, GatesAreFilledUpToEights) {
  for (const auto& [n, blocks] : {std::pair{8, 1}, {32, 1}, {33, 2}, {64, 2}}) {
    const std::string text =
        "quantized_matmul m=1 k=64 dtype=bf16 gate=stacked n=" + std::to_string(n);
    EXPECT_EQ(extents(text).at("b"), (Extent{blocks, 2048})) << n;
    EXPECT_EQ(extents(text).at("d"), (Extent{1, n})) << n;
  }
}

TEST_F(QuantizedContractTest, RowsLieAsInACheckpoint) {
  const auto half = extents("quantized_matmul m=3 n=5 k=72 group=32 dtype=fp16 layout=rows");
  EXPECT_EQ(half.at("b"), (Extent{5, 36}));
  EXPECT_EQ(half.at("b_scale"), (Extent{5, 3}));
  EXPECT_EQ(extents("quantized_matmul m=3 n=5 k=72 dtype=fp16 weights=int8 layout=rows").at("b"),
            (Extent{5, 72}));
}

/// A slice that begins 8 columns ahead of a group's end has one group more.
TEST_F(QuantizedContractTest, TheFirstGroupMayBeShorter) {
  EXPECT_EQ(extents("quantized_matmul m=1 n=64 k=232 group=16 dtype=bf16").at("b_scale"),
            (Extent{1, 15 * 64}));
  EXPECT_EQ(extents("quantized_matmul m=1 n=64 k=232 group=16 first=8 dtype=bf16").at("b_scale"),
            (Extent{1, 15 * 64}));
  EXPECT_EQ(extents("quantized_matmul m=1 n=64 k=240 group=16 first=8 dtype=bf16").at("b_scale"),
            (Extent{1, 16 * 64}));
}

TEST_F(QuantizedContractTest, CheckpointsHaveTheirOwnLayouts) {
  const auto gptq =
      extents("pack_weights n=64 k=256 group=128 scale=fp16 source=gptq zero=less_one");
  EXPECT_EQ(gptq.at("b"), (Extent{32, 256}));
  EXPECT_EQ(gptq.at("b_scale"), (Extent{2, 64}));
  EXPECT_EQ(gptq.at("b_zero"), (Extent{2, 32}));
  const auto awq = extents("pack_weights n=64 k=256 group=128 scale=fp16 source=awq zero=code");
  EXPECT_EQ(awq.at("b"), (Extent{256, 32}));
  EXPECT_EQ(awq.at("packed"), (Extent{1, 4 * 2048}));
  EXPECT_EQ(awq.at("packed_zero"), (Extent{1, 2 * 64}));
  const auto experts = extents(
      "pack_weights n=40 k=64 group=32 experts=3 scale=uint8 weights=mxfp4 gate=interleaved");
  EXPECT_EQ(experts.at("b"), (Extent{3 * 80, 32}));
  EXPECT_EQ(experts.at("packed"), (Extent{3 * 2, 2048}));
  EXPECT_EQ(experts.at("packed_scale"), (Extent{3 * 2, 2 * 64}));
}

TEST_F(QuantizedContractTest, AProblemThatMeansNothingIsRefusedWithTheReason) {
  for (const auto& [problem, why] : std::vector<std::pair<std::string, std::string>>{
           {"quantized_matmul m=1 n=8 k=12 dtype=bf16", "whole vectors"},
           {"quantized_matmul m=1 n=8 k=64 group=24 dtype=bf16", "16 of k"},
           {"quantized_matmul m=1 n=8 k=64 group=32 first=40 dtype=bf16", "first group"},
           {"quantized_matmul m=1 n=8 k=64 group=32 dtype=bf16 weights=mxfp4", "power of two"},
           {"quantized_matmul m=1 n=8 k=64 dtype=bf16 weights=fp8_e4m3 zero=code", "zero points"},
           {"dequantize_weights n=8 k=64 dtype=bf16 scale=uint8", "only mxfp4"},
           {"grouped_quantized_matmul experts=4 rows=9 room=2 n=8 k=64 dtype=bf16 layout=masked",
            "room for so many"},
           {"grouped_quantized_matmul experts=4 rows=9 n=8 k=64 dtype=bf16 tokens=3",
            "counted by themselves"},
           {"grouped_quantized_matmul experts=4 rows=9 n=8 k=64 dtype=bf16 activation=swiglu_oai",
            "takes a gate"},
           {"grouped_quantized_matmul experts=1025 rows=9 n=8 k=64 dtype=bf16", "all experts"},
           {"pack_weights n=9 k=64 scale=fp16 source=awq", "eight rows"},
           {"pack_weights n=8 k=64 scale=fp16 source=awq weights=int8", "4 bits"}}) {
    EXPECT_THAT(bind(problem), Fails(ErrorCode::invalid_argument, HasSubstr(why))) << problem;
  }
}

/// Scales lie as the scales of a in a product.
TEST_F(QuantizedContractTest, ResultsThatAreQuantizedHaveScales) {
  for (const std::string operation : {"rmsnorm", "layernorm", "gated_activation"}) {
    const std::string text = operation + " rows=7 columns=300 dtype=bf16 out=fp8_e4m3 quantize=";
    EXPECT_EQ(extents(text + "row").at("y_scale"), (Extent{1, 7})) << operation;
    EXPECT_EQ(extents(text + "block").at("y_scale"), (Extent{3, 7})) << operation;
    EXPECT_EQ(extents(text + "tensor").at("given_scale"), (Extent{1})) << operation;
    EXPECT_FALSE(extents(text + "tensor").contains("y_scale")) << operation;
    EXPECT_THAT(bind(operation + " rows=7 columns=300 dtype=bf16 quantize=row"),
                Fails(ErrorCode::invalid_argument, HasSubstr("8 bits")))
        << operation;
  }
  EXPECT_THAT(bind("layernorm rows=7 columns=300 dtype=bf16 out=fp32"),
              Fails(ErrorCode::invalid_argument, HasSubstr("only a quantized result")));
  EXPECT_THAT(bind("gated_activation rows=7 columns=300 dtype=bf16 out=int8"),
              Fails(ErrorCode::invalid_argument, HasSubstr("has scales")));
}

TEST_F(QuantizedContractTest, FewRowsOfPackedWeightsStream) {
  const std::string rest = " n=6144 k=4096 group=128 dtype=bf16";
  EXPECT_TRUE(takes("quantized_matmul/stream", "quantized_matmul m=32" + rest));
  EXPECT_FALSE(takes("quantized_matmul/stream", "quantized_matmul m=33" + rest));
  EXPECT_FALSE(takes("quantized_matmul/stream", "quantized_matmul m=1 layout=rows" + rest));
  EXPECT_FALSE(takes("quantized_matmul/stream", "quantized_matmul m=1 first=8" + rest));
  EXPECT_TRUE(takes("quantized_matmul/tiled", "quantized_matmul m=1 first=8 layout=rows" + rest));
}

TEST_F(QuantizedContractTest, PackedWeightsGoToWgmma) {
  const std::string name = "quantized_matmul/wave";
  const std::string rest = " n=6144 k=4096 group=128 dtype=bf16";
  EXPECT_TRUE(takes(name, "quantized_matmul m=1" + rest));
  EXPECT_TRUE(takes(name, "quantized_matmul m=8192 first=16 zero=code" + rest));
  EXPECT_FALSE(takes(name, "quantized_matmul m=64 layout=rows" + rest));
  EXPECT_FALSE(takes(name, "quantized_matmul m=64 first=8" + rest));
}

TEST_F(QuantizedContractTest, ExpertsHaveWholeRowsOfBlocks) {
  const auto gated = extents(
      "grouped_quantized_matmul experts=5 rows=12 n=33 k=128 group=32 dtype=bf16 gate=stacked "
      "bias=expert a_rows=indexed tokens=4 scale_rows=given");
  EXPECT_EQ(gated.at("a"), (Extent{4, 128}));
  EXPECT_EQ(gated.at("b"), (Extent{5 * 2, 2 * 2048}));
  EXPECT_EQ(gated.at("b_scale"), (Extent{5 * 2, 4 * 64}));
  EXPECT_EQ(gated.at("bias"), (Extent{5, 66}));
  EXPECT_EQ(gated.at("row_of"), (Extent{12}));
  EXPECT_EQ(gated.at("row_scale"), (Extent{12}));
  EXPECT_EQ(gated.at("d"), (Extent{12, 33}));
  const auto masked = extents(
      "grouped_quantized_matmul experts=5 rows=12 room=8 n=64 k=128 dtype=bf16 layout=masked");
  EXPECT_EQ(masked.at("a"), (Extent{40, 128}));
  EXPECT_EQ(masked.at("counts"), (Extent{5}));
  EXPECT_EQ(masked.at("d"), (Extent{40, 64}));
}

TEST_F(QuantizedContractTest, ExpertsWithFewRowsStream) {
  const std::string name = "grouped_quantized_matmul/stream";
  const std::string of = "grouped_quantized_matmul experts=8 n=64 group=32 dtype=bf16 ";
  EXPECT_TRUE(takes(name, of + "rows=512 k=2880"));
  EXPECT_FALSE(takes(name, of + "rows=513 k=2880"));
  EXPECT_FALSE(takes(name, of + "rows=8 k=2888"));
  EXPECT_FALSE(takes(name, of + "rows=8 k=2880 first=8"));
  EXPECT_TRUE(takes("grouped_quantized_matmul/tiled", of + "rows=8 k=2888 first=8"));
}

}  // namespace
}  // namespace kernwright
