#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "support/json.h"
#include "support/text.h"
#include <kernwright/result.h>

namespace kernwright {

/// Reads a file of JSON objects, one per line, and names the line of a defect.
class JsonLines {
 public:
  explicit JsonLines(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  /// The line that was read last, from 1 on.
  int line() const { return line_; }
  /// From now on defects are this line's.
  void blame(int line) { line_ = line; }

  /// Passes each object of `text` to `object`, which returns Result<void>; the first defect ends
  /// it. Errors: `corrupt`, and the errors of `object`.
  template <typename Object>
  Result<void> each(std::string_view text, const Object& object) {
    for (const std::string_view line : split(text, '\n')) {
      ++line_;
      if (trim(line).empty()) continue;
      const nlohmann::ordered_json json = parse_value(line);
      if (!json.is_object()) return defect("no JSON object");
      if (Result<void> done = object(json); !done) return done;
    }
    return {};
  }

  /// Returns an error that names the line.
  template <typename... Parts>
  Error defect(const Parts&... parts) const {
    return Error{ErrorCode::corrupt, concat(file_, ":", line_, ": ", parts...)};
  }

 private:
  std::string file_;
  int line_ = 0;
};

}  // namespace kernwright
