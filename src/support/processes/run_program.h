#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "support/processes/subprocess.h"
#include <kernwright/result.h>

namespace kernwright {

struct ProgramOutput {
  ExitStatus status;
  std::string out;
};

/// Runs a program of the user's that is looked for in PATH, gives it `input` to read, and waits for
/// its end: it may ask the user something. It has our environment, our terminal and our stderr.
/// Errors: `io` with the program and the reason.
Result<ProgramOutput> run_program(const std::string& name, std::vector<std::string> arguments,
                                  std::string_view input);

}  // namespace kernwright
