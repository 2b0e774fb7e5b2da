#include "model/catalog/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/text.h"
#include "tests/model/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

TEST(ManifestTest, ReadsEveryField) {
  const Operation operation = scale_operation();
  const KernelTemplate made = scale_template(operation);
  EXPECT_EQ(made.name, "scale/boxes");
  EXPECT_EQ(made.manifest().place, "scale/boxes/manifest.json");
  EXPECT_EQ(made.source_file, "kernel.cu");
  EXPECT_THAT(made.manifest().text, HasSubstr("\"parameters\""));
  EXPECT_EQ(made.when.size(), 1U);
  EXPECT_EQ(made.constant_dims, std::vector<std::string>{"n"});
  EXPECT_EQ(made.space.size(), 12);
  EXPECT_EQ(made.space.parameters()[1].binding, Binding::compile);
  EXPECT_EQ(made.space.parameters()[2].binding, Binding::runtime);
  EXPECT_EQ(made.default_configuration.text(), "ROWS=8 STAGES=2 GROUP=4");
  EXPECT_EQ(made.allowed_spill_bytes, 8);
  EXPECT_EQ(made.rules[1].place.line, 20);
  EXPECT_EQ(made.rules[1].why, "no more rows in flight");
  EXPECT_EQ(made.tensor_maps[1].swizzle.text(), "0");
  EXPECT_EQ(made.workspaces[0].name, "counters");
  EXPECT_EQ(made.launches.size(), 2U);
  EXPECT_EQ(made.launches[0].arguments.size(), 8U);
  EXPECT_EQ(made.launches[1].dynamic_smem.text(), "0");
}

TEST(ManifestTest, OnlyWhatTheCompilerKnowsIsPasted) {
  const Operation operation = scale_operation();
  const KernelTemplate made = scale_template(operation);
  EXPECT_TRUE(made.derived[0].pasted);   // parameters, a constant dim, a dtype's size
  EXPECT_FALSE(made.derived[1].pasted);  // m is a run-time dim
  const KernelTemplate runtime =
      scale_template(operation, replaced(kScaleManifest, "STAGES * ROWS * n", "GROUP * ROWS * n"));
  EXPECT_FALSE(runtime.derived[0].pasted);
  const KernelTemplate device = scale_template(
      operation, replaced(kScaleManifest, "STAGES * ROWS * n", "sm_count * ROWS * n"));
  EXPECT_FALSE(device.derived[0].pasted);
}

TEST(ManifestTest, ADerivedValueMayBeBoundThoughItNamesRunTimeDims) {
  const Operation operation = scale_operation();
  const KernelTemplate made = scale_template(
      operation, replaced(kScaleManifest, kTiles,
                          std::string(kBoundTiles).append(R"(, "twice": "2 * tiles")")));
  EXPECT_TRUE(made.derived[1].bound);
  EXPECT_FALSE(made.derived[1].pasted);
  EXPECT_FALSE(made.derived[0].bound);
  EXPECT_TRUE(made.derived[2].pasted) << "of a value that the compiler is given";
}

