// Every matmul template must compile free of local memory, calls and warnings. It is tested for
// instantiations that cover all pairs of values of parameters, dtypes, flags and alignments, on an
// H200. A parameter of many values, of tiles and stages, counts value by value with each dtype,
// whose instructions differ by it, and by the third of its values in other pairs.

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <numbers>
#include <set>

#include "compile/cubin.h"
#include "compile/render.h"
#include "model/candidate/candidate_maker.h"
#include "support/text.h"
#include "tests/compile/covering_set.h"
#include "tests/compile/toolkit_world.h"

namespace kernwright {
namespace {

using Row = std::vector<std::int64_t>;

/// Returns the largest of 1, 2, 4, 8 and 16 that divides `size`.
std::int64_t alignment(std::int64_t size) { return std::min<std::int64_t>(size & -size, 16); }

/// Problems of all dtypes, flags, alignments and size classes, spread evenly over their product.
class ProblemSpace {
 public:
  explicit ProblemSpace(const Operation& operation)
      : operation_(operation), space_(parameters(operation)) {}

  /// Returns those of `looks` points that are problems of the operation.
  std::vector<BoundProblem> spread(int looks) const {
    std::vector<BoundProblem> problems;
    double at = 0;
    for (int look = 0; look < looks; ++look) {
      at = std::fmod(at + std::numbers::phi, 1.0);
      const auto index = static_cast<std::int64_t>(at * static_cast<double>(space_.size()));
      if (auto problem = BoundProblem::bind(operation_, problem_at(space_.at(index)))) {
        problems.push_back(*std::move(problem));
      }
    }
    return problems;
  }

 private:
  static std::vector<Parameter> parameters(const Operation& operation) {
    // An n or k of 16 times something, and what is taken from or added to it.
    const std::vector<std::int64_t> offsets{0, 8, 4, 2, 1};
    std::vector<Parameter> parameters{
        {.name = "m", .values = {5, 16, 60, 250, 4096}},
        {.name = "sixteenths below m", .values = {0, 1, 2, 3, 4, 5, 6, 7}},
        {.name = "n", .values = {16, 512, 2048, 6144}},
        {.name = "below n", .values = offsets},
        {.name = "k", .values = {256, 4096, 65536}},
        {.name = "above k", .values = offsets}};
    const auto add = [&](const std::string& name, std::size_t values) {
      parameters.push_back({.name = name, .values = {}});
      for (std::size_t i = 0; i < values; ++i) {
        parameters.back().values.push_back(static_cast<std::int64_t>(i));
      }
    };
    for (const TypeVariable& variable : operation.type_variables) {
      add(variable.name, variable.dtypes.size());
    }
    for (const Flag& flag : operation.flags) add(flag.name, flag.values.size());
    return parameters;
  }

  Problem problem_at(const Configuration& point) const {
    Problem::Flags flags;
    const auto index = [&](const std::string& name) {
      return static_cast<std::size_t>(point.at(name));
    };
    for (const TypeVariable& variable : operation_.type_variables) {
      flags.emplace_back(variable.name, to_string(variable.dtypes[index(variable.name)]));
    }
    for (const Flag& flag : operation_.flags) {
      flags.emplace_back(flag.name, flag.values[index(flag.name)]);
    }
    return Problem::make(
        operation_.name,
        {{"m", point.at("m") - point.at("m") * point.at("sixteenths below m") / 16},
         {"n", point.at("n") - point.at("below n")},
         {"k", point.at("k") + point.at("above k")}},
        std::move(flags));
  }

  const Operation& operation_;
  ParameterSpace space_;
};

class MatmulInstantiationsToolkitTest : public ToolkitWorld {
 protected:
  // The compiles stay a matter of minutes.
  static constexpr std::size_t kMost = 400;
  static constexpr int kLooks = 60'000;
  // These come in addition to problems that cover all pairs of flags, sizes and alignments. Rules
  // may be about three and more of these; with 130 more problems their configurations are found.
  static constexpr std::size_t kMoreProblems = 130;
  static constexpr std::size_t kManyValues = 6;

