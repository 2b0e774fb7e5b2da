// Products with a function that the problem brings along, as source and as LTO-IR.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "compile/cubin.h"
#include "compile/launch_fit.h"
#include "compile/render.h"
#include "support/files.h"
#include "support/text.h"
#include "tests/compile/toolkit_world.h"
#include "tests/results.h"
#include "tests/temp_dir.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/candidates/candidate_list.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

// A function of value, row and column; with a division, whose slow path is a call that costs no
// speed.
constexpr const char* kFunction = R"(
__device__ float kernwright_epilogue(float value, int row, int column) {
  return fminf(value, 40.0f) * (1.0f + row % 7 * 0.125f) + column % 5 / (1.5f + fabsf(value));
}
)";

std::string refused(std::string_view body) {
  return concat("__device__ __noinline__ float far(float x) { return x * x; }\n",
                "__device__ float kernwright_epilogue(float value, int row, int column) {\n", body,
                "}\n");
}

InstructionCounts counts_of(const CompiledKernel& kernel, std::string_view entry) {
  const auto all = must(count_instructions(kernel.bits));
  for (const InstructionCounts& count : all) {
    if (count.kernel == entry) return count;
  }
  ADD_FAILURE() << "no entry " << entry;
  return {};
}

class Functions {
 public:
  std::filesystem::path write(std::string_view name, std::string_view bytes) {
    const std::filesystem::path file = folder_ / name;
    EXPECT_TRUE(publish_file(file, bytes));
    return file;
  }

  /// The source compiled for `target`, as a user would before giving it.
  std::filesystem::path write_lto_ir(CompilePool& pool, std::string_view name,
                                     std::string_view source, const char* target) {
    CompileRequest request;
    request.name = "function.cu";
    request.source = source;
    request.target = target;
    request.output = OutputKind::lto_ir;
    const CompileResult compiled = pool.submit(request).get();
    EXPECT_TRUE(compiled) << compiled.error().message;
    return write(name, (*compiled)->bits);
  }

 private:
  ScopedTempDir folder_;
};

class UserEpilogueToolkitTest : public ToolkitWorld {
 protected:
  using Changes = std::vector<std::pair<std::string, std::int64_t>>;

  /// The catalog with the function `f`.
  void give(const std::filesystem::path& file) { catalog_ = must(Catalog::load({}, {file})); }
  void give_source(std::string_view source) { give(functions_.write("f.cu", source)); }
  void give_lto_ir(std::string_view source, const char* target = "sm_90a") {
    give(functions_.write_lto_ir(*pool_, "f.ltoir", source, target));
  }

  Candidate candidate(const char* kernel_template, std::string_view problem,
                      const Changes& changes = {}) {
    const KernelTemplate& made = **catalog_->kernel_template(kernel_template);
    auto values = made.default_configuration.values();
    for (auto& [parameter, value] : values) {
      for (const auto& [other, to] : changes) value = parameter == other ? to : value;
    }
    const auto bound = must(catalog_->bind(*Problem::parse(concat("matmul ", problem))));
    return must(make_candidate(made, bound, Configuration(std::move(values)), h200_));
  }

  CompileResult compile(const Candidate& candidate) {
    return pool_->submit(render(candidate, *catalog_, 90)).get();
  }
  CompileResult compile_reference() {
    const BoundProblem problem =
        *catalog_->bind(*Problem::parse("matmul m=64 n=64 k=64 dtype=bf16 epilogue=f"));
    return pool_->submit(render_reference(problem, *catalog_, 90)).get();
  }

  /// Returns what becomes of the default Hopper product with the function; empty if it may run.
  std::string verdict(const char* kernel_template = "matmul/persistent_wave") {
    const Candidate made = candidate(kernel_template, "m=4096 n=6144 k=4096 dtype=bf16 epilogue=f");
    const Runner::Step verdict = check_compiled(made, compile(made), h200_);
    return verdict.outcome == Outcome::ok
               ? std::string()
               : concat(to_string(verdict.outcome), ": ", verdict.detail);
  }

