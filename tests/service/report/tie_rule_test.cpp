#include "service/report/tie_rule.h"

#include <gtest/gtest.h>

namespace kernwright {
namespace {

TuningRecord tied_with_one() {
  TuningRecord record;
  record.winner.traits.resources.registers = 96;
  record.runners_up.resize(2);
  record.runners_up[0].tied = true;
  record.runners_up[0].traits.resources.registers = 96;
  return record;
}

TEST(TieRuleTest, NamesTheFirstTraitThatDiffers) {
  TuningRecord record = tied_with_one();
  EXPECT_EQ(tie_rule(record), "nothing tells them apart, so the order of their names decides");
  record.runners_up[0].traits.smem_bytes = 1024;
  EXPECT_EQ(tie_rule(record), "it needs less shared memory");
  record.runners_up[0].traits.resources.registers = 128;
  EXPECT_EQ(tie_rule(record), "it needs fewer registers");
  record.runners_up[0].traits.workspace_bytes = 1;
  EXPECT_EQ(tie_rule(record), "it needs less workspace");
  record.winner.traits.is_default = true;
  EXPECT_EQ(tie_rule(record), "it is the default");
  record.winner.traits.is_incumbent = true;
  EXPECT_EQ(tie_rule(record), "it was the winner so far");
}

TEST(TieRuleTest, OfSeveralTheLastThatFallsDecides) {
  TuningRecord record = tied_with_one();
  record.runners_up[0].traits.deterministic = false;
  record.runners_up[1].tied = true;
  record.runners_up[1].traits.resources.registers = 168;
  EXPECT_EQ(tie_rule(record), "it needs fewer registers");
}

TEST(TieRuleTest, WithoutATieThereIsNone) {
  TuningRecord record = tied_with_one();
  record.runners_up[0].tied = false;
  EXPECT_EQ(tie_rule(record), "");
}

TEST(TieRuleTest, WhatWouldBePreferredMayBeTooSlow) {
  TuningRecord record = tied_with_one();
  record.runners_up[0].traits.resources.registers = 64;
  EXPECT_EQ(tie_rule(record), "those that would be preferred are not sure to be as fast");
}

}  // namespace
}  // namespace kernwright
