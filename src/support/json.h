#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <kernwright/result.h>

namespace kernwright {

struct JsonMember;

/// A hand-written JSON file.
struct JsonFile {
  std::string name;   ///< relative to the folder of templates that it is in
  std::string place;  ///< its name in messages
  std::string text;
};

/// A line of a hand-written JSON file; `file` counts the files that were merged into one value.
struct JsonPlace {
  int file = 0;
  int line = 0;

  /// Returns "file:line", by the place of one of `files`.
  std::string in(std::span<const JsonFile> files) const;
};

/// One value of a hand-written JSON file, with its line. nlohmann/json keeps neither lines nor
/// duplicate keys. We need both: errors name the line, `#line` in generated sources points at it,
/// and a duplicate key is refused.
class JsonNode {
 public:
  using Array = std::vector<JsonNode>;
  using Object = std::vector<JsonMember>;  // in file order

  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> value;
  int line = 0;
  int file = 0;  ///< of those that were merged, as in `JsonPlace`

  const Object* object() const { return std::get_if<Object>(&value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const std::string* string() const { return std::get_if<std::string>(&value); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value); }
  const bool* boolean() const { return std::get_if<bool>(&value); }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value); }
  /// Reads a floating or integral number.
  bool number(double& out) const;

  /// Returns the member `name` of an object, or null.
  const JsonNode* find(std::string_view name) const;

  /// Returns "object", "array", "string", "integer", "number", "boolean" or "null", for messages.
  std::string_view kind() const;
};

/// A member of an object. (Clang does not accept std::pair of an incomplete type here.)
struct JsonMember {
  std::string first;
  JsonNode second;
};

// All JSON is read here. Values are copied, written and destroyed by recursion, so the depth of a
// text is limited, and its length, because a value takes up to 50 times the memory of its text.
constexpr std::size_t kMostJsonDepth = 64;
constexpr std::size_t kMostJsonBytes = std::size_t{64} << 20;

/// Parses `text`. `file` is the name for errors, `file:line: ...`. Errors: `invalid_argument` for
/// text that is not JSON or exceeds the limits, duplicate keys, integers beyond 64 bits, and
/// anything after the value.
Result<JsonNode> parse_json(std::string_view text, std::string_view file);

/// Parses JSON that a program wrote, like nlohmann's `parse` without exceptions: the result
/// `is_discarded` if the text is not JSON or exceeds the limits. An object may have 4096 members,
/// since each is compared with those before it. `beyond` gets the limit that the text exceeds.
/// Numbers do not depend on the process's locale.
nlohmann::ordered_json parse_value(std::string_view text, std::string* beyond = nullptr);

/// Returns the text that an object has under this name; empty if it has none, or is not an object.
std::string text_member(const nlohmann::ordered_json& object, std::string_view name);

}  // namespace kernwright