  /// The function in every template and the reference, without a loss of speed.
  void expect_clean() {
    struct Use {
      const char* kernel_template;
      const char* problem;
      const char* instruction;
      Changes changes;
    };
    for (const Use& one : {
             Use{"matmul/persistent_wave", "m=4096 n=6144 k=4096 dtype=bf16", "HGMMA", {}},
             Use{"matmul/persistent_wave",
                 "m=4000 n=6144 k=4096 dtype=fp16 bias=column activation=silu residual=add",
                 "HGMMA",
                 {{"BN", 128}, {"STAGES", 6}}},
             Use{"matmul/persistent_wave",
                 "m=4096 n=6144 k=4096 dtype=bf16 gate=stacked activation=silu",
                 "HGMMA",
                 {}},
             Use{"matmul/persistent_wave",
                 "m=4096 n=6144 k=4096 dtype=fp8_e4m3 out=bf16",
                 "QGMMA",
                 {{"BN", 128}, {"STAGES", 6}}},
             Use{"matmul/persistent_wave",
                 "m=4096 n=6144 k=4096 dtype=fp32 tf32=allow",
                 "HGMMA",
                 {{"OVERLAP", 0}}},
             Use{"matmul/skinny",
                 "m=64 n=6144 k=4096 dtype=bf16",
                 "HGMMA",
                 {{"BM", 64}, {"STAGES", 3}}},
             Use{"matmul/direct", "m=5 n=4096 k=4096 dtype=fp16", "HMMA", {}},
             Use{"matmul/tiled", "m=4096 n=6144 k=4096 dtype=bf16", "HMMA", {}},
             Use{"matmul/tiled", "m=500 n=640 k=96 dtype=bf16 gate=stacked", "HMMA", {}},
         }) {
      SCOPED_TRACE(concat(one.kernel_template, ' ', one.problem));
      const Candidate with =
          candidate(one.kernel_template, concat(one.problem, " epilogue=f"), one.changes);
      const CompileResult kernel = compile(with);
      ASSERT_TRUE(kernel) << kernel.error().message;
      EXPECT_EQ(check_compiled(with, kernel, h200_).detail, "");
      const InstructionCounts count = counts_of(**kernel, with.plan.launches.back().kernel);
      EXPECT_GE(count.count(one.instruction), 4);
      EXPECT_EQ(count.count("LDL") + count.count("STL"), 0);
      EXPECT_EQ((*kernel)->resources().spill_bytes(), 0);
    }
    const CompileResult reference = compile_reference();
    ASSERT_TRUE(reference) << reference.error().message;
  }

  Functions functions_;
  const DeviceProfile h200_ = *find_profile("h200");
};

TEST_F(UserEpilogueToolkitTest, SourceIsInlinedIntoEveryTemplate) {
  give_source(kFunction);
  expect_clean();
}

TEST_F(UserEpilogueToolkitTest, LtoIrIsInlinedIntoEveryTemplate) {
  give_lto_ir(kFunction);
  expect_clean();
}

TEST_F(UserEpilogueToolkitTest, LtoIrOfAnOlderTargetWillDo) {
  give_lto_ir(kFunction, "sm_80");
  EXPECT_EQ(verdict(), "");
}

TEST_F(UserEpilogueToolkitTest, BothFormsGiveTheSameInstructions) {
  const auto counts = [&] {
    const CompileResult kernel =
        compile(candidate("matmul/persistent_wave", "m=4096 n=6144 k=4096 dtype=bf16 epilogue=f"));
    EXPECT_TRUE(kernel) << kernel.error().message;
    return counts_of(**kernel, "matmul_persistent_wave").by_name;
  };
  give_source(kFunction);
  const auto pasted = counts();
  give_lto_ir(kFunction);
  EXPECT_EQ(counts(), pasted);
  EXPECT_GE(pasted.at("HGMMA"), 4);
}

TEST_F(UserEpilogueToolkitTest, SourceThatDoesNotCompileIsRefusedWithTheCompilersLog) {
  give_source("__device__ float kernwright_epilogue(float value, int, int) { return value + ; }\n");
  EXPECT_THAT(verdict(), HasSubstr("/f.cu(1): error: expected an expression"));
  EXPECT_FALSE(compile_reference());
}

TEST_F(UserEpilogueToolkitTest, WhatDefinesAnotherFunctionIsRefused) {
  const std::string missing = "function \"kernwright_epilogue\" was referenced but not defined";
  give_source("__device__ float epilogue(float value, int, int) { return value; }\n");
  EXPECT_THAT(verdict(), HasSubstr(missing));
  give_source("__device__ float kernwright_epilogue(float value) { return value; }\n");
  EXPECT_THAT(verdict(), HasSubstr(missing));
  give_source("__device__ double kernwright_epilogue(float value, int, int) { return value; }\n");
  EXPECT_THAT(verdict(), HasSubstr("cannot overload functions distinguished by return type alone"));
  give_source("float kernwright_epilogue(float value, int, int) { return value; }\n");
  EXPECT_THAT(verdict(), HasSubstr("redeclared without __device__"));
}

