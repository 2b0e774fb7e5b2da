#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <string_view>

#include "model/candidate/candidate.h"
#include "model/candidate/candidate_maker.h"
#include "model/candidate/config_header.h"
#include "model/catalog/unfused_form.h"
#include "model/files/embedded_files.h"
#include "support/names.h"
#include "support/text.h"
#include "tests/model/built_in_catalog.h"
#include "tests/model/samples.h"
#include "tests/model/template_names.h"
#include "tests/model/valid_candidates.h"
#include "tests/results.h"

namespace kernwright {
namespace {

/// Returns whether the source defines a kernel of that name: a comment or a call that names it does
/// not.
bool defines_kernel(std::string_view source, const std::string& name) {
  const std::regex definition(
      "extern \"C\" __global__ void\\s+(__launch_bounds__\\([^)]*\\)\\s+)?" + name + "\\(");
  return std::regex_search(source.begin(), source.end(), definition);
}

/// The contract of every embedded template.
class TemplateContractTest : public ::testing::TestWithParam<std::string> {
 protected:
  const KernelTemplate& made_ = *catalog().kernel_template(GetParam()).value();
  const Operation& operation_ = *catalog().operation(made_.operation).value();

  /// Returns a device that the template runs on: an H200 if it can.
  DeviceProfile device() const {
    if (made_.runs_on(90)) return h200();
    for (const DeviceProfile& profile : built_in_profiles()) {
      if (made_.runs_on(profile.sm_arch)) return profile;
    }
    ADD_FAILURE() << GetParam() << " runs on no known device";
    return h200();
  }

  /// Returns the operation's example; for a template that does not take it, the first problem of a
  /// case with which its default configuration is valid.
  BoundProblem example() const {
    const std::vector<BoundProblem> all = problems();
    if (applies(made_, all.front(), device())) return all.front();
    for (const BoundProblem& problem : all) {
      if (make_candidate(made_, problem, made_.default_configuration, device())) return problem;
    }
    ADD_FAILURE() << "the default of " << GetParam() << " is valid for no problem of the cases";
    return all.front();
  }