  struct Compile {
    const Candidate* candidate;
    std::string label;
    Build result;
    InstructionCounts count;  ///< of the kernel that multiplies
  };

  /// Compiles instantiations of a template: free of local memory, calls and warnings. If their
  /// epilogue has more than a bias, `spilling_share` of them may spill: tuning drops them. There
  /// are at most `share` of kMost.
  void compile(std::string_view name, double share, double spilling_share = 0) {
    ASSERT_NO_FATAL_FAILURE(choose(**catalog_->kernel_template(name)));
    EXPECT_LE(static_cast<double>(chosen_.size()), share * static_cast<double>(kMost));
    for (const Candidate& candidate : chosen_) {
      compiles_.push_back({&candidate,
                           concat(candidate.problem->text(), ": ", candidate.id()),
                           pool_->submit(render(candidate, *catalog_, profile_.sm_arch)),
                           {}});
    }
    std::size_t spilling = 0;
    for (Compile& compile : compiles_) {
      const CompileResult& result = compile.result.get();
      ASSERT_TRUE(result) << compile.label << ": " << result.error().message;
      const CompiledKernel& kernel = **result;
      const bool spills = kernel.resources().spill_bytes() >
                          compile.candidate->kernel_template->allowed_spill_bytes;
      if (spills) {
        EXPECT_TRUE(spilling_share > 0 && is_fused(*compile.candidate))
            << compile.label << " spills " << kernel.resources().spill_bytes();
        ++spilling;
      }
      EXPECT_TRUE(kernel.warnings.empty()) << compile.label << ": " << kernel.warnings.front();
      const auto counts = count_instructions(kernel.bits);
      ASSERT_TRUE(counts) << counts.error().message;
      for (const InstructionCounts& count : *counts) {
        EXPECT_EQ(count.count("LDL") + count.count("STL") > 0, spills && is_main(compile, count))
            << compile.label << ", " << count.kernel;
        if (is_main(compile, count)) compile.count = count;
      }
      EXPECT_GT(compile.count.total, 0) << compile.label;
      EXPECT_EQ(compile.count.count("CALL"), 0) << compile.label;
    }
    EXPECT_LE(spilling, spilling_share * static_cast<double>(compiles_.size()));
  }

  /// Checks for wgmma of the dtype's kind that is fed by TMA and not serialised. (Serialised wgmma
  /// waits about twice for each instruction.)
  void expect_wgmma_and_tma() const {
    for (const Compile& compile : compiles_) {
      const Candidate& candidate = *compile.candidate;
      const DType dtype = candidate.problem->dtype("dtype");
      const std::string_view used = dtype == DType::fp8_e4m3 ? "QGMMA"
                                    : dtype == DType::int8   ? "IGMMA"
                                                             : "HGMMA";
      for (const std::string_view kind : {"HGMMA", "QGMMA", "IGMMA", "HMMA", "IMMA"}) {
        EXPECT_EQ(compile.count.count(kind) > 0, kind == used) << compile.label << ' ' << kind;
      }
      EXPECT_LE(compile.count.count("DEPBAR"), compile.count.count(used)) << compile.label;
      EXPECT_GT(compile.count.count("UTMALDG") + compile.count.count("UTMALDG.MULTICAST"), 0)
          << compile.label;
    }
  }

  void expect_mma() const {
    for (const Compile& compile : compiles_) {
      const bool int8 = compile.candidate->problem->dtype("dtype") == DType::int8;
      EXPECT_GT(compile.count.count(int8 ? "IMMA" : "HMMA"), 0) << compile.label;
    }
  }

  const DeviceProfile profile_ = *find_profile("h200");
  std::vector<Candidate> chosen_;
  std::vector<Compile> compiles_;

 private:
  static bool is_main(const Compile& compile, const InstructionCounts& count) {
    std::string name = compile.candidate->kernel_template->name;
    std::replace(name.begin(), name.end(), '/', '_');
    return count.kernel == name;
  }

