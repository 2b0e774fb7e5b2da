#include "options.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace decode {
namespace {

constexpr int kMostSequences = 16;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

/// The words of one command line from a place on. Remembers the first error.
struct Words {
  const std::vector<std::string>& words;
  std::size_t next = 0;
  std::optional<kw::Error> error = std::nullopt;

  void refuse(const std::string& why) {
    if (!error) error = {kw::ErrorCode::invalid_argument, why};
  }
  bool has_value() const { return next < words.size() && words[next].rfind("--", 0) != 0; }
  std::string value(const std::string& option) {
    if (has_value()) return words[next++];
    refuse(option + " needs a value");
    return {};
  }
  /// Returns whether the value is `second`.
  bool one_of(const std::string& option, const char* first, const char* second) {
    const std::string text = value(option);
    if (text != first && text != second) {
      refuse(option + ": '" + text + "' is neither " + first + " nor " + second);
    }
    return text == second;
  }
  std::int64_t number(const std::string& option, std::int64_t least, std::int64_t most) {
    return to_number(option, value(option), least, most);
  }
  Ints numbers(const std::string& option, std::int64_t most) {
    const std::string text = value(option) + ",";
    Ints read;
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
      end = text.find(',', begin);
      read.push_back(
          static_cast<std::int32_t>(to_number(option, text.substr(begin, end - begin), 0, most)));
    }
    return read;
  }
  std::int64_t to_number(const std::string& option, const std::string& text, std::int64_t least,
                         std::int64_t most) {
    std::int64_t read = least;
    const char* end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data(), end, read);
    if (code != std::errc() || stop != end || read < least || read > most) {
      refuse(option + ": '" + text + "' is no whole number from " + std::to_string(least) + " to " +
             std::to_string(most));
      return least;
    }
    return read;
  }
};

}  // namespace

const char* const kUsage =
    "usage: kernwright_decode --config FILE [--weights DIR|FILE ...] [--batch N]\n"
    "           [--context N | --lengths N,... | --prompt ID,...] [--steps N]\n"
    "           [--cache-layout contiguous|paged] [--seconds N] [--path NAME] [--check]\n"
    "           [--json FILE] [--seed N]\n";

kw::Result<Options> parse_options(const std::vector<std::string>& words) {
  Options options;
  Words in{words};
  std::int64_t batch = 0;
  std::int64_t context = -1;
  while (in.next < words.size() && !in.error) {
    const std::string& option = words[in.next++];
    if (option == "--config") {
      options.config = in.value(option);
    } else if (option == "--weights") {
      do {
        options.weights.push_back(in.value(option));
      } while (in.has_value());
    } else if (option == "--batch") {
      batch = in.number(option, 1, kMostSequences);
    } else if (option == "--context") {
      context = in.number(option, 0, kMostTokens);
    } else if (option == "--lengths") {
      options.lengths = in.numbers(option, kMostTokens);
    } else if (option == "--prompt") {
      options.prompt = in.numbers(option, INT32_MAX);
    } else if (option == "--steps") {
      options.steps = static_cast<int>(in.number(option, 1, kMostTokens));
    } else if (option == "--cache-layout") {
      options.paged = in.one_of(option, "contiguous", "paged");
    } else if (option == "--seconds") {
      options.seconds = static_cast<double>(in.number(option, 0, 86'400));
    } else if (option == "--path") {
      options.path = in.value(option);
    } else if (option == "--check") {
      options.check = true;
    } else if (option == "--json") {
      options.json = in.value(option);
    } else if (option == "--seed") {
      options.seed = static_cast<std::uint64_t>(in.number(option, 0, INT64_MAX));
    } else {
      in.refuse("'" + option + "' is no option");
    }
  }
  if (options.config.empty()) in.refuse("--config is missing");
  if ((context >= 0) + !options.lengths.empty() + !options.prompt.empty() > 1) {
    in.refuse("--context, --lengths and --prompt each say how sequences begin: give one of them");
  }
  if (options.lengths.size() > kMostSequences) {
    in.refuse("--lengths has " + std::to_string(options.lengths.size()) + " sequences, more than " +
              std::to_string(kMostSequences));
  }
  if (batch != 0 && !options.lengths.empty() &&
      batch != static_cast<std::int64_t>(options.lengths.size())) {
    in.refuse("--batch " + std::to_string(batch) + ", and --lengths of " +
              std::to_string(options.lengths.size()) + " sequences");
  }
  if (in.error) return *in.error;
  if (options.lengths.empty()) {
    options.lengths.assign(at(std::max<std::int64_t>(batch, 1)),
                           static_cast<std::int32_t>(std::max<std::int64_t>(context, 0)));
  }
  return options;
}

}  // namespace decode
