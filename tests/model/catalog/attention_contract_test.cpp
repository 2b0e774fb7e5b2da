// The contract of the operation attention.

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/catalog/unfused_form.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

class AttentionContractTest : public ::testing::Test {
 protected:
  const Operation& attention_ = *catalog().operation("attention").value();

  /// Returns a problem with few sizes unless said: two sequences, four heads and two for k and v;
  /// bf16 unless `more` has a dtype.
  Result<BoundProblem> named(std::string_view more,
                             std::string_view sizes = "q_len=3 kv_len=5") const {
    const bool has_dtype = concat(" ", more).find(" dtype=") != std::string::npos;
    return BoundProblem::bind(
        attention_, Problem::parse(concat("attention batch=2 heads=4 kv_heads=2 head_dim=16 ",
                                          sizes, has_dtype ? " " : " dtype=bf16 ", more))
                        .value());
  }
  std::string refusal(std::string_view more, std::string_view sizes = "q_len=3 kv_len=5") const {
    const Result<BoundProblem> problem = named(more, sizes);
    return problem ? problem->text() : problem.error().message;
  }
  std::map<std::string, TensorShape> shapes(std::string_view more) const {
    const auto problem = must(named(more));
    std::map<std::string, TensorShape> by_name;
    for (const TensorShape& shape : problem.shapes()) by_name.emplace(shape.name, shape);
    return by_name;
  }
  std::int64_t value(const Expression& expression, std::string_view more,
                     std::string_view sizes) const {
    return expression.evaluate(named(more, sizes).value().scope()).value();
  }
};

using Sizes = std::vector<std::int64_t>;

TEST_F(AttentionContractTest, ALayoutIsAnOrderOfTheDims) {
  auto dense = shapes("");
  EXPECT_EQ(dense.at("q").extent, (Sizes{2, 3, 4, 16}));
  EXPECT_EQ(dense.at("k").extent, (Sizes{2, 5, 2, 16}));
  EXPECT_EQ(dense.at("o").extent, (Sizes{2, 3, 4, 16}));
  EXPECT_TRUE(dense.at("q").pitches.empty());
  EXPECT_EQ(dense.size(), 4U);
  dense = shapes("layout=bhsd head_dim_v=8 lse=natural");
  EXPECT_EQ(dense.at("q").extent, (Sizes{2, 4, 3, 16}));
  EXPECT_EQ(dense.at("v").extent, (Sizes{2, 2, 5, 8}));
  EXPECT_EQ(dense.at("o").extent, (Sizes{2, 4, 3, 8}));
  EXPECT_EQ(dense.at("lse").extent, (Sizes{2, 4, 3}));
  for (const auto& [name, shape] : dense) EXPECT_TRUE(shape.pitches.empty()) << name;
}

TEST_F(AttentionContractTest, TokensMayLieInWiderRows) {
  // q, k and v of one product: rows of (4 + 2 * 2) * 16 elements.
  const auto packed = shapes("ldq=128 ldk=128 ldv=128");
  EXPECT_EQ(packed.at("q").pitches, (Sizes{384, 128, 16}));
  EXPECT_EQ(packed.at("k").pitches, (Sizes{640, 128, 16}));
  EXPECT_EQ(packed.at("q").bytes(), 2 * (5 * 128 + 64));
  EXPECT_TRUE(packed.at("o").pitches.empty());
  const auto heads = shapes("layout=bhsd ldq=24");
  EXPECT_EQ(heads.at("q").pitches, (Sizes{288, 72, 24}));
  EXPECT_THAT(refusal("ldq=56"), HasSubstr("56 < 64"));
  EXPECT_THAT(refusal("ldq=68"), HasSubstr("whole vectors of 16 bytes"));
}

