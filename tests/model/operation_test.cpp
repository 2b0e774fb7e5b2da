#include "model/operation.h"

#include <gtest/gtest.h>

#include "tests/model/samples.h"

namespace kernwright {
namespace {

std::string normalized(const Problem& problem) {
  const Operation operation = scale_operation();
  const Result<Problem> result = operation.normalize(problem);
  return result ? result->text() : result.error().message;
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
  EXPECT_EQ(operation.timing_inputs, InputDraw::normal);
  EXPECT_EQ(operation.exact_inputs, InputDraw::small_integers);
  EXPECT_EQ(operation.tolerance.reduction->text(), "2");
  EXPECT_EQ(operation.example.text(), "scale m=64 n=256 dtype=bf16");
  EXPECT_EQ(operation.reference.arguments.size(), 6U);
  EXPECT_EQ(operation.reference_source, "// reference");
  EXPECT_EQ(operation.folder, "scale");
}

TEST(OperationTest, AnOperationMayHaveNoExactInputs) {
  const std::string text =
      replaced(kScaleOperation, R"("exact": "small_integers")", R"("exact": "none")");
  const auto operation = parse_operation(text, "o.json", "");
  ASSERT_TRUE(operation) << operation.error().message;
  EXPECT_FALSE(operation->exact_inputs);
}

TEST(OperationTest, NormalizeOrdersAndLeavesDefaultsOut) {
  EXPECT_EQ(normalized(Problem::make("scale", {{"n", 3}, {"m", 2}},
                                     {{"weight", "scale"}, {"dtype", "fp32"}})),
            "scale m=2 n=3 dtype=fp32");
  EXPECT_EQ(normalized(Problem::make("scale", {{"m", 2}, {"n", 3}},
                                     {{"weight", "none"}, {"dtype", "fp32"}})),
            "scale m=2 n=3 dtype=fp32 weight=none");
}

TEST(OperationTest, NormalizeNamesWhatIsWrongAndWhatIsAllowed) {
  EXPECT_EQ(normalized(Problem::parse("matmul m=1 n=2 dtype=bf16").value()),
            "scale: asked for \"matmul\"");
  EXPECT_EQ(normalized(Problem::parse("scale m=1 n=2 k=3 dtype=bf16").value()),
            "scale: no dim k=3, dims are m, n");
  EXPECT_EQ(normalized(Problem::parse("scale m=1 dtype=bf16").value()),
            "scale: dim n is missing, dims are m, n");
  EXPECT_EQ(normalized(Problem::parse("scale m=0 n=2 dtype=bf16").value()),
            "scale: dim m=0 is less than 1");
  EXPECT_EQ(normalized(Problem::parse("scale m=x n=2 dtype=bf16").value()),
            "scale: dim m=x is no positive integer");
  EXPECT_EQ(normalized(Problem::parse("scale m=1 m=2 n=2 dtype=bf16").value()),
            "scale: dim m is given twice");
  EXPECT_EQ(normalized(Problem::parse("scale m=1 n=2").value()),
            "scale: dtype is missing, it may be bf16, fp32");
  EXPECT_EQ(normalized(Problem::parse("scale m=1 n=2 dtype=fp16").value()),
            "scale: dtype=fp16 is not one of bf16, fp32");
  EXPECT_EQ(normalized(Problem::parse("scale m=1 n=2 dtype=bf16 weight=some").value()),
            "scale: weight=some is not one of none, scale");
  EXPECT_EQ(normalized(Problem::parse("scale m=1 n=2 dtype=bf16 bias=on").value()),
            "scale: no flag or dtype bias=on, dtypes are dtype, flags are weight");
  EXPECT_EQ(normalized(Problem::parse("scale m=1 n=2 dtype=bf16 dtype=bf16").value()),
            "scale: flag dtype is given twice");
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
  ASSERT_EQ(names.size(), scope.entries().size());
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], scope.entries()[i].first);
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
  const auto operation = parse_operation(text, "o.json", "");
  ASSERT_TRUE(operation) << operation.error().message;
  const auto shapes = operation->tensor_shapes(scale_problem(2, 3));
  ASSERT_TRUE(shapes);
  EXPECT_TRUE(shapes->at(0).warm);
  EXPECT_FALSE(shapes->at(1).warm);
}

