// The contract of every built-in template and reference, for every architecture it runs on, dtype
// and flag: it passes `kernwright check`, and its default configuration compiles without spill and
// without a loss of speed that the compiler knows of.

#include <algorithm>
#include <array>
#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "compile/cubin.h"
#include "compile/render.h"
#include "support/names.h"
#include "support/text.h"
#include "tests/cli/run_program.h"
#include "tests/compile/toolkit_world.h"
#include "tests/model/valid_candidates.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

constexpr int kHopper = 90;

/// One built-in profile of every architecture.
std::vector<DeviceProfile> one_profile_per_arch() {
  std::vector<DeviceProfile> profiles;
  std::set<int> seen;
  for (const DeviceProfile& profile : built_in_profiles()) {
    if (seen.insert(profile.sm_arch).second) profiles.push_back(profile);
  }
  return profiles;
}

/// The operation's example, in every dtype, and with every value of every flag; also with what is
/// matched by bucket at 1, for templates of small sizes.
std::vector<BoundProblem> variations(const Operation& operation) {
  std::vector<BoundProblem> problems;
  std::set<std::string> known;
  Problem::Dims smallest = operation.example.dims();
  for (auto& [name, size] : smallest) {
    if (find_named(operation.dims, name)->match == DimMatch::bucket) size = 1;
  }
  const Problem small =
      Problem::make(operation.name, std::move(smallest), operation.example.flags());
  const auto add_if_valid = [&](const Problem& given) {
    const auto problem = BoundProblem::bind(operation, given);
    if (!problem) {
      EXPECT_THAT(problem.error().message, HasSubstr(operation.name + ": rule \""));
      return false;
    }
    if (known.insert(problem->text()).second) problems.push_back(*problem);
    return true;
  };
  const auto add = [&](const std::string& name, const std::string& value) {
    for (const Problem& sizes : {operation.example, small}) {
      const Problem one = sizes.with(name, value);
      if (add_if_valid(one)) continue;
      for (const Flag& flag : operation.flags) {  // some values go with others alone
        for (const std::string& other : flag.values) add_if_valid(one.with(flag.name, other));
      }
      for (const TypeVariable& variable : operation.type_variables) {
        for (const DType other : variable.dtypes) {
          add_if_valid(one.with(variable.name, std::string(to_string(other))));
        }
      }
    }
  };
  for (const Problem& sizes : {operation.example, small}) add_if_valid(sizes);
  for (const TypeVariable& variable : operation.type_variables) {
    for (const DType dtype : variable.dtypes) add(variable.name, std::string(to_string(dtype)));
  }
  for (const Flag& flag : operation.flags) {
    for (const std::string& value : flag.values) add(flag.name, value);
  }
  return problems;
}

/// Returns the problems that are compiled for the architecture of a profile: all variations for the
/// oldest and for Hopper, which has templates of its own, and one for each other.
std::vector<BoundProblem> variations_on(const DeviceProfile& profile, const Operation& operation) {
  const auto profiles = one_profile_per_arch();
  const auto oldest = std::ranges::min_element(profiles, {}, &DeviceProfile::sm_arch);
  std::vector<BoundProblem> problems = variations(operation);
  const int arch = profile.sm_arch;
  if (arch != oldest->sm_arch && arch != kHopper)
    problems.erase(problems.begin() + 1, problems.end());
  return problems;
}

/// Returns the counts of one kernel of a cubin; empty if it is missing.
InstructionCounts of_kernel(const std::vector<InstructionCounts>& counts, std::string_view name) {
  const auto found = std::find_if(counts.begin(), counts.end(),
                                  [&](const InstructionCounts& one) { return one.kernel == name; });
  return found == counts.end() ? InstructionCounts{} : *found;
}

