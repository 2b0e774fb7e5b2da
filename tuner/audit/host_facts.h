#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kernwright {

using Environment = std::map<std::string, std::string, std::less<>>;

/// The variables of this process.
Environment read_environment();

/// The files in the text of a /proc/<pid>/maps, each once, sorted.
std::vector<std::string> mapped_files(std::string_view maps);

/// How busy the host is with others, as the calling thread feels it.
struct HostLoad {
  double stolen_share = 0;  ///< of a few milliseconds of work, the part in which it did not run
  std::optional<double> delayed_share;  ///< of the time since the last look, waiting for a core
  std::optional<double>
      throttled_seconds;        ///< by the control group's CPU quota, since the last look
  std::optional<int> runnable;  ///< threads that run or could, of the whole host
  int cores = 0;
};

/// Reads what Linux tells of this process and its host below `root`. Shares and times since the
/// last look belong to the thread that calls `load`.
class HostReader {
 public:
  explicit HostReader(std::filesystem::path root = "/") : root_(std::move(root)) {}

  std::vector<std::string> mapped_files() const;
  /// Works for `work` to see whether it is interrupted.
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