TEST_F(AttentionContractTest, ARaggedBatchIsOneRowOfTokens) {
  const auto ragged = shapes("lengths=ragged q_total=4 kv_total=9 lse=base2");
  EXPECT_EQ(ragged.at("q").extent, (Sizes{1, 4, 4, 16}));
  EXPECT_EQ(ragged.at("k").extent, (Sizes{1, 9, 2, 16}));
  EXPECT_EQ(ragged.at("lse").extent, (Sizes{1, 4, 4}));
  EXPECT_EQ(ragged.at("q_offsets").extent, Sizes{3});
  EXPECT_EQ(ragged.at("kv_offsets").extent, Sizes{3});
  EXPECT_EQ(ragged.count("kv_lengths"), 0U);
  const auto paged = shapes("lengths=ragged cache=paged page=4");
  EXPECT_EQ(paged.at("k").extent, (Sizes{4, 4, 2, 16}));
  EXPECT_EQ(paged.at("page_table").extent, (Sizes{2, 2}));
  EXPECT_EQ(paged.at("kv_lengths").extent, Sizes{2});
  EXPECT_EQ(paged.count("kv_offsets"), 0U);
  EXPECT_EQ(shapes("cache=paged page=4 layout=bhsd").at("v").extent, (Sizes{4, 2, 4, 16}));
  EXPECT_EQ(shapes("lengths=kv").count("q_offsets"), 0U);
}

TEST_F(AttentionContractTest, WhatLiesOnTheDeviceHasARange) {
  const auto ragged = shapes("lengths=ragged q_total=4 kv_total=9");
  EXPECT_EQ(ragged.at("q_offsets").values->most, 4);
  EXPECT_EQ(ragged.at("q_offsets").values->rise, 3);
  EXPECT_EQ(ragged.at("kv_offsets").values->most, 9);
  EXPECT_EQ(ragged.at("kv_offsets").values->rise, 5);
  const auto paged = shapes("lengths=kv cache=paged page=4 pages=7");
  EXPECT_EQ(paged.at("kv_lengths").values->most, 5);
  EXPECT_EQ(paged.at("page_table").values->most, 6);
  EXPECT_EQ(paged.at("page_table").values->counted_by, "kv_lengths");
  EXPECT_EQ(paged.at("page_table").values->per, 4);
}

TEST_F(AttentionContractTest, ATableHasRowsOfItsOwnOrIsAList) {
  const auto rows =
      shapes("lengths=kv cache=paged page=1 table_rows=given table_sequences=9 ld_table=64");
  EXPECT_EQ(rows.at("table_rows").extent, Sizes{2});
  EXPECT_EQ(rows.at("table_rows").values->most, 8);
  EXPECT_EQ(rows.at("page_table").extent, (Sizes{9, 5}));
  EXPECT_EQ(rows.at("page_table").pitches, Sizes{64});
  EXPECT_EQ(rows.at("page_table").values->rows, "table_rows");
  const auto list = shapes("lengths=kv cache=paged page=2 table=list table_total=8");
  EXPECT_EQ(list.at("page_offsets").extent, Sizes{3});
  EXPECT_EQ(list.at("page_offsets").values->most, 8);
  EXPECT_EQ(list.at("page_list").extent, Sizes{8});
  EXPECT_EQ(list.at("page_list").values->counted_by, "page_offsets");
  EXPECT_EQ(list.count("page_table"), 0U);
  EXPECT_EQ(shapes("cache=paged page=2 table=list").at("page_list").extent, Sizes{6});
}

TEST_F(AttentionContractTest, SizesThatDoNotGoTogetherAreRefused) {
  const auto says = [&](std::string_view more, std::string_view why) {
    const std::string message = refusal(more);
    EXPECT_THAT(message, HasSubstr(why)) << more;
  };
  says("q_total=4", "only ragged sequences differ in their number of queries");
  says("kv_total=9", "only with lengths=kv or ragged");
  says("lengths=ragged q_total=7", "q_len is the largest");
  says("lengths=kv kv_total=4", "kv_len is the largest");
  says("page=4", "only a paged cache has pages");
  says("cache=paged page=4 pages=3", "the pages of all sequences lie in the pool");
  says("ld_table=4", "rows of a padded table have so many entries");
  says("cache=paged ld_table=4 page=1", "rows of a padded table have so many entries");
  says("table=list", "only a paged cache has a table");
  says("cache=paged table=list table_rows=given", "a list has no rows");
  says("cache=paged table_sequences=9", "each sequence has a row of the table");
  says("cache=paged table_rows=given table_sequences=1", "each sequence has a row of the table");
  says("cache=paged page=2 table=list table_total=5", "a list has the pages of all sequences");
  says("cache=paged table_total=5", "only table=list has one");
  says("window=4", "only mask=window has a window");
  says("head_dim_v=12", "rows are whole vectors of 16 bytes");
  EXPECT_THAT(refusal("", "q_len=3 kv_len=5 heads=5"), HasSubstr("is given twice"));
  EXPECT_EQ(refusal("q_total=6 kv_total=10 head_dim_v=16 ldq=64 ldo=64 mask=none"),
            "attention batch=2 heads=4 kv_heads=2 q_len=3 kv_len=5 head_dim=16 dtype=bf16");
}