class TemplateContractToolkitTest : public ToolkitWorld {
 protected:
  /// Returns what `kernwright check` prints of all built-in templates for an H200.
  static nlohmann::json check_for_hopper() {
    const std::string command =
        concat(program_folder().native(), "/kernwright check --sku h200 --samples 1 --json");
    FILE* const pipe = ::popen(command.c_str(), "r");
    std::string out;
    std::array<char, 4096> part;
    while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe)) {
      out.append(part.data(), size);
    }
    EXPECT_EQ(::pclose(pipe), 0) << out;
    return nlohmann::json::parse(out, nullptr, false);
  }

  /// Returns the candidate that a row of the report for Hopper is about.
  Candidate candidate_of(const nlohmann::json& row) const {
    const KernelTemplate& made = **catalog_->kernel_template(row["template"].get<std::string>());
    const BoundProblem problem =
        must(BoundProblem::bind(**catalog_->operation(made.operation),
                                must(Problem::parse(row["problem"].get<std::string>()))));
    std::vector<std::pair<std::string, std::int64_t>> values;
    const std::string configuration = row["configuration"];
    for (const std::string_view one : split(configuration, ' ')) {
      const std::size_t end = one.find('=');
      values.emplace_back(one.substr(0, end), std::stoll(std::string(one.substr(end + 1))));
    }
    return must(make_candidate(made, problem, Configuration(values), *find_profile("h200")));
  }

  struct Compile {
    std::string label;
    std::int64_t allowed_spill_bytes = 0;
    std::string entry;
    Build result;
  };

  static void expect_clean(const std::vector<Compile>& compiles) {
    for (const Compile& compile : compiles) {
      const CompileResult& result = compile.result.get();
      ASSERT_TRUE(result) << compile.label << ": " << result.error().message;
      const CompiledKernel& kernel = **result;
      EXPECT_LE(kernel.resources().spill_bytes(), compile.allowed_spill_bytes) << compile.label;
      EXPECT_TRUE(kernel.warnings.empty()) << compile.label << ": " << kernel.warnings.front();
      EXPECT_TRUE(
          std::any_of(kernel.entries.begin(), kernel.entries.end(),
                      [&](const KernelEntry& entry) { return entry.name == compile.entry; }))
          << compile.label << ": no entry " << compile.entry;
    }
  }
};

// `kernwright check` compiles most of the defaults for Hopper, so what has the same text is not
// compiled here again. If a rule forbids the default, the first valid one is compiled. Rules may
// also leave a problem to another template of the device.
TEST_F(TemplateContractToolkitTest, BuiltInTemplatesPassTheirCheckAndDefaultsCompileCleanly) {
  using Compiled = std::pair<std::string, std::string>;  // the text's digest and a kernel in it
  std::map<Compiled, std::int64_t> spill_bytes;          // of what the check compiled
  bool any_paged = false;
  const nlohmann::json report = check_for_hopper();
  EXPECT_EQ(report["defects"], 0) << report;
  EXPECT_EQ(report["templates"], catalog_->templates().size());
  for (const nlohmann::json& row : report["compiled"]) {
    if (!row.contains("spill_bytes") || row["configuration"] == "") continue;
    const Candidate candidate = candidate_of(row);
    const std::string digest = render(candidate, *catalog_, kHopper).digest("").hex();
    for (const LaunchPlan& launch : candidate.plan.launches) {
      spill_bytes[{digest, launch.kernel}] = row["spill_bytes"];
    }
    any_paged = any_paged || (row["template"] == "attention/stream" &&
                              candidate.problem->text().find("cache=paged") != std::string::npos);
  }
  EXPECT_TRUE(any_paged) << "a template for few queries is compiled for its flags too";

  std::vector<Compile> compiles;
  for (const KernelTemplate& made : catalog_->templates()) {
    const Operation& operation = **catalog_->operation(made.operation);
    std::size_t found = 0;
    for (const DeviceProfile& profile : one_profile_per_arch()) {
      for (const BoundProblem& problem : variations_on(profile, operation)) {
        if (!applies(made, problem, profile)) continue;
        auto candidate = make_candidate(made, problem, made.default_configuration, profile);
        if (!candidate) {
          std::vector<Candidate> first = valid_candidates(made, problem, profile, 1);
          if (first.empty()) {
            const auto all = catalog_->templates_of(operation.name);
            ASSERT_TRUE(std::any_of(all.begin(), all.end(),
                                    [&](const KernelTemplate* other) {
                                      return applies(*other, problem, profile) &&
                                             !valid_candidates(*other, problem, profile, 1).empty();
                                    }))
                << made.name << ", " << problem.text() << " on " << profile.id << ": "
                << candidate.error().message;
            continue;
          }
          candidate = std::move(first.front());
        }
        ++found;
        const std::string label = made.name + ", " + problem.text() + " on " + profile.id;
        const CompileRequest request = render(*candidate, *catalog_, profile.sm_arch);
        const std::string digest = request.digest("").hex();
        for (const LaunchPlan& launch : candidate->plan.launches) {
          const auto checked = spill_bytes.find({digest, launch.kernel});
          if (checked != spill_bytes.end()) {
            EXPECT_LE(checked->second, made.allowed_spill_bytes) << label;
          } else {
            compiles.push_back(
                {label, made.allowed_spill_bytes, launch.kernel, pool_->submit(request)});
          }
        }
      }
    }
    EXPECT_GT(found, 0U) << made.name << " applies to no example";
  }
  expect_clean(compiles);
}

