// The contract of the operation kv_append.

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/candidate/candidate.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"

namespace kernwright {
namespace {

using Sizes = std::vector<std::int64_t>;
using Shapes = std::map<std::string, TensorShape>;

class KvAppendContractTest : public ::testing::Test {
 protected:
  const Operation& append_ = *catalog().operation("kv_append").value();

  Result<Problem> named(std::string_view more) const {
    return append_.normalize(
        Problem::parse(concat("kv_append batch=2 kv_heads=2 q_len=3 kv_len=5 head_dim=16 ",
                              "dtype=bf16 ", more))
            .value());
  }
  static Shapes by_name(const Operation& operation, const Result<Problem>& problem) {
    EXPECT_TRUE(problem) << problem.error().message;
    Shapes shapes;
    const std::vector<TensorShape> all = operation.tensor_shapes(*problem).value();
    for (const TensorShape& shape : all) shapes.emplace(shape.name, shape);
    return shapes;
  }
  Shapes shapes(std::string_view more) const { return by_name(append_, named(more)); }
};

TEST_F(KvAppendContractTest, TheCacheIsTheOneThatAttentionReads) {
  const Operation& attention = *catalog().operation("attention").value();
  for (const char* lengths :
       {"lengths=full", "lengths=kv kv_total=7", "lengths=ragged q_total=4"}) {
    for (const char* more : {"", " cache=paged", " layout=bhsd head_dim_v=24",
                             " layout=bhsd cache=paged page=4 pages=9"}) {
      const std::string flags = concat(lengths, more);
      const Shapes written = shapes(flags);
      const Shapes read = by_name(
          attention, attention.normalize(Problem::parse(concat("attention batch=2 heads=4 ",
                                                               "kv_heads=2 q_len=3 kv_len=5 ",
                                                               "head_dim=16 dtype=bf16 ", flags))
                                             .value()));
      for (const char* name : {"k", "v"}) {
        const TensorShape& cache = written.at(concat(name, "_cache"));
        EXPECT_EQ(cache.extent, read.at(name).extent) << flags;
        EXPECT_EQ(cache.pitches, read.at(name).pitches) << flags;
        EXPECT_EQ(cache.role, TensorRole::inout);
      }
      for (const char* name : {"q_offsets", "kv_offsets", "kv_lengths", "page_table"}) {
        ASSERT_EQ(written.contains(name), read.contains(name)) << flags << ' ' << name;
        if (!written.contains(name)) continue;
        EXPECT_EQ(written.at(name).extent, read.at(name).extent) << flags << ' ' << name;
      }
    }
  }
}

TEST_F(KvAppendContractTest, OnlyWhatIsRotatedHasAngles) {
  const Shapes copied = shapes("");
  EXPECT_EQ(copied.size(), 4U);
  const Shapes keys = shapes("rope=k");
  EXPECT_EQ(keys.at("cosine").extent, (Sizes{5, 8}));
  EXPECT_FALSE(keys.contains("q"));
  const Shapes both = shapes("heads=6 rope=qk lengths=ragged q_total=4");
  EXPECT_EQ(both.at("q").extent, (Sizes{1, 4, 6, 16}));
  EXPECT_EQ(both.at("q_out").extent, (Sizes{1, 4, 6, 16}));
}

TEST_F(KvAppendContractTest, WhatIsRotatedMayBeNormalisedFirst) {
  const Shapes keys = shapes("rope=k norm=rms");
  EXPECT_EQ(keys.at("k_norm").extent, (Sizes{16}));
  EXPECT_FALSE(keys.contains("q_norm"));
  const Shapes both = shapes("heads=6 rope=qk norm=rms kv=fp8_e4m3");
  EXPECT_EQ(both.at("q_norm").extent, (Sizes{16}));
  EXPECT_EQ(both.at("k_norm").dtype, DType::bf16);
  const auto names_of = [&](std::string_view more) {
    std::vector<std::string> names;
    const Problem problem = named(more).value();
    const std::vector<Scalar> scalars = append_.present_scalars(append_.scope(problem)).value();
    for (const Scalar& scalar : scalars) names.push_back(scalar.name);
    return names;
  };
  EXPECT_EQ(names_of("rope=k norm=rms"), std::vector<std::string>{"eps"});
  EXPECT_EQ(names_of("rope=k norm=rms kv=fp8_e4m3"),
            (std::vector<std::string>{"k_scale", "v_scale", "eps"}));
}

TEST_F(KvAppendContractTest, ACacheOfEightBitsHasScales) {
  EXPECT_TRUE(append_.present_scalars(append_.scope(named("").value()))->empty());
  const Problem narrow = named("kv=fp8_e4m3").value();
  EXPECT_EQ(append_.present_scalars(append_.scope(narrow))->size(), 2U);
  EXPECT_EQ(append_.bytes.evaluate(append_.scope(narrow)).value(), 6 * 2 * 32 * (2 + 1));
}

TEST_F(KvAppendContractTest, ATokenMayHaveAPlaceOfItsOwn) {
  const auto placed = append_.normalize(
      Problem::parse("kv_append batch=1 kv_heads=2 q_len=3 kv_len=50 head_dim=16 dtype=bf16 "
                     "places=given")
          .value());
  const Shapes shapes = by_name(append_, placed);
  EXPECT_EQ(shapes.size(), 5U);
  EXPECT_EQ(shapes.at("places").extent, (Sizes{3}));
  EXPECT_EQ(shapes.at("places").dtype, DType::int64);
  EXPECT_EQ(shapes.at("k_cache").extent, (Sizes{1, 50, 2, 16}));
  const BoundProblem problem = BoundProblem::bind(append_, *placed).value();
  for (const char* name : {"kv_append/placed", "kv_append/streamed"}) {
    const KernelTemplate& made = **catalog().kernel_template(name);
    EXPECT_EQ(applies(made, problem, h200()).has_value(), made.name == "kv_append/placed");
  }
}

TEST_F(KvAppendContractTest, WhatDoesNotGoTogetherIsRefused) {
  const auto says = [&](std::string_view more, std::string_view why) {
    const auto problem = named(more);
    ASSERT_FALSE(problem) << more;
    EXPECT_NE(problem.error().message.find(why), std::string::npos) << problem.error().message;
  };
  says("heads=4", "only rope=qk has queries");
  says("pairs=neighbours", "only what is rotated has pairs");
  says("norm=rms", "only what is rotated is normalised");
  says("kv=fp16", "a cache of 16 bits");
  says("page=4", "only a paged cache has pages");
  says("q_total=4", "only ragged sequences differ");
  says("kv_total=7", "only with lengths=kv or ragged");
  says("ldk_cache=24", "a token of the cache has so many elements");
  says("places=given", "tokens whose places are given have no sequences");
}

}  // namespace
}  // namespace kernwright