  /// Returns the operation's example, and the problems of its cases.
  std::vector<BoundProblem> problems() const {
    std::vector<BoundProblem> all{BoundProblem::bind(operation_, operation_.example).value()};
    for (const OperationCase& one : operation_.cases) {
      for (const std::string& text : one.all()) {
        all.push_back(BoundProblem::bind(operation_, Problem::parse(text).value()).value());
      }
    }
    return all;
  }
};

TEST_P(TemplateContractTest, DefaultIsValidForTheExample) {
  const Candidate made =
      must(make_candidate(made_, example(), made_.default_configuration, device()));
  EXPECT_FALSE(made.plan.launches.empty());
}

TEST_P(TemplateContractTest, EveryValueReachesAValidCandidate) {
  std::map<std::string, std::set<std::int64_t>> missing;
  for (const Parameter& parameter : made_.space.parameters()) {
    missing[parameter.name].insert(parameter.values.begin(), parameter.values.end());
  }
  const DeviceProfile profile = device();
  const auto all_reached = [&] {
    return std::all_of(missing.begin(), missing.end(),
                       [](const auto& values) { return values.second.empty(); });
  };
  for (const BoundProblem& problem : problems()) {
    if (all_reached()) break;
    if (!applies(made_, problem, profile)) continue;
    const CandidateMaker maker(made_, problem, profile);
    std::vector<std::int64_t> points;
    maker.add_obeying(0, made_.space.size(), points);
    for (const std::int64_t number : points) {
      const Configuration point = made_.space.at(number);
      bool news = false;
      for (const auto& [name, value] : point.values()) news = news || missing[name].contains(value);
      if (!news || !maker.make(number)) continue;
      for (const auto& [name, value] : point.values()) missing[name].erase(value);
    }
  }
  for (const auto& [name, values] : missing) {
    for (const std::int64_t value : values) {
      ADD_FAILURE() << GetParam() << ": " << name << "=" << value << " is never valid";
    }
  }
}

TEST_P(TemplateContractTest, RuntimeParametersAreNotPasted) {
  const DeviceProfile profile = device();
  std::map<std::string, std::string> header_of;  // by the compile-time values
  const BoundProblem problem = example();
  const std::vector<Candidate> candidates = valid_candidates(made_, problem, profile, 64);
  EXPECT_FALSE(candidates.empty());
  for (const Candidate& candidate : candidates) {
    std::string key;
    for (const Parameter& parameter : made_.space.parameters()) {
      if (parameter.binding == Binding::compile) {
        key += std::to_string(candidate.configuration.at(parameter.name)) + " ";
      }
    }
    const std::string header = config_header(candidate);
    EXPECT_EQ(header_of.emplace(key, header).first->second, header);
  }
}

TEST_P(TemplateContractTest, TheSourceOrAHeaderThatItIncludesDefinesTheKernelsOfAllLaunches) {
  for (const LaunchSpec& launch : made_.launches) {
    const auto included = [&](const DeviceHeader& header) {
      return made_.source.find(concat("<", header.name, ">")) != std::string::npos &&
             defines_kernel(header.text, launch.kernel);
    };
    EXPECT_TRUE(defines_kernel(made_.source, launch.kernel) ||
                std::ranges::any_of(catalog().headers(), included))
        << launch.kernel;
  }
}

INSTANTIATE_TEST_SUITE_P(Embedded, TemplateContractTest, ::testing::ValuesIn(template_names()),
                         template_test_name);

/// The contract of every embedded operation. CUDA's fmax and fmin return the number if the other
/// operand is NaN: types.cuh has functions that do not.
TEST(SourceContractTest, NoMaximumOrMinimumDropsANan) {
  const std::regex drops("\\bf(max|min)f?\\s*\\(");
  int sources = 0;
  for (const EmbeddedFile& file : embedded_templates()) {
    if (!file.path.ends_with(".cu") && !file.path.ends_with(".cuh")) continue;
    ++sources;
    std::cmatch found;
    EXPECT_FALSE(std::regex_search(file.content.begin(), file.content.end(), found, drops))
        << file.path << ": " << found.str();
  }
  EXPECT_GT(sources, 40);
}

BoundProblem example_of(const Operation& operation) {
  return BoundProblem::bind(operation, operation.example).value();
}

TEST(OperationContractTest, ReferencePlansTheExample) {
  ASSERT_FALSE(catalog().operations().empty());
  for (const Operation& operation : catalog().operations()) {
    const ExecutionPlan plan = must(make_reference_plan(example_of(operation), h200()));
    EXPECT_TRUE(defines_kernel(operation.reference_source, operation.reference.kernel))
        << operation.reference.kernel;
  }
}

TEST(OperationContractTest, FlopsBytesAndReductionAreKnown) {
  for (const Operation& operation : catalog().operations()) {
    const Scope scope = example_of(operation).scope();
    EXPECT_GT(operation.flops.evaluate(scope).value(), 0) << operation.name;
    EXPECT_GT(operation.bytes.evaluate(scope).value(), 0) << operation.name;
    if (operation.tolerance.reduction) {
      EXPECT_GT(operation.tolerance.reduction->evaluate(scope).value(), 0) << operation.name;
    }
  }
}

TEST(OperationContractTest, SomeTemplateTakesTheExample) {
  for (const Operation& operation : catalog().operations()) {
    bool taken = false;
    for (const KernelTemplate* made : catalog().templates_of(operation.name)) {
      taken = taken || applies(*made, example_of(operation), h200()).has_value();
    }
    EXPECT_TRUE(taken) << operation.name;
  }
}

/// The combinations of an operation's dtypes and flags in which no more than four are others than
/// in its example, at the sizes of this, and of the smallest that it may be answered by.
std::vector<Problem> combinations(const Operation& operation) {
  constexpr int kMostChanges = 4;
  const Problem& example = operation.example;
  Problem::Dims smallest = example.dims();
  for (auto& [name, size] : smallest) {
    if (find_named(operation.dims, name)->match == DimMatch::bucket) size = 1;
  }
  std::vector<std::pair<Problem, int>> changed{
      {example, 0}, {Problem::make(operation.name, std::move(smallest), example.flags()), 0}};
  const auto vary = [&](const std::string& name, const std::vector<std::string>& values,
                        std::string now) {
    for (const auto& [given, value] : example.flags()) {
      if (given == name) now = value;
    }
    const std::size_t count = changed.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (changed[i].second == kMostChanges) continue;
      for (const std::string& value : values) {
        if (value == now) continue;
        changed.emplace_back(changed[i].first.with(name, value), changed[i].second + 1);
      }
    }
  };
  for (const TypeVariable& variable : operation.type_variables) {
    std::vector<std::string> names;
    for (const DType dtype : variable.dtypes) names.emplace_back(to_string(dtype));
    vary(variable.name, names, "");
  }
  for (const Flag& flag : operation.flags) {
    if (flag.is_formula()) continue;
    vary(flag.name, flag.values, flag.values[static_cast<std::size_t>(flag.default_index)]);
  }
  std::vector<Problem> problems;
  for (auto& [problem, changes] : changed) problems.push_back(std::move(problem));
  return problems;
}

TEST(OperationContractTest, UnfusedFormsFitTogether) {
  for (const Operation& operation : catalog().operations()) {
    std::set<std::size_t> used;
    for (const Problem& problem : combinations(operation)) {
      const Result<BoundProblem> bound = BoundProblem::bind(operation, problem);
      if (!bound) continue;
      const Result<UnfusedForm> form = unfused_form(catalog(), *bound);
      if (!form) {
        EXPECT_EQ(form.error().code, ErrorCode::not_found) << form.error().message;
        continue;
      }
      for (std::size_t i = 0; i < operation.unfused.size(); ++i) {
        const std::optional<Expression>& when = operation.unfused[i].when;
        if (!when || *when->evaluate(bound->scope()) != 0) used.insert(i);
      }
    }
    EXPECT_EQ(used.size(), operation.unfused.size()) << operation.name << ": a step never occurs";
  }
}

TEST(OperationContractTest, UnfusedFormsAreTheKernelsThatOneWouldWrite) {
  const auto kernels = [](const std::string& text) {
    const Result<UnfusedForm> form =
        unfused_form(catalog(), catalog().bind(Problem::parse(text).value()).value());
    if (!form) return std::vector<std::string>{form.error().message};
    std::vector<std::string> texts;
    for (const UnfusedKernel& kernel : form->kernels) texts.push_back(kernel.problem.text());
    return texts;
  };
  using Kernels = std::vector<std::string>;
  EXPECT_EQ(kernels("matmul m=64 n=14336 k=4096 dtype=bf16 bias=column activation=gelu_tanh "
                    "residual=add scaling=alpha"),
            (Kernels{"matmul m=64 n=14336 k=4096 dtype=bf16 scaling=alpha",
                     "bias_activation rows=64 columns=14336 dtype=bf16 residual=add"}));
  EXPECT_EQ(kernels("matmul m=64 n=512 k=64 dtype=fp8_e4m3 out=bf16 activation=silu "
                    "residual=scaled"),
            (Kernels{"matmul m=64 n=512 k=64 dtype=fp8_e4m3 out=bf16",
                     "elementwise n=32768 dtype=bf16 formula=silu(x)",
                     "elementwise n=32768 dtype=bf16 formula=x+b*y"}));
  EXPECT_EQ(kernels("matmul m=64 n=512 k=64 dtype=fp8_e4m3 activation=silu"),
            (Kernels{"matmul m=64 n=512 k=64 dtype=fp8_e4m3 out=bf16",
                     "elementwise n=32768 dtype=bf16 out=fp8_e4m3 formula=silu(x)"}));
  EXPECT_EQ(kernels("matmul m=64 n=512 k=64 dtype=fp32 tf32=allow activation=silu"),
            (Kernels{"matmul m=64 n=512 k=64 dtype=fp32 tf32=allow",
                     "elementwise n=32768 dtype=fp32 formula=silu(x)"}));
  EXPECT_EQ(kernels("matmul m=64 n=512 k=64 dtype=bf16 activation=gelu_erf gate=stacked"),
            (Kernels{"matmul m=64 n=1024 k=64 dtype=bf16",
                     "gated_activation rows=64 columns=512 dtype=bf16 activation=gelu_erf "
                     "layout=packed"}));
  EXPECT_EQ(
      kernels("matmul m=64 n=512 k=64 dtype=fp8_e4m3 activation=silu gate=stacked"),
      (Kernels{"matmul m=64 n=1024 k=64 dtype=fp8_e4m3 out=bf16",
               "gated_activation rows=64 columns=512 dtype=bf16 out=fp8_e4m3 layout=packed"}));
  EXPECT_EQ(
      kernels("rmsnorm rows=4 columns=64 dtype=bf16 out=fp8_e4m3 residual=add"),
      (Kernels{"elementwise n=256 dtype=bf16 formula=x+y", "rmsnorm rows=4 columns=64 dtype=bf16",
               "elementwise n=256 dtype=bf16 out=fp8_e4m3 formula=a*x"}));
  EXPECT_EQ(kernels("layernorm rows=4 columns=64 dtype=fp16 residual=add bias=none"),
            (Kernels{"elementwise n=256 dtype=fp16 formula=x+y",
                     "layernorm rows=4 columns=64 dtype=fp16 bias=none"}));
  EXPECT_EQ(kernels("gated_activation rows=4 columns=64 dtype=fp32 out=fp8_e4m3"),
            (Kernels{"elementwise n=256 dtype=fp32 formula=silu(x)",
                     "elementwise n=256 dtype=fp32 out=fp8_e4m3 formula=a*x*y"}));
  EXPECT_EQ(kernels("bias_activation rows=4 columns=64 dtype=bf16 activation=relu_squared "
                    "residual=add out=fp32"),
            (Kernels{"bias_activation rows=4 columns=64 dtype=bf16 activation=none",
                     "elementwise n=256 dtype=bf16 formula=relu(x)*relu(x)",
                     "elementwise n=256 dtype=bf16 out=fp32 formula=x+y"}));
  EXPECT_EQ(kernels("softmax rows=4 columns=64 dtype=bf16 mask=additive"),
            (Kernels{"elementwise n=256 dtype=bf16 formula=a*x+y",
                     "softmax rows=4 columns=64 dtype=bf16"}));
  EXPECT_EQ(kernels("rope tokens=2 heads=4 kv_heads=2 head_dim=8 dtype=bf16 append=cache"),
            (Kernels{"rope tokens=2 heads=4 kv_heads=2 head_dim=8 dtype=bf16",
                     "elementwise n=32 dtype=bf16 formula=x"}));
  for (const char* whole :
       {"matmul m=4 n=8 k=8 dtype=bf16", "rmsnorm rows=4 columns=64 dtype=bf16",
        "gated_activation rows=4 columns=64 dtype=bf16 layout=packed",
        "bias_activation rows=4 columns=64 dtype=bf16 activation=none",
        "softmax rows=4 columns=64 dtype=bf16 mask=causal", "reduce rows=4 columns=64 dtype=bf16",
        "rope tokens=2 heads=4 kv_heads=2 head_dim=8 dtype=bf16",
        "elementwise n=64 dtype=bf16 formula=a*x+y", "vector_add n=64 dtype=bf16"}) {
    EXPECT_EQ(kernels(whole),
              (Kernels{std::string(whole) + " has no unfused form: it is one kernel as it is"}));
  }
}

TEST(OperationContractTest, PublicShapesAreProblemsOfTheCatalog) {
  for (const Problem& problem :
       {matmul({.m = 1, .n = 2, .k = 3}, DType::fp16),
        rmsnorm(2, 3, DType::fp32).with("weight", "none"), vector_add(5, DType::bf16)}) {
    const Operation& operation = *catalog().operation(problem.operation()).value();
    const Problem normalized = must(operation.normalize(problem));
    EXPECT_EQ(normalized.text(), problem.text());
  }
}

}  // namespace
}  // namespace kernwright