// griddepcontrol.wait is ACQBULK. If TMA loads the operands, one thread waits for all, and its code
// comes after the others'. Work that depends on the early start comes before it: prefetches (CCTL),
// and loads of the tensors that are read ahead.
TEST_F(TemplateContractToolkitTest, LaunchesThatWaitDoSoBeforeTheyTouchMemory) {
  const DeviceProfile profile = *find_profile("h200");
  int early = 0;
  for (const KernelTemplate& made : catalog_->templates()) {
    const Operation& operation = **catalog_->operation(made.operation);
    std::size_t checked = 0;
    for (const BoundProblem& problem : variations(operation)) {
      if (checked > 0 || !applies(made, problem, profile)) continue;
      const auto candidate = make_candidate(made, problem, made.default_configuration, profile);
      ASSERT_TRUE(candidate) << made.name << ": " << candidate.error().message;
      const CompileResult kernel =
          pool_->submit(render(*candidate, *catalog_, profile.sm_arch)).get();
      ASSERT_TRUE(kernel) << kernel.error().message;
      const auto counts = must(count_instructions((*kernel)->bits));
      for (const LaunchPlan& launch : candidate->plan.launches) {
        if (!launch.waits) continue;
        const InstructionCounts count = of_kernel(counts, launch.kernel);
        ASSERT_EQ(count.count("ACQBULK"), 1) << made.name << ' ' << launch.kernel;
        EXPECT_EQ(count.count("PREEXIT"), 1) << made.name << ' ' << launch.kernel;
        const bool by_tma = count.count("UTMALDG") > 0;
        bool any_ahead = false;
        for (const char* access : {"CCTL", "UTMALDG", "UBLKCP", "LDGSTS", "LDG", "STG"}) {
          if (count.count(access) == 0) continue;
          const bool before = count.first.at(access) < count.first.at("ACQBULK");
          any_ahead = any_ahead || before;
          if (access == std::string_view("CCTL")) continue;
          if (access != std::string_view("STG") && !launch.ahead.empty()) continue;
          if (by_tma && access != std::string_view("UTMALDG")) continue;
          EXPECT_FALSE(before) << made.name << ' ' << launch.kernel << ' ' << access;
        }
        // Tensors that are read ahead depend on the problem; tensors that are only prefetched do
        // not.
        if (launch.ahead.empty() &&
            std::ranges::count(launch.arguments, ArgumentKind::early, &ArgumentPlan::kind) > 0) {
          EXPECT_TRUE(any_ahead) << made.name << ' ' << launch.kernel;
          ++early;
        }
        ++checked;
      }
    }
    EXPECT_GT(checked, 0U) << made.name << " never waits";
  }
  EXPECT_GT(early, 0) << "matmul/direct at least";
}

