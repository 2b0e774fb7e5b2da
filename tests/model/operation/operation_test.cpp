#include "model/operation/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <string_view>

#include "model/candidate/candidate.h"
#include "model/catalog/operation_reader.h"
#include "support/text.h"
#include "tests/model/samples.h"
#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

std::string normalized(const Problem& problem) {
  const Operation operation = scale_operation();
  const Result<Problem> result = operation.normalize(problem);
  return result ? result->text() : result.error().message;
}

std::string normalized(std::string_view problem) {
  return normalized(Problem::parse(problem).value());
}

Result<Operation> read_operation(std::string_view text) {
  return parse_operation(text, "o.json", "");
}

TEST(OperationTest, ReadsEveryField) {
  const Operation operation = scale_operation();
  EXPECT_EQ(operation.name, "scale");
  ASSERT_EQ(operation.dims.size(), 2U);
  EXPECT_EQ(operation.dims[0].match, DimMatch::bucket);
  EXPECT_EQ(operation.dims[1].match, DimMatch::exact);
  EXPECT_EQ(operation.type_variables[0].dtypes, (std::vector<DType>{DType::bf16, DType::fp32}));
  EXPECT_EQ(operation.flags[0].default_index, 1);
  ASSERT_EQ(operation.tensors.size(), 3U);
  EXPECT_EQ(operation.tensors[0].dtype_variable, "dtype");
  EXPECT_EQ(operation.tensors[1].fixed_dtype, DType::fp32);
  EXPECT_EQ(operation.tensors[1].alignment, 32);
  EXPECT_EQ(operation.tensors[2].role, TensorRole::out);
  EXPECT_DOUBLE_EQ(operation.scalars[0].default_value, 0.5);
  EXPECT_EQ(operation.timing_inputs, DrawKind::normal);
  EXPECT_EQ(operation.exact_inputs, DrawKind::small_integers);
  EXPECT_EQ(operation.tolerance.reduction->text(), "2");
  EXPECT_EQ(operation.example.text(), "scale m=64 n=256 dtype=bf16");
  EXPECT_EQ(operation.reference.arguments.size(), 6U);
  EXPECT_EQ(operation.reference_source, "// reference");
  EXPECT_EQ(operation.folder, "scale");
}

TEST(OperationTest, ACaseStandsForOneTextOfEachListInAllWays) {
  const auto operation = must(read_operation(
      replaced(kScaleOperation, R"("reference": {)",
               R"("cases": [{"why": "odd", "problems": [["m=1", "m=2", "m=3"], ["n=5"],
                  ["dtype=bf16", "dtype=fp32"], ["", "weight=none"]]}], "reference": {)")));
  ASSERT_EQ(operation.cases.size(), 1U);
  const OperationCase& odd = operation.cases[0];
  EXPECT_EQ(odd.why, "odd");
  const std::vector<std::string> all = odd.all();
  ASSERT_EQ(all.size(), 12U);
  EXPECT_EQ(all[0], "scale m=1 n=5 dtype=bf16");
  EXPECT_EQ(all[1], "scale m=1 n=5 dtype=bf16 weight=none");
  EXPECT_EQ(all[11], "scale m=3 n=5 dtype=fp32 weight=none");
  EXPECT_EQ(odd.few(), (std::vector<std::string>{"scale m=1 n=5 dtype=bf16",
                                                 "scale m=2 n=5 dtype=fp32 weight=none",
                                                 "scale m=3 n=5 dtype=bf16"}));
}

TEST(OperationTest, ABucketHasFamiliesAndADistance) {
  const auto with = [](const std::string& m) {
    return read_operation(replaced(kScaleOperation, R"("m": {"bind": "bucket"})", R"("m": )" + m));
  };
  const auto operation = must(with(R"({"bind": "bucket", "edges": [16, 128], "distance": 1.5})"));
  const Dim& m = operation.dims[0];
  EXPECT_EQ(m.distance, 1.5);
  EXPECT_EQ(m.interval(1), 0U);
  EXPECT_EQ(m.interval(16), 0U);
  EXPECT_EQ(m.interval(17), 1U);
  EXPECT_EQ(m.interval(128), 1U);
  EXPECT_EQ(m.interval(129), 2U);
  EXPECT_EQ(scale_operation().dims[0].distance, 1) << "without one nothing near is served";
  EXPECT_FALSE(with(R"({"bind": "exact", "distance": 2})"));
  EXPECT_FALSE(with(R"({"bind": "bucket", "edges": [16, 16]})"));
  EXPECT_FALSE(with(R"({"bind": "bucket", "edges": [0]})"));
  EXPECT_FALSE(with(R"({"bind": "bucket", "distance": 0.5})"));
}

TEST(OperationTest, AnOperationMayHaveNoExactInputs) {
  const std::string text =
      replaced(kScaleOperation, R"("exact": "small_integers")", R"("exact": "none")");
  const auto operation = must(read_operation(text));
  EXPECT_FALSE(operation.exact_inputs);
}

/// The scale operation whose first input, of `dtype`, has a draw of its own.
Result<Operation> with_draw(std::string_view draw, std::string_view dtype = "int32") {
  return read_operation(replaced(
      kScaleOperation, R"("name": "a", "role": "in", "dtype": "dtype",)",
      concat(R"("name": "a", "role": "in", "dtype": ")", dtype, R"(", "draw": )", draw, ",")));
}

