#include "model/candidate/candidate.h"

#include <gtest/gtest.h>
#include <regex>

#include "support/text.h"
#include "tests/model/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

Configuration configuration(std::int64_t rows, std::int64_t stages, std::int64_t group) {
  return Configuration({{"ROWS", rows}, {"STAGES", stages}, {"GROUP", group}});
}

/// Makes the candidate of the sample template, possibly changed, or returns the message of its
/// refusal.
class CandidateTest : public ::testing::Test {
 protected:
  BoundProblem bound(const Problem& problem) const {
    return BoundProblem::bind(operation_, problem).value();
  }

  Result<Candidate> make(const Configuration& point,
                         const Problem& problem = scale_problem(100, 256),
                         const DeviceProfile& profile = h200()) {
    return make_candidate(template_, bound(problem), point, profile);
  }

  std::string rejection(std::string_view from, std::string_view to,
                        const Problem& problem = scale_problem(100, 256)) {
    template_ = scale_template(operation_, replaced(kScaleManifest, from, to));
    const Result<Candidate> made = make(configuration(8, 2, 4), problem);
    return made ? "accepted" : without_place(made.error().message);
  }

  /// The message without the line of the manifest that it must start with.
  static std::string without_place(const std::string& message) {
    std::smatch place;
    const std::regex pattern("scale/boxes/manifest.json:[0-9]+: ");
    const bool found =
        std::regex_search(message, place, pattern, std::regex_constants::match_continuous);
    EXPECT_TRUE(found) << message;
    return found ? place.suffix().str() : message;
  }

  Operation operation_ = scale_operation();
  KernelTemplate template_ = scale_template(operation_);
};

TEST_F(CandidateTest, PlanHoldsEverythingALaunchNeeds) {
  const Candidate made = must(make(configuration(8, 2, 4)));
  EXPECT_EQ(made.id(), "scale/boxes ROWS=8 STAGES=2 GROUP=4");
  EXPECT_EQ(made.scope.find("SMEM_BYTES"), 2 * 8 * 256 * 2);
  const ExecutionPlan& plan = made.plan;
  ASSERT_EQ(plan.tensors.size(), 3U);
  ASSERT_EQ(plan.tensor_maps.size(), 2U);
  const TensorMapPlan& map = plan.tensor_maps[0];
  EXPECT_EQ(map.tensor, 0U);
  EXPECT_EQ(map.dims, (std::vector<std::uint64_t>{256, 100}));
  EXPECT_EQ(map.strides_bytes, std::vector<std::uint64_t>{512});
  EXPECT_EQ(map.box, (std::vector<std::uint32_t>{64, 8}));
  EXPECT_EQ(map.swizzle, 128);
  EXPECT_EQ(map.l2_promotion, 128);
  EXPECT_TRUE(plan.tensor_maps[1].strides_bytes.empty());
  ASSERT_EQ(plan.launches.size(), 2U);
  const LaunchPlan& launch = plan.launches[0];
  EXPECT_EQ(launch.grid, (Extent3{13, 1, 1}));
  EXPECT_EQ(launch.block, (Extent3{128, 1, 1}));
  EXPECT_EQ(launch.cluster, (Extent3{1, 1, 1}));
  EXPECT_EQ(launch.dynamic_smem, 8192U);
  ASSERT_EQ(launch.arguments.size(), 8U);
  EXPECT_EQ(launch.arguments[1].index, 1U);
  EXPECT_EQ(launch.arguments[3].index, 2U);
  EXPECT_EQ(launch.arguments[4].value, 100);
  EXPECT_EQ(launch.arguments[5].kind, ArgumentKind::int64);
  EXPECT_EQ(launch.arguments[5].value, 25600);
  EXPECT_EQ(plan.launches[1].kernel, "scale_tail");
  EXPECT_EQ(plan.workspaces[0].bytes, 16);
  EXPECT_TRUE(plan.workspaces[0].zeroed);
  EXPECT_EQ(plan.workspace_bytes(), 256);
}

