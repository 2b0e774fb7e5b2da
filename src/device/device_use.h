#pragma once

#include <algorithm>
#include <optional>
#include <utility>

namespace kernwright {

/// The time in which a device had work of ours, as the host sees it: from the call that enqueues
/// work to the return of the call that waits for it. Times are of the steady clock, which all
/// processes of a host share.
struct DeviceUse {
  double begin_seconds = 0;  ///< when the first work was enqueued
  double end_seconds = 0;    ///< when the last work was done
  double busy_seconds = 0;   ///< 0: there was no work
  double longest_idle_seconds = 0;

  double seconds() const { return end_seconds - begin_seconds; }
  double idle_seconds() const { return seconds() - busy_seconds; }

  void append(const DeviceUse& later) {
    if (later.busy_seconds <= 0) return;
    if (busy_seconds <= 0) {
      *this = later;
      return;
    }
    longest_idle_seconds = std::max(
        {longest_idle_seconds, later.longest_idle_seconds, later.begin_seconds - end_seconds});
    end_seconds = later.end_seconds;
    busy_seconds += later.busy_seconds;
  }
};

/// Gathers the use of a device from the times at which work is enqueued and at which all is done.
class UseMeter {
 public:
  void queued(double now_seconds) {
    if (!since_) since_ = now_seconds;
  }
  void done(double now_seconds) {
    if (!since_) return;
    use_.append({*since_, now_seconds, now_seconds - *since_, 0});
    since_.reset();
  }
  /// Returns the use since the last call. Work that is not done yet counts up to now, and again
  /// from now on in the next call.
  DeviceUse take(double now_seconds) {
    const bool busy = since_.has_value();
    done(now_seconds);
    if (busy) queued(now_seconds);
    return std::exchange(use_, {});
  }

 private:
  DeviceUse use_;
  std::optional<double> since_;
};

}  // namespace kernwright