TEST(OperationTest, ATensorMayHaveADrawOfItsOwn) {
  const auto draw = [](std::string_view text, std::string_view dtype = "int32") {
    const auto operation = must(with_draw(text, dtype));
    const auto shapes = must(operation.tensor_shapes(
        operation.normalize(Problem::parse("scale m=6 n=4 dtype=bf16").value()).value()));
    EXPECT_EQ(shapes[1].draw, Draw{}) << "as the operation's inputs";
    EXPECT_FALSE(shapes[1].always);
    return shapes[0];
  };
  EXPECT_EQ(draw(R"({"uniform": {"from": 0, "to": "m * n - 1"}})").draw,
            (Draw{DrawKind::uniform, 0, 23}));
  EXPECT_EQ(draw(R"({"uniform": {"from": -0.5, "to": 0.5}})", "fp32").draw,
            (Draw{DrawKind::uniform, -0.5, 0.5}));
  EXPECT_EQ(draw(R"({"offsets": {"to": "m"}})", "int64").draw, (Draw{DrawKind::offsets, 0, 6}));
  EXPECT_EQ(draw(R"({"constant": 1})", "bool").draw, (Draw{DrawKind::constant, 1, 0}));
  EXPECT_EQ(draw(R"("permutation")", "uint8").draw.kind, DrawKind::permutation);
  EXPECT_TRUE(draw(R"("small_integers")").always);
  EXPECT_FALSE(draw(R"("normal")", "fp32").always) << "it gives way to exact inputs";
}

TEST(OperationTest, ADrawThatIsNotKnownNamesThoseThatAre) {
  for (const char* draw : {R"("gaussian")", R"({"permutation": 3})", "3", "{}",
                           R"({"constant": 1, "uniform": {"from": 0, "to": 1}})"}) {
    EXPECT_THAT(with_draw(draw),
                Fails(HasSubstr("draw: no known draw, which are \"normal\", \"small_integers\", "
                                "\"permutation\", {\"uniform\"")))
        << draw;
  }
  EXPECT_FALSE(with_draw(R"({"uniform": {"from": 0}})"));
  EXPECT_FALSE(with_draw(R"({"uniform": {"from": 0, "to": "unknown"}})"));
  EXPECT_THAT(read_operation(replaced(kScaleOperation, R"("role": "out",)",
                                      R"("role": "out", "draw": "normal",)")),
              Fails(HasSubstr("an output is not drawn")));
}

TEST(OperationTest, ADrawMustFitTheDtype) {
  const auto message = [](std::string_view draw, std::string_view dtype) {
    const auto operation = with_draw(draw, dtype);
    return operation ? "accepted" : operation.error().message;
  };
  const auto expect = [&](std::string_view draw, std::string_view dtype, std::string_view what) {
    EXPECT_THAT(message(draw, dtype), HasSubstr(what));
  };
  expect(R"("permutation")", "bf16", "tensor a: draw permutation: needs integers, not bf16");
  expect(R"({"uniform": {"from": 0, "to": 256}})", "uint8",
         "draw uniform: reaches 256, uint8 is drawn from 0 to 255");
  expect(R"({"uniform": {"from": 3, "to": 2}})", "int32", "from 3 is above to 2");
  expect(R"({"offsets": {"to": -1}})", "int32", "rises from 0, not to -1");
  expect(R"({"constant": 0.5})", "int32", "0.5 is no int32");
  EXPECT_EQ(message(R"({"constant": 0.5})", "fp16"), "accepted");
}

TEST(OperationTest, ADtypeThatIsNotKnownNamesThoseThatAre) {
  EXPECT_THAT(with_draw(R"("normal")", "float32"),
              Fails(HasSubstr(
                  "unknown dtype \"float32\", known are bf16, fp16, fp32, fp64, fp8_e4m3, int8, "
                  "int32, int64, uint8, bool, fp8_e5m2")));
}