  static bool is_fused(const Candidate& candidate) {
    return candidate.scope.find("activation") != candidate.scope.find("activation_none") ||
           candidate.scope.find("gate") != candidate.scope.find("gate_none") ||
           candidate.scope.find("split") != candidate.scope.find("split_none") ||
           candidate.scope.find("residual") != candidate.scope.find("residual_none");
  }

  /// The columns of a problem: what of it the compiler sees. The dtype is the first.
  static Row problem_row(const BoundProblem& problem) {
    const Scope& scope = problem.scope();
    Row row;
    for (const TypeVariable& variable : problem.operation().type_variables) {
      row.push_back(*scope.find(variable.name));
    }
    for (const Flag& flag : problem.operation().flags) row.push_back(*scope.find(flag.name));
    row.push_back(alignment(*scope.find("n")));
    row.push_back(alignment(*scope.find("k")));
    return row;
  }

  std::vector<BoundProblem> problems_for(const KernelTemplate& made) const {
    std::vector<BoundProblem> problems =
        ProblemSpace(**catalog_->operation(made.operation)).spread(kLooks);
    std::erase_if(problems,
                  [&](const BoundProblem& problem) { return !applies(made, problem, profile_); });
    std::vector<Row> rows;
    for (const BoundProblem& problem : problems) {
      rows.push_back(problem_row(problem));
      const Scope& scope = problem.scope();
      // The size class of m, and n and k without what makes their alignment.
      const auto rows_of_a = static_cast<std::uint64_t>(*scope.find("m"));
      rows.back().insert(rows.back().end(),
                         {static_cast<std::int64_t>(std::bit_width(rows_of_a - 1)),
                          (*scope.find("n") + 15) / 16, *scope.find("k") / 16});
    }
    std::vector<BoundProblem> chosen;
    for (const std::size_t row : covering_set(rows)) chosen.push_back(problems[row]);
    if (problems.size() > kMoreProblems) {
      problems.erase(problems.begin() + kMoreProblems, problems.end());
    }
    chosen.insert(chosen.end(), problems.begin(), problems.end());
    // Tiles are transposed, and strips are of 48 rows, only if nearly all flags are none, which few
    // of the spread problems have.
    for (const char* plain :
         {"matmul m=4 n=13824 k=4096 dtype=bf16", "matmul m=219 n=6144 k=4096 dtype=bf16",
          "matmul m=300 n=20008 k=264 dtype=fp16",
          "matmul m=395 n=9000 k=1040 dtype=fp8_e4m3 out=bf16 activation=silu",
          "matmul m=4096 n=6144 k=4096 dtype=int8 out=bf16 scaling=row"}) {
      const BoundProblem problem =
          *BoundProblem::bind(**catalog_->operation(made.operation), *Problem::parse(plain));
      if (applies(made, problem, profile_)) chosen.push_back(problem);
    }
    return chosen;
  }

  /// Leaves in `chosen_` valid candidates in which all pairs occur that occur in any.
  void choose(const KernelTemplate& made) {
    const std::vector<BoundProblem> problems = problems_for(made);
    // The first of the candidates that are the same to the compiler.
    std::map<Row, std::pair<const BoundProblem*, std::int64_t>> candidates;
    std::size_t first_of_many = 0;
    for (const BoundProblem& problem : problems) {
      const Row of_problem = problem_row(problem);
      const CandidateMaker maker(made, problem, profile_);
      std::vector<std::int64_t> points;
      maker.add_obeying(0, made.space.size(), points);
      for (const std::int64_t point : points) {
        const auto candidate = maker.make(point);
        if (!candidate) continue;
        Row row = of_problem, values_of_many;
        for (const Parameter& parameter : made.space.parameters()) {
          if (parameter.binding != Binding::compile) continue;
          const std::int64_t value = candidate->configuration.at(parameter.name);
          const std::vector<std::int64_t>& all = parameter.values;
          if (all.size() > kManyValues) {
            values_of_many.push_back(value);
            row.push_back((std::ranges::find(all, value) - all.begin()) * 3 / std::ssize(all));
          } else {
            row.push_back(value);
          }
        }
        // Derived values count as what they decide: 0, 1 or more.
        for (const Derived& derived : made.derived) {
          row.push_back(std::min<std::int64_t>(*candidate->scope.find(derived.name), 2));
        }
        first_of_many = row.size();
        row.insert(row.end(), values_of_many.begin(), values_of_many.end());
        candidates.emplace(std::move(row), std::pair(&problem, point));
      }
    }
    std::vector<Row> rows;
    for (const auto& [row, candidate] : candidates) rows.push_back(row);

    std::vector<Row> chosen_rows;
    const auto asked = [&](std::size_t a, std::size_t b) { return a < first_of_many || b == 0; };
    for (const std::size_t row : covering_set(rows, asked)) {
      chosen_rows.push_back(rows[row]);
      const auto& [problem, point] = candidates.at(rows[row]);
      chosen_.push_back(*make_candidate(made, *problem, made.space.at(point), profile_));
    }
    expect_all_pairs(chosen_rows, rows, asked);
    expect_all_values(made);
  }