TEST_F(CandidateTest, LaunchesWhoseConditionFailsAreLeftOut) {
  EXPECT_EQ(make(configuration(8, 2, 4), scale_problem(96, 256))->plan.launches.size(), 1U);
}

TEST_F(CandidateTest, ArgumentsOfEarlyLaunchesKeepTheirValueInThePlan) {
  constexpr std::string_view kTail = "\"arguments\": [{\"int32\": \"GROUP\"}]";
  for (const char* condition : {"waits", "programmatic"}) {
    template_ = scale_template(
        operation_, replaced(kScaleManifest, kTail,
                             concat("\"", condition,
                                    "\": \"1\", \"arguments\": [{\"early\": \"GROUP * n\"}]")));
    const Candidate made = must(make(configuration(8, 2, 4)));
    const ArgumentPlan& argument = made.plan.launches[1].arguments[0];
    EXPECT_EQ(argument.kind, ArgumentKind::early);
    EXPECT_EQ(argument.value, 4 * 256);
  }
  EXPECT_EQ(rejection(kTail, "\"waits\": \"1\", \"arguments\": [{\"early\": \"n * 16777216\"}]"),
            "launch scale_tail: argument \"n * 16777216\" is 4294967296, not an int32");
}

TEST_F(CandidateTest, LaunchesKnowWhichOfTheirTensorsTheyReadAhead) {
  template_ =
      scale_template(operation_, replaced(kScaleManifest, "\"arguments\": [{\"int32\": \"GROUP\"}]",
                                          "\"waits\": \"1\", \"ahead\": [\"w\", \"a\"], "
                                          "\"arguments\": [{\"ahead\": \"GROUP\"}]"));
  const Candidate made = must(make(configuration(8, 2, 4)));
  EXPECT_EQ(made.plan.launches[0].ahead, std::vector<std::size_t>{});
  EXPECT_EQ(made.plan.launches[1].ahead, (std::vector<std::size_t>{1, 0}));
  const Candidate without =
      must(make(configuration(8, 2, 4), scale_problem(100, 256).with("weight", "none")));
  EXPECT_EQ(without.plan.launches[1].ahead, std::vector<std::size_t>{0});
}

TEST_F(CandidateTest, PlansDifferInAChainByMoreThanHowTheFirstLaunchStarts) {
  const auto plan = [&](std::string_view programmatic, std::string_view early, int group) {
    template_ = scale_template(
        operation_,
        replaced(replaced(kScaleManifest, "\"grid\": [\"min(tiles, sm_count)\"]",
                          concat("\"programmatic\": \"", programmatic,
                                 "\", \"waits\": \"1\", \"grid\": [\"min(tiles, sm_count)\"]")),
                 "{\"workspace\": \"counters\"}", concat("{\"early\": \"", early, "\"}")));
    return must(make(configuration(8, 2, group))).plan;
  };
  const ExecutionPlan base = plan("0", "1", 4);
  EXPECT_TRUE(same_in_chain(base, plan("1", "1", 4)));
  EXPECT_FALSE(same_in_chain(base, plan("0", "2", 4)));
  EXPECT_TRUE(same_when_late(base, plan("1", "2", 4)));
  EXPECT_FALSE(same_when_late(base, plan("1", "2", 1))) << "another argument of the last launch";
}

TEST_F(CandidateTest, AbsentTensorsArePassedAsAbsent) {
  const Candidate made =
      must(make(configuration(8, 2, 4), scale_problem(100, 256).with("weight", "none")));
  EXPECT_EQ(made.plan.tensors.size(), 2U);
  EXPECT_EQ(made.plan.tensor_maps.size(), 1U);
  const auto& arguments = made.plan.launches[0].arguments;
  EXPECT_EQ(arguments[1].index, ArgumentPlan::kAbsent);
  EXPECT_EQ(arguments[2].index, ArgumentPlan::kAbsent);
  EXPECT_EQ(arguments[3].index, 1U);
}

