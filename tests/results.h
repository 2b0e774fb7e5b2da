#pragma once

#include <gmock/gmock.h>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "kernwright/result.h"

namespace kernwright {

/// Returns the value of `result`. Throws its message if it has none: the test fails with it.
template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

/// The same of what has no value.
inline void must(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

/// The same of a value that may be absent.
template <typename T>
T must(std::optional<T> found) {
  if (!found) throw std::runtime_error("there is no value");
  return *std::move(found);
}

/// Says what Fails() expects.
template <typename T>
std::string failure_in_words(const T& expected) {
  if constexpr (std::is_same_v<T, ErrorCode>) {
    return "the error " + std::to_string(static_cast<int>(expected));
  } else {
    return "a message that " + ::testing::DescribeMatcher<const std::string&>(expected);
  }
}

/// Matches a Result that failed with an ErrorCode, or with a message: a text or a matcher of one.
MATCHER_P(Fails, expected, "fails with " + failure_in_words(expected)) {
  if (arg) return false;
  if constexpr (std::is_same_v<expected_type, ErrorCode>) {
    return arg.error().code == expected;
  } else {
    return ::testing::ExplainMatchResult(expected, arg.error().message, result_listener);
  }
}

/// Matches a Result that failed with both.
MATCHER_P2(Fails, code, message,
           "fails with " + failure_in_words(code) + " and " + failure_in_words(message)) {
  return ::testing::ExplainMatchResult(::testing::AllOf(Fails(code), Fails(message)), arg,
                                       result_listener);
}

/// Prints the error, for the messages of tests.
template <typename T>
void PrintTo(const Result<T>& result, std::ostream* out) {
  if (result) {
    *out << "a value";
  } else {
    *out << "the error " << static_cast<int>(result.error().code) << ": " << result.error().message;
  }
}

}  // namespace kernwright
