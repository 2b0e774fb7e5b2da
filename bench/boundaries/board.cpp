#include "bench/boundaries/board.h"

#include <algorithm>
#include <cstdio>

#include "support/text.h"
#include "support/try.h"

namespace kernwright::boundaries {
namespace {

std::size_t index_of(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  const auto index = static_cast<std::size_t>(found - names.begin());
  if (found == names.end()) names.push_back(name);
  return index;
}

}  // namespace

void Board::set(const std::string& line, const std::string& column, std::string text) {
  cells_.push_back({index_of(lines_, line), index_of(columns_, column), std::move(text)});
}

void Board::set(const std::string& column, const Arm& arm, int decimals) {
  char text[32] = "-";
  if (arm.has_times()) std::snprintf(text, sizeof(text), "%.*f", decimals, arm.us_per_step());
  set(arm.name, column, arm.error.empty() ? text : "failed");
  if (!arm.skipped.empty()) note(concat(arm.name, " ", arm.skipped));
  if (!arm.error.empty()) note(concat(arm.name, ", ", column, ": ", arm.error));
}

void Board::note(const std::string& text) { index_of(notes_, text); }

void Board::print() const {
  std::size_t width = title_.size();
  for (const std::string& line : lines_) width = std::max(width, line.size());
  std::printf("\n%-*s", static_cast<int>(width), title_.c_str());
  for (const std::string& column : columns_) {
    std::printf("  %*s", static_cast<int>(std::max<std::size_t>(column.size(), 7)), column.c_str());
  }
  std::printf("\n");
  for (std::size_t line = 0; line < lines_.size(); ++line) {
    std::printf("%-*s", static_cast<int>(width), lines_[line].c_str());
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      const auto cell = std::ranges::find_if(
          cells_, [&](const Cell& at) { return at.line == line && at.column == column; });
      std::printf("  %*s", static_cast<int>(std::max<std::size_t>(columns_[column].size(), 7)),
                  cell == cells_.end() ? "" : cell->text.c_str());
    }
    std::printf("\n");
  }
  for (const std::string& text : notes_) std::printf("  %s\n", text.c_str());
  std::fflush(stdout);
}

Result<void> measure(Lab& lab, std::span<Arm> arms, int rounds, const std::string& problem,
                     const std::string& column, Board& board, BenchJson& json) {
  lab.sample(arms, rounds);
  for (const Arm& arm : arms) {
    KW_TRY(json.add(row_of(problem, arm)));
    board.set(column, arm);
  }
  return {};
}

}  // namespace kernwright::boundaries