TEST_F(AttentionContractTest, ACacheMayHaveFewerBitsThanItsQueries) {
  auto narrow = shapes("kv=fp8_e4m3");
  EXPECT_EQ(narrow.at("q").dtype, DType::bf16);
  EXPECT_EQ(narrow.at("k").dtype, DType::fp8_e4m3);
  EXPECT_EQ(narrow.at("v").dtype, DType::fp8_e4m3);
  EXPECT_EQ(narrow.at("o").dtype, DType::bf16);
  EXPECT_EQ(narrow.at("o").intermediate, DType::bf16);
  narrow = shapes("dtype=fp8_e4m3 out=fp16");
  EXPECT_EQ(narrow.at("q").dtype, DType::fp8_e4m3);
  EXPECT_EQ(narrow.at("v").dtype, DType::fp8_e4m3);
  EXPECT_EQ(narrow.at("o").dtype, DType::fp16);
  EXPECT_EQ(narrow.at("o").intermediate, DType::fp8_e4m3);
  EXPECT_EQ(refusal("kv=bf16 out=bf16 descale=none"), refusal(""));

  const std::int64_t tokens = std::int64_t{2} * 4 * (16 * 2 + 16 * 2);
  const std::int64_t cache = std::int64_t{2} * 4096 * 2 * 32;
  EXPECT_EQ(value(attention_.bytes, "kv=fp8_e4m3", "q_len=1 kv_len=4096"), tokens + cache);
  EXPECT_EQ(value(attention_.bytes, "dtype=fp8_e4m3 out=bf16", "q_len=1 kv_len=4096"),
            tokens * 3 / 4 + cache);
}

TEST_F(AttentionContractTest, ScalesOfFp8BelongToATensorOrToItsHeads) {
  /// Names of the tensors between k and o, or of the scalars.
  const auto tensors = [&](std::string_view more) {
    std::string all;
    for (const auto& [name, shape] : shapes(more)) {
      if (name.size() < 2) continue;
      all += name + " ";
      EXPECT_EQ(shape.extent, (Sizes{2, 2})) << name;
      EXPECT_EQ(shape.dtype, DType::fp32) << name;
    }
    return all;
  };
  const auto scalars = [&](std::string_view more) {
    std::string all;
    const auto known = named(more).value().scalars().value();
    for (const auto& scalar : known) all += scalar.name + " ";
    return all;
  };
  EXPECT_EQ(tensors("kv=fp8_e4m3 descale=head"), "k_descale v_descale ");
  EXPECT_EQ(tensors("dtype=fp8_e4m3 out=bf16 descale=head"), "k_descale q_descale v_descale ");
  EXPECT_EQ(tensors("kv=fp8_e4m3 descale=tensor"), "");
  EXPECT_EQ(scalars("kv=fp8_e4m3"), "scale ");
  EXPECT_EQ(scalars("kv=fp8_e4m3 descale=head"), "scale ");
  EXPECT_EQ(scalars("kv=fp8_e4m3 descale=tensor"), "scale k_scale v_scale ");
  EXPECT_EQ(scalars("dtype=fp8_e4m3 out=bf16 descale=tensor"), "scale q_scale k_scale v_scale ");
}

TEST_F(AttentionContractTest, DtypesThatDoNotGoTogetherAreRefused) {
  const auto says = [&](std::string_view more, std::string_view why) {
    const std::string message = refusal(more);
    EXPECT_THAT(message, HasSubstr(why)) << more;
  };
  says("kv=fp16", "k and v have the dtype of q or are fp8_e4m3");
  says("dtype=fp8_e4m3 kv=bf16 out=bf16", "k and v have the dtype of q or are fp8_e4m3");
  says("out=fp16", "o has the dtype of q, unless that is fp8_e4m3");
  says("dtype=fp8_e4m3", "dtype=fp8_e4m3 needs out=bf16 or out=fp16");
  says("descale=tensor", "only fp8 tensors have scales");
  says("kv=fp8_e4m3 head_dim_v=24", "rows are whole vectors of 16 bytes");
  says("kv=fp8_e4m3 ldk=40", "rows are whole vectors of 16 bytes");
  says("dtype=fp8_e4m3 out=bf16 ldq=72", "rows are whole vectors of 16 bytes");
  EXPECT_TRUE(named("kv=fp8_e4m3 ldq=72 ldk=48 ldv=48 ldo=72"));
}

