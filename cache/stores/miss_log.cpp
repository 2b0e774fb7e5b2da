#include "cache/stores/miss_log.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "cache/entries/miss.h"
#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr FileKind kLog{"log of misses", std::uint64_t{16} << 20};
// Processes that append at the same time may go beyond the limit by a line each.
constexpr FileKind kLogToRead{kLog.name, 2 * kLog.most_bytes};

Result<Miss> parse_miss(std::string_view line) {
  Miss miss;
  KW_TRY(parse_fields(line, "miss", [&](FieldReader& fields) {
    fields.read("problem", miss.key.problem);
    fields.read("target", miss.key.target);
    fields.read("sku", miss.key.sku);
    std::string text;
    fields.read("policy", text);
    if (const auto policy = parse_policy(text)) {
      miss.key.policy = *policy;
    } else {
      fields.fail("policy", concat('"', text, "\" is no measure policy"));
    }
    fields.read("match", text);
    if (const auto match = parse_match(text)) {
      miss.match = *match;
    } else {
      fields.fail("match", concat('"', text, "\" is no match"));
    }
    fields.read("reason", text);
    if (const auto reason = parse_miss_reason(text)) {
      miss.reason = *reason;
    } else {
      fields.fail("reason", concat('"', text, "\" is no reason"));
    }
    fields.read("time", miss.time);
  }));
  return miss;
}

}  // namespace

Result<void> MissLog::append(const Miss& miss) const {
  FieldWriter json;
  json.write("problem", miss.key.problem);
  json.write("target", miss.key.target);
  json.write("sku", miss.key.sku);
  json.write("policy", miss.key.policy.text());
  json.write("match", to_string(miss.match));
  json.write("reason", to_string(miss.reason));
  json.write("time", miss.time);
  return append_line(path_, json.text(), kLog, root_);
}

Result<std::vector<MissCount>> MissLog::counts() const {
  const Result<std::string> text = read_file(path_, kLogToRead, root_);
  if (!text && text.error().code == ErrorCode::not_found) return std::vector<MissCount>();
  if (!text) return text.error();
  std::map<std::string, MissCount> by_key;
  for (const std::string_view line : split(*text, '\n')) {
    Result<Miss> miss = parse_miss(line);
    if (!miss) continue;
    MissCount& count = by_key[miss->key.text()];
    ++count.count;
    count.latest = *std::move(miss);
  }
  std::vector<MissCount> counts;
  counts.reserve(by_key.size());
  for (auto& [key, count] : by_key) counts.push_back(std::move(count));
  std::stable_sort(counts.begin(), counts.end(),
                   [](const MissCount& a, const MissCount& b) { return a.count > b.count; });
  return counts;
}

}  // namespace kernwright
