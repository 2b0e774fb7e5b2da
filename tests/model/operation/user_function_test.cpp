#include "model/operation/user_function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/candidate/config_header.h"
#include "model/catalog/catalog.h"
#include "model/catalog/unfused_form.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/temp_dir.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSource =
    "__device__ float kernwright_epilogue(float value, int, int) { return value; }\n";

class UserFunctionTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const char* name, std::string_view bytes) {
    const std::filesystem::path file = folder_.path() / name;
    EXPECT_TRUE(publish_file(file, bytes));
    return file;
  }

  static const Operation& matmul(const Catalog& catalog) { return **catalog.operation("matmul"); }

  static Result<BoundProblem> bound(const Catalog& catalog, std::string_view more) {
    return catalog.bind(*Problem::parse(concat("matmul m=8 n=8 k=8 dtype=bf16 ", more)));
  }

  ScopedTempDir folder_;
};

TEST_F(UserFunctionTest, AFileHasANameADigestAndAKind) {
  const UserFunction source = must(UserFunction::read(write("clamp.v2.cu", kSource)));
  EXPECT_EQ(source.name, "clamp");
  EXPECT_EQ(source.digest, digest_of(kSource).hex());
  EXPECT_EQ(source.bytes, kSource);
  EXPECT_FALSE(source.is_lto_ir);
  EXPECT_TRUE(UserFunction::is_digest(source.digest));
  EXPECT_FALSE(UserFunction::is_digest("clamp"));
  EXPECT_TRUE(UserFunction::read(write("clamp.ltoir", "bytes"))->is_lto_ir);
}

TEST_F(UserFunctionTest, AByteOrderMarkIsNotPartOfIt) {
  const UserFunction marked =
      must(UserFunction::read(write("clamp.cu", concat("\xEF\xBB\xBF", kSource))));
  EXPECT_EQ(marked.bytes, kSource);
  EXPECT_EQ(marked.digest, digest_of(kSource).hex());
}

TEST_F(UserFunctionTest, ANameThatMeansSomethingElseIsRefused) {
  const std::filesystem::path none = write("none.cu", kSource);
  const auto catalog = must(Catalog::load({}, {none}));
  EXPECT_THAT(catalog->operation("matmul"),
              Fails(none.string() + ": epilogue=none means no function; call the file "
                                    "something else"));
  const std::string digest(64, 'a');
  EXPECT_THAT(UserFunction::read(write((digest + ".cu").c_str(), kSource)),
              Fails(HasSubstr("as a digest is")));
}

TEST_F(UserFunctionTest, OtherFilesAreRefusedByWhatTheyAre) {
  const auto message = [](const std::filesystem::path& file) {
    return UserFunction::read(file).error().message;
  };
  EXPECT_THAT(message(write("clamp.ptx", "")), HasSubstr("ends in \".ptx\""));
  EXPECT_THAT(message(write("2x.cu", kSource)), HasSubstr("\"2x\" is no identifier"));
  EXPECT_FALSE(UserFunction::read(folder_.path() / "missing.cu"));
}

TEST_F(UserFunctionTest, TwoFilesOfOneNameAreRefusedWithBothPlaces) {
  const auto source = write("clamp.cu", kSource), linked = write("clamp.ltoir", "bytes");
  EXPECT_THAT(Catalog::load({}, {source, linked}),
              Fails(concat("function \"clamp\" is defined twice, in ", source.native(), " and ",
                           linked.native())));
}

TEST_F(UserFunctionTest, AProblemsKeyHasTheDigestWhateverTheFunctionIsCalled) {
  const std::string digest = digest_of(kSource).hex();
  const auto catalog = *Catalog::load({}, {write("clamp.cu", kSource), write("other.cu", "//")});
  const BoundProblem named = must(bound(*catalog, "epilogue=clamp"));
  EXPECT_EQ(named.text(), concat("matmul m=8 n=8 k=8 dtype=bf16 epilogue=", digest));
  EXPECT_EQ(bound(*catalog, concat("epilogue=", digest))->text(), named.text());
  EXPECT_NE(bound(*catalog, "epilogue=other")->text(), named.text());
  EXPECT_EQ(bound(*catalog, "epilogue=none")->text(), "matmul m=8 n=8 k=8 dtype=bf16");
  EXPECT_EQ(bound(*catalog, "epilogue=clip").error().message,
            "matmul: epilogue=clip is no function that was given, those are clamp, other");
  // A kernel that is compiled and in a cache needs no file.
  const auto empty = *Catalog::load({});
  EXPECT_EQ(bound(*empty, concat("epilogue=", digest))->text(), named.text());
  EXPECT_FALSE(bound(*empty, "epilogue=clamp"));
}

TEST_F(UserFunctionTest, AnOperationKnowsWhatItsProblemsBringAlong) {
  const auto catalog = *Catalog::load({}, {write("clamp.cu", kSource)});
  const Operation& operation = matmul(*catalog);
  const BoundProblem bare = *bound(*catalog, ""), with = *bound(*catalog, "epilogue=clamp");
  const Flag& flag = operation.flags.back();
  ASSERT_TRUE(flag.is_function()) << flag.name;
  EXPECT_FALSE(bare.takes_function());
  EXPECT_TRUE(with.takes_function());
  EXPECT_EQ(bare.function(flag), nullptr);
  EXPECT_EQ(with.function(flag)->name, "clamp");
  EXPECT_EQ(bare.scope().find("epilogue"), bare.scope().find("epilogue_none"));
  EXPECT_NE(with.scope().find("epilogue"), with.scope().find("epilogue_none"));
  EXPECT_THAT(
      unfused_form(*catalog, *bound(*catalog, "epilogue=clamp bias=column")).error().message,
      HasSubstr("no other kernel takes a function"));
}

TEST_F(UserFunctionTest, TheHeaderDeclaresTheFunctionAndIncludesItsSource) {
  const auto catalog =
      *Catalog::load({}, {write("clamp.cu", kSource), write("cap.ltoir", "bytes")});
  const auto header = [&](std::string_view more) {
    return reference_config_header(*bound(*catalog, more));
  };
  const std::string declaration =
      "__device__ float kernwright_epilogue(float value, int row, int column);\n";
  EXPECT_TRUE(header("").ends_with("\n" + declaration)) << header("");
  EXPECT_TRUE(header("epilogue=cap").ends_with("\n" + declaration));
  EXPECT_TRUE(
      header("epilogue=clamp").ends_with("static " + declaration + "#include <epilogue.cu>\n"));
  const std::string absent = digest_of("absent").hex();
  EXPECT_THAT(header("epilogue=" + absent),
              HasSubstr(absent + ": the file of this epilogue was not given"));
}

}  // namespace
}  // namespace kernwright
