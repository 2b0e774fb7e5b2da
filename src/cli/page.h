#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kernwright::cli {

/// Returns the width of the terminal `descriptor` in columns; 80 if it is not a terminal.
std::size_t terminal_width(int descriptor);

/// A table with a header. Columns are as wide as their widest cell. The last column takes the rest
/// of a line, and is continued below itself.
class Table {
 public:
  struct Column {
    std::string header;
    bool right = false;     ///< aligned to the right, for numbers
    std::size_t width = 0;  ///< at least, for rows that are printed as they come
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell for each column.
  void add(std::vector<std::string> cells);

 private:
  friend class Page;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Prints text for people on standard output, in lines that fit the terminal, or 80 columns if
/// there is none. A verbose page leaves nothing out and does not break lines.
class Page {
 public:
  explicit Page(bool verbose);

  bool verbose() const { return verbose_; }

  /// Prints text, broken at spaces into lines, of which all but the first begin with `indent`
  /// spaces. A word that is longer than a line, such as a path, stays whole.
  void print(std::string_view text, std::size_t indent = 0) const;
  /// Prints a label, and `text` in a column after it.
  void print(std::string_view label, std::string_view text) const;
  /// Prints a table, indented by two.
  void print(const Table& table) const;
  /// Prints the rows of a table whose header has been printed already.
  void print_rows(const Table& table) const;

  /// Returns the text, with digests (32 or more hexadecimal digits) cut to 12 digits unless
  /// verbose.
  std::string abridged(std::string_view text) const;

 private:
  std::string wrapped(std::string_view given, std::size_t indent) const;
  void print(const Table& table, bool with_header) const;

  bool verbose_;
  std::size_t width_;
};

}  // namespace kernwright::cli
