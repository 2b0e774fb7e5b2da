#include "cli/page.h"

#include <algorithm>
#include <iterator>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include "cli/output.h"
#include "support/text.h"
#include <kernwright/visible.h>

namespace kernwright::cli {
namespace {

constexpr std::size_t kUsualWidth = 80;
constexpr std::size_t kLeastWidth = 40;   // a smaller width is not used
constexpr std::size_t kLeastColumn = 28;  // least width in which a last column is continued
constexpr std::size_t kLabelWidth = 12;   // with the two spaces before the label
constexpr std::size_t kDigestDigits = 32;
constexpr std::size_t kKeptDigits = 12;
constexpr std::string_view kGap = "  ";

/// Returns the number of UTF-8 characters.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

/// Returns true if the word is "us", "%," or the like.
bool is_unit(std::string_view word) {
  constexpr std::string_view kUnits[] = {"%", "ns", "us", "ms", "s", "B", "KB", "MB", "GB", "TB"};
  const std::size_t end = word.find_last_not_of(",;:.)");
  const std::string_view bare = word.substr(0, end == std::string_view::npos ? 0 : end + 1);
  return std::find(std::begin(kUnits), std::end(kUnits), bare) != std::end(kUnits);
}

std::string spaces(std::size_t count) { return std::string(count, ' '); }

}  // namespace

void Table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = visible(cell);
  rows_.push_back(std::move(cells));
}

std::size_t terminal_width(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualWidth;
  return std::max<std::size_t>(size.ws_col, kLeastWidth);
}

Page::Page(bool verbose)
    : verbose_(verbose), width_(verbose ? ~std::size_t{0} : terminal_width(STDOUT_FILENO)) {}

std::string Page::wrapped(std::string_view given, std::size_t indent) const {
  const std::string text = visible(given);
  std::string lines;
  std::size_t column = 0;
  std::size_t gap = 0;  // spaces before the word, left out at the start of a line
  bool begun = false;   // this line has a word
  const std::vector<std::string_view> words = split(text, ' ');
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (i > 0) ++gap;
    if (word.empty()) continue;
    const std::size_t size = columns_of(word);
    // A number and its unit stay on one line.
    const bool has_unit = i + 1 < words.size() && is_unit(words[i + 1]);
    const std::size_t needed = size + (has_unit ? 1 + columns_of(words[i + 1]) : 0);
    if (begun && column + gap + needed > width_) {
      lines += '\n';
      column = 0;
      gap = indent;
    }
    lines += spaces(gap);
    lines += word;
    column += gap + size;
    gap = 0;
    begun = true;
  }
  return lines;
}

void Page::print(std::string_view text, std::size_t indent) const {
  print_lines(wrapped(text, indent));
}

void Page::print(std::string_view label, std::string_view text) const {
  std::string line = concat(kGap, label);
  line += spaces(std::max(line.size() + 1, kLabelWidth) - line.size());
  print(line + std::string(text), kLabelWidth);
}

void Page::print(const Table& table) const { print(table, /*with_header=*/true); }

void Page::print_rows(const Table& table) const { print(table, /*with_header=*/false); }

void Page::print(const Table& table, bool with_header) const {
  std::vector<std::size_t> widths;
  std::size_t indent = kGap.size();
  for (std::size_t i = 0; i < table.columns_.size(); ++i) {
    std::size_t width = std::max(table.columns_[i].width, columns_of(table.columns_[i].header));
    for (const auto& row : table.rows_) width = std::max(width, columns_of(row[i]));
    widths.push_back(width);
    if (i + 1 < table.columns_.size()) indent += width + kGap.size();
  }
  // If hardly any width is left, the last column is continued at the start of a line.
  if (indent + kLeastColumn > width_) indent = 2 * kGap.size();
  const auto print_row = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < table.columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string room = spaces(widths[i] - columns_of(cell));
      line += kGap;
      line += table.columns_[i].right ? room + cell : cell + room;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    print_lines(wrapped(line, indent));
  };
  if (with_header) {
    print_row([&](std::size_t i) -> const std::string& { return table.columns_[i].header; });
  }
  for (const auto& row : table.rows_) {
    print_row([&](std::size_t i) -> const std::string& { return row[i]; });
  }
}

std::string Page::abridged(std::string_view text) const {
  if (verbose_) return std::string(text);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string kept;
  while (!text.empty()) {
    const std::size_t digits = std::min(text.find_first_not_of(kDigits), text.size());
    kept += text.substr(0, digits >= kDigestDigits ? kKeptDigits : digits);
    if (digits >= kDigestDigits) kept += "..";
    text.remove_prefix(digits);
    const std::size_t others = std::min(text.find_first_of(kDigits), text.size());
    kept += text.substr(0, others);
    text.remove_prefix(others);
  }
  return kept;
}

}  // namespace kernwright::cli