TEST_F(CandidateTest, FailedRuleTellsBothValuesAndWhy) {
  EXPECT_THAT(
      make(configuration(64, 4, 4), scale_problem(100, 2048)),
      Fails(ErrorCode::invalid_argument,
            "scale/boxes/manifest.json:19: rule \"SMEM_BYTES <= smem_per_block_optin\" failed: "
            "1048576 > 232448 (the ring must fit)"));
  EXPECT_THAT(make(configuration(64, 4, 4), scale_problem(100, 64)),
              Fails("scale/boxes/manifest.json:20: rule \"ROWS * STAGES <= 128\" failed: 256 > 128 "
                    "(no more rows in flight)"));
}

TEST_F(CandidateTest, OverflowInARuleOrADerivedValueRejects) {
  EXPECT_EQ(
      rejection("ROWS * STAGES <= 128", "m / (GROUP - 4) == 0"),
      "rule \"m / (GROUP - 4) == 0\" failed: division by zero in \"m / (GROUP - 4)\": 100 / 0 "
      "(no more rows in flight)");
  EXPECT_EQ(rejection("ceil_div(m, ROWS)", "m * 9223372036854775807"),
            "derived value tiles failed: overflow in \"m * 9223372036854775807\": 100 * "
            "9223372036854775807");
}

TEST_F(CandidateTest, OtherArchitecturesAndProblemsAreRefusedWithTheReason) {
  EXPECT_THAT(
      make(configuration(8, 2, 4), scale_problem(100, 256), find_profile("a100_40").value()),
      Fails("scale/boxes runs on sm_90 alone, the device is sm_80"));
  EXPECT_THAT(make(configuration(8, 2, 4), scale_problem(100, 255)),
              Fails("scale/boxes applies when \"n % 8 == 0\": 7 != 0"));
  EXPECT_FALSE(applies(template_, bound(scale_problem(100, 255)), h200()));
  EXPECT_TRUE(applies(template_, bound(scale_problem(100, 256)), h200()));
}

TEST_F(CandidateTest, ATensorThatNoKernelTakesIsAProblemsOwn) {
  const std::string lacking =
      replaced(replaced(kScaleManifest, R"("w", "box": ["64"])", R"("a", "box": ["1", "64"])"),
               R"({"tensor": "w"}, )", "");
  const auto refusal = [&](std::string_view operation, std::string_view manifest) {
    const Operation own = must(parse_operation(operation, "o.json", "// reference"));
    const BoundProblem problem = must(BoundProblem::bind(own, scale_problem(100, 256)));
    const Result<void> fits = applies(scale_template(own, manifest), problem, h200());
    return fits ? "" : fits.error().message;
  };
  EXPECT_EQ(refusal(kScaleOperation, kScaleManifest), "");
  EXPECT_EQ(refusal(kScaleOperation, lacking),
            "scale/boxes passes the tensor w to no kernel, and the problem has it");
  const auto says = [](std::string_view more) {
    return replaced(kScaleOperation, R"("when": "weight == weight_scale")", more);
  };
  EXPECT_EQ(refusal(says(R"("when": "weight == weight_none")"), lacking), "");
  EXPECT_EQ(refusal(says(R"("when": "weight == weight_scale", "hint": true)"), lacking), "");
}

TEST_F(CandidateTest, ConfigurationMustBeAPointOfTheSpace) {
  EXPECT_EQ(make(configuration(16, 2, 4)).error().message,
            "parameter ROWS: 16 is not in its list of values");
  EXPECT_EQ(make(Configuration({{"ROWS", 8}})).error().message,
            "configuration \"ROWS=8\" has 1 values for 3 parameters");
  EXPECT_EQ(make(Configuration({{"STAGES", 2}, {"ROWS", 8}, {"GROUP", 4}})).error().message,
            "configuration \"STAGES=2 ROWS=8 GROUP=4\" has STAGES in the place of parameter ROWS");
}

TEST_F(CandidateTest, AnOlderRecordMayNameWhatIsDerivedAndBoundNow) {
  template_ = scale_template(operation_, replaced(kScaleManifest, kTiles, kBoundTiles));
  const auto named = [](std::int64_t tiles) {
    return Configuration({{"ROWS", 8}, {"tiles", tiles}, {"STAGES", 2}, {"GROUP", 4}});
  };
  const Candidate made = must(make(named(13)));
  EXPECT_EQ(made.configuration, configuration(8, 2, 4));
  EXPECT_EQ(make(named(12)).error().message,
            "configuration \"ROWS=8 tiles=12 STAGES=2 GROUP=4\" has tiles=12, which is derived and "
            "not that");
}

