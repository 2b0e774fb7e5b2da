#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <kernwright/result.h>

namespace kernwright {

/// The exit status of a bench that cannot run here, or not without arguments. `make bench`
/// continues.
inline constexpr int kCannotRun = 77;

/// Prints "<program>: <message>" on standard error. Gives the exit status: `kCannotRun` if
/// something that the bench needs is missing (`unavailable`), 1 otherwise.
int report(const Error& error);
/// Reports the error and ends the program.
[[noreturn]] void fail(const Error& error);
/// The value of the result. An error ends the program.
template <typename T>
T take(Result<T> result) {
  if (!result) fail(result.error());
  return std::move(result).value();
}

/// The program's arguments as one line, its own name without the folder.
std::string command_line(int argc, const char* const* argv);

/// Returns whether there is nothing on the command line but "--json FILE", as `make bench` calls
/// every bench; `usage` is then printed.
bool lacks_arguments(int argc, const char* const* argv, const char* usage);

/// Ends the program, with a message and status 2, if a word of the command line is not an option of
/// `usage` or an option has no value; for --help with `usage` and status 0. In `usage` an option is
/// a word that begins with "--"; one that is followed by "]" takes no value.
void expect_options(int argc, const char* const* argv, std::string_view usage);

/// The value after `name` on the command line ("--json FILE"), if it is there.
std::optional<std::string> option_value(int argc, const char* const* argv, std::string_view name);
/// The value of an option that must be given, as text or as a positive number. Otherwise ends the
/// program.
std::string text_option(int argc, const char* const* argv, std::string_view name);
double number_option(int argc, const char* const* argv, std::string_view name,
                     double default_value);
std::int64_t integer_option(int argc, const char* const* argv, std::string_view name,
                            std::int64_t default_value);

}  // namespace kernwright