TEST_F(UserEpilogueToolkitTest, LtoIrThatDefinesAnotherFunctionIsRefused) {
  const std::string wanted =
      "epilogue, which has to define float kernwright_epilogue(float value, int row, int column)";
  give_lto_ir("__device__ float kernwright_epilogue(float value) { return value; }\n");
  EXPECT_THAT(verdict(), HasSubstr(wanted));
  EXPECT_THAT(verdict(), HasSubstr("Unresolved extern function"));
  // The linker does not compare results: what comes of it is not inlined.
  give_lto_ir("__device__ double kernwright_epilogue(float value, int, int) { return value; }\n");
  EXPECT_THAT(verdict(), HasSubstr("is called, not inlined"));
  give(functions_.write("f.ltoir", "no LTO-IR"));
  EXPECT_THAT(verdict(), HasSubstr("does not match type"));
}

TEST_F(UserEpilogueToolkitTest, AFunctionThatIsCalledIsRefused) {
  const std::string source = refused("return far(value) + row;");
  for (const char* kernel_template : {"matmul/persistent_wave", "matmul/tiled"}) {
    give_source(source);
    EXPECT_THAT(verdict(kernel_template), HasSubstr("is called, not inlined")) << kernel_template;
    give_lto_ir(source);
    EXPECT_THAT(verdict(kernel_template), HasSubstr("is called, not inlined")) << kernel_template;
  }
}

TEST_F(UserEpilogueToolkitTest, AFunctionWithAnArrayInMemoryIsRefused) {
  give_source(
      refused("float t[64]; for (int i = 0; i < 64; ++i) t[i] = value * i; return t[row & 63] + "
              "t[column & 63];"));
  EXPECT_NE(verdict("matmul/tiled"), "");
}

TEST_F(UserEpilogueToolkitTest, AFunctionThatTakesTheRegistersIsRefused) {
  std::string body = "float t[48];\nfor (int i = 0; i < 48; ++i) t[i] = __expf(value * i + row);\n";
  body += "#pragma unroll\nfor (int j = 0; j < 48; ++j)\n#pragma unroll\n";
  body += "  for (int i = 0; i < 48; ++i) t[i] = t[i] * t[(i * 7 + j) % 48] + column;\n";
  body += "float sum = 0;\nfor (int i = 0; i < 48; ++i) sum += t[i];\nreturn sum;\n";
  give_source(refused(body));
  const std::string said = verdict();
  EXPECT_NE(said, "");
  RecordProperty("verdict", said);
}

TEST_F(UserEpilogueToolkitTest, WhatWasNotGivenIsNotCompiled) {
  give_source(kFunction);
  const Candidate with = candidate("matmul/tiled", "m=64 n=64 k=64 dtype=bf16 epilogue=f");
  catalog_ = *Catalog::load({});
  const CompileResult kernel =
      compile(candidate("matmul/tiled", with.problem->text().substr(sizeof "matmul")));
  EXPECT_THAT(kernel, Fails(HasSubstr("the file of this epilogue was not given")));
}

class UserEpilogueGpuTest : public GpuWorld {
 protected:
  void give(const std::filesystem::path& file) { catalog_ = must(Catalog::load({}, {file})); }

  /// Every template's default, or the first that is valid.
  std::vector<Candidate> defaults(const BoundProblem& problem) {
    const auto list = must(enumerate_candidates(*catalog_, problem, device_->profile()));
    std::vector<Candidate> chosen;
    std::set<std::string> seen;
    for (const Candidate& candidate : list.candidates) {
      if (seen.insert(candidate.kernel_template->name).second) chosen.push_back(candidate);
    }
    return chosen;
  }

  CompileRequest rendered(const Candidate& candidate) {
    return render(candidate, *catalog_, device_->profile().sm_arch);
  }

