// Code of the matmul templates for products of a batch, for rows with gaps between them and for
// columns that go to q, k and v.

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <string_view>

#include "compile/cubin.h"
#include "compile/render.h"
#include "support/text.h"
#include "tests/compile/toolkit_world.h"
#include "tests/model/valid_candidates.h"

namespace kernwright {
namespace {

class MatmulStridesToolkitTest : public ToolkitWorld {
 protected:
  /// Valid candidates of a template, evenly spread over its space.
  std::vector<Candidate> samples(std::string_view name, std::string_view text,
                                 std::size_t count) const {
    const KernelTemplate& made = **catalog_->kernel_template(name);
    const auto problem = catalog_->bind(*Problem::parse(text));
    EXPECT_TRUE(problem) << problem.error().message;
    std::vector<Candidate> valid = valid_candidates(made, *problem, profile_);
    EXPECT_GE(valid.size(), count) << name << ", " << text;
    if (valid.size() < count) return valid;
    std::vector<Candidate> chosen;
    for (std::size_t i = 0; i < count; ++i) {
      chosen.push_back(valid[i * (valid.size() - 1) / std::max<std::size_t>(count - 1, 1)]);
    }
    return chosen;
  }

  Build submit(const Candidate& candidate) {
    return pool_->submit(render(candidate, *catalog_, profile_.sm_arch));
  }

