#pragma once

#include "kernwright/export.h"

namespace kernwright::cli {

/// Runs the command line tool with the arguments of `main`, and returns the status to exit with. It
/// is the only exported function of the command line. The library of the Python package exports it,
/// and that package's tool is `main` and nothing else.
KERNWRIGHT_API int run_tool(int argc, const char* const* argv);

}  // namespace kernwright::cli