TEST_F(CandidateTest, LaunchLimitsAreChecked) {
  EXPECT_EQ(rejection("[\"128\"]", "[\"64\", \"32\"]"),
            "launch scale_boxes: 2048 threads per block > 1024");
  EXPECT_EQ(rejection("[\"128\"]", "[\"1\", \"1\", \"128\"]"),
            "launch scale_boxes: block z \"128\" is 128, not in 1 to 64");
  EXPECT_EQ(rejection("min(tiles, sm_count)", "0"),
            "launch scale_boxes: grid x \"0\" is 0, not in 1 to 2147483647");
  EXPECT_EQ(rejection("\"min(tiles, sm_count)\"", "\"1\", \"m * 656\""),
            "launch scale_boxes: grid y \"m * 656\" is 65600, not in 1 to 65535");
  EXPECT_EQ(rejection("\"cluster\": [\"1\"]", "\"cluster\": [\"16\"]"),
            "launch scale_boxes: 16 blocks per cluster > 8");
  EXPECT_EQ(rejection("\"cluster\": [\"1\"]", "\"cluster\": [\"2\"]"),
            "launch scale_boxes: grid x 13 is no multiple of the cluster's 2");
  EXPECT_EQ(rejection("\"dynamic_smem\": \"SMEM_BYTES\"", "\"dynamic_smem\": \"232449\""),
            "launch scale_boxes: dynamic_smem \"232449\" is 232449, not in 0 to 232448");
  EXPECT_EQ(rejection("\"dynamic_smem\"", "\"cooperative\": \"2\", \"dynamic_smem\""),
            "launch scale_boxes: cooperative \"2\" is 2, not 0 or 1");
  EXPECT_EQ(rejection("\"min(tiles, sm_count)\"], ", "\"5000\"], \"cooperative\": \"1\", "),
            "launch scale_boxes: a cooperative grid of 5000 blocks > 4224 that can be resident");
  EXPECT_EQ(rejection("{\"int32\": \"m\"}", "{\"int32\": \"m * 2147483648\", \"name\": \"wide\"}"),
            "launch scale_boxes: argument \"m * 2147483648\" is 214748364800, not an int32");
  EXPECT_EQ(rejection("GROUP * 4", "GROUP - 5"),
            "workspace counters: bytes \"GROUP - 5\" is -1, not in 0 to 2^48");
  EXPECT_EQ(rejection("min(tiles, sm_count)", "tiles / (GROUP - 4)"),
            "launch scale_boxes: grid failed: division by zero in \"tiles / (GROUP - 4)\": 13 / 0");
}

TEST_F(CandidateTest, ADemandIsANumberFromZeroOn) {
  const std::string_view spills = "\"spill_bytes\": 8";
  EXPECT_EQ(rejection(spills, "\"cost\": {\"tiles\": \"1 - GROUP\"}"),
            "demand tiles failed: -3 < 0");
  EXPECT_EQ(rejection(spills, "\"cost\": {\"tiles\": \"1 / (GROUP - 4)\"}"),
            "demand tiles failed: division by zero in \"1 / (GROUP - 4)\": 1 / 0");
}