// The check compiles them with every flag and dtype for Hopper.
TEST_F(TemplateContractToolkitTest, ReferencesAndInputKernelsCompileForEachArchitecture) {
  std::vector<Compile> compiles;
  for (const Operation& operation : catalog_->operations()) {
    const BoundProblem problem = must(BoundProblem::bind(operation, operation.example));
    for (const DeviceProfile& profile : one_profile_per_arch()) {
      if (profile.sm_arch == kHopper) continue;
      compiles.push_back({operation.name + " reference on " + profile.id,
                          std::numeric_limits<std::int64_t>::max(), operation.reference.kernel,
                          pool_->submit(render_reference(problem, *catalog_, profile.sm_arch))});
      if (!operation.input_kernels) continue;
      compiles.push_back(
          {operation.name + " inputs on " + profile.id, std::numeric_limits<std::int64_t>::max(),
           operation.input_kernels->timing,
           pool_->submit(render_input_kernels(problem, *catalog_, profile.sm_arch))});
    }
  }
  expect_clean(compiles);
}

TEST_F(TemplateContractToolkitTest, TheHopperMatmulIsMadeOfWgmmaAndTma) {
  const KernelTemplate& made = **catalog_->kernel_template("matmul/persistent_wave");
  const Operation& operation = **catalog_->operation("matmul");
  const auto candidate =
      must(make_candidate(made, *BoundProblem::bind(operation, operation.example),
                          made.default_configuration, *find_profile("h200")));
  const CompileResult kernel = pool_->submit(render(candidate, *catalog_, 90)).get();
  ASSERT_TRUE(kernel) << kernel.error().message;
  const auto counts = must(count_instructions((*kernel)->bits));
  const InstructionCounts count = of_kernel(counts, "matmul_persistent_wave");
  EXPECT_GE(count.count("HGMMA"), 4);
  EXPECT_EQ(count.count("HMMA"), 0);
  EXPECT_GE(count.count("UTMALDG"), 2);
  EXPECT_GE(count.count("UTMASTG"), 1);
  EXPECT_GE(count.count("USETMAXREG"), 2);
  // A serialised wgmma waits about twice for every instruction.
  EXPECT_LE(count.count("DEPBAR"), count.count("HGMMA"));
  EXPECT_EQ(count.count("LDL") + count.count("STL") + count.count("CALL"), 0);
}

