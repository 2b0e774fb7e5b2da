#include "tuner/candidates/family_fit.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace kernwright {
namespace {

/// The true time of a choice: tiles of 16, 64 and 256 rows, of which each has its price.
double true_us(std::size_t choice, std::int64_t m) {
  constexpr std::array<std::int64_t, 3> kTiles = {16, 64, 256};
  constexpr std::array kPrices = {1.0, 2.2, 5.0};
  const std::int64_t tiles = (m + kTiles[choice] - 1) / kTiles[choice];
  return 3 + kPrices[choice] * static_cast<double>(tiles);
}

/// The cost model knows the tiles, and is off by a factor of each choice.
double predicted(std::size_t choice, std::span<const std::int64_t> sizes) {
  constexpr std::array kOff = {0.5, 1.0, 1.6};
  return kOff[choice] * true_us(choice, sizes[0]);
}

FamilyRow row_at(std::int64_t m) {
  FamilyRow row{.sizes = {m}, .times_us = {}, .spread = 0};
  for (std::size_t c = 0; c < 3; ++c) row.times_us.push_back(true_us(c, m));
  return row;
}

/// Choices of so many templates, of which none says anything of another.
std::vector<Choice> of_templates(std::size_t count) {
  std::vector<Choice> choices;
  for (std::size_t i = 0; i < count; ++i)
    choices.push_back({std::string(1, static_cast<char>('a' + i)), Configuration()});
  return choices;
}

TEST(FamilyFitTest, TakesTheBestBetweenTheRowsThoughThePredictionsAreOff) {
  std::vector<FamilyRow> rows;
  for (std::int64_t m = 1; m <= 4096; m *= 2) rows.push_back(row_at(m));
  const FamilyChoice family = fit_family(of_templates(3), rows, {{"m", 1, 4096}}, predicted);
  double sum = 0;
  double worst = 0;
  for (std::int64_t m = 1; m <= 4096; ++m) {
    const double regret = regret_of(family, row_at(m));
    sum += regret;
    worst = std::max(worst, regret);
  }
  EXPECT_LT(sum / 4096, 0.02);
  EXPECT_LT(worst, 0.4);
}

TEST(FamilyFitTest, AChoiceThatIsNeverTheBestIsNotTaken) {
  std::vector<FamilyRow> rows;
  for (std::int64_t m = 1; m <= 4096; m *= 2) {
    rows.push_back(row_at(m));
    rows.back().times_us.push_back(1.01 * true_us(0, m));
  }
  const FamilyChoice family =
      fit_family(of_templates(4), rows, {{"m", 1, 4096}},
                 [](std::size_t c, std::span<const std::int64_t> sizes) {
                   return c < 3 ? predicted(c, sizes) : true_us(0, sizes[0]);
                 });
  EXPECT_EQ(std::ranges::count(family.kernels, 3U), 0);
}

TEST(FamilyFitTest, AChoiceIsTakenOnlyWhereItIsValid) {
  std::vector<FamilyRow> rows;
  for (std::int64_t m = 1; m <= 4096; m *= 2) {
    rows.push_back({.sizes = {m}, .times_us = {m <= 64 ? 1.0 : 0.0, 2.0}, .spread = 0});
  }
  const FamilyChoice family =
      fit_family(of_templates(2), rows, {{"m", 1, 4096}},
                 [](std::size_t c, std::span<const std::int64_t> sizes) {
                   return c == 0 && sizes[0] > 64 ? 0.0 : 1.0 + static_cast<double>(c);
                 });
  ASSERT_EQ(family.kernels.size(), 2U);
  for (const std::int64_t m : {1, 40, 64, 66, 100, 4096}) {
    const std::size_t taken = family.kernels[family.table.order(std::vector{m})[0]];
    EXPECT_EQ(taken, m <= 64 ? 0U : 1U) << m;
  }
}

TEST(FamilyFitTest, AStepIsWhereThePredictionsHaveIt) {
  // Tiles of 64 rows are worth it from the size on at which one of 256 is full enough.
  std::vector<FamilyRow> rows;
  for (std::int64_t m = 1; m <= 4096; m *= 2) rows.push_back(row_at(m));
  const FamilyChoice family = fit_family(of_templates(3), rows, {{"m", 1, 4096}}, predicted);
  for (std::int64_t m = 1; m <= 512; ++m) EXPECT_LT(regret_of(family, row_at(m)), 0.13) << m;
}

TEST(FamilyFitTest, AChoiceIsEstimatedByThoseLikeIt) {
  const auto with = [](std::int64_t split, std::int64_t stages) {
    return Choice{"a", Configuration({{"SPLIT", split}, {"STAGES", stages}})};
  };
  const std::vector<Choice> choices{with(1, 4), with(4, 4)};
  const std::vector<FamilyRow> rows{{.sizes = {64}, .times_us = {10, 20}, .spread = 0}};
  const PredictAt ten = [](std::size_t, std::span<const std::int64_t>) { return 10.0; };
  const FamilyEstimate estimate(choices, rows, ten);
  const std::vector<std::int64_t> there{64};
  const FamilyEstimate::At at = estimate.at(there);
  EXPECT_NEAR(at.us(0), 10, 0.1);
  EXPECT_NEAR(at.us(1), 20, 0.1);
  EXPECT_GT(at.us(with(4, 6), 10), 15) << "as its neighbour, twice the prediction";
  EXPECT_LT(at.us(with(1, 6), 10), 13);
  EXPECT_NEAR(at.us({"b", Configuration()}, 10), 14, 1) << "as all that is known";
  EXPECT_EQ(FamilyEstimate(choices, {}, ten).at(there).us(with(1, 6), 10), 10);
}

TEST(FamilyFitTest, ARegretWithoutATimeIsInfinite) {
  const FamilyChoice family =
      fit_family(of_templates(3), {row_at(64)}, {{"m", 1, 4096}}, predicted);
  EXPECT_EQ(regret_of(family, row_at(64)), 0);
  EXPECT_EQ(regret_of(family, {.sizes = {64}, .times_us = {0, 0, 0}, .spread = 0}),
            std::numeric_limits<double>::infinity());
}

TEST(FamilyFitTest, PointsFillTheUnitCube) {
  const auto line = spread_evenly(1, 5);
  EXPECT_EQ(line, (std::vector<std::vector<double>>{{0}, {0.25}, {0.5}, {0.75}, {1}}));
  std::set<int> cells;
  for (const std::vector<double>& point : spread_evenly(2, 64)) {
    cells.insert(static_cast<int>(point[0] * 4) * 4 + static_cast<int>(point[1] * 4));
  }
  EXPECT_EQ(cells.size(), 16U);
  EXPECT_EQ(size_at({"m", 1, 8192}, 0), 1);
  EXPECT_EQ(size_at({"m", 1, 8192}, 1), 8192);
  EXPECT_EQ(size_at({"m", 1, 4096}, 0.5), 64);
}

}  // namespace
}  // namespace kernwright