TEST(OperationTest, AScalarMayBeAnInt64) {
  const auto operation = must(read_operation(
      replaced(kScaleOperation, R"("dtype": "fp32", "default": 0.5})",
               R"("dtype": "int64", "default": 5000000000, "when": "weight == weight_none"})")));
  const BoundProblem without =
      BoundProblem::bind(operation, Problem::parse("scale m=1 n=2 dtype=bf16").value()).value();
  const auto plan = make_reference_plan(without, *find_profile("h200")).value();
  EXPECT_EQ(plan.launches[0].arguments.back().kind, ArgumentKind::int64);
  EXPECT_EQ(plan.launches[0].arguments.back().value, 5'000'000'000);
}

TEST(OperationTest, ExactInputsMayDependOnTheProblem) {
  const std::string text =
      replaced(kScaleOperation, R"("exact": "small_integers")",
               R"("exact": "small_integers", "exact_when": "weight == weight_none")");
  const auto operation = must(read_operation(text));
  ASSERT_TRUE(operation.exact_when);
  EXPECT_EQ(operation.exact_when->text(), "weight == weight_none");

  EXPECT_THAT(read_operation(replaced(text, R"("exact": "small_integers")", R"("exact": "none")")),
              Fails(HasSubstr("there are no exact inputs")));
}

TEST(OperationTest, ARequirementRefusesProblemsWithItsReason) {
  const std::string text = replaced(
      kScaleOperation, R"("tensors": [)",
      R"("requires": [{"rule": "weight == weight_scale || dtype == dtype_fp32", "why": "so"}],
  "tensors": [)");
  const auto operation = must(read_operation(text));
  EXPECT_TRUE(operation.normalize(Problem::parse("scale m=1 n=2 dtype=fp32 weight=none").value()));
  EXPECT_THAT(operation.normalize(Problem::parse("scale m=1 n=2 dtype=bf16 weight=none").value()),
              Fails(::testing::AllOf(
                  ::testing::StartsWith(
                      "scale: rule \"weight == weight_scale || dtype == dtype_fp32\" failed: "),
                  ::testing::EndsWith(" (so)"))));
}

TEST(OperationTest, AScalarMayBeOfSomeProblemsAlone) {
  const std::string text =
      replaced(kScaleOperation, R"("default": 0.5})",
               R"("default": 0.5, "check": 3, "when": "weight == weight_none"})");
  const auto operation = must(read_operation(text));
  const auto normalized = [&](std::string_view problem) {
    return operation.normalize(Problem::parse(problem).value()).value();
  };
  const Problem with = normalized("scale m=1 n=2 dtype=bf16 weight=none");
  const Problem without = normalized("scale m=1 n=2 dtype=bf16");
  const auto scalars = operation.present_scalars(operation.scope(with)).value();
  ASSERT_EQ(scalars.size(), 1U);
  EXPECT_DOUBLE_EQ(scalars[0].default_value, 0.5);
  EXPECT_DOUBLE_EQ(scalars[0].checked_value, 3);
  EXPECT_TRUE(operation.present_scalars(operation.scope(without)).value().empty());

  const DeviceProfile profile = *find_profile("h200");
  const auto last_argument = [&](const Problem& problem) {
    const BoundProblem bound = BoundProblem::bind(operation, problem).value();
    return make_reference_plan(bound, profile).value().launches[0].arguments.back();
  };
  EXPECT_EQ(last_argument(with).kind, ArgumentKind::scalar);
  // A kernel gets the default's bits if the problem does not take the scalar.
  EXPECT_EQ(last_argument(without).kind, ArgumentKind::int32);
  EXPECT_EQ(last_argument(without).value, 0x3f000000);
}

TEST(OperationTest, NormalizeOrdersAndLeavesDefaultsOut) {
  EXPECT_EQ(normalized(Problem::make("scale", {{"n", 3}, {"m", 2}},
                                     {{"weight", "scale"}, {"dtype", "fp32"}})),
            "scale m=2 n=3 dtype=fp32");
  EXPECT_EQ(normalized(Problem::make("scale", {{"m", 2}, {"n", 3}},
                                     {{"weight", "none"}, {"dtype", "fp32"}})),
            "scale m=2 n=3 dtype=fp32 weight=none");
}

/// The scale operation whose rows may be `pitch` elements apart.
Result<Operation> with_pitch(std::string_view usual = "n") {
  std::string text = replaced(kScaleOperation, R"("n": {"bind": "exact"}})",
                              concat(R"("n": {"bind": "exact"}, "pitch": {"bind": "exact", )",
                                     R"("default": ")", usual, R"("}})"));
  return read_operation(
      replaced(text, R"("dtype": "dtype", "extent": ["m", "n"]},)",
               R"("dtype": "dtype", "extent": ["m", "n"], "pitches": ["pitch"]},)"));
}

TEST(OperationTest, ADimAtItsDefaultIsNoPartOfTheKey) {
  const auto operation = must(with_pitch());
  const auto problem = [&](std::string_view text) {
    return operation.normalize(Problem::parse(text).value()).value();
  };
  const Problem usual = problem("scale m=2 n=3 dtype=fp32");
  EXPECT_EQ(usual.text(), "scale m=2 n=3 dtype=fp32");
  EXPECT_EQ(usual, problem("scale pitch=3 m=2 n=3 dtype=fp32"));
  EXPECT_EQ(operation.scope(usual).find("pitch"), 3);
  EXPECT_EQ(operation.sizes(usual), (std::vector<std::int64_t>{2, 3, 3}));
  const Problem wider = problem("scale pitch=5 n=3 m=2 dtype=fp32");
  EXPECT_EQ(wider.text(), "scale m=2 n=3 pitch=5 dtype=fp32");
  EXPECT_EQ(wider, problem(wider.text()));
  EXPECT_EQ(operation.sizes(wider), (std::vector<std::int64_t>{2, 3, 5}));
  EXPECT_EQ(operation.value_names().size(), operation.scope(wider).size());
  const auto refused = operation.normalize(Problem::parse("scale n=3 dtype=fp32").value());
  EXPECT_EQ(refused.error().message,
            "scale: dim m is missing, dims are m, n, pitch; see kernwright operations scale");
  const auto none = operation.normalize(Problem::parse("scale m=2 n=3 pitch=0 dtype=fp32").value());
  EXPECT_EQ(none.error().message, "scale: dim pitch=0 is less than 1");
}

TEST(OperationTest, ADefaultSizeIsMadeOfWhatStandsBeforeTheDim) {
  EXPECT_EQ(with_pitch("weight == weight_none ? m : n * dtype_bytes")->sizes(scale_problem(2, 3)),
            (std::vector<std::int64_t>{2, 3, 6}));
  EXPECT_EQ(with_pitch("pitch").error().message,
            "o.json:4: dims.pitch.default: \"pitch\": unknown name \"pitch\", known are "
            "dtype_bf16, dtype_fp32, weight_none, weight_scale, weight, dtype, dtype_bytes, m, n");
  EXPECT_EQ(with_pitch("m - 64").error().message,
            "o.json:17: example: scale: dim pitch=0 is less than 1");
}

TEST(OperationTest, RowsMayLieApart) {
  const Operation operation = with_pitch().value();
  const auto shapes = [&](std::string_view text) {
    return operation.tensor_shapes(operation.normalize(Problem::parse(text).value()).value());
  };
  const auto apart = shapes("scale m=2 n=3 pitch=5 dtype=bf16").value();
  EXPECT_EQ(apart[0].elements(), 6);
  EXPECT_EQ(apart[0].row_pitch(), 5);
  EXPECT_EQ(apart[0].bytes(), 16) << "the last row ends with its elements";
  EXPECT_EQ(apart[1].row_pitch(), 3);
  EXPECT_TRUE(shapes("scale m=2 n=3 dtype=bf16")->front().pitches.empty());
  EXPECT_EQ(shapes("scale m=2 n=3 pitch=2 dtype=bf16").error().message,
            "scale: tensor a: pitch \"pitch\" is 2 < 3, the elements of a row");
  EXPECT_EQ(shapes("scale m=4 n=4 pitch=2305843009213693952 dtype=bf16").error().message,
            "scale: tensor a: 8 * 2305843009213693952 bytes overflow 64 bits");
}

TEST(OperationTest, EntriesOfEveryDimMayLieApart) {
  const auto operation = [](std::string_view pitches) {
    return read_operation(replaced(
        kScaleOperation, R"("dtype": "dtype", "extent": ["m", "n"]},)",
        concat(R"("dtype": "dtype", "extent": ["m", "2", "n"], "pitches": [)", pitches, "]},")));
  };
  const auto shape = [&](std::string_view pitches) {
    return operation(pitches)->tensor_shapes(scale_problem(4, 3));
  };
  const TensorShape apart = shape(R"("6 * n + 2", "n + 2")")->front();
  EXPECT_EQ(apart.pitches, (std::vector<std::int64_t>{20, 5}));
  EXPECT_EQ(apart.pitch(0), 20);
  EXPECT_EQ(apart.pitch(1), 5);
  EXPECT_EQ(apart.bytes(), 2 * (3 * 20 + 5 + 3));
  EXPECT_EQ(shape(R"("2 * n", "n")")->front().pitch(0), 6) << "contiguous";
  EXPECT_EQ(
      operation(R"("2 * n + 1", "n + 2")").error().message,
      "o.json:17: example: scale: tensor a: pitch \"2 * n + 1\" is 513 < 514, the elements of "
      "an entry of \"m\"");
  EXPECT_EQ(operation(R"("n * n", "2")").error().message,
            "o.json:17: example: scale: tensor a: pitch \"2\" is 2 < 256, the elements of a row");
  EXPECT_EQ(operation(R"("20")").error().message,
            "o.json:8: tensors[0].pitches: 1 pitches of 3 extents; each but the last has one");
}

TEST(OperationTest, DerivedValuesMayBeNamedLikeDims) {
  const auto with = [](std::string_view derived) {
    return read_operation(replaced(replaced(kScaleOperation, "\"2 * m * n\"", "\"2 * all\""),
                                   "\"tensors\"",
                                   concat("\"derived\": {", derived, "}, \"tensors\"")));
  };
  const auto operation = must(with(R"("wide": "m + n", "all": "wide * n")"));
  const Scope scope = operation.scope(scale_problem(2, 3));
  EXPECT_EQ(scope.find("all"), 15);
  EXPECT_EQ(operation.flops.evaluate(scope).value(), 30);
  EXPECT_EQ(operation.value_names().size(), scope.size());
  EXPECT_EQ(with(R"("all": "wide")").error().message,
            "o.json:7: derived.all: \"wide\": unknown name \"wide\", known are dtype_bf16, "
            "dtype_fp32, weight_none, weight_scale, weight, dtype, dtype_bytes, m, n");
  EXPECT_EQ(with(R"("all": "m", "n": "m")").error().message,
            "o.json:1: file: \"n\" would name two things: of dims, dtypes, flags, their constants, "
            "derived values and the device's fields");
}

TEST(OperationTest, SpecialFunctionsAreCounted) {
  EXPECT_FALSE(scale_operation().specials);
  const auto operation = must(read_operation(
      replaced(kScaleOperation, "\"example\"", "\"specials\": \"m * n\", \"example\"")));
  EXPECT_EQ(operation.specials->evaluate(operation.scope(scale_problem(2, 3))).value(), 6);
}

TEST(OperationTest, AScalarsDefaultMayDependOnTheProblem) {
  const auto with = [](std::string_view fields) {
    return read_operation(replaced(kScaleOperation, R"("default": 0.5)", fields));
  };
  const auto operation = must(with(R"json("default": "1 / sqrt(n)", "check": 0.11)json"));
  const auto scalars = operation.present_scalars(operation.scope(scale_problem(2, 64))).value();
  EXPECT_DOUBLE_EQ(scalars[0].default_value, 0.125);
  EXPECT_DOUBLE_EQ(scalars[0].checked_value, 0.11);
  EXPECT_EQ(with(R"json("default": "1 / sqrt(n)")json").error().message,
            "o.json:12: scalars[0].check: missing");
  EXPECT_EQ(with(R"json("default": "1 / k", "check": 1)json").error().message,
            "o.json:12: scalars[0].default: \"1 / k\": column 5: unknown name \"k\", known are "
            "dtype_bf16, dtype_fp32, weight_none, weight_scale, weight, dtype, dtype_bytes, m, n "
            "and the functions abs, exp, gelu_erf, gelu_tanh, log, max, min, relu, sigmoid, silu, "
            "sqrt, tanh");
}

TEST(OperationTest, AnOutputSaysHowItIsCompared) {
  const auto with = [](std::string_view name, std::string_view fields) {
    return read_operation(replaced(kScaleOperation, concat("\"name\": \"", name, "\","),
                                   concat("\"name\": \"", name, "\", ", fields, ",")));
  };
  const auto operation =
      must(with("d", R"("exact": "none", "infinite": "equal", "intermediate": "dtype")"));
  const auto shapes = operation.tensor_shapes(scale_problem(2, 3)).value();
  EXPECT_FALSE(shapes[2].exact);
  EXPECT_TRUE(shapes[2].infinite);
  EXPECT_EQ(shapes[2].intermediate, DType::bf16);
  EXPECT_TRUE(shapes[0].exact);
  EXPECT_EQ(with("d", R"("infinite": "close")").error().message,
            "o.json:10: tensors[2].infinite: \"close\" is not one of equal");
  EXPECT_EQ(with("d", R"("exact": "bits")").error().message,
            "o.json:10: tensors[2].exact: \"bits\" is not one of none");
  EXPECT_EQ(with("d", R"("intermediate": "fp32")").error().message,
            "o.json:10: tensors[2].intermediate: no type variable \"fp32\"");
  EXPECT_EQ(with("a", R"("infinite": "equal")").error().message,
            "o.json:8: tensors[0].infinite: an input is not compared");
}

TEST(OperationTest, AnOutputMaySayWhoseMemoryItMayBe) {
  const auto with = [](std::string_view name, std::string_view input) {
    return read_operation(
        replaced(kScaleOperation, concat("\"name\": \"", name, "\","),
                 concat("\"name\": \"", name, "\", \"in_place\": \"", input, "\",")));
  };
  const auto operation = must(with("d", "a"));
  const auto shapes = operation.tensor_shapes(scale_problem(2, 3)).value();
  EXPECT_EQ(shapes[2].in_place, "a");
  EXPECT_EQ(shapes[0].in_place, "");
  EXPECT_EQ(with("d", "b").error().message,
            "o.json:10: tensors[2].in_place: no input \"b\" before this one");
  EXPECT_EQ(with("d", "d").error().message,
            "o.json:10: tensors[2].in_place: no input \"d\" before this one");
  EXPECT_EQ(with("d", "w").error().message,
            "o.json:10: tensors[2].in_place: \"w\" has another dtype or layout");
  EXPECT_EQ(with("a", "w").error().message,
            "o.json:8: tensors[0].in_place: only an output lies in an input's memory");
}

TEST(OperationTest, AnIntegerInputSaysItsValues) {
  const auto with = [](std::string_view dtype, std::string_view values) {
    return read_operation(replaced(
        kScaleOperation, R"("name": "w", "role": "in", "dtype": "fp32")",
        concat(R"("name": "w", "role": "in", "dtype": ")", dtype, R"(", "values": )", values)));
  };
  const auto operation = must(with(
      "int32",
      R"({"from": "0", "to": "m - 1", "rise": "n", "counted_by": {"tensor": "a", "per": "m * 2"}})"));
  const auto shapes = operation.tensor_shapes(scale_problem(5, 3)).value();
  EXPECT_FALSE(shapes[0].values);
  ASSERT_TRUE(shapes[1].values);
  EXPECT_EQ(shapes[1].values->least, 0);
  EXPECT_EQ(shapes[1].values->most, 4);
  EXPECT_EQ(shapes[1].values->rise, 3);
  EXPECT_EQ(shapes[1].values->counted_by, "a");
  EXPECT_EQ(shapes[1].values->per, 10);
  EXPECT_EQ(with("fp32", R"({"from": "0", "to": "1"})").error().message,
            "o.json:9: tensors[1].values: only an input of int32 or int64 has them");
  EXPECT_EQ(with("int32", R"({"from": "0", "to": "1", "counted_by": {"tensor": "d", "per": "1"}})")
                .error()
                .message,
            "o.json:9: tensors[1].values.counted_by.tensor: no tensor \"d\" before this one");
}

/// The scale operation whose inputs are drawn by kernels.
Result<Operation> with_input_kernels(std::string_view fields, std::string_view tensor = "") {
  return read_operation(replaced(
      replaced(kScaleOperation, R"("timing": "normal", "exact": "small_integers")", fields),
      R"("name": "a",)", concat(R"("name": "a",)", tensor)));
}

TEST(OperationTest, KernelsOfItsOwnMayDrawTheInputs) {
  constexpr std::string_view kFields =
      R"("draw": "draw.cu", "timing": "of_time", "exact": "of_bits", "exact_when": "n > 2",
         "count": "of_number", "nan": "of_nan", "grid": ["m"], "block": ["32"],
         "arguments": [{"tensor": "a"}, {"tensor": "w"}, {"scalar": "seed"}, {"scalar": "alpha"}])";
  const auto operation = must(with_input_kernels(kFields));
  const InputKernels& kernels = operation.input_kernels.value();
  EXPECT_EQ(kernels.source_file, "draw.cu");
  EXPECT_EQ(kernels.timing, "of_time");
  EXPECT_EQ(kernels.exact, "of_bits");
  EXPECT_EQ(kernels.count, "of_number");
  EXPECT_EQ(kernels.nan, "of_nan");
  const auto shapes = operation.tensor_shapes(scale_problem(2, 3)).value();
  EXPECT_EQ(shapes[0].draw.kind, DrawKind::kernel);
  EXPECT_FALSE(shapes[0].always);

  const auto plan = must(make_input_plan(BoundProblem::bind(operation, scale_problem(2, 3)).value(),
                                         kernels.exact, h200()));
  ASSERT_EQ(plan.launches.size(), 1U);
  EXPECT_EQ(plan.launches[0].kernel, "of_bits");
  EXPECT_EQ(plan.launches[0].grid, (Extent3{2, 1, 1}));
  ASSERT_EQ(plan.scalars.size(), 2U);
  EXPECT_EQ(plan.scalars.back().name, "seed");
  EXPECT_EQ(plan.launches[0].arguments[2].index, 1U);

  const auto refused = [&](std::string_view from, std::string_view to,
                           std::string_view tensor = "") {
    return with_input_kernels(replaced(kFields, from, to), tensor).error().message;
  };
  EXPECT_EQ(refused("draw.cu", "../draw.cu"),
            "o.json:13: inputs.draw: \"../draw.cu\" is no file beside operation.json");
  EXPECT_EQ(refused(R"({"tensor": "a"})", R"({"tensor": "d"})"),
            "o.json:15: inputs.arguments[0].tensor: no \"d\", there are: a, w");
  EXPECT_EQ(refused("of_bits", "none"), "o.json:13: inputs.exact_when: there are no exact inputs");
  EXPECT_EQ(refused("\"count\"", "\"counts\""),
            "o.json:14: inputs.counts: unknown key, known are draw, timing, exact, exact_when, "
            "count, nan, grid, block, arguments");
  EXPECT_EQ(refused("of_time", "of_time", R"("draw": "small_integers",)"),
            "o.json:13: inputs: tensor \"a\" is drawn by draw.cu and has a draw of its own, "
            "small_integers");
}

/// The scale operation with a second type variable that follows the first.
Result<Operation> with_out(std::string_view entry) {
  std::string text =
      replaced(kScaleOperation, R"("dtypes": {"dtype": ["bf16", "fp32"]})",
               R"("dtypes": {"dtype": ["bf16", "fp32"], "out": )" + std::string(entry) + "}");
  return read_operation(
      replaced(text, R"("role": "out", "dtype": "dtype")", R"("role": "out", "dtype": "out")"));
}

TEST(OperationTest, ATypeVariableMayFollowAnother) {
  const auto operation =
      must(with_out(R"({"values": ["bf16", "fp32", "fp8_e4m3"], "default": "dtype"})"));
  const auto problem = [&](std::string_view text) {
    return operation.normalize(Problem::parse(text).value()).value();
  };
  const Problem followed = problem("scale m=2 n=3 dtype=fp32");
  EXPECT_EQ(followed.text(), "scale m=2 n=3 dtype=fp32");
  EXPECT_EQ(followed, problem("scale m=2 n=3 out=fp32 dtype=fp32"));
  EXPECT_EQ(operation.dtype(followed, "out"), DType::fp32);
  EXPECT_EQ(operation.scope(followed).find("out_bytes"), 4);
  EXPECT_EQ(operation.tensor_shapes(followed)->back().dtype, DType::fp32);
  const Problem narrowed = problem("scale m=2 n=3 out=fp8_e4m3 dtype=fp32");
  EXPECT_EQ(narrowed.text(), "scale m=2 n=3 dtype=fp32 out=fp8_e4m3");
  EXPECT_EQ(operation.scope(narrowed).find("out_bytes"), 1);
  EXPECT_EQ(operation.tensor_shapes(narrowed)->back().bytes(), 6);
  EXPECT_THAT(
      operation.normalize(Problem::parse("scale m=2 n=3 dtype=fp32 out=int8").value()),
      Fails("scale: out=int8 is not one of bf16, fp32, fp8_e4m3; see kernwright operations scale"));
}

/// The scale operation with a formula over x and y.
Operation with_formula() {
  return must(read_operation(replaced(
      replaced(kScaleOperation, R"("flags": {)", R"("flags": {"f": {"formula": ["x", "y"]}, )"),
      R"("dtype": "bf16"})", R"("dtype": "bf16", "f": "x + 1"})")));
}

TEST(OperationTest, AFormulaIsPartOfTheProblemInNormalForm) {
  const Operation operation = with_formula();
  EXPECT_EQ(operation.example.text(), "scale m=64 n=256 dtype=bf16 f=x+1");
  const auto given = must(operation.normalize(
      Problem::make("scale", {{"m", 2}, {"n", 3}}, {{"f", "(x * y) + 0.50"}, {"dtype", "fp32"}})));
  EXPECT_EQ(given.text(), "scale m=2 n=3 dtype=fp32 f=x*y+0.5");
  EXPECT_EQ(*operation.normalize(*Problem::parse(given.text())), given);
  EXPECT_EQ(operation.scope(given).find("f_x"), 1);
  EXPECT_EQ(operation.scope(given).find("f_y"), 1);
  EXPECT_EQ(operation.scope(operation.example).find("f_y"), 0);
  EXPECT_EQ(operation.formula(given, operation.flags.front()).code(), "((x * y) + Value(0.5))");
}

TEST(OperationTest, AFormulaHasToBeThereAndUnderstood) {
  const Operation operation = with_formula();
  const auto refused = [&](std::string_view text) {
    const auto problem = operation.normalize(Problem::parse(text).value());
    return problem ? problem->text() : problem.error().message;
  };
  EXPECT_EQ(refused("scale m=2 n=3 dtype=fp32"),
            "scale: f is missing, it is a formula over x, y; see kernwright operations scale");
  EXPECT_EQ(
      refused("scale m=2 n=3 dtype=fp32 f=x+z"),
      "scale: f: \"x+z\": column 3: unknown name \"z\", known are x, y and the functions abs, exp, "
      "gelu_erf, gelu_tanh, log, max, min, relu, sigmoid, silu, sqrt, tanh");
}

TEST(OperationTest, WhatATypeVariableFollowsMustFit) {
  EXPECT_EQ(with_out(R"({"values": ["bf16"], "default": "dtype"})").error().message,
            "o.json:5: dtypes.out.default: dtype may be fp32, out may not");
  EXPECT_EQ(with_out(R"({"values": ["bf16"], "default": "out"})").error().message,
            "o.json:5: dtypes.out.default: \"out\" is no type variable before out");
  EXPECT_EQ(with_out(R"({"values": ["bf16"]})").error().message,
            "o.json:5: dtypes.out.default: missing");
}

TEST(OperationTest, TheKeyHasADTypesOwnSpelling) {
  EXPECT_EQ(normalized("scale m=1 n=2 dtype=bfloat16"), normalized("scale m=1 n=2 dtype=bf16"));
  EXPECT_EQ(normalized("scale m=1 n=2 dtype=Float32"), "scale m=1 n=2 dtype=fp32");
}

TEST(OperationTest, NormalizeSaysWhatWasPerhapsMeant) {
  EXPECT_EQ(normalized("scale M=1 n=2 dtype=bf16"),
            "scale: no dim M=1 (did you mean m?), dims are m, n; see kernwright operations scale");
  EXPECT_EQ(normalized("scale m=1 n=2 dtype=bf16 wieght=scale"),
            "scale: no flag or dtype wieght=scale (did you mean weight?), dtypes are dtype, flags "
            "are weight; see kernwright operations scale");
  EXPECT_EQ(normalized("scale m=1 n=2 dtype=bf16 weight=Scale"),
            "scale: weight=Scale (did you mean scale?) is not one of none, scale; see kernwright "
            "operations scale");
}

TEST(OperationTest, NormalizeNamesWhatIsWrongAndWhatIsAllowed) {
  EXPECT_EQ(normalized("matmul m=1 n=2 dtype=bf16"), "scale: asked for \"matmul\"");
  EXPECT_EQ(normalized("scale m=1 n=2 k=3 dtype=bf16"),
            "scale: no dim k=3, dims are m, n; see kernwright operations scale");
  EXPECT_EQ(normalized("scale m=1 dtype=bf16"),
            "scale: dim n is missing, dims are m, n; see kernwright operations scale");
  EXPECT_EQ(normalized("scale m=0 n=2 dtype=bf16"), "scale: dim m=0 is less than 1");
  EXPECT_EQ(normalized("scale m=x n=2 dtype=bf16"), "scale: dim m=x is no positive integer");
  EXPECT_EQ(normalized("scale m=1..8 n=2 dtype=bf16"),
            "scale: dim m=1..8 is a range, and this takes one size");
  EXPECT_EQ(normalized("scale m=1 m=2 n=2 dtype=bf16"), "scale: dim m is given twice");
  EXPECT_EQ(normalized("scale m=1 n=2"),
            "scale: dtype is missing, it may be bf16, fp32; see kernwright operations scale");
  EXPECT_EQ(normalized("scale m=1 n=2 dtype=fp16"),
            "scale: dtype=fp16 is not one of bf16, fp32; see kernwright operations scale");
  EXPECT_EQ(normalized("scale m=1 n=2 dtype=bf16 weight=some"),
            "scale: weight=some is not one of none, scale; see kernwright operations scale");
  EXPECT_EQ(normalized("scale m=1 n=2 dtype=bf16 bias=on"),
            "scale: no flag or dtype bias=on, dtypes are dtype, flags are weight; see kernwright "
            "operations scale");
  EXPECT_EQ(normalized("scale m=1 n=2 dtype=bf16 dtype=bf16"), "scale: flag dtype is given twice");
}

TEST(OperationTest, ScopeGivesDimsFlagsAndConstants) {
  const Operation operation = scale_operation();
  const Scope scope = operation.scope(scale_problem(2, 3, "fp32"));
  EXPECT_EQ(scope.find("m"), 2);
  EXPECT_EQ(scope.find("n"), 3);
  EXPECT_EQ(scope.find("dtype"), static_cast<std::int64_t>(DType::fp32));
  EXPECT_EQ(scope.find("dtype_bf16"), static_cast<std::int64_t>(DType::bf16));
  EXPECT_EQ(scope.find("dtype_fp16"), std::nullopt);
  EXPECT_EQ(scope.find("dtype_bytes"), 4);
  EXPECT_EQ(scope.find("weight"), 1);
  EXPECT_EQ(scope.find("weight_none"), 0);
  EXPECT_EQ(operation.scope(scale_problem(2, 3).with("weight", "none")).find("weight"), 0);
  const std::vector<std::string> names = operation.value_names();
  ASSERT_EQ(names.size(), scope.size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], scope.name(i));
}