  const DeviceProfile profile_ = *find_profile("h200");
};

// One of each problem: in turn from the beginning, the middle and the end of its template's space.
// MatmulInstantiationsToolkitTest has the pairs of all other values.
TEST_F(MatmulStridesToolkitTest, ASampleForEachProblemCompilesCleanly) {
  struct Expected {
    const char* kernel_template;
    const char* problem;
  };
  struct Compile {
    std::string label;
    Build result;
  };
  constexpr std::size_t kPlaces = 3;
  std::map<std::string_view, std::size_t> turn;  // of a template's problems
  std::vector<Compile> compiles;
  for (const Expected& expected : {
           Expected{"matmul/tiled", "m=333 n=200 k=328 batch=3 lda=336 ldb=400 ldd=208 dtype=bf16"},
           Expected{"matmul/tiled", "m=77 n=75 k=99 batch=3 ldb=100 dtype=fp16 b_layout=kn"},
           Expected{"matmul/skinny", "m=12 n=1000 k=1024 batch=4 lda=3072 ldd=2000 dtype=bf16"},
           Expected{"matmul/skinny",
                    "m=700 n=60 k=1021 batch=4 lda=1023 dtype=fp8_e4m3 out=bf16 residual=add"},
           Expected{"matmul/skinny", "m=60 n=1000 k=1024 batch=4 ldb=1008 dtype=bf16 b_layout=kn"},
           Expected{"matmul/direct", "m=12 n=1000 k=1024 batch=4 lda=3072 ldd=2000 dtype=bf16"},
           Expected{"matmul/direct", "m=1000 n=5 k=1024 batch=4 lda=1025 dtype=fp16"},
           Expected{"matmul/persistent_wave",
                    "m=1104 n=1096 k=320 batch=5 lda=328 ldd=1104 dtype=bf16"},
           Expected{"matmul/persistent_wave", "m=1100 n=1096 k=320 batch=5 dtype=bf16 bias=column"},
           Expected{"matmul/persistent_wave",
                    "m=1500 n=1603 k=259 batch=2 ldd=1604 dtype=fp8_e4m3 out=fp16"},
           Expected{"matmul/persistent_wave",
                    "m=1104 n=1096 k=320 batch=5 ldb=1200 dtype=bf16 b_layout=kn"},
           Expected{"matmul/persistent_wave",
                    "m=1500 n=1603 k=259 batch=2 ldd=1604 dtype=fp32 tf32=allow"},
           Expected{"matmul/skinny",
                    "m=12 n=1000 k=1022 batch=4 lda=3072 ldd=2000 dtype=fp32 tf32=allow"},
           Expected{"matmul/tiled",
                    "m=77 n=75 k=400 batch=3 lda=404 ldb=404 ldd=77 dtype=fp32 tf32=allow"},
           Expected{"matmul/tiled", "m=333 n=203 k=328 n_kv=44 dtype=bf16 split=qkv bias=column"},
           Expected{"matmul/skinny", "m=12 n=1000 k=1024 n_kv=100 dtype=bf16 split=qkv"},
           Expected{"matmul/direct", "m=12 n=1000 k=1024 n_kv=100 dtype=bf16 split=qkv"},
           Expected{"matmul/persistent_wave",
                    "m=4096 n=6144 k=4096 n_kv=1024 dtype=bf16 split=qkv bias=column"},
           Expected{"matmul/persistent_wave", "m=1501 n=1603 k=515 n_kv=301 dtype=fp16 split=qkv"},
       }) {
    const std::vector<Candidate> spread =
        samples(expected.kernel_template, concat("matmul ", expected.problem), kPlaces);
    ASSERT_EQ(spread.size(), kPlaces) << expected.problem;
    const Candidate& candidate = spread[turn[expected.kernel_template]++ % kPlaces];
    compiles.push_back(
        {concat(candidate.problem->text(), ": ", candidate.id()), submit(candidate)});
  }
  for (const Compile& compile : compiles) {
    const CompileResult& result = compile.result.get();
    ASSERT_TRUE(result) << compile.label << ": " << result.error().message;
    EXPECT_EQ((**result).resources().spill_bytes(), 0) << compile.label;
    EXPECT_TRUE((**result).warnings.empty())
        << compile.label << ": " << (**result).warnings.front();
  }
}

// Only the places of the results are added.
TEST_F(MatmulStridesToolkitTest, SplitMatmulsHaveTheBareMainLoop) {
  for (const auto& [name, sizes] :
       {std::pair("persistent_wave", "m=4096 n=6144 k=4096"),
        std::pair("skinny", "m=16 n=6144 k=4096"), std::pair("direct", "m=16 n=6144 k=4096")}) {
    const auto count = [&, &made = name, &of = sizes](std::string_view flags) {
      const Candidate candidate =
          samples(concat("matmul/", made), concat("matmul ", of, " dtype=bf16 ", flags), 1).front();
      const CompileResult compiled = submit(candidate).get();
      EXPECT_TRUE(compiled) << compiled.error().message;
      const auto kernels = count_instructions((*compiled)->bits).value();
      return *std::ranges::find(kernels, concat("matmul_", made), &InstructionCounts::kernel);
    };
    const auto bare = count(""), split = count("n_kv=1024 split=qkv");
    for (const char* instruction : {"HGMMA", "HMMA", "UTMALDG", "UTMASTG", "LDL", "STL", "CALL"}) {
      EXPECT_EQ(split.count(instruction), bare.count(instruction)) << name << ": " << instruction;
    }
  }
}

// One compile serves all pitches if n and k are arguments, and a batch of one is not a batch.
TEST_F(MatmulStridesToolkitTest, PitchesAreArgumentsWhereTheSizesAre) {
  for (const char* name : {"matmul/skinny", "matmul/direct"}) {
    const Candidate contiguous = samples(name, "matmul m=8 n=1000 k=1024 dtype=bf16", 1).front();
    const Candidate apart =
        samples(name, "matmul m=8 n=1000 k=1024 lda=3072 ldd=2000 dtype=bf16", 1).front();
    EXPECT_EQ(render(contiguous, *catalog_, 90).digest(""), render(apart, *catalog_, 90).digest(""))
        << name;
    const Candidate batch = samples(name, "matmul m=8 n=1000 k=1024 batch=2 dtype=bf16", 1).front();
    EXPECT_NE(render(contiguous, *catalog_, 90).digest(""), render(batch, *catalog_, 90).digest(""))
        << name;
    const std::string_view split = "matmul m=8 n=1000 k=1024 dtype=bf16 split=qkv n_kv=";
    EXPECT_EQ(render(samples(name, concat(split, 100), 1).front(), *catalog_, 90).digest(""),
              render(samples(name, concat(split, 9), 1).front(), *catalog_, 90).digest(""))
        << name;
  }
}

TEST_F(MatmulStridesToolkitTest, TheReferenceCompiles) {
  for (const char* text : {"matmul m=7 n=70 k=33 batch=5 lda=40 dtype=bf16 gate=stacked",
                           "matmul m=7 n=70 k=33 n_kv=13 dtype=bf16 split=qkv"}) {
    const BoundProblem problem = *catalog_->bind(*Problem::parse(text));
    const CompileResult result = pool_->submit(render_reference(problem, *catalog_, 90)).get();
    ASSERT_TRUE(result) << result.error().message;
  }
}

}  // namespace
}  // namespace kernwright
