#include "cache/fields/field_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "cache/fields/json_fields.h"

namespace kernwright {
namespace {

/// Returns whether a character needs no escape in a JSON string, whatever its neighbours are.
bool is_plain(char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; }

/// Appends the shortest text that reads back as the same number.
template <typename Number>
void append(std::string& text, Number value) {
  char digits[32];  // an integer has up to 20, a double up to 24
  text.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
}

}  // namespace

void FieldWriter::member(std::string_view name) {
  separate();
  put(name);
  text_ += ':';
}

void FieldWriter::separate() {
  if (text_.back() != '{' && text_.back() != '[') text_ += ',';
}

void FieldWriter::put(std::string_view value) {
  if (!std::all_of(value.begin(), value.end(), is_plain)) {
    text_ += dump(value);
    return;
  }
  text_ += '"';
  text_ += value;
  text_ += '"';
}

void FieldWriter::put(double value) {
  if (!std::isfinite(value)) {
    put(nullptr);
  } else if (value == 0 && std::signbit(value)) {
    text_ += "-0.0";  // "-0" would come back as an integer, without its sign
  } else {
    append(text_, value);
  }
}

void FieldWriter::put(std::int64_t value) { append(text_, value); }
void FieldWriter::put(std::uint64_t value) { append(text_, value); }

void FieldWriter::put(const Configuration& value) {
  braces([&] {
    for (const auto& [name, number] : value.values()) field(name, number);
  });
}

void describe(FieldWriter& json, const CountedKernel& kernel) {
  json.field("kernel", kernel.name);
  json.field("grid", std::vector<std::int64_t>(kernel.grid.begin(), kernel.grid.end()));
  json.object("values", [&] {
    for (const CounterValue& value : kernel.values) json.field(value.name, value.value);
  });
  json.object("reasons", [&] {
    for (const CounterValue& value : kernel.values) {
      if (!value.reason.empty()) json.field(value.name, value.reason);
    }
  });
}

}  // namespace kernwright
