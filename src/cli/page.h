#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kernwright::cli {

/// Columns of the terminal that `descriptor` is; 80 where it is none.
std::size_t terminal_width(int descriptor);

/// Cells in columns that are as wide as their widest cell, below a header. The last column takes
/// what a line has left, and goes on below itself.
class Table {
 public:
  struct Column {
    std::string header;
    bool right = false;  ///< numbers stand at the right
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell for each column.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

 private:
  friend class Page;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Text for people on standard output, in lines that fit the terminal, or 80 columns where there is
/// none. A verbose page leaves out nothing, and its lines are as long as they are.
class Page {
 public:
  explicit Page(bool verbose);

  bool verbose() const { return verbose_; }

  /// Words broken at spaces into as many lines as they need; all but the first begin with `indent`
  /// spaces. A word that is longer than a line, such as a path, stays whole.
  void print(std::string_view text, std::size_t indent = 0) const;
  /// The same for `text` behind a label, in a column of its own.
  void print(std::string_view label, std::string_view text) const;
  /// Indented by two.
  void print(const Table& table) const;

  /// `text` with what is recognisably a digest, 32 hexadecimal digits or more, cut to 12, unless
  /// verbose.
  std::string abridged(std::string_view text) const;

 private:
  std::string wrapped(std::string_view text, std::size_t indent) const;

  bool verbose_;
  std::size_t width_;
};

}  // namespace kernwright::cli
