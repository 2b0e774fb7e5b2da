#include "models/model_type.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "compile/render.h"
#include "models/model_worklist.h"
#include "tests/results.h"

namespace kernwright {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"({"model_type": "sums", "dim": 64, "rows": [1, 5, 5, -2],
  "share": 0.25, "kind": "wide", "deep": {"first": 8}})";

class ModelTypeTest : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  /// The catalog with one more file of models.
  Result<std::shared_ptr<const Catalog>> with(const std::string& text,
                                              const std::string& name = "sums.json") const {
    fs::create_directories(folder_ / "models");
    std::ofstream(folder_ / "models" / name) << text;
    return Catalog::load({folder_});
  }
  /// The problems and then the notes for 1 and 2 tokens, or the error.
  std::vector<std::string> lines(const std::string& text, const char* config = kConfig) const {
    const auto catalog = with(text);
    if (!catalog) return {catalog.error().message};
    const Result<ModelWorklist> list =
        model_worklist(config, "config.json", {.tokens = {1, 2}, .contexts = {7}}, **catalog);
    if (!list) return {list.error().message};
    std::vector<std::string> found;
    for (const Problem& problem : list->problems) found.push_back(problem.text());
    found.insert(found.end(), list->notes.begin(), list->notes.end());
    return found;
  }
  /// The error of a type with these values and this list.
  std::string refused(const std::string& values, const std::string& problems = "[]") const {
    const std::string found = lines(R"({"model_types": ["sums"], "values": )" + values +
                                    R"(, "problems": )" + problems + "}")
                                  .front();
    const std::string place = (folder_ / "models" / "sums.json").native();
    return found.starts_with(place) ? found.substr(place.size()) : found;
  }

  fs::path folder_ = fs::path(::testing::TempDir()) /
                     ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ModelTypeTest, EveryFileIsRead) {
  const auto catalog = Catalog::load({}).value();
  std::size_t types = 0;
  for (const Fragment& file : catalog->models()) {
    if (file.text.find("model_types") == std::string_view::npos) continue;
    const Result<ModelType> type = parse_model_type(file, *catalog);
    EXPECT_TRUE(type) << type.error().message;
    ++types;
  }
  EXPECT_EQ(types, 15U);
}

TEST_F(ModelTypeTest, ANewTypeIsOneFile) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(
      lines(R"({
    "model_types": ["sums"],
    "defaults": {"depth": 3},
    "values": {
      "dim": {"field": ["width", "dim"]},
      "depth": {"field": "depth", "as": "count"},
      "first": {"field": "deep.first"},
      "odd": {"field": "rows", "as": "list", "count": "element % 2 == 1"},
      "part": {"field": "share", "as": "number", "times": "dim"},
      "kind": {"field": "kind", "as": "word", "words": {"wide": "bf16"}},
      "none": {"field": "gone", "none": "dim + first"}
    },
    "short": {"sum": "rmsnorm rows=tokens columns=dim if odd == 2",
              "both": ["softmax rows=tokens if tokens > 1", "softmax rows=tokens + 30 if odd == 2"]},
    "problems": [
      "sum",
      "sum residual=depth == 3 ? add : none if tokens > 1",
      {"for": {"i": 2}, "problems": ["softmax rows=part + i columns=none dtype={kind}"]},
      {"for": {"tokens": "given", "context": "given"}, "if": "tokens == context - 6",
       "problems": ["softmax rows=context columns=first dtype=fp32"]},
      "both columns=first if depth == 3",
      "softmax rows=tokens columns=first dtype=int8",
      {"note": "{kind} of {depth}"}
    ]
  })"),
      (Texts{"rmsnorm rows=1 columns=64 dtype=bf16", "rmsnorm rows=2 columns=64 dtype=bf16",
             "rmsnorm rows=2 columns=64 dtype=bf16 residual=add",
             "softmax rows=16 columns=72 dtype=bf16", "softmax rows=17 columns=72 dtype=bf16",
             "softmax rows=7 columns=8 dtype=fp32", "softmax rows=31 columns=8 dtype=bf16",
             "softmax rows=2 columns=8 dtype=bf16", "softmax rows=32 columns=8 dtype=bf16",
             "bf16 of 3",
             "what cannot be is left out, softmax: dtype=int8 is not one of bf16, fp16, fp32; "
             "see kernwright operations softmax",
             "not in the config, and taken from transformers' defaults of sums: depth=3"}));
}

TEST_F(ModelTypeTest, ATypeMayExtendABuiltInOne) {
  const auto catalog = must(with(R"({"extends": "llama.json", "model_types": ["sums"],
                                "defaults": {"heads": 8}})"));
  const ModelValues values =
      must(model_values(R"({"model_type": "sums", "hidden_size": 512})", "c",
                        {"type", "head_dim", "activation", "theta"}, *catalog));
  EXPECT_EQ(values,
            (ModelValues{
                {"type", "sums"}, {"head_dim", 64.0}, {"activation", "silu"}, {"theta", 10000.0}}));
}

