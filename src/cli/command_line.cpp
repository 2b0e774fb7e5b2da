#include "cli/command_line.h"

#include <algorithm>
#include <utility>

#include "support/spelling.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

std::string name_of(const Command& command) { return command.sub.getName().str(); }

bool asks_for_help(std::string_view option) { return option == "help" || option == "h"; }

Error unknown_option(Command& command, std::string_view option,
                     const std::vector<std::string>& known, const std::string& following) {
  const std::string_view name = option.substr(0, option.find('='));
  const std::string see = concat("; see kernwright ", name_of(command), " --help");
  // For one letter, a dim, there is no suggestion: every other letter would be as near.
  const std::string meant = name.size() > 1 ? did_you_mean(concat("--", name), known) : "";
  if (!meant.empty() || !command.takes_problem() || !is_identifier(name)) {
    return {ErrorCode::invalid_argument, concat("no option --", name, meant, see)};
  }
  const std::string value(name.size() < option.size()  ? option.substr(name.size() + 1)
                          : following.starts_with('-') ? std::string_view()
                                                       : std::string_view(following));
  return {ErrorCode::invalid_argument,
          concat("no option --", name, ": dims, dtypes and flags are written without dashes, ",
                 name, "=", value.empty() ? "VALUE" : value, see)};
}

/// Checks the words after the command as the parser will, and removes those that ask for help.
Result<void> read_options(Command& command, CommandLine& line) {
  const llvm::StringMap<llvm::cl::Option*>& options = llvm::cl::getRegisteredOptions(command.sub);
  std::vector<std::string> known;
  for (const auto& [name, option] : options) {
    if (option->getOptionHiddenFlag() == llvm::cl::NotHidden) known.push_back("--" + name.str());
  }
  std::sort(known.begin(), known.end());
  std::vector<std::string>& words = line.words;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return {};
    if (word.size() < 2 || word.front() != '-') {
      if (!command.sub.PositionalOpts.empty()) continue;
      return Error{ErrorCode::invalid_argument,
                   concat(name_of(command), " takes no \"", word, "\"; see kernwright ",
                          name_of(command), " --help")};
    }
    const std::string_view option = std::string_view(word).substr(word.starts_with("--") ? 2 : 1);
    if (asks_for_help(option)) {
      line.help = true;
      continue;
    }
    const auto found = options.find(option.substr(0, option.find('=')));
    if (found == options.end()) {
      return unknown_option(command, option, known, i + 1 < words.size() ? words[i + 1] : "");
    }
    // Otherwise the next word is its value, whatever it looks like.
    const bool has_value = option.find('=') != std::string_view::npos;
    if (!has_value && found->second->getValueExpectedFlag() == llvm::cl::ValueRequired) ++i;
  }
  return {};
}

}  // namespace

Result<CommandLine> read_command_line(std::vector<std::string> words,
                                      const std::vector<std::unique_ptr<Command>>& commands) {
  CommandLine line;
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    line.help = true;
  }
  if (words.empty()) return line;
  const std::string first = words.front();
  if (asks_for_help(
          std::string_view(first).substr(std::min(first.find_first_not_of('-'), first.size())))) {
    line.help = true;
    return line;
  }
  if (first == "--version") {
    line.version = true;
    return line;
  }
  std::vector<std::string> names;
  std::string all;
  for (const std::unique_ptr<Command>& command : commands) {
    names.push_back(name_of(*command));
    all += concat(all.empty() ? "" : ", ", names.back());
    if (names.back() != first) continue;
    line.words = std::move(words);
    KW_TRY(read_options(*command, line));
    // The other words are dropped, because the parser would demand required options.
    if (line.help) line.words.resize(1);
    return line;
  }
  return Error{ErrorCode::invalid_argument,
               first.starts_with('-')
                   ? concat("expected a command in front of ", first, ", there are ", all)
                   : concat("no command \"", first, "\"", did_you_mean(first, names),
                            ", there are ", all, "; see kernwright --help")};
}

}  // namespace kernwright::cli