TEST_F(AttentionContractTest, OnlyWhatIsSeenIsCounted) {
  /// The pairs of one head, one by one.
  const auto pairs = [](std::int64_t queries, std::int64_t keys, std::int64_t window,
                        bool from_first = false) {
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::int64_t position = from_first ? i : i + keys - queries;
        if (j <= position && (window == 0 || j > position - window)) ++seen;
      }
    }
    return seen;
  };
  for (const std::int64_t queries : {1, 2, 7, 16}) {
    for (const std::int64_t keys : {1, 5, 16, 40}) {
      const std::string sizes = concat("q_len=", queries, " kv_len=", keys);
      const std::int64_t unit = std::int64_t{2} * 2 * 4 * (16 + 16);
      EXPECT_EQ(value(attention_.flops, "", sizes), unit * queries * keys) << sizes;
      EXPECT_EQ(value(attention_.flops, "mask=causal", sizes), unit * pairs(queries, keys, 0))
          << sizes;
      EXPECT_EQ(value(*attention_.specials, "mask=causal", sizes), 8 * pairs(queries, keys, 0));
      EXPECT_EQ(value(attention_.flops, "mask=causal_first", sizes),
                unit * pairs(queries, keys, 0, true))
          << sizes;
      for (const std::int64_t window : {1, 4, 16, 100}) {
        EXPECT_EQ(value(attention_.flops, concat("mask=window window=", window), sizes),
                  unit * pairs(queries, keys, window))
            << sizes << " " << window;
      }
    }
  }
  const std::string decode = "q_len=1 kv_len=4096";
  const std::int64_t tokens = std::int64_t{2} * 4 * (16 + 16) * 2;
  EXPECT_EQ(value(attention_.bytes, "", decode), tokens + std::int64_t{2} * 4096 * 2 * 32 * 2);
  EXPECT_EQ(value(attention_.bytes, "mask=window window=128 lse=natural", decode),
            tokens + std::int64_t{2} * 128 * 2 * 32 * 2 + 32);
  EXPECT_EQ(value(attention_.bytes, "lengths=kv kv_total=5000", decode),
            tokens + std::int64_t{2} * 2500 * 2 * 32 * 2);
}

TEST_F(AttentionContractTest, ABiasHasAnEntryForEachOrForAll) {
  const auto boolean = shapes("bias=boolean");
  EXPECT_EQ(boolean.at("seen").extent, (Sizes{2, 4, 3, 5}));
  EXPECT_EQ(boolean.at("seen").dtype, DType::boolean);
  EXPECT_TRUE(boolean.at("seen").pitches.empty());
  EXPECT_EQ(boolean.count("bias"), 0U);
  const auto additive = shapes("bias=additive bias_batch=1 bias_q=1 ldbias=16");
  EXPECT_EQ(additive.at("bias").extent, (Sizes{1, 4, 1, 5}));
  EXPECT_EQ(additive.at("bias").pitches, (Sizes{64, 16, 16}));
  EXPECT_EQ(additive.at("bias").dtype, DType::bf16);
  const auto wide = shapes("bias=additive bias_dtype=fp32");
  EXPECT_EQ(wide.at("bias").dtype, DType::fp32);
  EXPECT_EQ(boolean.at("seen").alignment, 1);
  EXPECT_EQ(additive.at("bias").alignment, 2);
  EXPECT_EQ(wide.at("bias").alignment, 4);
  EXPECT_EQ(shapes("dtype=fp8_e4m3 out=bf16 bias=additive bias_dtype=fp32").at("bias").dtype,
            DType::fp32);
  EXPECT_EQ(refusal("bias=boolean bias_batch=2 bias_heads=4 bias_q=3 ldbias=5 ldbias_head=15 "
                    "ldbias_batch=60"),
            "attention batch=2 heads=4 kv_heads=2 q_len=3 kv_len=5 head_dim=16 dtype=bf16 "
            "bias=boolean");

  const std::int64_t bare = value(attention_.bytes, "", "q_len=3 kv_len=5");
  EXPECT_EQ(value(attention_.bytes, "bias=boolean", "q_len=3 kv_len=5"), bare + 2 * 4 * 3 * 5);
  EXPECT_EQ(value(attention_.bytes, "bias=additive bias_heads=1 bias_q=1", "q_len=3 kv_len=5"),
            bare + 2 * 5 * 2);
  EXPECT_EQ(
      value(attention_.bytes, "bias=additive bias_dtype=fp32 mask=causal", "q_len=3 kv_len=5"),
      bare + 2 * 4 * (3 + 4 + 5) * 4);
}