TEST_F(ModelTypeTest, MistakesInAFileAreNamed) {
  EXPECT_EQ(refused(R"({"a": "b + 1"})"),
            ":1: values.a: \"b + 1\": unknown name \"b\", known are gpus, nested, plain, "
            "fp8_tensors, fp8_blocks, by_rows, integers, weight_bits, weight_group, weight_zeros, "
            "mxfp4_experts, a");
  EXPECT_EQ(refused(R"({"a": {"field": "dim", "as": "text"}})"),
            ":1: values.a.as: \"text\" is not one of size, count, flag, number, word, list");
  EXPECT_EQ(refused("{}", R"(["softmax rows=1 columns=2 depth=3"])"),
            ":1: problems[0]: \"depth=3\": softmax has no dim, dtype or flag depth");
  EXPECT_EQ(refused("{}", R"([{"note": "{a}"}])"),
            ":1: problems[0].note: unknown name \"a\" in braces, known are gpus, nested, plain, "
            "fp8_tensors, fp8_blocks, by_rows, integers, weight_bits, weight_group, weight_zeros, "
            "mxfp4_experts");
  EXPECT_EQ(refused("{}", R"([{"note": "{a"}])"), ":1: problems[0].note: a brace is not closed");
  EXPECT_EQ(refused("{}", R"([{"for": {"tokens": 0}}])"),
            ":1: problems[0].for.tokens: expected 1 to 64, is 0");
  EXPECT_EQ(refused("{}", R"([{"when": "1"}])"),
            ":1: problems[0].when: unknown key, known are for, if, problems, note, error");
  EXPECT_EQ(refused(R"({"a": "b", "b": "a"})", R"([{"if": "a", "note": "n"}])"),
            "model sums: a depends on itself");
  EXPECT_EQ(refused(R"({"few": "gpus - 1", "a": "1 / few"})", R"([{"if": "a", "note": "n"}])"),
            "config.json: \"1 / few\": division by zero in \"1 / few\": 1 / 0");
  EXPECT_TRUE(lines(R"({"model_types": ["llama"], "values": {}})")
                  .front()
                  .starts_with("model_type \"llama\" is defined twice, in templates/models/"));
}

TEST_F(ModelTypeTest, FieldsThatHoldSomethingElseAreNamedWithTheirValue) {
  const auto wrong = [&](const std::string& field, const std::string& config) {
    const auto catalog = with(R"({"model_types": ["sums"], "values": {"a": )" + field + "}}");
    const Result<ModelValues> values =
        model_values(R"({"model_type": "sums", )" + config + "}", "c", {"a"}, **catalog);
    return values ? std::string("accepted") : values.error().message;
  };
  const std::string size = R"({"field": "x"})";
  for (const char* value : {"0", "-1", "1.5", "1e300", "\"8\"", "null", "true", "4294967296"}) {
    EXPECT_EQ(wrong(size, std::string("\"x\": ") + value),
              std::string("c:1: x must be an integer from 1 to 1073741824, is ") +
                  (value == std::string("1e300") ? "1e+300" : value));
  }
  EXPECT_EQ(wrong(size, R"("x": [1])"), "c:1: x must be an integer from 1 to 1073741824, is array");
  EXPECT_EQ(wrong(size, R"("x": 8.0)"), "accepted");
  EXPECT_EQ(wrong(size, R"("y": 8)"), "c:1: x is missing");
  EXPECT_EQ(wrong(R"({"field": "x.y"})", R"("x": 3)"), "c:1: x.y is missing");
  EXPECT_EQ(wrong(R"({"field": "x", "as": "number"})", R"("x": 0)"),
            "c:1: x must be a number above 0, is 0");
  EXPECT_EQ(wrong(R"({"field": "x", "as": "number", "none": "0"})", R"("x": -1)"),
            "c:1: x must be a number from 0 on, is -1");
  EXPECT_EQ(wrong(R"({"field": "x", "as": "number", "times": "1073741824"})", R"("x": 2)"),
            "c:1: x must be a share of 1073741824 up to 1073741824, is 2");
  EXPECT_EQ(wrong(R"({"field": "x", "as": "list", "words": ["p", "q"], "count": "1"})",
                  R"("x": ["p", "r"])"),
            "c:1: x must be a list of \"p\" and \"q\", is \"r\"");
}

TEST_F(ModelTypeTest, AnUnknownTypeIsReadByItsArchitecture) {
  const auto catalog = Catalog::load({}).value();
  const ModelWorklist list = must(
      model_worklist(R"({"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]})",
                     "config.json", {.tokens = {1}, .contexts = {}}, *catalog));
  EXPECT_NE(std::ranges::find(list.notes,
                              "model_type \"kimi_k2\" is not known, so it is read as deepseek_v3, "
                              "which has its architecture"),
            list.notes.end());
}

TEST_F(ModelTypeTest, ADescriptionOfAModelChangesNoKernel) {
  const auto built_in = Catalog::load({}).value();
  const auto more = must(with(R"({"model_types": ["sums"], "values": {}})"));
  for (const KernelTemplate& each : built_in->templates()) {
    EXPECT_EQ(template_digest(each, *built_in),
              template_digest(**more->kernel_template(each.name), *more))
        << each.name;
  }
}

}  // namespace
}  // namespace kernwright
