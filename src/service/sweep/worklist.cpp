#include "service/sweep/worklist.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "service/sweep/sizes.h"
#include "support/files.h"
#include "support/json.h"
#include "support/spelling.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr FileKind kWorklist{"worklist", std::uint64_t{16} << 20};

Error at(std::string_view file, const JsonNode& node, std::string_view message) {
  return {ErrorCode::invalid_argument, concat(file, ":", node.line, ": ", message)};
}

Error too_many(std::string_view file, const JsonNode& node) {
  return at(file, node,
            concat("the worklist stands for more than ", kMostProblems, " problems up to here"));
}

/// A dim's or a flag's name with the values it takes.
template <typename Value>
using Choices = std::vector<std::pair<std::string, std::vector<Value>>>;

Result<std::vector<std::int64_t>> read_sizes(const JsonNode& node, std::string_view file,
                                             std::string_view dim) {
  const auto one = [&](const JsonNode& value) -> Result<std::vector<std::int64_t>> {
    if (value.integer()) return std::vector<std::int64_t>{*value.integer()};
    if (!value.string()) {
      return at(file, value,
                concat("dim ", dim, " must be an integer or a range, is ", value.kind()));
    }
    Result<std::vector<std::int64_t>> sizes = parse_sizes(*value.string());
    if (!sizes) return at(file, value, concat("dim ", dim, ": ", sizes.error().message));
    return sizes;
  };
  if (!node.array()) return one(node);
  std::vector<std::int64_t> all;
  for (const JsonNode& element : *node.array()) {
    Result<std::vector<std::int64_t>> sizes = one(element);
    if (!sizes) return sizes;
    if (all.size() + sizes->size() > kMostProblems) return too_many(file, element);
    all.insert(all.end(), sizes->begin(), sizes->end());
  }
  if (all.empty()) return at(file, node, concat("dim ", dim, " has an empty list"));
  return all;
}

Result<std::vector<std::string>> read_values(const JsonNode& node, std::string_view file,
                                             std::string_view flag) {
  std::vector<std::string> values;
  const auto add = [&](const JsonNode& value) -> Result<void> {
    if (!value.string()) {
      return at(file, value, concat("flag ", flag, " must be a string, is ", value.kind()));
    }
    values.push_back(*value.string());
    return {};
  };
  if (!node.array()) {
    KW_TRY(add(node));
    return values;
  }
  for (const JsonNode& element : *node.array()) {
    if (Result<void> added = add(element); !added) return added.error();
  }
  if (values.empty()) return at(file, node, concat("flag ", flag, " has an empty list"));
  return values;
}

struct Family {
  std::string operation;
  Choices<std::int64_t> dims;
  Choices<std::string> flags;

  /// How many problems it stands for; `kMostProblems` + 1 where those are more.
  std::size_t size() const {
    std::size_t product = 1;
    const auto times = [&product](std::size_t count) {
      product = std::min(product * count, kMostProblems + 1);
    };
    for (const auto& [name, sizes] : dims) times(sizes.size());
    for (const auto& [name, values] : flags) times(values.size());
    return product;
  }

  /// Number `index`, of which the last choice changes fastest.
  Problem problem(std::size_t index) const {
    Problem::Dims chosen_dims(dims.size());
    Problem::Flags chosen_flags(flags.size());
    for (std::size_t i = flags.size(); i-- > 0;) {
      const auto& [name, values] = flags[i];
      chosen_flags[i] = {name, values[index % values.size()]};
      index /= values.size();
    }
    for (std::size_t i = dims.size(); i-- > 0;) {
      const auto& [name, sizes] = dims[i];
      chosen_dims[i] = {name, sizes[index % sizes.size()]};
      index /= sizes.size();
    }
    return Problem::make(operation, std::move(chosen_dims), std::move(chosen_flags));
  }
};

Result<Family> parse_object(const JsonNode& node, std::string_view file) {
  Family family;
  for (const auto& [name, value] : *node.object()) {
    if (name == "operation" && value.string()) {
      family.operation = *value.string();
    } else if (name == "dims" && value.object()) {
      for (const auto& [dim, size] : *value.object()) {
        KW_ASSIGN(std::vector<std::int64_t> sizes, read_sizes(size, file, dim));
        family.dims.emplace_back(dim, std::move(sizes));
      }
    } else if (name == "flags" && value.object()) {
      for (const auto& [flag, choice] : *value.object()) {
        KW_ASSIGN(std::vector<std::string> values, read_values(choice, file, flag));
        family.flags.emplace_back(flag, std::move(values));
      }
    } else {
      return at(file, value,
                concat("unexpected \"", name, "\" (", value.kind(),
                       "); a problem has operation (string), dims (object) and flags (object)"));
    }
  }
  if (family.operation.empty()) return at(file, node, "the problem names no operation");
  return family;
}

/// Returns true if the text is a log of lookups: its first line is an object with a problem.
bool is_log(std::string_view text, std::string_view file) {
  const Result<JsonNode> first = parse_json(text.substr(0, text.find('\n')), file);
  const JsonNode* const problem = first && first->object() ? first->find("problem") : nullptr;
  return problem && problem->string();
}