TEST_F(CandidateTest, WhatOnlyHopperHasIsRefusedOnOlderDevices) {
  const auto on_a100 = [&](std::string_view from, std::string_view to) {
    std::string manifest =
        replaced(kScaleManifest, "\"min\": 90, \"max\": 90, \"specific\": true", "\"min\": 80");
    if (from != "\"tensor_maps\"") {
      manifest =
          replaced(manifest, "{\"tensor_map\": \"map_a\"}, {\"tensor_map\": \"map_w\"}, ", "");
      const std::size_t begin = manifest.find("  \"tensor_maps\"");
      manifest.erase(begin, manifest.find("  \"workspace\"") - begin);
    }
    template_ = scale_template(operation_, from.empty() ? manifest : replaced(manifest, from, to));
    const Result<Candidate> made =
        make(configuration(8, 2, 4), scale_problem(128, 256), *find_profile("a100_80"));
    return made ? "accepted" : without_place(made.error().message);
  };
  EXPECT_EQ(on_a100("", ""), "accepted");
  EXPECT_EQ(on_a100("\"cluster\": [\"1\"]", "\"cluster\": [\"2\"]"),
            "launch scale_boxes: clusters need sm_90, the device is sm_80");
  EXPECT_EQ(on_a100("\"cluster\": [\"1\"]", "\"programmatic\": \"1\", \"waits\": \"1\""),
            "launch scale_boxes: programmatic launches need sm_90, the device is sm_80");
  EXPECT_EQ(on_a100("\"tensor_maps\"", "\"tensor_maps\""),
            "tensor map map_a: TMA needs sm_90, the device is sm_80");
}

TEST_F(CandidateTest, TensorMapLimitsAreChecked) {
  EXPECT_EQ(rejection("[\"ROWS\", \"64\"]", "[\"ROWS\", \"128\"]"),
            "tensor map map_a: the box's inner 256 bytes > the swizzle's span of 128");
  EXPECT_EQ(rejection("[\"ROWS\", \"64\"]", "[\"ROWS\", \"4\"]"),
            "tensor map map_a: the box's inner 8 bytes are no multiple of 16");
  EXPECT_EQ(rejection("[\"ROWS\", \"64\"]", "[\"ROWS * 64\", \"64\"]"),
            "tensor map map_a: box \"ROWS * 64\" is 512, not in 1 to 256");
  EXPECT_EQ(rejection("\"swizzle\": \"128\"", "\"swizzle\": \"16\""),
            "tensor map map_a: swizzle 16 is not one of 0, 32, 64, 128");
  EXPECT_EQ(rejection("? 128 : 256", "? 96 : 256"),
            "tensor map map_a: l2_promotion 96 is not one of 0, 64, 128, 256");
  EXPECT_EQ(rejection("\"n % 8 == 0\"", "", scale_problem(100, 100)),
            "tensor map map_a: a stride of 200 bytes is no multiple of 16");
}

/// The sample with a copy of `a` in a workspace, for problems whose rows are not a multiple of 16
/// bytes.
std::string with_copy(std::string_view pitch, std::string_view bytes) {
  std::string manifest = replaced(kScaleManifest, "\"n % 8 == 0\"", "");
  manifest =
      replaced(manifest, "{\"tensor\": \"a\", ",
               concat("{\"tensor\": \"a\", \"copy\": {\"workspace\": \"copy_a\", \"pitch\": \"",
                      pitch, "\"}, "));
  return replaced(manifest, "\"workspace\": {\"counters\"",
                  concat("\"workspace\": {\"copy_a\": {\"bytes\": \"", bytes, "\"}, \"counters\""));
}

TEST_F(CandidateTest, ATensorMapReadsTheCopyWhereThereIsOne) {
  template_ = scale_template(
      operation_, with_copy("round_up(n, 64)", "n % 8 == 0 ? 0 : m * round_up(n, 64) * 2"));
  const Candidate copied = must(make(configuration(8, 2, 4), scale_problem(100, 101)));
  const TensorMapPlan& map = copied.plan.tensor_maps[0];
  EXPECT_EQ(map.workspace, 0U);
  EXPECT_EQ(map.dims, (std::vector<std::uint64_t>{101, 100}));
  EXPECT_EQ(map.strides_bytes, std::vector<std::uint64_t>{256});
  EXPECT_EQ(copied.plan.tensor_maps[1].workspace, TensorMapPlan::kInTensor);

  const Candidate direct = must(make(configuration(8, 2, 4), scale_problem(100, 104)));
  EXPECT_EQ(direct.plan.tensor_maps[0].workspace, TensorMapPlan::kInTensor);
  EXPECT_EQ(direct.plan.tensor_maps[0].strides_bytes, std::vector<std::uint64_t>{208});
}

