// The contract between the operation matmul and its templates.

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/catalog/unfused_form.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/valid_candidates.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using Sizes = std::vector<std::int64_t>;

BoundProblem bound(std::string_view text) {
  return catalog().bind(Problem::parse(text).value()).value();
}

TEST(MatmulContractTest, AGatedMatmulHasTwoMatricesInB) {
  const Operation& matmul = *catalog().operation("matmul").value();
  const auto problem = [&](std::string_view flags) {
    return matmul.normalize(
        Problem::parse(concat("matmul m=3 n=5 k=7 dtype=bf16 gate=stacked ", flags)).value());
  };
  const auto extents = [&](std::string_view flags) {
    std::vector<std::vector<std::int64_t>> all;
    const auto shapes = matmul.tensor_shapes(problem(flags).value());
    for (const TensorShape& shape : shapes.value()) {
      all.push_back(shape.extent);
    }
    return all;
  };
  using Extents = std::vector<std::vector<std::int64_t>>;
  EXPECT_EQ(extents("activation=silu"), (Extents{{3, 7}, {10, 7}, {3, 5}}));
  EXPECT_EQ(extents("b_layout=kn"), (Extents{{3, 7}, {7, 10}, {3, 5}}));
  const Scope scope = matmul.scope(problem("").value());
  EXPECT_EQ(matmul.flops.evaluate(scope).value(), 2 * 3 * 10 * 7);
  EXPECT_EQ(matmul.bytes.evaluate(scope).value(), 2 * (3 * 7 + 10 * 7 + 3 * 5));
  for (const char* added : {"bias=column", "residual=add", "residual=scaled"}) {
    EXPECT_THAT(problem(added), Fails(HasSubstr("nothing is added to it"))) << added;
  }
}

