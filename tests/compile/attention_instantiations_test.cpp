// The attention templates must compile free of warnings, with no local memory but spills, and to
// the instructions that they are written for. It is tested for some instantiations of each, on an
// H200: of the pairwise problems, those that have the most pairs of values of parameters, dtypes,
// flags and sizes that the compiler sees.

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "compile/cubin.h"
#include "compile/render.h"
#include "model/candidate/candidate_maker.h"
#include "support/random.h"
#include "support/text.h"
#include "tests/compile/covering_set.h"
#include "tests/compile/toolkit_world.h"
#include "tests/model/attention_problems.h"
#include "tests/results.h"

namespace kernwright {
namespace {

class AttentionInstantiationsToolkitTest : public ToolkitWorld {
 protected:
  // Instantiations of each template; the compiles should take about a minute.
  static constexpr std::size_t kMost = 14;
  // Candidates of each problem; more add no pairs that the most diverse instantiations would have.
  static constexpr std::size_t kCandidatesOfProblem = 6;

  struct Compile {
    std::string label;
    bool gathered;  ///< keys are copied one by one
    Build result;
    InstructionCounts count;  ///< of the kernel of the template's name
  };

  /// The instantiations of a template, compiled. Local memory holds spills alone. So many may spill
  /// more than the manifest allows: tuning drops them.
  std::vector<Compile> compile(const std::string& name, int most_dropped,
                               std::size_t most = kMost) {
    std::vector<Compile> compiles;
    const KernelTemplate& made = **catalog_->kernel_template("attention/" + name);
    for (const Candidate& candidate : chosen(made, most)) {
      compiles.push_back({concat(candidate.problem->text(), ": ", candidate.id()),
                          gathers(candidate),
                          pool_->submit(render(candidate, *catalog_, profile_.sm_arch)),
                          {}});
    }
    EXPECT_EQ(compiles.size(), most);
    int dropped = 0;
    for (Compile& compile : compiles) {
      const CompileResult& result = compile.result.get();
      EXPECT_TRUE(result) << compile.label << ": " << result.error().message;
      if (!result) continue;
      const CompiledKernel& kernel = **result;
      const std::int64_t spilled = kernel.resources().spill_bytes();
      if (spilled > made.allowed_spill_bytes) {
        ++dropped;
        EXPECT_LE(dropped, most_dropped) << compile.label << " spills " << spilled;
      }
      EXPECT_TRUE(kernel.warnings.empty()) << compile.label << ": " << kernel.warnings.front();
      const auto counts = must(count_instructions(kernel.bits));
      for (const InstructionCounts& count : counts) {
        EXPECT_TRUE(spilled > 0 || count.count("LDL") + count.count("STL") == 0)
            << compile.label << ", " << count.kernel;
        if (count.kernel == "attention_" + name) compile.count = count;
      }
      EXPECT_GT(compile.count.total, 0) << compile.label << " has no kernel of the template's name";
    }
    return compiles;
  }

  const DeviceProfile profile_ = *find_profile("h200");

 private:
  using Row = std::vector<std::int64_t>;

  /// The `most` candidates with the most pairs of values, the best first.
  std::vector<Candidate> chosen(const KernelTemplate& made, std::size_t most) const {
    std::vector<BoundProblem> problems;
    for (const auto& texts : {all_attention_problems(), attention_append_problems()}) {
      for (const std::string& text : texts) {
        problems.push_back(*catalog_->bind(Problem::parse(text).value()));
      }
    }
    std::vector<Row> rows;
    std::vector<std::pair<const BoundProblem*, std::int64_t>> places;
    for (std::size_t number = 0; number < problems.size(); ++number) {
      const BoundProblem& problem = problems[number];
      if (!applies(made, problem, profile_)) continue;
      const CandidateMaker maker(made, problem, profile_);
      std::vector<std::int64_t> points;
      maker.add_obeying(0, made.space.size(), points);
      std::sort(points.begin(), points.end(), [&](std::int64_t a, std::int64_t b) {
        return hash_at(number, static_cast<std::uint64_t>(a)) <
               hash_at(number, static_cast<std::uint64_t>(b));
      });
      std::size_t taken = 0;
      for (const std::int64_t point : points) {
        if (taken == kCandidatesOfProblem) break;
        const auto candidate = maker.make(point);
        if (!candidate) continue;
        rows.push_back(row_of(*candidate));
        places.emplace_back(&problem, point);
        ++taken;
      }
    }
    std::vector<Candidate> candidates;
    for (const std::size_t row : covering_set(rows)) {
      if (candidates.size() == most) break;
      const auto& [problem, point] = places[row];
      candidates.push_back(*make_candidate(made, *problem, made.space.at(point), profile_));
    }
    return candidates;
  }