// Compiles some valid configurations of each template and problem, evenly spread.
TEST_F(TemplateContractToolkitTest, HopperMatmulsOfEveryTypeAndLayoutAreMadeOfWgmma) {
  constexpr std::size_t kSamples = 3;
  struct Expected {
    const char* kernel_template;
    const char* entry;
    const char* problem;
    const char* instruction;
    bool late = false;  ///< only configurations that activate a tile during the next one
  };
  const Operation& operation = **catalog_->operation("matmul");
  const DeviceProfile profile = *find_profile("h200");
  for (const Expected& expected : {
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=fp8_e4m3 out=bf16", "QGMMA"},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=fp8_e4m3 out=bf16 accumulate=fast", "QGMMA"},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4000 n=6144 k=4103 dtype=fp8_e4m3 out=fp16 scaling=alpha bias=column "
                    "activation=gelu_erf residual=scaled",
                    "QGMMA"},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=bf16 b_layout=kn", "HGMMA"},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=bf16 bias=column activation=gelu_tanh",
                    "HGMMA", true},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4000 n=6141 k=4096 dtype=fp16 activation=gelu_erf gate=stacked",
                    "HGMMA", true},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=bf16 activation=silu gate=stacked "
                    "scaling=alpha b_layout=kn",
                    "HGMMA", true},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=fp8_e4m3 out=bf16 activation=silu", "QGMMA",
                    true},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=fp32 tf32=allow", "HGMMA"},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4001 n=6141 k=4097 dtype=fp32 tf32=allow activation=gelu_erf",
                    "HGMMA"},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=fp32 tf32=allow out=bf16 activation=silu "
                    "gate=stacked",
                    "HGMMA", true},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=bf16 out=fp32 bias=column", "HGMMA"},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=int8 out=bf16 scaling=row", "IGMMA"},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=int8 out=bf16 scaling=row activation=silu",
                    "IGMMA", true},
           Expected{"matmul/persistent_wave", "matmul_persistent_wave",
                    "matmul m=4096 n=6144 k=4096 dtype=fp8_e4m3 out=bf16 scaling=row", "QGMMA"},
           Expected{"matmul/skinny", "matmul_skinny",
                    "matmul m=100 n=6144 k=4096 dtype=fp8_e4m3 out=bf16", "QGMMA"},
           Expected{"matmul/skinny", "matmul_skinny",
                    "matmul m=100 n=6144 k=4096 dtype=int8 out=bf16 scaling=row", "IGMMA"},
           Expected{"matmul/skinny", "matmul_skinny",
                    "matmul m=100 n=6144 k=4096 dtype=fp32 tf32=allow", "HGMMA"},
           Expected{"matmul/skinny", "matmul_skinny",
                    "matmul m=4096 n=17 k=4097 dtype=fp32 tf32=allow out=bf16", "HGMMA"},
           Expected{"matmul/skinny", "matmul_skinny",
                    "matmul m=4096 n=17 k=4096 dtype=fp8_e4m3 out=fp32 accumulate=fast", "QGMMA"},
           Expected{"matmul/skinny", "matmul_skinny",
                    "matmul m=100 n=6144 k=4096 dtype=fp16 b_layout=kn", "HGMMA"},
       }) {
    const KernelTemplate& made = **catalog_->kernel_template(expected.kernel_template);
    const BoundProblem problem = *BoundProblem::bind(operation, *Problem::parse(expected.problem));
    std::vector<Candidate> valid = valid_candidates(made, problem, profile);
    std::erase_if(valid, [&](const Candidate& candidate) {
      return expected.late && candidate.scope.find("LATE").value_or(0) == 0;
    });
    ASSERT_GE(valid.size(), kSamples) << expected.problem;
    std::vector<Compile> compiles;
    for (std::size_t i = 0; i < kSamples; ++i) {
      const Candidate& candidate = valid[i * (valid.size() - 1) / (kSamples - 1)];
      compiles.push_back({concat(problem.text(), ": ", candidate.id()), made.allowed_spill_bytes,
                          expected.entry, pool_->submit(render(candidate, *catalog_, 90))});
    }
    expect_clean(compiles);
    for (const Compile& compile : compiles) {
      const CompileResult& kernel = compile.result.get();
      ASSERT_TRUE(kernel) << kernel.error().message;
      const InstructionCounts count =
          of_kernel(*count_instructions((*kernel)->bits), expected.entry);
      EXPECT_GE(count.count(expected.instruction), 4) << compile.label;
      EXPECT_LE(count.count("DEPBAR"), count.count(expected.instruction)) << compile.label;
      EXPECT_EQ(count.count("HMMA"), 0) << compile.label;
      EXPECT_EQ(count.count("LDL") + count.count("STL") + count.count("CALL"), 0) << compile.label;
    }
  }
}

