#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/boundaries/lab.h"
#include "bench/common/bench_json.h"
#include <kernwright/result.h>

namespace kernwright::boundaries {

/// A table on standard output: a line for each arm, a column for each work.
class Board {
 public:
  explicit Board(std::string title) : title_(std::move(title)) {}

  void set(const std::string& line, const std::string& column, std::string text);
  /// The time of a step; "-" for an arm that was skipped, "failed" for one with an error.
  void set(const std::string& column, const Arm& arm, int decimals = 2);
  void note(const std::string& text);
  void print() const;

 private:
  struct Cell {
    std::size_t line;
    std::size_t column;
    std::string text;
  };

  std::string title_;
  std::vector<std::string> lines_;
  std::vector<std::string> columns_;
  std::vector<Cell> cells_;
  std::vector<std::string> notes_;
};

/// Samples the arms, adds the row of each to `json` and its time to `board`.
Result<void> measure(Lab& lab, std::span<Arm> arms, int rounds, const std::string& problem,
                     const std::string& column, Board& board, BenchJson& json);

}  // namespace kernwright::boundaries
