#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include <kernwright/result.h>

namespace kernwright::cli {

/// The words of the command line after the program's name.
struct CommandLine {
  /// The words for the parser: a command and its words, without the options that ask for help.
  std::vector<std::string> words;
  bool version = false;
  bool help = false;  ///< for the command, or for all if `words` is empty
};

/// Reads the words before the parser, which knows nothing of problems and would take their dims for
/// options. `help tune` means `tune --help`. Errors: `invalid_argument` for an unknown command or
/// option, with the one that was probably meant.
Result<CommandLine> read_command_line(std::vector<std::string> words,
                                      const std::vector<std::unique_ptr<Command>>& commands);

}  // namespace kernwright::cli