// The main loop is the bare product's with as many rows of b; both sums of an element are in one
// thread, so only the activation is added.
TEST_F(TemplateContractToolkitTest, GatedMatmulsCompileCleanlyWithTheBareMainLoop) {
  const Operation& matmul = **catalog_->operation("matmul");
  const auto submit = [&](std::string_view name, std::string_view problem,
                          const std::vector<std::pair<std::string, std::int64_t>>& changed) {
    const KernelTemplate& made = **catalog_->kernel_template(name);
    auto values = made.default_configuration.values();
    for (auto& [parameter, value] : values) {
      for (const auto& [other, to] : changed) value = parameter == other ? to : value;
    }
    const auto candidate =
        must(make_candidate(made, *BoundProblem::bind(matmul, *Problem::parse(problem)),
                            Configuration(std::move(values)), *find_profile("h200")));
    return pool_->submit(render(candidate, *catalog_, 90));
  };
  struct Case {
    const char* name;
    const char* sizes;
    std::vector<std::pair<std::string, std::int64_t>> changed;
  };
  const std::vector<Case> cases = {
      {"persistent_wave", "m=4096 n=6144 k=4096", {}},
      {"persistent_wave", "m=4096 n=6144 k=4096", {{"CM", 2}}},
      {"persistent_wave", "m=4096 n=6144 k=4096", {{"BM", 256}, {"BN", 128}}},
      {"persistent_wave", "m=4096 n=6144 k=4096", {{"BN", 176}, {"STAGES", 5}}},
      {"skinny", "m=64 n=6144 k=4096", {{"BM", 64}, {"STAGES", 3}}},
      {"skinny", "m=16 n=6144 k=4096", {{"BM", 16}, {"STAGES", 3}}}};
  std::vector<Compile> compiles;
  for (const Case& one : cases) {
    const std::string name = concat("matmul/", one.name);
    const std::string entry = concat("matmul_", one.name);
    const std::string problem = concat("matmul ", one.sizes, " dtype=bf16");
    const auto bare = submit(name, problem, one.changed);
    const auto products = of_kernel(*count_instructions((*bare.get())->bits), entry);
    for (const char* activation : {"silu", "gelu_tanh", "gelu_erf"}) {
      const std::string gated = concat(problem, " gate=stacked activation=", activation);
      compiles.push_back({concat(name, ", ", gated), 0, entry, submit(name, gated, one.changed)});
      const CompileResult& kernel = compiles.back().result.get();
      ASSERT_TRUE(kernel) << kernel.error().message;
      const auto count = of_kernel(*count_instructions((*kernel)->bits), entry);
      const int stack = one.name == std::string("skinny") ? 2 : 1;
      EXPECT_EQ(count.count("HGMMA"), stack * products.count("HGMMA")) << gated;
      EXPECT_LE(count.count("DEPBAR"), products.count("DEPBAR")) << gated;
      EXPECT_EQ(count.count("LDL") + count.count("STL") + count.count("CALL"), 0) << gated;
    }
  }
  expect_clean(compiles);
}

TEST_F(TemplateContractToolkitTest, MatmulsOfFewRowsKeepTheirLoadsTogether) {
  const auto compile = [&](const char* name) {
    const KernelTemplate& made = **catalog_->kernel_template(name);
    const BoundProblem problem =
        *catalog_->bind(*Problem::parse("matmul m=5 n=4096 k=4096 dtype=fp16"));
    const auto candidate =
        must(make_candidate(made, problem, made.default_configuration, *find_profile("h200")));
    return *pool_->submit(render(candidate, *catalog_, 90)).get();
  };
  const auto ring = compile("matmul/skinny");
  const InstructionCounts in_ring = of_kernel(*count_instructions(ring->bits), "matmul_skinny");
  EXPECT_EQ(in_ring.count("HGMMA"), 8);    // of one stage: the loop is rolled
  EXPECT_EQ(in_ring.count("UTMALDG"), 6);  // loads of b with a hint, and without
  EXPECT_EQ(in_ring.count("LDL") + in_ring.count("STL") + in_ring.count("CALL"), 0);
  const auto direct = compile("matmul/direct");
  const InstructionCounts in_direct = count_instructions(direct->bits)->front();
  EXPECT_EQ(in_direct.count("HMMA"), 36);  // a batch ahead of the loop, one of it, and the end
  EXPECT_GE(direct->resources().registers, 80);  // a batch alone is 48
  EXPECT_EQ(in_direct.count("LDL") + in_direct.count("STL") + in_direct.count("CALL"), 0);
}

