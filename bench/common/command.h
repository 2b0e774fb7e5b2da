#pragma once

namespace kernwright {

/// Exit status of a bench that cannot run here, or not without arguments. `make bench` goes on.
inline constexpr int kCannotRun = 77;

/// Whether there is nothing on the command line but "--json FILE", as `make bench` calls every
/// bench; `usage` is then printed.
bool lacks_arguments(int argc, const char* const* argv, const char* usage);

}  // namespace kernwright