/// That a file is no worklist, with the first of its keys that no worklist has.
Error no_worklist(std::string_view file, const JsonNode& root) {
  std::string has = concat("this is ", root.kind());
  if (root.object()) {
    has = "there is none";
    for (const auto& [name, value] : *root.object()) {
      if (name == "problems") {
        has = concat("it is ", value.kind());
      } else {
        return {ErrorCode::not_found,
                concat(file, ":", value.line, ": unknown key \"", name, "\"",
                       did_you_mean(name, std::vector<std::string>{"problems"}),
                       "; a worklist is an object with the one key \"problems\", an array, or a "
                       "log of lookups")};
      }
    }
  }
  return {ErrorCode::not_found, concat(file, ":", root.line,
                                       ": a worklist is an object with the one key \"problems\", "
                                       "an array; ",
                                       has)};
}

/// The problems of a log of lookups, those that were asked for most first.
Result<std::vector<WorklistEntry>> parse_log(std::string_view text, std::string_view file,
                                             std::size_t& unread) {
  std::vector<std::pair<WorklistEntry, std::int64_t>> counted;
  std::map<std::string, std::size_t> places;
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    const Result<JsonNode> node = parse_json(line, file);
    const JsonNode* problem = node && node->object() ? node->find("problem") : nullptr;
    if (!problem || !problem->string()) {
      unread += trim(line).empty() ? 0 : 1;
      continue;
    }
    const JsonNode* count = node->find("count");
    const auto [place, first] = places.try_emplace(*problem->string(), counted.size());
    if (first) {
      Result<Problem> parsed = Problem::parse(*problem->string());
      if (!parsed) {
        return Error{ErrorCode::invalid_argument,
                     concat(file, ":", number, ": ", parsed.error().message)};
      }
      if (counted.size() == kMostProblems) return too_many(file, *node);
      counted.push_back({{*std::move(parsed), number}, 0});
    }
    counted[place->second].second += count && count->integer() ? *count->integer() : 1;
  }
  std::ranges::stable_sort(counted, std::greater<>(),
                           &std::pair<WorklistEntry, std::int64_t>::second);
  std::vector<WorklistEntry> entries;
  for (auto& [entry, count] : counted) entries.push_back(std::move(entry));
  return entries;
}

}  // namespace

namespace {

Result<std::vector<WorklistEntry>> parse_entries(std::string_view text, std::string_view file,
                                                 std::size_t& unread) {
  if (is_log(text, file)) return parse_log(text, file, unread);
  KW_ASSIGN(JsonNode root, parse_json(text, file));
  const JsonNode* list = root.find("problems");
  if (!root.object() || root.object()->size() != 1 || !list || !list->array()) {
    return no_worklist(file, root);
  }
  std::vector<WorklistEntry> entries;
  std::set<std::string> known;
  const auto add = [&](Problem problem, const JsonNode& node) {
    if (known.insert(problem.text()).second) entries.push_back({std::move(problem), node.line});
  };
  std::size_t total = 0;
  for (const JsonNode& node : *list->array()) {
    if (node.string()) {
      Result<Problem> problem = Problem::parse(*node.string());
      if (!problem) return at(file, node, problem.error().message);
      if (++total > kMostProblems) return too_many(file, node);
      add(*std::move(problem), node);
    } else if (node.object()) {
      KW_ASSIGN(const Family family, parse_object(node, file));
      const std::size_t size = family.size();
      total += size;
      if (total > kMostProblems) return too_many(file, node);
      for (std::size_t i = 0; i < size; ++i) add(family.problem(i), node);
    } else {
      return at(file, node, concat("a problem is a string or an object, is ", node.kind()));
    }
  }
  return entries;
}

}  // namespace

Result<std::vector<WorklistEntry>> parse_worklist(std::string_view text, std::string_view file,
                                                  std::size_t* unread) {
  std::size_t ignored = 0;
  std::size_t& left_out = unread != nullptr ? *unread : ignored;
  left_out = 0;
  KW_ASSIGN(std::vector<WorklistEntry> entries, parse_entries(text, file, left_out));
  // A gate over no problem would pass whatever is wrong.
  if (entries.empty()) return Error{ErrorCode::not_found, concat(file, " has no problem")};
  return entries;
}

Result<std::vector<WorklistEntry>> read_worklist(const std::filesystem::path& file,
                                                 std::size_t* unread) {
  KW_ASSIGN(const std::string text, read_file(file, kWorklist));
  return parse_worklist(text, file.native(), unread);
}

std::string lines_left_out(std::size_t unread, const std::filesystem::path& file) {
  return concat(file.native(), ": ", counted(unread, "line"), " left out, which cannot be read");
}

Result<Shard> parse_shard(std::string_view text) {
  Shard shard;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto index = std::from_chars(begin, end, shard.index);
  const bool slash = index.ec == std::errc() && index.ptr != end && *index.ptr == '/';
  if (slash) {
    const auto count = std::from_chars(index.ptr + 1, end, shard.count);
    if (count.ec == std::errc() && count.ptr == end && shard.index >= 1 &&
        shard.index <= shard.count) {
      return shard;
    }
  }
  return Error{ErrorCode::invalid_argument,
               concat("\"", text, "\" is no shard: INDEX/COUNT, with INDEX from 1 to COUNT")};
}

std::vector<Problem> shard_of(std::vector<Problem> normalized, const Shard& shard) {
  std::vector<std::pair<std::string, Problem>> by_text;  // a text is dear, a sort asks for many
  by_text.reserve(normalized.size());
  for (Problem& problem : normalized) {
    std::string text = problem.text();
    by_text.emplace_back(std::move(text), std::move(problem));
  }
  std::ranges::sort(by_text, {}, &std::pair<std::string, Problem>::first);
  std::vector<Problem> part;
  for (std::size_t i = shard.index - 1; i < by_text.size(); i += shard.count) {
    part.push_back(std::move(by_text[i].second));
  }
  return part;
}

}  // namespace kernwright