TEST(OperationTest, SizesThatOverflowAreRefused) {
  const Operation operation = scale_operation();
  const auto shapes = operation.tensor_shapes(scale_problem(INT64_MAX / 4, 4));
  ASSERT_FALSE(shapes);
  EXPECT_EQ(shapes.error().message,
            "scale: tensor a: 4611686018427387902 * 4 bytes overflow 64 bits");
}

struct Refused {
  const char* from;
  const char* to;
  const char* message;
};

class OperationErrorTest : public ::testing::TestWithParam<Refused> {};

TEST_P(OperationErrorTest, NamesFileLineAndField) {
  const Result<Operation> operation =
      parse_operation(replaced(kScaleOperation, GetParam().from, GetParam().to), "o.json", "");
  ASSERT_FALSE(operation);
  EXPECT_EQ(operation.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(operation.error().message, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Fields, OperationErrorTest,
    ::testing::Values(
        Refused{"\"flops\": \"2 * m * n\",", "", "o.json:1: flops: missing"},
        Refused{
            "\"flops\"", "\"flop\"",
            "o.json:15: flop: unknown key, known are operation, description, dims, dtypes, flags, "
            "tensors, scalars, inputs, tolerance, flops, bytes, example, reference"},
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
            "constants and the device's fields"},
        Refused{"\"n\": {\"bind\"", "\"sm_count\": {\"bind\"",
                "o.json:1: file: \"sm_count\" would name two things: of dims, dtypes, flags, their "
                "constants and the device's fields"},
        Refused{"[\"bf16\", \"fp32\"]", "[\"bf16\", \"half\"]",
                "o.json:5: dtypes.dtype[1]: unknown dtype \"half\""},
        Refused{"[\"bf16\", \"fp32\"]", "[]",
                "o.json:5: dtypes.dtype: at least one dtype is needed"},
        Refused{"\"default\": \"scale\"", "\"default\": \"both\"",
                "o.json:6: flags.weight.default: \"both\" is not one of none, scale"},
        Refused{"\"role\": \"out\"", "\"role\": \"in\"",
                "o.json:1: file: no tensor is an output: role \"out\" or \"inout\""},
        Refused{"\"name\": \"w\"", "\"name\": \"a\"", "o.json:9: tensors[1]: \"a\" is named twice"},
        Refused{"\"alignment\": 32", "\"alignment\": 24",
                "o.json:9: tensors[1].alignment: 24 is no power of two"},
        Refused{"\"alignment\": 32", "\"l2\": \"hot\"",
                "o.json:9: tensors[1].l2: \"hot\" is not one of warm"},
        Refused{"\"role\": \"out\"", "\"role\": \"out\", \"l2\": \"warm\"",
                "o.json:10: tensors[2].l2: only a tensor of role \"in\" may be warm"},
        Refused{"{\"tensor\": \"a\"}", "{\"tensor\": \"d\"}",
                "o.json:21: reference.arguments[0].tensor: no \"d\", there are: a, w"},
        Refused{
            "{\"tensor\": \"a\"}", "{\"buffer\": \"a\"}",
            "o.json:21: reference.arguments[0].buffer: unknown kind of argument, known are tensor, "
            "tensor_map, workspace, scalar, int32, int64, reference, magnitude"},
        Refused{"{\"tensor\": \"a\"}", "{\"tensor\": \"a\", \"int32\": \"m\"}",
                "o.json:21: reference.arguments[0]: expected one key, found 2"},
        Refused{"\"m\": 64,", "\"m\": 0,", "o.json:17: example: scale: dim m=0 is less than 1"},
        Refused{"\"m\": 64,", "\"m\": \"64\",",
                "o.json:17: example.m: expected integer, found string"},
        Refused{"[\"256\"]", "[\"1\", \"1\", \"1\", \"1\"]",
                "o.json:20: reference.block: expected 1 to 3 expressions, found 4"},
        Refused{"\"timing\": \"normal\"", "\"timing\": \"zeros\"",
                "o.json:13: inputs.timing: \"zeros\" is not one of normal, small_integers"},
        Refused{"\"dims\": {", "\"dims\": {\"m\": {\"bind\": \"exact\"}, ",
                "o.json:4: key \"m\" is given twice, first on line 4"}));

}  // namespace
}  // namespace kernwright
