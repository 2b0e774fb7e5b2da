#include "tuner/search/record_parts.h"

#include <gtest/gtest.h>
#include <vector>

namespace kernwright {
namespace {

TEST(RecordPartsTest, OfTwoChecksTheWorseFindingCountsAndWhatIsProvenStays) {
  CheckReport proof;
  proof.max_error = 0.5;
  proof.elements = 10;
  proof.exact = true;
  proof.repeats = 3;
  proof.deterministic = true;
  CheckReport later;
  later.max_error = 0.25;
  later.mismatches = 2;
  later.first_mismatch = "y[3]";
  later.elements = 20;
  later.guarded = true;
  later.deterministic = false;
  merge(proof, later);
  EXPECT_EQ(proof.max_error, 0.5);
  EXPECT_EQ(proof.mismatches, 2);
  EXPECT_EQ(proof.first_mismatch, "y[3]");
  EXPECT_EQ(proof.elements, 20);
  EXPECT_TRUE(proof.exact);
  EXPECT_TRUE(proof.guarded);
  EXPECT_EQ(proof.repeats, 3);
  EXPECT_FALSE(proof.deterministic);
  later.mismatches = 1;
  later.first_mismatch = "y[4]";
  merge(proof, later);
  EXPECT_EQ(proof.first_mismatch, "y[3]") << "the one of more mismatches";
}

TEST(RecordPartsTest, ASearchWithoutATrialRanOutOfTime) {
  const Error error = none_passed("toy n=1", {});
  EXPECT_EQ(error.code, ErrorCode::timed_out);
  EXPECT_EQ(error.message, "no candidate for \"toy n=1\" was tried in time");
}

TEST(RecordPartsTest, TheCommonestFailureIsTheExample) {
  std::vector<Trial> trials(3);
  trials[0].outcome = Outcome::spilled;
  trials[0].detail = "spills";
  trials[1].outcome = Outcome::wrong_result;
  trials[1].detail = "first wrong";
  trials[2].outcome = Outcome::wrong_result;
  trials[2].detail = "second wrong";
  const Error error = none_passed("toy n=1", trials);
  EXPECT_NE(error.message.find("first wrong"), std::string::npos) << error.message;
  EXPECT_EQ(error.message.find("spills"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace kernwright