TEST_F(AttentionContractTest, WhatDoesNotGoWithABiasIsRefused) {
  const auto says = [&](std::string_view more, std::string_view why,
                        std::string_view sizes = "q_len=3 kv_len=5") {
    const std::string message = refusal(more, sizes);
    EXPECT_THAT(message, HasSubstr(why)) << more;
  };
  says("bias=boolean bias_heads=2", "an entry for each sequence, head and query, or one for all");
  says("bias=boolean bias_q=5", "an entry for each sequence, head and query, or one for all");
  says("bias_q=3", "only bias=boolean and bias=additive have a tensor with sizes");
  says("bias=alibi ldbias=5", "only bias=boolean and bias=additive have a tensor with sizes");
  says("bias=additive bias_dtype=fp16", "an additive bias has the dtype of q or is fp32");
  says("bias=boolean bias_dtype=fp32", "an additive bias has the dtype of q or is fp32");
  says("dtype=fp8_e4m3 out=bf16 bias=additive", "beside fp8 queries fp32");
  says("bias=additive ldbias=4", "4 < 5");
  says("bias=boolean lengths=ragged", "the same number of queries and keys for every sequence");
  says("bias=boolean invariant=batch", "no rule fixes the bits of a biased sequence");
  says("bias=additive append=rope", "beside new tokens or a work list",
       "q_len=1 kv_len=5 lengths=kv");
  says("bias=additive schedule=given slots=4 lengths=kv", "beside new tokens or a work list");
  says("mask=causal_first append=rope", "sees all of it", "q_len=1 kv_len=5 lengths=kv");
  says("mask=causal_first schedule=given slots=4 lengths=kv", "the last sees the last key");
}

TEST_F(AttentionContractTest, ScaleIsThatOfTheHeadUnlessGiven) {
  const auto scalars = named("").value().scalars().value();
  ASSERT_EQ(scalars.size(), 1U);
  EXPECT_DOUBLE_EQ(scalars[0].default_value, 0.25);
  EXPECT_EQ(named("softcap=tanh").value().scalars()->size(), 2U);
}

TEST_F(AttentionContractTest, ItsUnfusedFormWritesTheScores) {
  const auto form = must(unfused_form(
      catalog(), named("layout=bhsd mask=causal head_dim_v=24", "q_len=40 kv_len=40").value()));
  ASSERT_EQ(form.kernels.size(), 3U);
  EXPECT_EQ(form.kernels[0].problem.text(), "matmul m=80 n=40 k=16 batch=4 dtype=bf16");
  EXPECT_EQ(form.kernels[1].problem.text(), "softmax rows=320 columns=40 dtype=bf16 mask=causal");
  EXPECT_EQ(form.kernels[2].problem.text(), "matmul m=80 n=24 k=40 batch=4 dtype=bf16 b_layout=kn");
  EXPECT_EQ(form.tensors.size(), 4U + 2);
  for (const char* other : {"", "layout=bhsd mask=causal", "layout=bhsd mask=window window=2",
                            "layout=bhsd lse=natural", "layout=bhsd ldk=24",
                            "layout=bhsd kv=fp8_e4m3", "layout=bhsd dtype=fp8_e4m3 out=bf16"}) {
    EXPECT_THAT(unfused_form(catalog(), named(other).value()), Fails(ErrorCode::not_found))
        << other;
  }
}

/// One new token of each of two sequences.
constexpr std::string_view kDecode = "q_len=1 kv_len=40 lengths=kv";