TEST(MatmulContractTest, AMatmulMayBeOneOfABatchWithinWiderMatrices) {
  const Operation& matmul = *catalog().operation("matmul").value();
  const auto named = [&](std::string_view text) {
    const auto problem = matmul.normalize(Problem::parse(concat("matmul ", text)).value());
    return problem ? problem->text() : problem.error().message;
  };
  EXPECT_EQ(named("m=3 n=5 k=7 batch=1 lda=7 ldb=7 ldd=5 dtype=bf16"),
            "matmul m=3 n=5 k=7 dtype=bf16");
  EXPECT_EQ(named("m=3 n=5 k=7 ldb=10 gate=stacked b_layout=kn dtype=bf16"),
            "matmul m=3 n=5 k=7 dtype=bf16 b_layout=kn gate=stacked");
  const std::string apart = "matmul m=3 n=5 k=7 batch=2 lda=8 ldb=9 ldd=6 dtype=bf16";
  EXPECT_EQ(named("ldd=6 ldb=9 lda=8 batch=2 m=3 n=5 k=7 dtype=bf16"), apart);
  EXPECT_EQ(named("m=3 n=5 k=7 lda=6 dtype=bf16"),
            "matmul: rule \"lda >= k\" failed: 6 < 7 (a row of a has k elements)");
  EXPECT_EQ(
      named("m=3 n=5 k=7 ldd=4 dtype=bf16"),
      "matmul: rule \"ldd >= (split == split_qkv ? n - 2 * n_kv : n)\" failed: 4 < 5 (a row of "
      "d has n elements, or of a split product those of q)");
  EXPECT_THAT(named("m=3 n=5 k=7 ldb=9 gate=stacked b_layout=kn dtype=bf16"), HasSubstr("9 < 10"));

  const Problem problem = *Problem::parse(apart);
  const auto shapes = matmul.tensor_shapes(problem).value();
  ASSERT_EQ(shapes.size(), 3U);
  EXPECT_EQ(shapes[0].extent, (Sizes{6, 7}));
  EXPECT_EQ(shapes[0].bytes(), 2 * (5 * 8 + 7));
  EXPECT_EQ(shapes[1].extent, (Sizes{10, 7}));
  EXPECT_EQ(shapes[1].bytes(), 2 * (9 * 9 + 7));
  EXPECT_EQ(shapes[2].extent, (Sizes{6, 5}));
  EXPECT_EQ(shapes[2].bytes(), 2 * (5 * 6 + 5));
  const Scope scope = matmul.scope(problem);
  EXPECT_EQ(matmul.flops.evaluate(scope).value(), 2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(matmul.bytes.evaluate(scope).value(), 2 * 2 * (3 * 7 + 5 * 7 + 3 * 5));
}

TEST(MatmulContractTest, AMatmulMayBeSplitIntoQKAndV) {
  const Operation& matmul = *catalog().operation("matmul").value();
  const auto named = [&](std::string_view text) {
    const auto problem = matmul.normalize(Problem::parse(concat("matmul m=3 ", text)).value());
    return problem ? problem->text() : problem.error().message;
  };
  // If n_kv is left out, it is the value for attention whose heads have k and v of their own.
  EXPECT_EQ(named("n=12 k=7 n_kv=4 ldd=4 dtype=bf16 split=qkv"),
            "matmul m=3 n=12 k=7 dtype=bf16 split=qkv");
  EXPECT_EQ(named("n=12 k=7 n_kv=12 dtype=bf16"), "matmul m=3 n=12 k=7 dtype=bf16");
  const std::string grouped = "matmul m=3 n=13 k=7 n_kv=2 dtype=bf16 split=qkv";
  EXPECT_EQ(named("n=13 k=7 n_kv=2 ldd=9 split=qkv dtype=bf16"), grouped);
  const auto refused = [&](std::string_view text, std::string_view figures, std::string_view why) {
    const std::string message = named(concat(text, " k=7 dtype=bf16"));
    EXPECT_THAT(message, HasSubstr(figures));
    EXPECT_THAT(message, HasSubstr(why));
  };
  refused("n=13 split=qkv", "26 >= 13", "n_kv may be left out where 3 divides n");
  refused("n=12 n_kv=6 split=qkv", "12 >= 12", "q has the rest of n");
  refused("n=12 n_kv=4", "4 != 12", "only a product that is split");
  refused("n=12 ldd=6 split=qkv", "6 != 4", "rows of q, k and v are contiguous");
  refused("n=12 ldd=3 split=qkv", "3 < 4", "those of q");
  refused("n=12 batch=2 split=qkv", "2 != 1", "one product");
  for (const char* more : {"activation=silu", "gate=stacked", "residual=add"}) {
    refused(concat("n=12 split=qkv ", more), "failed", "nothing but a bias is added");
  }

  const auto problem = *Problem::parse(concat(grouped, " bias=column"));
  const auto shapes = matmul.tensor_shapes(problem).value();
  ASSERT_EQ(shapes.size(), 6U);
  EXPECT_EQ(shapes[1].extent, (Sizes{13, 7}));
  EXPECT_EQ(shapes[2].extent, (Sizes{13}));
  EXPECT_EQ(shapes[3].extent, (Sizes{3, 9}));
  EXPECT_EQ(shapes[3].row_pitch(), 9);
  EXPECT_EQ(shapes[4].extent, (Sizes{3, 2}));
  EXPECT_EQ(shapes[5].extent, (Sizes{3, 2}));
  const Scope scope = matmul.scope(problem);
  EXPECT_EQ(matmul.flops.evaluate(scope).value(), 2 * 3 * 13 * 7);
  EXPECT_EQ(matmul.bytes.evaluate(scope).value(), 2 * (3 * 7 + 13 * 7 + 3 * 13 + 13));
  for (const char* flags : {"", " bias=column", " bias=column out=fp32"}) {
    EXPECT_THAT(unfused_form(catalog(), bound(concat(grouped, flags))),
                Fails(HasSubstr("has no unfused form")))
        << flags;
  }
}

TEST(MatmulContractTest, AMatmulMayNormaliseItsFewRows) {
  const Operation& matmul = *catalog().operation("matmul").value();
  const auto refused = [&](std::string_view text, std::string_view why) {
    EXPECT_THAT(matmul.normalize(Problem::parse(concat("matmul norm=rms k=64 ", text)).value()),
                Fails(HasSubstr(why)))
        << text;
  };
  refused("m=4 n=64 dtype=fp16", "may leave the range");
  refused("m=17 n=64 dtype=bf16", "a norm of many rows");
  refused("m=4 n=3 dtype=bf16", "the few of a product");
  refused("m=4 n=64 dtype=bf16 b_layout=kn", "lie as the rows of b do");
  refused("m=4 n=64 dtype=bf16 batch=2", "belong to one product");

  const BoundProblem problem = bound("matmul m=3 n=5 k=7 dtype=bf16 norm=rms residual=scaled");
  const std::vector<TensorShape>& shapes = problem.shapes();
  ASSERT_EQ(shapes.size(), 5U);
  EXPECT_EQ(shapes[2].name, "norm_weight");
  EXPECT_EQ(shapes[2].extent, (Sizes{7}));
  const auto scalars = must(problem.scalars());
  ASSERT_EQ(scalars.size(), 2U);
  EXPECT_EQ(scalars.back().name, "eps");
  EXPECT_EQ(scalars.back().default_value, 1e-6);
  EXPECT_EQ(matmul.flops.evaluate(problem.scope()).value(), 2 * 3 * 5 * 7 + 3 * 3 * 7);
  EXPECT_EQ(matmul.bytes.evaluate(problem.scope()).value(), 2 * (3 * 7 + 5 * 7 + 7 + 2 * 3 * 5));
  for (const char* more : {"activation=silu gate=stacked", "bias=column activation=gelu_erf",
                           "residual=add out=fp32", "out=fp8_e4m3"}) {
    EXPECT_TRUE(
        unfused_form(catalog(), bound(concat("matmul m=3 n=5 k=7 dtype=bf16 norm=rms ", more))))
        << more;
  }
}

TEST(MatmulContractTest, BlocksOfFp8OperandsMayHaveScales) {
  const Operation& matmul = *catalog().operation("matmul").value();
  const auto refused = [&](std::string_view text, std::string_view why) {
    EXPECT_THAT(matmul.normalize(Problem::parse(concat("matmul m=3 n=200 k=300 ", text)).value()),
                Fails(HasSubstr(why)))
        << text;
  };
  refused("dtype=bf16 scaling=block", "each 128 products of fp8");
  refused("dtype=fp8_e4m3 scaling=block accumulate=fast", "each 128 products of fp8");
  refused("dtype=fp8_e4m3 scaling=block lds=2", "one scale for each 128 of k");
  refused("dtype=fp8_e4m3 lds=4", "only a product that is scaled by blocks");

  const std::string scaled = "matmul m=3 n=200 k=300 batch=2 lds=4 dtype=fp8_e4m3 scaling=block";
  const std::vector<TensorShape> shapes = bound(concat(scaled, " out=bf16")).shapes();
  ASSERT_EQ(shapes.size(), 5U);
  EXPECT_EQ(shapes[2].name, "scale_a");
  EXPECT_EQ(shapes[2].dtype, DType::fp32);
  EXPECT_EQ(shapes[2].extent, (Sizes{2 * 3, 3}));
  EXPECT_EQ(shapes[3].name, "scale_b");
  EXPECT_EQ(shapes[3].extent, (Sizes{2 * 2, 3}));
  EXPECT_EQ(shapes[3].row_pitch(), 4);
  EXPECT_EQ(bound(concat(scaled, " gate=stacked")).shapes()[3].extent, (Sizes{2 * 4, 3}));
  EXPECT_EQ(matmul.bytes.evaluate(bound(concat(scaled, " out=bf16")).scope()).value(),
            2 * (203 * 300 + 4 * 3 * (3 + 2) + 2 * 3 * 200));
  EXPECT_TRUE(unfused_form(catalog(), bound(concat(scaled, " out=bf16 bias=column"))));
  EXPECT_FALSE(unfused_form(catalog(), bound(concat(scaled, " out=bf16"))));
}

TEST(MatmulContractTest, RowsOf8BitOperandsMayHaveScales) {
  const Operation& matmul = *catalog().operation("matmul").value();
  const auto refused = [&](std::string_view text, std::string_view why) {
    EXPECT_THAT(matmul.normalize(Problem::parse(concat("matmul m=3 n=200 ", text)).value()),
                Fails(HasSubstr(why)))
        << text;
  };
  refused("k=300 dtype=bf16 scaling=row", "quantized by rows");
  refused("k=300 dtype=int8 scaling=row", "out must be given");
  refused("k=300 dtype=int8 out=bf16 scaling=block", "each 128 products of fp8");
  refused("k=300 dtype=int8 out=bf16 accumulate=fast", "only sums of fp8 products");
  refused("k=300 dtype=int8 out=bf16 b_layout=kn", "only along k");
  refused("k=131072 dtype=int8 out=bf16 scaling=row", "the range of int32");
  refused("k=300 dtype=fp8_e4m3 scaling=row lds=4", "only a product that is scaled by blocks");

  for (const char* dtype : {"int8", "fp8_e4m3"}) {
    const std::string scaled =
        concat("matmul m=3 n=200 k=300 batch=2 dtype=", dtype, " out=bf16 scaling=row");
    const BoundProblem problem = bound(scaled);
    const std::vector<TensorShape>& shapes = problem.shapes();
    ASSERT_EQ(shapes.size(), 5U);
    EXPECT_EQ(shapes[2].name, "scale_a");
    EXPECT_EQ(shapes[2].dtype, DType::fp32);
    EXPECT_EQ(shapes[2].extent, (Sizes{2, 3}));
    EXPECT_EQ(shapes[3].name, "scale_b");
    EXPECT_EQ(shapes[3].extent, (Sizes{2, 200}));
    EXPECT_EQ(shapes[3].row_pitch(), 200);
    EXPECT_TRUE(must(problem.scalars()).empty());
    EXPECT_EQ(bound(concat(scaled, " gate=stacked")).shapes()[3].extent, (Sizes{2, 400}));
    EXPECT_EQ(matmul.bytes.evaluate(problem.scope()).value(),
              2 * (203 * 300 + 4 * 203 + 2 * 3 * 200));
    EXPECT_TRUE(unfused_form(catalog(), bound(concat(scaled, " bias=column"))));
    EXPECT_TRUE(unfused_form(catalog(), bound(concat(scaled, " activation=silu gate=stacked"))));
    EXPECT_FALSE(unfused_form(catalog(), problem));
  }
}

// wgmma of int8 knows 8 columns and multiples of 16.
TEST(MatmulContractTest, TilesOfInt8HaveWidthsOfItsInstructions) {
  const auto widths = [](const char* name, const char* parameter, std::string_view text) {
    const KernelTemplate& made = *catalog().kernel_template(name).value();
    const BoundProblem problem = bound(text);
    std::set<std::int64_t> found;
    for (const Candidate& candidate : valid_candidates(made, problem, h200())) {
      found.insert(candidate.configuration.at(parameter));
    }
    for (const std::int64_t width : found) {
      EXPECT_TRUE(width == 8 || width % (width > 256 ? 32 : 16) == 0) << name << ' ' << width;
    }
    return found;
  };
  const auto of_wave = widths("matmul/persistent_wave", "BN",
                              "matmul m=4096 n=6144 k=4096 dtype=int8 out=bf16 scaling=row");
  for (const std::int64_t width : {64, 144, 256, 288}) EXPECT_TRUE(of_wave.contains(width));
  EXPECT_TRUE(widths("matmul/skinny", "BM", "matmul m=200 n=4096 k=4096 dtype=int8 out=bf16")
                  .contains(208));
  EXPECT_TRUE(
      widths("matmul/skinny", "BM", "matmul m=5 n=4096 k=4096 dtype=int8 out=bf16").contains(8));
}

// No tile meets more than two blocks of rows of b, for which its columns have a factor each.
TEST(MatmulContractTest, ATileMeetsAtMostTwoBlocksOfScales) {
  const KernelTemplate& made = *catalog().kernel_template("matmul/persistent_wave").value();
  const BoundProblem problem =
      bound("matmul m=4096 n=7168 k=2048 dtype=fp8_e4m3 out=bf16 scaling=block");
  std::set<std::int64_t> widths;
  for (const Candidate& candidate : valid_candidates(made, problem, h200())) {
    const std::int64_t width = candidate.configuration.at("BN");
    for (std::int64_t first = 0; first < 128 * width; first += width) {
      EXPECT_LE((first + width - 1) / 128 - first / 128, 1) << width << " from " << first;
    }
    widths.insert(width);
  }
  for (const std::int64_t width : {64, 112, 128, 160, 192}) EXPECT_TRUE(widths.contains(width));
}

// The blocks that share a tile must run at the same time, in one cluster, and have room for the
// sums of the others beside the staged tile.
TEST(MatmulContractTest, PartsOfKAreMultipliedAtOnce) {
  const KernelTemplate& made = *catalog().kernel_template("matmul/persistent_wave").value();
  const auto splits = [&](std::string_view text) {
    std::set<std::int64_t> found;
    const BoundProblem problem = bound(text);
    for (const Candidate& candidate : valid_candidates(made, problem, h200())) {
      const Configuration& values = candidate.configuration;
      const std::int64_t split = values.at("SPLIT");
      found.insert(split);
      if (split == 1) continue;
      const LaunchPlan& launch = candidate.plan.launches.back();
      const std::int64_t cluster = launch.cluster[0], blocks = launch.grid[0];
      EXPECT_EQ(cluster, values.at("CM") * values.at("CN") * split) << candidate.id();
      EXPECT_LE(blocks, h200().sms_for_clusters(cluster)) << candidate.id();
      const std::int64_t tile = values.at("BM") * values.at("BN");
      EXPECT_LE(2 * tile + 4 * tile * (split - 1) / split,
                values.at("STAGES") * *candidate.scope.find("STAGE_BYTES"))
          << candidate.id();
    }
    return found;
  };
  using Splits = std::set<std::int64_t>;
  EXPECT_EQ(splits("matmul m=300 n=424 k=4096 dtype=bf16"), (Splits{1, 2, 4}));
  EXPECT_EQ(splits("matmul m=300 n=424 k=520 dtype=bf16"), (Splits{1, 2})) << "9 steps";
  EXPECT_EQ(splits("matmul m=300 n=424 k=4096 dtype=bf16 bias=column"), (Splits{1}));
  EXPECT_EQ(splits("matmul m=4096 n=6144 k=4096 dtype=bf16"), (Splits{1}));
}

// TMA is used only if no box has columns of two tensors.
TEST(MatmulContractTest, BoxesOfASplitMatmulAreOneTensors) {
  const KernelTemplate& made = *catalog().kernel_template("matmul/persistent_wave").value();
  const auto aligned_widths = [&](std::string_view sizes) {
    const BoundProblem problem = bound(concat("matmul m=4096 k=512 split=qkv ", sizes));
    std::map<std::int64_t, std::set<std::int64_t>> of;
    for (const Candidate& candidate : valid_candidates(made, problem, h200())) {
      of[*candidate.scope.find("ALIGNED_D")].insert(candidate.configuration.at("BN"));
    }
    return of;
  };
  using Widths = std::set<std::int64_t>;
  const Widths whole{64, 128, 192, 256};
  auto widths = aligned_widths("n=6144 n_kv=1024 dtype=bf16");
  EXPECT_EQ(widths[1], whole);
  EXPECT_EQ(widths[0], (Widths{112, 144, 152, 160, 176, 184, 208, 224, 272, 288, 304}));
  widths = aligned_widths("n=5376 n_kv=672 dtype=bf16");  // of 112 columns, and of 224
  EXPECT_EQ(widths[1], (Widths{112, 224}));
  EXPECT_TRUE(widths[0].contains(128));
  widths = aligned_widths("n=6144 n_kv=32 dtype=bf16 out=fp32");  // boxes of 32 columns
  EXPECT_TRUE(widths[1].contains(160));
  EXPECT_TRUE(aligned_widths("n=6141 n_kv=1023 dtype=bf16")[1].empty());
}

TEST(MatmulContractTest, AnUnfusedFormReadsWhatLiesApartAndWritesWhatDoesNot) {
  const auto form = [](std::string_view text) { return unfused_form(catalog(), bound(text)); };
  const auto batch =
      must(form("matmul m=3 n=5 k=7 batch=2 lda=8 dtype=bf16 bias=column activation=silu"));
  EXPECT_EQ(batch.kernels[0].problem.text(), "matmul m=3 n=5 k=7 batch=2 lda=8 dtype=bf16");
  EXPECT_EQ(batch.kernels[1].problem.text(),
            "bias_activation rows=6 columns=5 dtype=bf16 activation=silu");
  EXPECT_THAT(form("matmul m=3 n=5 k=7 ldd=6 dtype=bf16 activation=silu"),
              Fails(HasSubstr("but those of d are of 5, 6 apart")));
}

// The matmuls that each template takes, besides contiguous rows.
TEST(MatmulContractTest, MatmulTemplatesTakeWhatTheyCanAddress) {
  const auto takers = [](std::string_view text) {
    const BoundProblem problem = bound(text);
    std::string names;
    for (const KernelTemplate* made : catalog().templates_of("matmul")) {
      const bool valid = !valid_candidates(*made, problem, h200(), 1).empty();
      if (valid) names += concat(names.empty() ? "" : " ", made->name.substr(7));
    }
    return names;
  };
  EXPECT_EQ(takers("matmul m=16 n=512 k=512 batch=3 lda=1536 ldb=520 ldd=1024 dtype=bf16"),
            "direct persistent_wave skinny tiled");
  EXPECT_EQ(takers("matmul m=13 n=511 k=515 batch=3 lda=1537 ldb=529 ldd=1025 dtype=bf16"),
            "direct persistent_wave skinny tiled");
  EXPECT_EQ(takers("matmul m=13 n=511 k=512 n_kv=101 dtype=bf16 bias=column split=qkv"),
            "direct skinny stream tiled");
  EXPECT_EQ(takers("matmul m=13 n=511 k=512 n_kv=101 dtype=bf16 split=qkv"),
            "direct persistent_wave skinny stream tiled");
  EXPECT_EQ(takers("matmul m=16 n=512 k=512 lda=1536 ldb=520 dtype=bf16 norm=rms"),
            "direct stream");
  EXPECT_EQ(takers("matmul m=16 n=512 k=512 lda=1537 dtype=bf16 norm=rms"), "direct");
  EXPECT_EQ(takers("matmul m=300 n=512 k=512 batch=3 ldb=1024 dtype=bf16 b_layout=kn"),
            "persistent_wave skinny tiled");
  EXPECT_EQ(takers("matmul m=300 n=512 k=512 ldb=1023 dtype=bf16 b_layout=kn"), "tiled");
  EXPECT_EQ(takers("matmul m=300 n=512 k=500 batch=3 dtype=bf16 b_layout=kn"), "tiled");
  EXPECT_EQ(takers("matmul m=16 n=512 k=512 dtype=fp32 tf32=allow"),
            "persistent_wave skinny tiled");
  EXPECT_EQ(takers("matmul m=301 n=513 k=515 batch=3 dtype=fp32 tf32=allow out=bf16"),
            "persistent_wave skinny tiled");
  EXPECT_EQ(takers("matmul m=300 n=513 k=512 dtype=bf16 out=fp32"), "persistent_wave skinny tiled");
  EXPECT_EQ(takers("matmul m=16 n=512 k=512 dtype=int8 out=bf16 scaling=row"),
            "persistent_wave skinny tiled");
  EXPECT_EQ(takers("matmul m=16 n=511 k=515 dtype=fp8_e4m3 out=bf16 scaling=row"), "skinny tiled");
}

TEST(MatmulContractTest, Fp32IsMultipliedWhereTf32IsAllowed) {
  const Operation& matmul = *catalog().operation("matmul").value();
  const auto text = [&](std::string_view flags) {
    const auto problem =
        matmul.normalize(Problem::parse(concat("matmul m=4096 n=512 k=64 ", flags)).value());
    return problem ? problem->text() : problem.error().message;
  };
  EXPECT_EQ(text("dtype=bf16 tf32=refuse"), "matmul m=4096 n=512 k=64 dtype=bf16");
  EXPECT_EQ(text("tf32=allow dtype=fp32"), "matmul m=4096 n=512 k=64 dtype=fp32 tf32=allow");
  EXPECT_THAT(text("dtype=fp32"), HasSubstr("which a problem has to allow"));
  EXPECT_THAT(text("dtype=bf16 tf32=allow"), HasSubstr("only fp32"));
  EXPECT_THAT(text("dtype=fp32 tf32=allow b_layout=kn"), HasSubstr("only along k"));
}

// Boxes of 128 bytes whatever the elements, and steps of as many.
TEST(MatmulContractTest, BoxesOfMatmulsAreSpansOfTheSwizzle) {
  for (const char* name : {"matmul/persistent_wave", "matmul/skinny"}) {
    const KernelTemplate& made = *catalog().kernel_template(name).value();
    for (const char* types : {"dtype=bf16", "dtype=bf16 out=fp32", "dtype=fp8_e4m3 out=bf16",
                              "dtype=int8 out=bf16 scaling=row", "dtype=fp32 tf32=allow",
                              "dtype=fp32 tf32=allow out=bf16"}) {
      const BoundProblem problem = bound(concat("matmul m=400 n=512 k=512 residual=add ", types));
      const std::vector<Candidate> candidates = valid_candidates(made, problem, h200());
      EXPECT_FALSE(candidates.empty()) << name << ' ' << types;
      for (const Candidate& candidate : candidates) {
        for (const TensorMapPlan& map : candidate.plan.tensor_maps) {
          EXPECT_EQ(map.box[0] * bytes_of(1, map.dtype), 128) << candidate.id() << ' ' << map.name;
          EXPECT_EQ(map.swizzle, 128) << candidate.id() << ' ' << map.name;
        }
        EXPECT_EQ(candidate.scope.find("DEPTH").value() * bytes_of(1, problem.dtype("dtype")),
                  candidate.configuration.at("BK") * 2);
      }
    }
  }
}

TEST(MatmulContractTest, MatmulTemplatesCopyTheOperandAloneThatTmaCannotAddress) {
  const auto copied = [](const char* name, std::string_view pitches) {
    const KernelTemplate& made = *catalog().kernel_template(name).value();
    const BoundProblem problem = bound(concat("matmul m=200 n=512 k=512 dtype=bf16", pitches));
    const std::vector<Candidate> first = valid_candidates(made, problem, h200(), 1);
    if (first.empty()) return std::string("no candidate");
    const ExecutionPlan& plan = first.front().plan;
    std::string operands;
    for (const WorkspacePlan& workspace : plan.workspaces) {
      if (workspace.bytes > 0) operands += workspace.name;
    }
    EXPECT_EQ(plan.launches.size(), operands.empty() ? 1U : 2U);
    return operands;
  };
  for (const char* name : {"matmul/persistent_wave", "matmul/skinny"}) {
    EXPECT_EQ(copied(name, " lda=1024 ldb=520"), "");
    EXPECT_EQ(copied(name, " lda=1023 ldb=520"), "padded_a");
    EXPECT_EQ(copied(name, " ldb=513"), "padded_b");
    EXPECT_EQ(copied(name, " lda=1023 ldb=513"), "padded_apadded_b");
  }
}

}  // namespace
}  // namespace kernwright
