#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/loaded_kernel.h"
#include "service/serve/hot_map.h"
#include "support/mutex.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// The loaded kernels of a service. A kernel is found without a lock, made by one caller if several
/// miss it, and kept until the service closes, so that handles stay valid. Thread-safe.
class KernelTable {
 public:
  /// Returns the kernel that is served now for a problem as callers write it, or null if there is
  /// none yet.
  const LoadedKernel* find(const Problem& problem) const { return hot_.find(problem); }

  using Made = Result<std::shared_ptr<const LoadedKernel>>;
  /// Returns the kernel for `normalized`, and makes it if there is none of match `worst` or better.
  /// If several callers ask for the same at once, one makes it and the others wait. From now on
  /// `written` finds it too. An error is not kept: the next caller tries again.
  Result<const LoadedKernel*> find_or_make(const Problem& written, const Problem& normalized,
                                           Match worst, const std::function<Made()>& make);

  /// Serves the kernel for the problem from now on, in every spelling, `written` included. The
  /// kernels that were served before stay loaded.
  const LoadedKernel* publish(const Problem& written, const Problem& normalized,
                              std::shared_ptr<const LoadedKernel> kernel);

 private:
  using Found = Result<const LoadedKernel*>;

  HotMap hot_;
  Mutex flights_mutex_;
  /// The kernels that are being made, by problem.
  std::map<std::string, std::shared_future<Found>> flights_ KW_GUARDED_BY(flights_mutex_);
  Mutex kept_mutex_;
  std::vector<std::shared_ptr<const LoadedKernel>> kept_ KW_GUARDED_BY(kept_mutex_);
};

}  // namespace kernwright
