#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <kernwright/result.h>

namespace kernwright {

/// Exit status of a bench that cannot run here, or not without arguments. `make bench` goes on.
inline constexpr int kCannotRun = 77;

/// Prints "<program>: <message>" on standard error and gives the exit status: `kCannotRun` where
/// something that the bench needs is not there (`unavailable`), 1 otherwise.
int report(const Error& error);
/// Reports, and ends the program.
[[noreturn]] void fail(const Error& error);
/// The value, or the end of the program.
template <typename T>
T take(Result<T> result) {
  if (!result) fail(result.error());
  return std::move(result).value();
}

/// The program's arguments as one line, its own name without the folder.
std::string command_line(int argc, const char* const* argv);

/// Whether there is nothing on the command line but "--json FILE", as `make bench` calls every
/// bench; `usage` is then printed.
bool lacks_arguments(int argc, const char* const* argv, const char* usage);

/// Ends the program where something on the command line is no option of `usage`, or lacks its
/// value: with a message and status 2, or for --help with `usage` and status 0. There an option is
/// a word that begins with "--"; one with a "]" right behind it takes no value.
void expect_options(int argc, const char* const* argv, std::string_view usage);

/// The value after `name` on the command line ("--json FILE"), if it is there.
std::optional<std::string> option_value(int argc, const char* const* argv, std::string_view name);
/// The same where it has to be there, and where it is a positive number: ends the program if not.
std::string text_option(int argc, const char* const* argv, std::string_view name);
double number_option(int argc, const char* const* argv, std::string_view name, double standard);
std::int64_t integer_option(int argc, const char* const* argv, std::string_view name,
                            std::int64_t standard);

}  // namespace kernwright
