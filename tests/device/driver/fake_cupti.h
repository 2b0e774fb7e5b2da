#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/driver/cupti.h"

namespace kernwright {

/// A CUPTI 13.0 that counts what a test says. It takes structures of its own sizes alone, as 13.0
/// does.
class FakeCupti {
 public:
  FakeCupti();
  ~FakeCupti();
  FakeCupti(const FakeCupti&) = delete;
  FakeCupti& operator=(const FakeCupti&) = delete;

  CuptiApi api;  ///< calls the one living FakeCupti

  // Set by the test.
  std::map<std::string, int> failures;   ///< what a function answers, by its name
  std::map<std::string, double> values;  ///< of a metric in the first kernel; 1 if not named
  std::set<std::string> unknown;         ///< metrics that the chip does not have
  std::size_t availability_bytes = 16;
  /// The passes that metrics take together.
  std::function<std::size_t(const std::vector<std::string>&)> passes =
      [](const std::vector<std::string>&) { return 1; };
  std::size_t late_passes = 0;  ///< that it asks for beyond those that it planned

  /// To be called by what is counted, once for each kernel.
  void run_kernel() { ranges_ += started_ ? 1 : 0; }

  // Recorded.
  std::vector<std::string> calls;
  int starts = 0;
  int hosts = 0;  ///< living ones
  int enabled = 0;

 private:
  friend struct FakeCuptiFunctions;
  int enter(const char* function, std::size_t size, std::size_t expected);

  std::size_t passes_done_after(const std::vector<std::string>& metrics) const;

  std::vector<std::vector<std::string>> configs_;
  std::optional<std::vector<std::string>> in_force_;  ///< of the enabled profiler
  std::size_t pass_ = 0;
  std::size_t ranges_ = 0;
  bool started_ = false;
};

}  // namespace kernwright
