#include "cache/stores/lookup_log.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/files.h"
#include "support/text.h"

namespace kernwright {
namespace {

constexpr FileKind kLog{"log of lookups", std::uint64_t{16} << 20};
// Processes that append at the same time may go beyond the limit by a line each.
constexpr FileKind kLogToRead{kLog.name, 2 * kLog.most_bytes};

}  // namespace

Result<void> LookupLog::append(const LoggedLookup& lookup) const {
  return append_line(path_, fields_text(lookup), kLog, within_);
}

Result<std::vector<LoggedLookup>> LookupLog::counts(std::size_t* unread) const {
  const Result<std::string> text = read_file(path_, kLogToRead, within_);
  if (!text && text.error().code == ErrorCode::not_found) return std::vector<LoggedLookup>();
  if (!text) return text.error();
  std::map<std::string, LoggedLookup> by_key;
  for (const std::string_view line : split(*text, '\n')) {
    Result<LoggedLookup> lookup = read_fields<LoggedLookup>(line, "lookup");
    if (!lookup) {
      if (unread != nullptr && !trim(line).empty()) ++*unread;
      continue;
    }
    const auto [place, first] = by_key.try_emplace(lookup->key.text());
    if (!first) lookup->count += place->second.count;
    place->second = *std::move(lookup);
  }
  std::vector<LoggedLookup> counts;
  counts.reserve(by_key.size());
  for (auto& [key, lookup] : by_key) counts.push_back(std::move(lookup));
  std::ranges::stable_sort(counts, std::greater<>(), &LoggedLookup::count);
  return counts;
}

Result<void> LookupLog::check() const {
  const Result<std::string> text = read_file(path_, kLogToRead, within_);
  if (!text && text.error().code != ErrorCode::not_found) return text.error();
  if (!text || text->empty() || read_fields<LoggedLookup>(split(*text, '\n').front(), "lookup"))
    return {};
  return Error{ErrorCode::invalid_argument,
               concat(path_.native(), " is there and is no ", kLog.name)};
}

}  // namespace kernwright
