#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kernwright {

using Environment = std::map<std::string, std::string, std::less<>>;

/// Returns the environment variables of this process.
Environment read_environment();

/// Returns the files in the text of a /proc/<pid>/maps, sorted, each once.
std::vector<std::string> mapped_files(std::string_view maps);

/// The load of the host by other work, as far as it delays the calling thread.
struct HostLoad {
  double stolen_share = 0;  ///< part of some milliseconds of work in which the thread did not run
  std::optional<double>
      delayed_share;  ///< part of the time since the last look, waiting for a core
  std::optional<double>
      throttled_seconds;        ///< by the control group's CPU quota, since the last look
  std::optional<int> runnable;  ///< runnable threads of the whole host
  int cores = 0;
};

/// Reads the facts that Linux reports about this process and its host, from files below `root`.
/// Shares and times since the last look are for the thread that calls `load`.
class HostReader {
 public:
  explicit HostReader(std::filesystem::path root = "/") : root_(std::move(root)) {}

  std::vector<std::string> mapped_files() const;
  /// Returns the load. Keeps the thread busy for `work` to see whether it is interrupted.
  HostLoad load(std::chrono::milliseconds work = std::chrono::milliseconds(30));

 private:
  std::optional<double> delay_seconds() const;
  std::optional<double> throttled_seconds() const;

  std::filesystem::path root_;
  std::optional<std::chrono::steady_clock::time_point> last_look_;
  std::optional<double> last_delay_;
  std::optional<double> last_throttled_;
};

}  // namespace kernwright
