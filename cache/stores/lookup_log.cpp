#include "cache/stores/lookup_log.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>

#include "cache/entries/miss.h"
#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr FileKind kLog{"log of lookups", std::uint64_t{16} << 20};
// Processes that append at the same time may go beyond the limit by a line each.
constexpr FileKind kLogToRead{kLog.name, 2 * kLog.most_bytes};

Result<LoggedLookup> parse_lookup(std::string_view line) {
  LoggedLookup lookup;
  KW_TRY(parse_fields(line, "lookup", [&](FieldReader& fields) {
    fields.read("problem", lookup.key.problem);
    fields.read("target", lookup.key.target);
    fields.read("sku", lookup.key.sku);
    std::string text;
    fields.read("policy", text);
    if (const auto policy = parse_policy(text)) {
      lookup.key.policy = *policy;
    } else {
      fields.fail("policy", concat('"', text, "\" is no measure policy"));
    }
    fields.read("match", text);
    if (const auto match = parse_match(text)) {
      lookup.match = *match;
    } else {
      fields.fail("match", concat('"', text, "\" is no match"));
    }
    fields.read("reason", text);
    if (const auto reason = parse_miss_reason(text)) {
      lookup.reason = *reason;
    } else {
      fields.fail("reason", concat('"', text, "\" is no reason"));
    }
    fields.read("time", lookup.time);
    fields.read_newer("count", lookup.count);
  }));
  return lookup;
}

}  // namespace

Result<void> LookupLog::append(const LoggedLookup& lookup) const {
  FieldWriter json;
  json.write("problem", lookup.key.problem);
  json.write("target", lookup.key.target);
  json.write("sku", lookup.key.sku);
  json.write("policy", lookup.key.policy.text());
  json.write("match", to_string(lookup.match));
  json.write("reason", to_string(lookup.reason));
  json.write("time", lookup.time);
  if (lookup.count != 1) json.write("count", lookup.count);
  return append_line(path_, json.text(), kLog, within_);
}

Result<std::vector<LoggedLookup>> LookupLog::counts(std::size_t* unread) const {
  const Result<std::string> text = read_file(path_, kLogToRead, within_);
  if (!text && text.error().code == ErrorCode::not_found) return std::vector<LoggedLookup>();
  if (!text) return text.error();
  std::map<std::string, LoggedLookup> by_key;
  for (const std::string_view line : split(*text, '\n')) {
    Result<LoggedLookup> lookup = parse_lookup(line);
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
  if (!text || text->empty() || parse_lookup(split(*text, '\n').front())) return {};
  return Error{ErrorCode::invalid_argument,
               concat(path_.native(), " is there and is no ", kLog.name)};
}

}  // namespace kernwright
