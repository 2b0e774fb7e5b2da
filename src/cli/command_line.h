#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include <kernwright/result.h>

namespace kernwright::cli {

/// What the words behind the program's name ask for.
struct CommandLine {
  /// What the parser gets: a command with its words, without those that ask for help.
  std::vector<std::string> words;
  bool version = false;
  bool help = false;  ///< of the command, or of all of them where `words` is empty
};

/// Reads the words, and refuses what the parser would: it knows nothing of problems, and takes
/// their dims for options. `help tune` is `tune --help`. Errors: `invalid_argument` for an unknown
/// command and an unknown option, with what may have been meant.
Result<CommandLine> read_command_line(std::vector<std::string> words,
                                      const std::vector<std::unique_ptr<Command>>& commands);

}  // namespace kernwright::cli
