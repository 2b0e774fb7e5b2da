#include "compile/compiler.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>

#include "support/text.h"

namespace kernwright {
namespace {

constexpr const char* kSecondsVariable = "KERNWRIGHT_COMPILE_SECONDS";
constexpr int kUsualSeconds = 60;
constexpr int kMostSeconds = 1'000'000;

std::string_view seconds_text() {
  const char* text = std::getenv(kSecondsVariable);
  return text == nullptr ? std::string_view() : text;
}

/// Returns nullopt if the variable does not hold a whole number of seconds.
std::optional<int> seconds_asked_for() {
  const std::string_view text = seconds_text();
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && seconds > 0 && seconds <= kMostSeconds ? std::optional(seconds) : std::nullopt;
}

}  // namespace

std::chrono::milliseconds compile_deadline() {
  return std::chrono::seconds(seconds_asked_for().value_or(kUsualSeconds));
}

std::string more_compile_time() {
  if (!seconds_text().empty() && !seconds_asked_for()) {
    return concat(kSecondsVariable, " is \"", seconds_text(),
                  "\", no whole number of seconds from 1 to ", kMostSeconds);
  }
  return concat("a larger ", kSecondsVariable, " allows more");
}

Digest artifact_digest(const CompileRequest& request, std::string_view identity,
                       Compiler& compiler) {
  std::string makers(identity);
  if (const std::string headers = compiler.headers_identity(request); !headers.empty()) {
    makers += concat(", headers ", headers);
  }
  if (!request.linked.empty()) makers += concat(", ", compiler.linker_identity());
  return request.digest(makers);
}

}  // namespace kernwright