  static void expect_all_pairs(const std::vector<Row>& chosen, const std::vector<Row>& rows,
                               const std::function<bool(std::size_t, std::size_t)>& asked) {
    ASSERT_FALSE(rows.empty());
    for (std::size_t a = 0; a < rows.front().size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        if (!asked(a, b)) continue;
        std::set<std::pair<std::int64_t, std::int64_t>> covered;
        for (const Row& row : chosen) covered.emplace(row[a], row[b]);
        for (const Row& row : rows) {
          ASSERT_TRUE(covered.contains({row[a], row[b]}))
              << row[a] << " in column " << a << " with " << row[b] << " in column " << b;
        }
      }
    }
  }

  /// Expects that every value of the manifest is compiled.
  void expect_all_values(const KernelTemplate& made) const {
    for (const Parameter& parameter : made.space.parameters()) {
      if (parameter.binding != Binding::compile) continue;
      std::set<std::int64_t> values;
      for (const Candidate& candidate : chosen_) {
        values.insert(candidate.configuration.at(parameter.name));
      }
      EXPECT_EQ(values, std::set(parameter.values.begin(), parameter.values.end()))
          << parameter.name;
    }
  }
};

TEST_F(MatmulInstantiationsToolkitTest, ThoseOfPersistentWaveAreCleanWgmmaFedByTma) {
  // Some large tiles. No bound on their registers tells them from those that fit: with bias,
  // gelu_tanh and residual 128x192 spills 96 bytes, 128x208 40, and 256x144 none.
  ASSERT_NO_FATAL_FAILURE(compile("matmul/persistent_wave", 0.38, 0.15));
  expect_wgmma_and_tma();
}

TEST_F(MatmulInstantiationsToolkitTest, ThoseOfSkinnyAreCleanWgmmaFedByTma) {
  // Some of the largest tiles with an activation: 240x128 8 bytes, 128x256 48.
  ASSERT_NO_FATAL_FAILURE(compile("matmul/skinny", 0.3, 0.03));
  expect_wgmma_and_tma();
}

TEST_F(MatmulInstantiationsToolkitTest, ThoseOfDirectAreCleanMma) {
  ASSERT_NO_FATAL_FAILURE(compile("matmul/direct", 0.13));
  expect_mma();
}

TEST_F(MatmulInstantiationsToolkitTest, ThoseOfStreamAreCleanMma) {
  ASSERT_NO_FATAL_FAILURE(compile("matmul/stream", 0.2));
  expect_mma();
}

TEST_F(MatmulInstantiationsToolkitTest, ThoseOfTiledAreCleanMma) {
  // A few of 45: fp8 16x128 with bias, SiLU and residual, fp32 16x256 gated, and 256x32, of fp32
  // with odd k and of fp16 as kn with odd n, split.
  ASSERT_NO_FATAL_FAILURE(compile("matmul/tiled", 0.15, 0.1));
  expect_mma();
}

}  // namespace
}  // namespace kernwright