TEST_F(CandidateTest, ATensorMapFollowsRowsThatLieApart) {
  const std::string text =
      replaced(replaced(kScaleOperation, R"("n": {"bind": "exact"}})",
                        R"("n": {"bind": "exact"}, "pitch": {"bind": "exact", "default": "n"}})"),
               R"("dtype": "dtype", "extent": ["m", "n"]},)",
               R"("dtype": "dtype", "extent": ["m", "n"], "pitches": ["pitch"]},)");
  operation_ = parse_operation(text, "scale/operation.json", "").value();
  const auto problem = [&](std::string_view wanted) {
    return operation_.normalize(Problem::parse(wanted).value()).value();
  };
  const Problem wider = problem("scale m=100 n=256 pitch=264 dtype=bf16");
  template_ = scale_template(operation_);
  EXPECT_THAT(make(configuration(8, 2, 4), wider),
              Fails("scale/boxes applies when \"pitch == (n)\": 264 != 256"))
      << "a manifest that does not name a dim is for its default";
  EXPECT_TRUE(make(configuration(8, 2, 4), problem("scale m=100 n=256 dtype=bf16")));

  template_ = scale_template(operation_, replaced(kScaleManifest, R"("n": "constant"})",
                                                  R"("n": "constant", "pitch": "runtime"})"));
  const Candidate made = must(make(configuration(8, 2, 4), wider));
  EXPECT_EQ(made.plan.tensor_maps[0].dims, (std::vector<std::uint64_t>{256, 100}));
  EXPECT_EQ(made.plan.tensor_maps[0].strides_bytes, std::vector<std::uint64_t>{528});
  const Result<Candidate> odd =
      make(configuration(8, 2, 4), problem("scale m=100 n=256 pitch=257 dtype=bf16"));
  ASSERT_FALSE(odd);
  EXPECT_EQ(without_place(odd.error().message),
            "tensor map map_a: a stride of 514 bytes is no multiple of 16");
}

TEST_F(CandidateTest, ATensorMapHasAStrideForEachPitch) {
  operation_ =
      parse_operation(replaced(kScaleOperation, R"("dtype": "dtype", "extent": ["m", "n"]},)",
                               R"("dtype": "dtype", "extent": ["m", "3", "n"],
                               "pitches": ["4 * n + 8", "n + 8"]},)"),
                      "scale/operation.json", "")
          .value();
  template_ = scale_template(operation_, replaced(kScaleManifest, R"("box": ["ROWS", "64"])",
                                                  R"("box": ["ROWS", "1", "64"])"));
  const Candidate made = must(make(configuration(8, 2, 4)));
  EXPECT_EQ(made.plan.tensor_maps[0].dims, (std::vector<std::uint64_t>{256, 3, 100}));
  EXPECT_EQ(made.plan.tensor_maps[0].strides_bytes, (std::vector<std::uint64_t>{528, 2064}));
}

TEST_F(CandidateTest, ATensorMapMayHaveOtherDimsForTheSameElements) {
  const auto make_with = [&](std::string_view view) {
    template_ = scale_template(
        operation_, replaced(kScaleManifest, R"("box": ["ROWS", "64"])",
                             concat(R"("view": )", view, R"(, "box": ["ROWS", "1", "64"])")));
    return make(configuration(8, 2, 4));
  };
  const Candidate made = must(make_with(R"(["m", "n / 64", "64"])"));
  EXPECT_EQ(made.plan.tensor_maps[0].dims, (std::vector<std::uint64_t>{64, 4, 100}));
  EXPECT_EQ(made.plan.tensor_maps[0].strides_bytes, (std::vector<std::uint64_t>{128, 512}));

  const Result<Candidate> fewer = make_with(R"(["m", "3", "64"])");
  ASSERT_FALSE(fewer);
  EXPECT_EQ(without_place(fewer.error().message),
            "tensor map map_a: a view of 19200 elements of tensor a with 25600");

  operation_ =
      parse_operation(replaced(kScaleOperation, R"("dtype": "dtype", "extent": ["m", "n"]},)",
                               R"("dtype": "dtype", "extent": ["m", "n"], "pitches": ["n + 8"]},)"),
                      "scale/operation.json", "")
          .value();
  const Result<Candidate> apart = make_with(R"(["m", "n / 64", "64"])");
  ASSERT_FALSE(apart);
  EXPECT_EQ(without_place(apart.error().message),
            "tensor map map_a: a view of tensor a, whose dim 0 has a pitch of 264 and not 256");
}

