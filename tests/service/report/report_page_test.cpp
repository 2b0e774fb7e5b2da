#include "service/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <string>

#include "support/libraries/sha256.h"
#include "support/text.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin);
  EXPECT_NE(from, std::string::npos) << begin;
  const std::size_t to = text.find(end, from + begin.size());
  return text.substr(from + begin.size(), to - from - begin.size());
}

TEST(ReportPageTest, ItsPolicyAllowsItsOwnScriptAndStyleAlone) {
  const std::string page = report_page("a cache", "{}");
  const std::string policy =
      between(page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
  EXPECT_EQ(policy,
            concat("default-src 'none'; script-src 'sha256-",
                   sha256_base64(between(page, "<script>", "</script>")), "'; style-src 'sha256-",
                   sha256_base64(between(page, "<style>", "</style>")),
                   "'; img-src data:; base-uri 'none'; form-action 'none'"));
}

TEST(ReportPageTest, NothingInItIsAskedForElsewhere) {
  const std::string page = report_page("a cache", "{}");
  EXPECT_THAT(page, Not(HasSubstr("<script src")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
  EXPECT_THAT(page, Not(HasSubstr("url(")));
  EXPECT_THAT(page, Not(HasSubstr("style=\""))) << "the policy would refuse it";
  const std::regex address(R"(https?://[^"' )]+)");
  for (std::sregex_iterator at(page.begin(), page.end(), address); at != std::sregex_iterator();
       ++at) {
    EXPECT_THAT(at->str(), HasSubstr("www.w3.org/2000/svg")) << "the name of a format";
  }
}

TEST(ReportPageTest, NoTextEndsTheElementThatItStandsIn) {
  const std::string evil = R"({"problem":"</script><script>alert(1)</script><!-- <script"})";
  const std::string page = report_page("</title><b>&\"{{script}}", evil);
  EXPECT_THAT(page, HasSubstr("<title>&lt;/title&gt;&lt;b&gt;&amp;&quot;{{script}} "));
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  const std::string data = report_data_of(page).value();
  EXPECT_THAT(data, Not(HasSubstr("<")));
  EXPECT_THAT(data, HasSubstr(R"(\u003c/script>\u003cscript>alert(1))"));
}

TEST(ReportPageTest, ItsDataComesBack) {
  EXPECT_EQ(report_data_of(report_page("a", R"({"a":[1,2]})")).value(), R"({"a":[1,2]})");
  EXPECT_FALSE(report_data_of("<html></html>"));
}

TEST(ReportPageTest, ThePartsThatAreTheSameForAllAreSmall) {
  EXPECT_LT(report_page("a", "{}").size(), 110'000U);
}

}  // namespace
}  // namespace kernwright
