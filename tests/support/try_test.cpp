#include "support/try.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "tests/results.h"
#include <kernwright/result.h>

namespace kernwright {
namespace {

struct Source {
  int asked = 0;
  bool fails = false;

  Result<void> work() {
    ++asked;
    if (fails) return Error{ErrorCode::io, "no"};
    return {};
  }
  Result<std::unique_ptr<int>> make() {
    ++asked;
    if (fails) return Error{ErrorCode::io, "no"};
    return std::make_unique<int>(7);
  }
};

Result<std::string> take(Source& source) {
  if (source.asked > 0) KW_TRY(source.work());
  KW_ASSIGN(const std::unique_ptr<int> made, source.make());
  int value = 0;
  KW_ASSIGN(value, [&]() -> Result<int> {
    KW_ASSIGN(const auto second, source.make());
    return *made + *second;
  }());
  return std::to_string(value);
}

TEST(TryTest, ValuesAreMovedOutAndEachExpressionIsEvaluatedOnce) {
  Source source;
  const std::string taken = must(take(source));
  EXPECT_EQ(taken, "14");
  EXPECT_EQ(source.asked, 2);
}

TEST(TryTest, AnErrorEndsTheFunctionAsItIs) {
  Source source{.asked = 0, .fails = true};
  EXPECT_THAT(take(source), Fails(ErrorCode::io, "no"));
  EXPECT_EQ(source.asked, 1);
  EXPECT_FALSE(take(source));
  EXPECT_EQ(source.asked, 2) << "KW_TRY gave up before anything was made";
}

}  // namespace
}  // namespace kernwright
