#include "bench/common/command.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "support/text.h"

namespace kernwright {
namespace {

template <typename Number>
Number positive_option(int argc, const char* const* argv, std::string_view name,
                       Number default_value) {
  const auto text = option_value(argc, argv, name);
  if (!text) return default_value;
  Number value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size() || value <= 0) {
    fail({ErrorCode::invalid_argument, concat(name, " ", *text, " is no positive number")});
  }
  return value;
}

/// Tells whether `usage` has an option of this name, and whether it takes a value.
struct Known {
  bool option = false;
  bool has_value = false;
};

Known look_up(std::string_view usage, std::string_view name) {
  for (std::size_t at = usage.find(name); at != std::string_view::npos;
       at = usage.find(name, at + 1)) {
    const std::string_view behind = usage.substr(at + name.size());
    if (behind.starts_with(']')) return {true, false};
    if (behind.starts_with(' ')) return {true, true};
  }
  return {};
}

}  // namespace

int report(const Error& error) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.message.c_str());
  return error.code == ErrorCode::unavailable ? kCannotRun : 1;
}

void fail(const Error& error) { std::exit(report(error)); }

std::string command_line(int argc, const char* const* argv) {
  std::string line = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : std::string();
  for (int i = 1; i < argc; ++i) line += concat(" ", argv[i]);
  return line;
}

bool lacks_arguments(int argc, const char* const* argv, const char* usage) {
  const bool lacks = argc <= 1 || (argc == 3 && std::string_view(argv[1]) == "--json");
  if (lacks) std::fputs(usage, stderr);
  return lacks;
}

void expect_options(int argc, const char* const* argv, std::string_view usage) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--")) continue;
    if (word == "--help") {
      std::fwrite(usage.data(), 1, usage.size(), stdout);
      std::exit(0);
    }
    const Known known = look_up(usage, word);
    const bool lacks_value = known.has_value && i + 1 == argc;
    if (known.option && !lacks_value) {
      i += known.has_value ? 1 : 0;
      continue;
    }
    const std::string message =
        concat(program_invocation_short_name, ": ",
               lacks_value ? "a value is missing after " : "no option ", word, "\n", usage);
    std::fputs(message.c_str(), stderr);
    std::exit(2);
  }
}

std::optional<std::string> option_value(int argc, const char* const* argv, std::string_view name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) return argv[i + 1];
  }
  return std::nullopt;
}

std::string text_option(int argc, const char* const* argv, std::string_view name) {
  auto text = option_value(argc, argv, name);
  if (!text) fail({ErrorCode::invalid_argument, concat(name, " is missing")});
  return *std::move(text);
}

double number_option(int argc, const char* const* argv, std::string_view name,
                     double default_value) {
  return positive_option(argc, argv, name, default_value);
}

std::int64_t integer_option(int argc, const char* const* argv, std::string_view name,
                            std::int64_t default_value) {
  return positive_option(argc, argv, name, default_value);
}

}  // namespace kernwright