TEST(OperationTest, AbsentTensorsAreLeftOut) {
  const Operation operation = scale_operation();
  const auto shapes = operation.tensor_shapes(scale_problem(2, 3)).value();
  ASSERT_EQ(shapes.size(), 3U);
  EXPECT_EQ(shapes[0].dtype, DType::bf16);
  EXPECT_EQ(shapes[0].elements(), 6);
  EXPECT_EQ(shapes[0].bytes(), 12);
  EXPECT_EQ(shapes[1].bytes(), 12);
  EXPECT_EQ(shapes[1].alignment, 32);
  EXPECT_EQ(operation.tensor_shapes(scale_problem(2, 3).with("weight", "none"))->size(), 2U);
}

TEST(OperationTest, AnInputMayBeMarkedAsWarm) {
  const std::string text = replaced(kScaleOperation, R"("extent": ["m", "n"]},)",
                                    R"("extent": ["m", "n"], "l2": "warm"},)");
  const auto operation = must(read_operation(text));
  const auto shapes = must(operation.tensor_shapes(scale_problem(2, 3)));
  EXPECT_TRUE(shapes.at(0).warm);
  EXPECT_FALSE(shapes.at(1).warm);
}

TEST(OperationTest, SizesThatOverflowAreRefused) {
  const Operation operation = scale_operation();
  EXPECT_THAT(operation.tensor_shapes(scale_problem(INT64_MAX / 4, 4)),
              Fails("scale: tensor a: 4611686018427387902 * 4 bytes overflow 64 bits"));
}