TEST_F(AttentionContractTest, ANewTokenChangesTheCache) {
  const auto by_name = [&](std::string_view more) {
    const auto problem = must(named(more, kDecode));
    std::map<std::string, TensorShape> all;
    for (const TensorShape& shape : problem.shapes()) all.emplace(shape.name, shape);
    return all;
  };
  const auto without = by_name("");
  EXPECT_EQ(without.at("k").role, TensorRole::in);
  EXPECT_EQ(without.at("v").role, TensorRole::in);
  EXPECT_EQ(without.count("k_new") + without.count("cosine"), 0U);

  // q, k and v of one product: rows of (4 + 2 * 2) * 16 elements.
  const auto rope = by_name("append=rope head_dim_v=8 ldq=128 ldk_new=128 ldv_new=128");
  EXPECT_EQ(rope.at("k").role, TensorRole::inout);
  EXPECT_EQ(rope.at("k").written, 2 * 2 * 16);
  EXPECT_EQ(rope.at("v").role, TensorRole::inout);
  EXPECT_EQ(rope.at("v").written, 2 * 2 * 8);
  EXPECT_EQ(rope.at("k_new").extent, (Sizes{2, 1, 2, 16}));
  EXPECT_EQ(rope.at("k_new").pitches, (Sizes{128, 128, 16}));
  EXPECT_EQ(rope.at("v_new").extent, (Sizes{2, 1, 2, 8}));
  EXPECT_EQ(rope.at("cosine").extent, (Sizes{40, 8}));
  EXPECT_EQ(rope.at("sine").dtype, DType::fp32);
  EXPECT_EQ(rope.count("q_norm"), 0U);
  const auto norm = by_name("append=norm_rope layout=bhsd cache=paged page=8");
  EXPECT_EQ(norm.at("k_new").extent, (Sizes{2, 2, 1, 16}));
  EXPECT_EQ(norm.at("q_norm").extent, Sizes{16});
  EXPECT_EQ(norm.at("k_norm").dtype, DType::bf16);
  EXPECT_EQ(named("append=norm_rope", kDecode)->scalars()->back().name, "eps");
  EXPECT_EQ(named("append=rope", kDecode)->scalars()->size(), 1U);

  // New keys and values are read and written, and so are the angles of two positions.
  const std::int64_t bare = value(attention_.bytes, "", kDecode);
  EXPECT_EQ(value(attention_.bytes, "append=rope", kDecode),
            bare + std::int64_t{2} * (2 * (16 + 16) * 2 + 2 * 8 * 4));
}

TEST_F(AttentionContractTest, WhatDoesNotGoWithANewTokenIsRefused) {
  const auto says = [&](std::string_view more, std::string_view sizes, std::string_view why) {
    const std::string message = refusal(more, sizes);
    EXPECT_THAT(message, HasSubstr(why)) << more;
  };
  says("append=rope", "q_len=2 kv_len=40 lengths=kv", "one new token of each sequence");
  says("append=rope", "q_len=1 kv_len=40", "one new token of each sequence");
  says("append=rope kv=fp8_e4m3", kDecode, "a new key of 16 bits");
  says("append=rope dtype=fp8_e4m3 out=bf16", kDecode, "a new key of 16 bits");
  says("append=rope schedule=given slots=4", kDecode, "which a work list shares out");
  says("append=rope cache=paged table=list", kDecode, "before a length is known");
  says("pairs=neighbours", kDecode, "only what is rotated has pairs");
  says("ldk_new=64", kDecode, "only a token that is appended has new keys");
  says("append=rope ldk_new=24", kDecode, "a token of k_new has so many elements");
  says("append=rope ldv_new=36", kDecode, "a token of v_new has so many elements");
}

TEST_F(AttentionContractTest, ItsUnfusedFormAppendsFirst) {
  const auto form = must(unfused_form(
      catalog(),
      named("append=norm_rope pairs=neighbours cache=paged page=8 ldq=128 ldk_new=128 ldv_new=128 "
            "sink=head lse=natural",
            kDecode)
          .value()));
  ASSERT_EQ(form.kernels.size(), 2U);
  EXPECT_EQ(form.kernels[0].problem.text(),
            "kv_append batch=2 kv_heads=2 heads=4 q_len=1 kv_len=40 head_dim=16 page=8 ldq=128 "
            "ldk=128 ldv=128 dtype=bf16 lengths=kv cache=paged rope=qk pairs=neighbours norm=rms");
  EXPECT_EQ(form.kernels[1].problem.text(),
            "attention batch=2 heads=4 kv_heads=2 q_len=1 kv_len=40 head_dim=16 page=8 dtype=bf16 "
            "lengths=kv cache=paged sink=head lse=natural");
  const auto rope =
      must(unfused_form(catalog(), named("append=rope layout=bhsd", kDecode).value()));
  EXPECT_EQ(rope.kernels.size(), 2U);
}

}  // namespace
}  // namespace kernwright