  static bool gathers(const Candidate& candidate) {
    return candidate.scope.find("BOX_KEYS") == std::int64_t{1};
  }

  /// Returns the values of a candidate that the compiler sees.
  static Row row_of(const Candidate& candidate) {
    const Operation& operation = candidate.problem->operation();
    const auto value = [&](const std::string& name) { return *candidate.scope.find(name); };
    Row row;
    for (const Parameter& parameter : candidate.kernel_template->space.parameters()) {
      if (parameter.binding == Binding::compile) {
        row.push_back(candidate.configuration.at(parameter.name));
      }
    }
    for (const char* type : {"dtype", "kv", "out"}) row.push_back(value(type));
    for (const Flag& flag : operation.flags) row.push_back(value(flag.name));
    const std::int64_t head_dim = value("head_dim");
    const std::int64_t head_dim_v = value("head_dim_v");
    row.insert(row.end(), {head_dim / 64,
                           head_dim % 64 == 0   ? 0
                           : head_dim % 16 == 0 ? 1
                                                : 2,
                           head_dim_v % 64 == 0   ? 0
                           : head_dim_v % 16 == 0 ? 1
                                                  : 2,
                           head_dim_v - head_dim > 0, value("heads") / value("kv_heads"),
                           value("page"), gathers(candidate)});
    return row;
  }
};

/// Returns true if a softmax is between the waits for two products that are issued together. Then
/// there are three instructions of the opcode that waits and fences share from these products to
/// the next: a wait, behind it most exponentials, another wait, and the fence of the next products.
bool softmax_beside_products(const InstructionCounts& count) {
  int waits = 0;
  int exponentials = 0;
  for (const std::string_view name : count.order) {
    if (name == "DEPBAR") ++waits;
    if (name == "MUFU" && waits == 1) ++exponentials;
    if (name != "HGMMA") continue;
    if (waits == 3 && exponentials > 16) return true;
    waits = exponentials = 0;
  }
  return false;
}

TEST_F(AttentionInstantiationsToolkitTest, ThoseOfWaveAreCleanWgmma) {
  // Three warpgroups with a window: 92 bytes, and 392 with a soft cap too.
  int beside = 0, gathered = 0;
  for (const Compile& made : compile("wave", 2)) {
    if (made.label.find("OVERLAP=2") != std::string::npos) {
      ++beside;
      EXPECT_TRUE(softmax_beside_products(made.count)) << made.label;
    }
    EXPECT_GT(made.count.count("HGMMA"), 0) << made.label;
    EXPECT_EQ(made.count.count("HMMA"), 0) << made.label;
    EXPECT_GT(made.count.count("UTMALDG"), 0) << made.label;
    EXPECT_TRUE(!made.gathered || made.count.count("LDGSTS") > 0) << made.label;
    gathered += made.gathered ? 1 : 0;
  }
  EXPECT_GT(beside, 0);
  EXPECT_GT(gathered, 0);
}

TEST_F(AttentionInstantiationsToolkitTest, ThoseOfNarrowWaveAreCleanFp8WgmmaFedByTma) {
  for (const Compile& made : compile("narrow_wave", 2, 8)) {
    EXPECT_GT(made.count.count("QGMMA"), 0) << made.label;
    EXPECT_EQ(made.count.count("HGMMA"), 0) << made.label;
    EXPECT_GT(made.count.count("UTMALDG"), 0) << made.label;
    const bool transposes = made.label.find("TRANSPOSE=0") != std::string::npos;
    EXPECT_EQ(made.count.count("LDSM") > 0, transposes) << made.label;
  }
}

TEST_F(AttentionInstantiationsToolkitTest, ThoseOfStreamAreCleanMma) {
  // A window with ALiBi in three blocks a multiprocessor: 40 bytes, of 16 bits 48.
  int gathered = 0;
  for (const Compile& made : compile("stream", 1)) {
    EXPECT_GT(made.count.count("HMMA"), 0) << made.label;
    EXPECT_EQ(made.count.count("UTMALDG") > 0, !made.gathered) << made.label;
    EXPECT_TRUE(!made.gathered || made.count.count("LDGSTS") > 0) << made.label;
    gathered += made.gathered ? 1 : 0;
  }
  EXPECT_GT(gathered, 0);
}

TEST_F(AttentionInstantiationsToolkitTest, ThoseOfTiledAreCleanMmaAndAsynchronousCopies) {
  // A window over heads of 248 elements: 232 bytes.
  for (const Compile& made : compile("tiled", 1)) {
    EXPECT_GT(made.count.count("HMMA"), 0) << made.label;
    EXPECT_GT(made.count.count("LDGSTS"), 0) << made.label;
    EXPECT_GT(made.count.count("LDSM"), 0) << made.label;
  }
}

}  // namespace
}  // namespace kernwright