TEST(ManifestTest, NumbersAreKnownToTheHostAlone) {
  const Operation operation = scale_operation();
  const KernelTemplate made =
      scale_template(operation, replaced(kScaleManifest, "\"derived\": {",
                                         R"("numbers": {"BEST": {"value": 3, "source": "a table"}},
                             "derived": {"best_rows": "BEST * ROWS",)"));
  EXPECT_EQ(made.derived[0].name, "BEST");
  EXPECT_EQ(made.derived[0].expression.text(), "3");
  EXPECT_FALSE(made.derived[0].pasted);
  EXPECT_FALSE(made.derived[1].pasted) << "of a number";
}

TEST(ManifestTest, SpecificTargetsCarryTheSuffix) {
  const Operation operation = scale_operation();
  EXPECT_EQ(scale_template(operation).target(90), "sm_90a");
  const KernelTemplate portable = scale_template(
      operation,
      replaced(kScaleManifest, "\"min\": 90, \"max\": 90, \"specific\": true", "\"min\": 80"));
  EXPECT_EQ(portable.target(86), "sm_86");
  EXPECT_TRUE(portable.runs_on(100));
  EXPECT_FALSE(portable.runs_on(75));
  EXPECT_FALSE(scale_template(operation).runs_on(100));
}

class ManifestErrorTest : public ::testing::TestWithParam<Refused> {};

TEST_P(ManifestErrorTest, NamesFileLineAndField) {
  const Operation operation = scale_operation();
  EXPECT_THAT(parse_manifest(replaced(kScaleManifest, GetParam().from, GetParam().to), "m.json",
                             "scale/boxes", operation),
              Fails(ErrorCode::invalid_argument, GetParam().message));
}

constexpr const char* kAllNames =
    "known are dtype_bf16, dtype_fp32, weight_none, weight_scale, weight, dtype, dtype_bytes, m, n";

INSTANTIATE_TEST_SUITE_P(
    Fields, ManifestErrorTest,
    ::testing::Values(
        Refused{"\"operation\": \"scale\"", "\"operation\": \"scales\"",
                "m.json:2: operation: \"scales\" is not the operation of the folder, \"scale\""},
        Refused{
            "\"spill_bytes\": 8", "\"spills\": 8",
            "m.json:22: spills: unknown key, known are extends, operation, description, source, "
            "arch, when, dims, parameters, default, numbers, derived, rules, habits, cost, "
            "spill_bytes, tensor_maps, workspace, launches"},
        Refused{"\"derived\": {",
                R"("numbers": {"BEST": {"value": 3, "source": ""}}, "derived": {)",
                "m.json:14: numbers.BEST.source: a number needs a source"},
        Refused{"\"derived\": {",
                R"("numbers": {"ROWS": {"value": 3, "source": "x"}}, "derived": {)",
                "m.json:14: numbers.ROWS: the name is taken by the problem, the device or an "
                "earlier field"},
        Refused{"\"source\": \"kernel.cu\",", "", "m.json:1: source: missing"},
        Refused{"\"tiles\": \"ceil_div(m, ROWS)\"", R"("tiles": {"value": "m", "bind": "runtime"})",
                "m.json:16: derived.tiles.bind: \"runtime\" is not compile"},
        Refused{"\"tiles\": \"ceil_div(m, ROWS)\"",
                R"("late": "m * GROUP", "tiles": {"value": "late", "bind": "compile"})",
                "m.json:16: derived.tiles.value: \"late\" hangs on a run-time parameter: "
                "configurations that differ in it share a compile"},
        Refused{"kernel.cu", "../kernel.cu",
                "m.json:4: source: \"../kernel.cu\" is no file beside the manifest"},
        Refused{"\"spill_bytes\": 8", "\"spill_bytes\": -8", "m.json:22: spill_bytes: -8 < 0"},
        Refused{
            "\"max\": 90, ", "",
            "m.json:5: arch.specific: an arch-specific target exists for one architecture, not for "
            "min 90 to max 0"},
        Refused{"\"max\": 90", "\"max\": 80", "m.json:5: arch.max: max 80 < min 90"},
        Refused{"\"min\": 90", "\"min\": 9", "m.json:5: arch.min: 9 is no sm number"},
        Refused{"\"min\": 90", "\"min\": 90.5",
                "m.json:5: arch.min: expected integer, found number"},
        Refused{"\"m\": \"runtime\", ", "", "m.json:7: dims: dim m is missing"},
        Refused{"\"m\": \"runtime\"", "\"k\": \"runtime\"",
                "m.json:7: dims.k: scale has no such dim"},
        Refused{"\"m\": \"runtime\"", "\"m\": \"dynamic\"",
                "m.json:7: dims.m: \"dynamic\" is not one of runtime, constant"},
        Refused{"[1, 8, 64]", "[1, 8, 8]", "m.json:9: parameters.ROWS[2]: 8 is listed twice"},
        Refused{"[1, 8, 64]", "[]", "m.json:9: parameters.ROWS: at least one value is needed"},
        Refused{"[1, 8, 64]", "[1, \"8\"]",
                "m.json:9: parameters.ROWS[1]: expected integer, found string"},
        Refused{"\"ROWS\": [", "\"while\": [",
                "m.json:9: parameters.while: \"while\" cannot be a name: an identifier that C++ "
                "does not reserve"},
        Refused{
            "\"ROWS\": [", "\"n\": [",
            "m.json:9: parameters.n: the name is taken by the problem, the device or an earlier "
            "field"},
        Refused{"\"ROWS\": [", "\"dtype_t\": [",
                "m.json:9: parameters.dtype_t: the name is taken by the problem, the device or an "
                "earlier field"},
        Refused{"\"bind\": \"runtime\"", "\"bind\": \"late\"",
                "m.json:11: parameters.GROUP.bind: \"late\" is not one of compile, runtime, chain"},
        Refused{"\"ROWS\": 8", "\"ROWS\": 16",
                "m.json:13: default.ROWS: 16 is not one of its values, 1, 8, 64"},
        Refused{"\"ROWS\": 8, ", "", "m.json:13: default.ROWS: missing"},
        Refused{"\"ROWS\": 8", "\"ROWS\": 8, \"COLUMNS\": 8",
                "m.json:13: default.COLUMNS: no such parameter"},
        Refused{
            "\"tiles\": \"ceil_div(m, ROWS)\"", "\"ROWS\": \"m\"",
            "m.json:16: derived.ROWS: the name is taken by the problem, the device or an earlier "
            "field"},
        Refused{", \"why\": \"the ring must fit\"", "", "m.json:19: rules[0].why: missing"},
        Refused{"the ring must fit", "", "m.json:19: rules[0].why: a rule needs a reason"},
        Refused{"ROWS * STAGES <= 128", "ROWS * STAGES <= 128u",
                "m.json:20: rules[1].rule: \"ROWS * STAGES <= 128u\": column 18: \"128u\" is no "
                "decimal "
                "integer"},
        Refused{"\"spill_bytes\": 8", "\"cost\": {\"smem_byte\": \"1\"}",
                "m.json:22: cost.smem_byte: no such demand (did you mean smem_bytes?), there are: "
                "tiles, steps, stages, wgmma_flops, mma_flops, instructions, special_functions, "
                "smem_bytes, loaded_bytes, l2_bytes, step_clocks, idle_clocks, tile_clocks, "
                "round_clocks, once_clocks, in_flight_bytes, wave_bytes, reread_bytes, registers, "
                "other_bytes"},
        Refused{"\"spill_bytes\": 8", "\"cost\": {\"tiles\": 8}",
                "m.json:22: cost.tiles: expected expression in a string, found integer"},
        Refused{"\"box\": [\"ROWS\", \"64\"]", "\"box\": [\"64\"]",
                "m.json:24: tensor_maps.map_a.box: 1 dims for tensor a of 2"},
        Refused{"\"tensor\": \"a\"", "\"tensor\": \"b\"",
                "m.json:24: tensor_maps.map_a.tensor: no tensor \"b\", there are: a, w, d"},
        Refused{"\"swizzle\": \"none\"", "\"copy\": {\"workspace\": \"padded\", \"pitch\": \"n\"}",
                "m.json:25: tensor_maps.map_w.copy.workspace: no \"padded\", there are: counters"},
        Refused{"\"swizzle\": \"none\"", "\"copy\": {\"workspace\": \"counters\"}",
                "m.json:25: tensor_maps.map_w.copy.pitch: missing"},
        Refused{
            "\"zeroed\": \"1\"", "\"zero\": \"1\"",
            "m.json:27: workspace.counters.zero: unknown key, known are bytes, zeroed, kept_zero"},
        Refused{"{\"tensor_map\": \"map_a\"}", "{\"tensor_map\": \"map_b\"}",
                "m.json:33: launches[0].arguments[0].tensor_map: no \"map_b\", there are: map_a, "
                "map_w"},
        Refused{"{\"workspace\": \"counters\"}", "{\"reference\": \"d\"}",
                "m.json:34: launches[0].arguments[7].reference: no \"d\", there are: "},
        Refused{"{\"int32\": \"m\"}", "{\"int32\": \"m + 1\"}",
                "m.json:34: launches[0].arguments[4]: the kernel's parameter needs a \"name\", "
                "since the expression is none"},
        Refused{"{\"int32\": \"m\"}", "{\"int32\": \"m\", \"name\": \"2m\"}",
                "m.json:34: launches[0].arguments[4].name: \"2m\" cannot be a name: an identifier "
                "that C++ does not reserve"},
        Refused{"{\"int32\": \"m\"}", "{\"int32\": \"m\", \"name\": \"d\"}",
                "m.json:34: launches[0].arguments[4]: two parameters \"d\": one needs another "
                "\"name\""},
        Refused{"{\"int32\": \"m\"}", "{\"int32\": \"m\", \"type\": \"\"}",
                "m.json:34: launches[0].arguments[4].type: expected a type of CUDA on one line"},
        Refused{"{\"int32\": \"m\"}", "{\"int32\": \"m\", \"type\": \"int\\nlong\"}",
                "m.json:34: launches[0].arguments[4].type: expected a type of CUDA on one line"},
        Refused{"{\"int32\": \"m\"}", "{\"int32\": \"m\", \"int64\": \"m\"}",
                "m.json:34: launches[0].arguments[4]: expected one key beside \"name\" and "
                "\"type\", found 2"},
        Refused{"\"kernel\": \"scale_tail\"", "\"kernel\": \"scale_boxes\"",
                "m.json:36: launches[1].arguments: the parameters of scale_boxes are GROUP here, "
                "and map_a, map_w, w, d, m, elements, alpha, counters in a launch before"},
        Refused{"\"block\": [\"128\"]", "\"block\": \"128\"",
                "m.json:31: launches[0].block: expected array, found string"},
        Refused{"{\"int32\": \"GROUP\"}", "{\"early\": \"GROUP\"}",
                "m.json:36: launches[1].arguments[0]: the launch never starts early: it is not "
                "programmatic and does not wait"},
        Refused{"\"arguments\": [{\"int32\": \"GROUP\"}]",
                "\"waits\": \"1\", \"ahead\": [\"w\", \"d\"], "
                "\"arguments\": [{\"ahead\": \"GROUP\"}]",
                "m.json:36: launches[1].ahead[1]: no tensor \"d\" that is read, there are: a, w"},
        Refused{"\"arguments\": [{\"int32\": \"GROUP\"}]",
                "\"programmatic\": \"1\", \"ahead\": [\"w\"], "
                "\"arguments\": [{\"ahead\": \"GROUP\"}]",
                "m.json:36: launches[1].ahead: only a launch that \"waits\" can read ahead of its "
                "wait"},
        Refused{
            "\"arguments\": [{\"int32\": \"GROUP\"}]",
            "\"waits\": \"1\", \"ahead\": [\"w\"], \"arguments\": [{\"early\": \"GROUP\"}]",
            "m.json:36: launches[1].ahead: no argument {\"ahead\": ...} tells the kernel when it "
            "may read ahead"},
        Refused{"\"arguments\": [{\"int32\": \"GROUP\"}]",
                "\"waits\": \"1\", \"arguments\": [{\"ahead\": \"GROUP\"}]",
                "m.json:36: launches[1]: an argument {\"ahead\": ...}, but no tensors \"ahead\""},
        Refused{
            "\"grid\": [\"1\"]", "\"gird\": [\"1\"]",
            "m.json:36: launches[1].gird: unknown key, known are kernel, grid, block, cluster, "
            "dynamic_smem, cooperative, programmatic, waits, ahead, in_place, when, arguments"}));

TEST(ManifestTest, ASpaceThatNobodyCouldWalkIsRefused) {
  const Operation operation = scale_operation();
  std::string values = "1, 8, 64";
  for (int value = 1000; value < 2000; ++value) values += concat(", ", value);
  std::string many;
  for (const char* name : {"A", "B", "C", "D", "E", "F", "G"}) {
    many += concat("\"", name, "\": [", values, "], ");
  }
  EXPECT_THAT(parse_manifest(replaced(kScaleManifest, "\"ROWS\": [", concat(many, "\"ROWS\": [")),
                             "m.json", "scale/boxes", operation),
              Fails(::testing::AllOf(HasSubstr("m.json:9: parameters."),
                                     HasSubstr(": the parameter space has more than "))));
}

TEST(ManifestTest, TmaAddressesFiveDims) {
  const Operation operation =
      must(parse_operation(replaced(kScaleOperation, "\"extent\": [\"m\", \"n\"]}",
                                    "\"extent\": [\"m\", \"m\", \"m\", \"m\", \"m\", \"n\"]}"),
                           "o.json", ""));
  EXPECT_THAT(
      parse_manifest(replaced(kScaleManifest, "\"box\": [\"ROWS\", \"64\"]",
                              "\"box\": [\"1\", \"1\", \"1\", \"1\", \"ROWS\", \"64\"]"),
                     "m.json", "scale/boxes", operation),
      Fails("m.json:24: tensor_maps.map_a.box: TMA addresses at most 5 dims, tensor a has 6"));
}

TEST(ManifestTest, ConditionsSeeTheProblemAlone) {
  const Operation operation = scale_operation();
  EXPECT_THAT(
      parse_manifest(replaced(kScaleManifest, "n % 8 == 0", "ROWS == 8"), "m.json", "scale/boxes",
                     operation),
      Fails(std::string("m.json:6: when[0]: \"ROWS == 8\": unknown name \"ROWS\", ") + kAllNames));
}

TEST(ManifestTest, DerivedValuesSeeEarlierOnesOnly) {
  const Operation operation = scale_operation();
  EXPECT_THAT(parse_manifest(replaced(kScaleManifest, "STAGES * ROWS * n", "tiles * n"), "m.json",
                             "scale/boxes", operation),
              Fails(HasSubstr("m.json:15: derived.SMEM_BYTES: \"tiles * n * dtype_bytes\": "
                              "unknown name \"tiles\"")));
}

}  // namespace
}  // namespace kernwright