  /// Returns how the checks of a finalist end for the code that was compiled from `request`.
  std::string checked(const Candidate& candidate, const CompileRequest& request) {
    const CompileResult kernel = pool_->submit(request).get();
    if (!kernel) return kernel.error().message;
    EXPECT_EQ(check_compiled(candidate, kernel, device_->profile()).detail, "");
    const auto runner = open_runner(*candidate.problem, 5, true);
    if (!runner) return runner.error().message;
    const auto prepared = runner.value()->prepare(candidate, **kernel);
    if (!prepared) return prepared.error().message;
    if (prepared->step.outcome != Outcome::ok) return prepared->step.detail;
    const auto result = runner.value()->check(prepared->id, Runner::CheckDepth::finalist);
    if (!result) return result.error().message;
    EXPECT_FALSE(result->report.exact);
    return result->step.outcome == Outcome::ok
               ? "ok"
               : concat(to_string(result->step.outcome), ": ", result->step.detail);
  }

  void expect_right() {
    for (const char* text :
         {"m=1 n=7 k=8 dtype=bf16", "m=13 n=1001 k=24 dtype=fp16", "m=1000 n=13 k=200 dtype=bf16",
          "m=129 n=1000 k=40 dtype=bf16 bias=column activation=silu residual=add",
          "m=1500 n=1608 k=264 dtype=fp16", "m=300 n=264 k=4104 dtype=bf16 out=fp32",
          "m=500 n=520 k=136 dtype=bf16 gate=stacked activation=silu",
          "m=600 n=776 k=1040 dtype=fp8_e4m3 out=bf16 scaling=alpha",
          "m=600 n=776 k=516 dtype=fp32 tf32=allow"}) {
      const BoundProblem problem = bound(concat("matmul ", text, " epilogue=f"));
      for (const Candidate& candidate : defaults(problem)) {
        EXPECT_EQ(checked(candidate, rendered(candidate)), "ok")
            << problem.text() << ": " << candidate.id();
      }
    }
  }

  Functions functions_;
};

TEST_F(UserEpilogueGpuTest, SourceIsRightInEveryTemplate) {
  give(functions_.write("f.cu", kFunction));
  expect_right();
}

TEST_F(UserEpilogueGpuTest, LtoIrIsRightInEveryTemplate) {
  give(functions_.write_lto_ir(*pool_, "f.ltoir", kFunction, "sm_80"));
  expect_right();
}

TEST_F(UserEpilogueGpuTest, AWrongPlaceAndASkippedTailAreFound) {
  give(functions_.write("f.cu", kFunction));
  const BoundProblem problem = bound("matmul m=300 n=264 k=129 dtype=bf16 epilogue=f");
  for (const Candidate& candidate : defaults(problem)) {
    for (const auto& [find, replace] :
         {std::pair{"kernwright_epilogue(x, static_cast<int>(row), column)",
                    "kernwright_epilogue(x, static_cast<int>(row) + 1, column)"},
          std::pair{"kernwright_epilogue(x, static_cast<int>(row), column)",
                    "kernwright_epilogue(x, static_cast<int>(row), column - column % 2)"},
          std::pair{"kernwright_epilogue(x, static_cast<int>(row), column)", "x"}}) {
      CompileRequest request = rendered(candidate);
      for (auto& [name, text] : request.headers) {
        const std::size_t at = text.find(find);
        if (at != std::string::npos) text.replace(at, std::string_view(find).size(), replace);
      }
      EXPECT_NE(request.digest({}), rendered(candidate).digest({}));
      EXPECT_EQ(checked(candidate, request).substr(0, 12), "wrong_result")
          << candidate.id() << ": " << replace;
    }
    if (candidate.kernel_template->name != "matmul/tiled") continue;
    CompileRequest request = rendered(candidate);
    const std::string_view stages = "ceil_div(k, DEPTH)", fewer = "ceil_div(k - 1, DEPTH)";
    ASSERT_NE(request.source.find(stages), std::string::npos);
    request.source.replace(request.source.find(stages), stages.size(), fewer);
    EXPECT_EQ(checked(candidate, request).substr(0, 12), "wrong_result") << "the last k is skipped";
  }
}

TEST_F(UserEpilogueGpuTest, AFunctionWithAJumpIsJudgedByWhatLiesAround) {
  give(functions_.write("f.cu", R"(
__device__ float kernwright_epilogue(float value, int row, int column) {
  return value > 0 ? 1.0f + rintf(value * 4) : -1.0f;
}
)"));
  const BoundProblem problem = bound("matmul m=300 n=264 k=1032 dtype=bf16 epilogue=f");
  for (const Candidate& candidate : defaults(problem)) {
    EXPECT_EQ(checked(candidate, rendered(candidate)), "ok") << candidate.id();
  }
}

}  // namespace
}  // namespace kernwright