// An odd number of columns takes about as many loads and stores as an even one; element by element
// it would take eight times as many. There are more for the partial vectors at the ends of a row,
// and a second vector of weights, which are not aligned like the row. Code that reads weights is
// compiled once for each number of words by which they are shifted.
TEST_F(TemplateContractToolkitTest, RowsThatBeginAnywhereAreReadAndWrittenInWholeVectors) {
  const auto compile = [&](const std::string& operation_name, const std::string& sizes,
                           const std::map<std::string, std::int64_t>& changed) {
    const KernelTemplate& made = **catalog_->kernel_template(concat(operation_name, "/row"));
    auto values = made.default_configuration.values();
    for (auto& [parameter, value] : values) {
      if (const auto other = changed.find(parameter); other != changed.end()) value = other->second;
    }
    const BoundProblem problem =
        *catalog_->bind(*Problem::parse(concat(operation_name, " dtype=bf16 ", sizes)));
    const auto candidate = must(
        make_candidate(made, problem, Configuration(std::move(values)), *find_profile("h200")));
    const CompileResult kernel = pool_->submit(render(candidate, *catalog_, 90)).get();
    EXPECT_TRUE(kernel) << kernel.error().message;
    const auto counts = *count_instructions((*kernel)->bits);
    const InstructionCounts count = of_kernel(counts, concat(operation_name, "_row"));
    EXPECT_EQ(count.count("LDL") + count.count("STL"), 0) << operation_name << ' ' << sizes;
    return count;
  };
  constexpr int kElements = 8;  // of a vector
  constexpr int kWords = 4;
  constexpr int kParts = 8 + 4 + 2;  // of 2, 4 and 8 bytes, one of which is written
  for (const char* operation : {"rmsnorm", "layernorm", "softmax", "reduce"}) {
    // Ten vectors a thread: a row begins in the first and ends in one of the last two. With zeros
    // rmsnorm writes all of them in one place.
    const std::map<std::string, std::int64_t> straight = {{"RESIDENT", 512}};
    const auto even = compile(operation, "rows=100 columns=40000", straight);
    const auto odd = compile(operation, "rows=100 columns=40001", straight);
    const std::string without = operation == std::string("rmsnorm")     ? " weight=none"
                                : operation == std::string("layernorm") ? " weight=none bias=none"
                                                                        : "";
    const int copies = without.empty() ? 1 : kWords;
    EXPECT_LE(odd.count("LDG"), copies * (2 * even.count("LDG") + 2 * kElements)) << operation;
    EXPECT_LE(odd.count("STG"), copies * (even.count("STG") + 4 * kParts)) << operation;
    if (!without.empty()) {
      const auto even_alone = compile(operation, "rows=100 columns=40000" + without, straight);
      const auto odd_alone = compile(operation, "rows=100 columns=40001" + without, straight);
      EXPECT_LE(odd_alone.count("LDG"), 2 * even_alone.count("LDG") + 2 * kElements) << operation;
      EXPECT_LE(odd_alone.count("STG"), even_alone.count("STG") + 4 * kParts) << operation;
    }
    // A ring holds them too.
    const std::map<std::string, std::int64_t> ring = {
        {"THREADS_PER_ROW", 384}, {"STAGES", 2}, {"RESIDENT", 768}};
    const auto copied = compile(operation, "rows=1501 columns=5003", ring);
    EXPECT_GT(copied.count("UBLKCP"), 0) << operation;
  }
}

TEST_F(TemplateContractToolkitTest, TheTiledMatmulIsMadeOfMmaAndAsynchronousCopies) {
  const KernelTemplate& made = **catalog_->kernel_template("matmul/tiled");
  const Operation& operation = **catalog_->operation("matmul");
  const auto candidate =
      must(make_candidate(made, *BoundProblem::bind(operation, operation.example),
                          made.default_configuration, *find_profile("a100_80")));
  const CompileResult kernel = pool_->submit(render(candidate, *catalog_, 80)).get();
  ASSERT_TRUE(kernel) << kernel.error().message;
  const auto counts = must(count_instructions((*kernel)->bits));
  EXPECT_GT(counts.front().count("HMMA"), 0);
  EXPECT_GT(counts.front().count("LDSM"), 0);
  EXPECT_GT(counts.front().count("LDGSTS"), 0);
  EXPECT_EQ(counts.front().count("LDL") + counts.front().count("STL"), 0);
}

}  // namespace
}  // namespace kernwright
