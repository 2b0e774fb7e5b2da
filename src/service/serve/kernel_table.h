#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "launch/loaded_kernel.h"
#include "service/serve/hot_map.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// The loaded kernels of a service: found without a lock, made by one caller where several miss the
/// same, and kept until the service closes, so that handles stay valid. Thread-safe.
class KernelTable {
 public:
  /// The kernel that is served now for a problem as callers write it; null where none is yet.
  const LoadedKernel* find(const Problem& problem) const { return hot_.find(problem); }

  using Made = Result<std::shared_ptr<const LoadedKernel>>;
  /// The kernel for `normalized`, made where there is none of match `worst` or better. Of callers
  /// that ask for the same at once, one makes it and the others wait. From now on `written` finds
  /// it too. An error is not kept: the next caller tries again.
  Result<const LoadedKernel*> find_or_make(const Problem& written, const Problem& normalized,
                                           Match worst, const std::function<Made()>& make);

  /// From now on the kernel is served for the problem, in every spelling. Those that were served
  /// before stay loaded.
  const LoadedKernel* publish(const Problem& normalized,
                              std::shared_ptr<const LoadedKernel> kernel);

 private:
  using Found = Result<const LoadedKernel*>;

  HotMap hot_;
  std::mutex flights_mutex_;
  std::map<std::string, std::shared_future<Found>> flights_;  ///< what is being made, by problem
  std::mutex kept_mutex_;
  std::vector<std::shared_ptr<const LoadedKernel>> kept_;
};

}  // namespace kernwright
