#include "service/sweep/sizes.h"

#include <charconv>
#include <optional>
#include <system_error>

#include "support/text.h"

namespace kernwright {
namespace {

constexpr std::size_t kMostSizes = 10'000;

std::optional<std::int64_t> parse_size(std::string_view text) {
  std::int64_t size = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), size);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || size < 1) {
    return std::nullopt;
  }
  return size;
}

/// From `begin` on, by adding `step` or by multiplying with it.
struct Range {
  std::int64_t begin = 1;
  std::int64_t end = 1;
  std::int64_t step = 1;
  bool multiplies = false;

  /// The size after `size`; nothing where it is beyond the end.
  std::optional<std::int64_t> after(std::int64_t size) const {
    std::int64_t next = 0;
    const bool overflows = multiplies ? __builtin_mul_overflow(size, step, &next)
                                      : __builtin_add_overflow(size, step, &next);
    if (overflows || next > end) return std::nullopt;
    return next;
  }
};

std::optional<Range> parse_range(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  Range range;
  std::string_view step = parts.size() == 3 ? trim(parts[2]) : "1";
  range.multiplies = step.starts_with('x');
  if (range.multiplies) step.remove_prefix(1);
  const auto begin = parse_size(trim(parts[0]));
  const auto end = parse_size(trim(parts[1]));
  const auto by = parse_size(step);
  if (!begin || !end || !by || *end < *begin || (range.multiplies && *by < 2)) return std::nullopt;
  range.begin = *begin;
  range.end = *end;
  range.step = *by;
  return range;
}

}  // namespace

Result<std::vector<std::int64_t>> parse_sizes(std::string_view text) {
  std::vector<std::int64_t> sizes;
  for (std::string_view part : split(text, ',')) {
    part = trim(part);
    Range range;
    if (const auto one = parse_size(part)) {
      range.begin = range.end = *one;
    } else if (const auto several = parse_range(part)) {
      range = *several;
    } else {
      return Error{ErrorCode::invalid_argument,
                   concat("\"", part, "\" is neither a size of 1 or more nor a range such as ",
                          "4:64:x2 or 16:64:16")};
    }
    for (std::optional<std::int64_t> size = range.begin; size; size = range.after(*size)) {
      if (sizes.size() == kMostSizes) {
        return Error{ErrorCode::invalid_argument,
                     concat("\"", part, "\": more than ", kMostSizes, " sizes in a list")};
      }
      sizes.push_back(*size);
    }
  }
  return sizes;
}

}  // namespace kernwright
