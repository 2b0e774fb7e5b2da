#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kernwright/result.h>

namespace kernwright {

/// The times at which a fresh process reached each step, in nanoseconds of the monotonic clock,
/// which all processes of a host share.
struct ColdStart {
  std::int64_t spawned = 0;   ///< its parent was about to start it
  std::int64_t main = 0;      ///< the program and its libraries were loaded
  std::int64_t context = 0;   ///< the driver was initialised, with a context and a stream
  std::int64_t opened = 0;    ///< the service was open
  std::int64_t served = 0;    ///< it had given the kernel
  std::int64_t buffers = 0;   ///< the caller had its buffers
  std::int64_t launched = 0;  ///< the first launch had returned
  std::int64_t finished = 0;  ///< the kernel had run
  std::string kernel;         ///< what was launched: template and configuration
  std::string match;          ///< how well it fits

  /// The time from the start to the first launch, without the caller's part: the driver's context
  /// and the buffers.
  std::int64_t ours_ns() const {
    return launched - spawned - (context - main) - (buffers - served);
  }
};

/// Converts to one line of JSON, and back. Errors: `corrupt` if the text is not such a line.
std::string to_line(const ColdStart& start);
Result<ColdStart> read_cold_start(std::string_view line);

/// The files of NVRTC and nvJitLink among those that `maps`, the text of /proc/<process>/maps,
/// names, each once.
std::vector<std::string> mapped_compilers(std::string_view maps);

}  // namespace kernwright
