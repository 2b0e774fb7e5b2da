#pragma once

#include "kernwright/export.h"

namespace kernwright::cli {

/// Runs the command line tool with the arguments of `main`, and returns the status to exit with. Of
/// the command line this alone is exported, by the library of the Python package, whose tool is
/// `main` and nothing else.
KERNWRIGHT_API int run_tool(int argc, const char* const* argv);

}  // namespace kernwright::cli