TEST_F(CandidateTest, AWorkspaceMayBeKeptZero) {
  const auto with = [](std::string_view fields) {
    return replaced(
        kScaleManifest, R"("counters": {"bytes": "GROUP * 4", "zeroed": "1"})",
        concat(R"("first": {"bytes": "300"}, "counters": {"bytes": "GROUP * 4", )", fields, "}"));
  };
  template_ = scale_template(operation_, with(R"("kept_zero": "1")"));
  const Candidate made = must(make(configuration(8, 2, 4)));
  EXPECT_FALSE(made.plan.workspaces[1].zeroed);
  const std::vector<WorkspacePart> parts = made.plan.kept_zero();
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].name, "counters");
  EXPECT_EQ(parts[0].offset, 512);
  EXPECT_EQ(parts[0].bytes, 16);

  template_ = scale_template(operation_, with(R"("zeroed": "1", "kept_zero": "GROUP == 4")"));
  const Result<Candidate> both = make(configuration(8, 2, 4));
  ASSERT_FALSE(both);
  EXPECT_EQ(
      without_place(both.error().message),
      "workspace counters: zeroed \"1\" and kept_zero \"GROUP == 4\" are both 1: what is kept "
      "zero needs no zeroing");
}

TEST_F(CandidateTest, ACopyHasTheRightPitchAndRoomForAllRows) {
  const auto refusal = [&](std::string_view pitch, std::string_view bytes) {
    template_ = scale_template(operation_, with_copy(pitch, bytes));
    const Result<Candidate> made = make(configuration(8, 2, 4), scale_problem(100, 101));
    EXPECT_FALSE(made);
    return made ? "" : without_place(made.error().message);
  };
  EXPECT_EQ(refusal("n - 5", "65536"),
            "tensor map map_a: pitch \"n - 5\" is 96, not in 101 to 2^32");
  EXPECT_EQ(refusal("n", "65536"), "tensor map map_a: a stride of 202 bytes is no multiple of 16");
  EXPECT_EQ(refusal("128", "25599"),
            "tensor map map_a: a copy of 25600 bytes > 25599 of workspace copy_a");
}

TEST_F(CandidateTest, ATensorMapIsLeftOutWhereItsConditionFails) {
  template_ = scale_template(
      operation_, replaced(kScaleManifest, "\"swizzle\": \"none\"", "\"when\": \"n < 256\""));
  const Candidate made = must(make(configuration(8, 2, 4)));
  EXPECT_EQ(made.plan.tensor_maps.size(), 1U);
  EXPECT_EQ(made.plan.launches[0].arguments[1].index, ArgumentPlan::kAbsent);
}

TEST_F(CandidateTest, ReferencePlanPassesUnroundedOutputs) {
  const ExecutionPlan plan = must(make_reference_plan(bound(scale_problem(100, 300)), h200()));
  ASSERT_EQ(plan.launches.size(), 1U);
  EXPECT_EQ(plan.launches[0].grid, (Extent3{2, 100, 1}));
  const auto& arguments = plan.launches[0].arguments;
  EXPECT_EQ(arguments[2].kind, ArgumentKind::reference);
  EXPECT_EQ(arguments[2].index, 2U);
  EXPECT_EQ(arguments[3].kind, ArgumentKind::magnitude);
  EXPECT_EQ(arguments[4].value, 300);
}

TEST(ExecutionPlanTest, WorkspacesAreAlignedTo256Bytes) {
  ExecutionPlan plan;
  EXPECT_EQ(plan.workspace_bytes(), 0);
  plan.workspaces = {{"a", 1, false}, {"b", 0, false}, {"c", 256, true}};
  EXPECT_EQ(plan.workspace_bytes(), 512);
}

}  // namespace
}  // namespace kernwright
