#include "cache/records/record_view.h"

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

TEST(RecordViewTest, TimesInTurnAndAloneAreTold) {
  RankedConfiguration ranked;
  ranked.measurement = {.samples_us = {10, 11, 20, 21, 22}, .sm_mhz = {5, 6, 1, 2, 3}};
  FinalRounds rounds;
  rounds.block_rounds = 3;
  EXPECT_EQ(final_times(ranked, rounds).in_turn.samples_us.size(), 5U) << "it was in no block";
  ranked.in_blocks = true;
  const auto [in_turn, alone] = final_times(ranked, rounds);
  EXPECT_EQ(in_turn.samples_us, (std::vector<double>{10, 11}));
  EXPECT_EQ(alone.samples_us, (std::vector<double>{20, 21, 22}));
  EXPECT_EQ(in_turn.sm_mhz, (std::vector<double>{5, 6}));
  EXPECT_EQ(alone.sm_mhz, (std::vector<double>{1, 2, 3}));
}

}  // namespace
}  // namespace kernwright