class OperationErrorTest : public ::testing::TestWithParam<Refused> {};

TEST_P(OperationErrorTest, NamesFileLineAndField) {
  EXPECT_THAT(read_operation(replaced(kScaleOperation, GetParam().from, GetParam().to)),
              Fails(ErrorCode::invalid_argument, GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, OperationErrorTest,
    ::testing::Values(
        Refused{"\"flops\": \"2 * m * n\",", "", "o.json:1: flops: missing"},
        Refused{
            "\"flops\"", "\"flop\"",
            "o.json:15: flop: unknown key, known are operation, description, dims, dtypes, flags, "
            "derived, requires, tensors, scalars, inputs, tolerance, flops, bytes, specials, "
            "unfused, call, example, cases, reference"},
        Refused{"2 * m * n\"", "2 * m * k\"",
                "o.json:15: flops: \"2 * m * k\": unknown name \"k\", known are dtype_bf16, "
                "dtype_fp32, weight_none, weight_scale, weight, dtype, dtype_bytes, m, n"},
        Refused{"2 * m * n\"", "2 * m *\"",
                "o.json:15: flops: \"2 * m *\": column 8: expected a value, found the end"},
        Refused{"\"2 * m * n\"", "3",
                "o.json:15: flops: expected expression in a string, found integer"},
        Refused{"\"bucket\"", "\"any\"",
                "o.json:4: dims.m.bind: \"any\" is not one of exact, bucket"},
        Refused{"\"m\": {\"bind\"", "\"int\": {\"bind\"",
                "o.json:4: dims.int: \"int\" cannot be a name: an identifier that C++ does not "
                "reserve"},
        Refused{
            "\"n\": {\"bind\"", "\"dtype_bytes\": {\"bind\"",
            "o.json:1: file: \"dtype_bytes\" would name two things: of dims, dtypes, flags, their "
            "constants, derived values and the device's fields"},
        Refused{"\"n\": {\"bind\"", "\"sm_count\": {\"bind\"",
                "o.json:1: file: \"sm_count\" would name two things: of dims, dtypes, flags, their "
                "constants, derived values and the device's fields"},
        Refused{"[\"bf16\", \"fp32\"]", "[\"bf16\", \"half\"]",
                "o.json:5: dtypes.dtype[1]: unknown dtype \"half\", known are bf16, fp16, fp32, "
                "fp64, fp8_e4m3, int8, "
                "int32, int64, uint8, bool, fp8_e5m2"},
        Refused{"[\"bf16\", \"fp32\"]", "[\"bf16\", \"bf16\"]",
                "o.json:5: dtypes.dtype[1]: dtype bf16 is listed twice"},
        Refused{"[\"bf16\", \"fp32\"]", "[]",
                "o.json:5: dtypes.dtype: at least one dtype is needed"},
        Refused{"\"default\": \"scale\"", "\"default\": \"both\"",
                "o.json:6: flags.weight.default: \"both\" is not one of none, scale"},
        Refused{"\"values\": [\"none\", \"scale\"]", "\"formula\": [\"x\"]",
                "o.json:6: flags.weight: a formula has neither values nor a default"},
        Refused{"\"values\": [\"none\", \"scale\"], \"default\": \"scale\"",
                "\"formula\": [\"exp\"]",
                "o.json:6: flags.weight.formula[0]: \"exp\" is a function of formulas"},
        Refused{"\"values\": [\"none\", \"scale\"], \"default\": \"scale\"", "\"formula\": []",
                "o.json:6: flags.weight.formula: a formula has at least one variable"},
        Refused{"\"role\": \"out\"", "\"role\": \"in\"",
                "o.json:1: file: no tensor is an output: role \"out\" or \"inout\""},
        Refused{"\"name\": \"w\"", "\"name\": \"a\"", "o.json:9: tensors[1]: \"a\" is named twice"},
        Refused{"\"alignment\": 32", "\"alignment\": 24",
                "o.json:9: tensors[1].alignment: 24 is no power of two"},
        Refused{"\"alignment\": 32", "\"l2\": \"hot\"",
                "o.json:9: tensors[1].l2: \"hot\" is not one of warm"},
        Refused{"\"role\": \"out\"", "\"role\": \"out\", \"l2\": \"warm\"",
                "o.json:10: tensors[2].l2: only a tensor of role \"in\" may be warm"},
        Refused{"\"role\": \"out\"", "\"role\": \"out\", \"hint\": true",
                "o.json:10: tensors[2].hint: only a tensor of role \"in\" may be one"},
        Refused{"\"role\": \"out\"", "\"role\": \"out\", \"written\": \"m\"",
                "o.json:10: tensors[2].written: only of a tensor of role \"inout\""},
        Refused{"{\"tensor\": \"a\"}", "{\"tensor\": \"d\"}",
                "o.json:21: reference.arguments[0].tensor: no \"d\", there are: a, w"},
        Refused{
            "{\"tensor\": \"a\"}", "{\"buffer\": \"a\"}",
            "o.json:21: reference.arguments[0].buffer: unknown kind of argument, known are tensor, "
            "tensor_map, workspace, scalar, int32, int64, early, ahead, reference, magnitude"},
        Refused{"{\"tensor\": \"a\"}", "{\"tensor\": \"a\", \"int32\": \"m\"}",
                "o.json:21: reference.arguments[0]: expected one key beside \"name\" and \"type\", "
                "found 2"},
        Refused{"\"m\": 64,", "\"m\": 0,", "o.json:17: example: scale: dim m=0 is less than 1"},
        Refused{"\"m\": 64,", "\"m\": \"64\",",
                "o.json:17: example.m: expected integer, found string"},
        Refused{"\"reference\": {", R"("cases": [{"problems": [["m=1 n=2"]]}], "reference": {)",
                "o.json:18: cases[0].why: missing"},
        Refused{"\"reference\": {", R"("cases": [{"why": "one", "problem": []}], "reference": {)",
                "o.json:18: cases[0].problem: unknown key, known are why, problems"},
        Refused{"\"reference\": {",
                R"("cases": [{"why": "one", "problems": [[]]}], "reference": {)",
                "o.json:18: cases[0].problems[0]: at least one text is needed"},
        Refused{
            "\"reference\": {",
            R"("cases": [{"why": "one", "problems": [["m=1"], ["n=2", "n=0"], ["dtype=bf16"]]}],
                    "reference": {)",
            "o.json:18: cases[0].problems: \"scale m=1 n=0 dtype=bf16\": scale: dim n=0 is less "
            "than 1"},
        Refused{"[\"256\"]", "[\"1\", \"1\", \"1\", \"1\"]",
                "o.json:20: reference.block: expected 1 to 3 expressions, found 4"},
        Refused{"\"timing\": \"normal\"", "\"timing\": \"zeros\"",
                "o.json:13: inputs.timing: \"zeros\" is not one of normal, small_integers"},
        Refused{"\"dims\": {", "\"dims\": {\"m\": {\"bind\": \"exact\"}, ",
                "o.json:4: key \"m\" is given twice, first on line 4"}));

}  // namespace
}  // namespace kernwright
