#include "tuner/audit/host_facts.h"

#include <charconv>
#include <set>
#include <unistd.h>

#include "support/files.h"
#include "support/text.h"

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;

/// A longer time between two looks at the clock, normally tens of nanoseconds, is an interruption:
/// by another thread, a quota or a hypervisor.
constexpr std::chrono::microseconds kInterruption{100};

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double stolen_share(Clock::duration work) {
  const Clock::time_point begin = Clock::now();
  Clock::duration stolen{};
  Clock::time_point now = begin;
  while (now - begin < work) {
    const Clock::time_point next = Clock::now();
    if (next - now > kInterruption) stolen += next - now;
    now = next;
  }
  return seconds(stolen) / seconds(now - begin);
}

/// Returns word number `index` of `text` as a number.
std::optional<double> number_at(std::string_view text, std::size_t index) {
  for (const std::string_view word : split(trim(text), ' ')) {
    if (word.empty() || index-- != 0) continue;
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc()) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

/// Returns the number after `name` in a text of lines "name number".
std::optional<double> field(std::string_view text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(name) && line.substr(name.size()).starts_with(' ')) {
      return number_at(line, 1);
    }
  }
  return std::nullopt;
}

std::optional<double> growth(const std::optional<double>& now, std::optional<double>& last) {
  std::optional<double> grown;
  if (now && last) grown = *now - *last;
  last = now;
  return grown;
}

}  // namespace

Environment read_environment() {
  Environment environment;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

std::vector<std::string> mapped_files(std::string_view maps) {
  std::set<std::string> files;
  for (const std::string_view line : split(maps, '\n')) {
    const std::size_t path = line.find('/');
    if (path != std::string_view::npos) files.emplace(trim(line.substr(path)));
  }
  return {files.begin(), files.end()};
}

std::vector<std::string> HostReader::mapped_files() const {
  const Result<std::string> maps = read_file(root_ / "proc/self/maps");
  return maps ? kernwright::mapped_files(*maps) : std::vector<std::string>();
}

std::optional<double> HostReader::delay_seconds() const {
  // The file is "run-time delay timeslices", the first two in nanoseconds.
  const Result<std::string> schedule = read_file(root_ / "proc/thread-self/schedstat");
  if (!schedule) return std::nullopt;
  const std::optional<double> nanoseconds = number_at(*schedule, 1);
  return nanoseconds ? std::optional(*nanoseconds * 1e-9) : std::nullopt;
}

std::optional<double> HostReader::throttled_seconds() const {
  // Control groups of version 2, then of version 1.
  for (const char* path : {"sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/cpu/cpu.stat"}) {
    const Result<std::string> statistics = read_file(root_ / path);
    if (!statistics) continue;
    if (const auto us = field(*statistics, "throttled_usec")) return *us * 1e-6;
    if (const auto ns = field(*statistics, "throttled_time")) return *ns * 1e-9;
  }
  return std::nullopt;
}

HostLoad HostReader::load(std::chrono::milliseconds work) {
  HostLoad load;
  load.stolen_share = stolen_share(work);
  load.cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (const Result<std::string> text = read_file(root_ / "proc/loadavg")) {
    // "0.52 0.58 0.59 3/1204 4711": 3 threads are runnable, and one of them is this one.
    const std::vector<std::string_view> words = split(*text, ' ');
    if (words.size() > 3) {
      if (const auto count = number_at(split(words[3], '/').front(), 0)) {
        load.runnable = static_cast<int>(*count);
      }
    }
  }
  const Clock::time_point now = Clock::now();
  if (const auto delayed = growth(delay_seconds(), last_delay_); delayed && last_look_) {
    load.delayed_share = *delayed / seconds(now - *last_look_);
  }
  load.throttled_seconds = growth(throttled_seconds(), last_throttled_);
  last_look_ = now;
  return load;
}

}  // namespace kernwright
