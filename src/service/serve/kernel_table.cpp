#include "service/serve/kernel_table.h"

#include <utility>

#include "service/serve/guarded.h"
#include "support/try.h"

namespace kernwright {

Result<const LoadedKernel*> KernelTable::find_or_make(const Problem& written,
                                                      const Problem& normalized, Match worst,
                                                      const std::function<Made()>& make) {
  const std::string text = normalized.text();
  std::promise<Found> promise;
  std::shared_future<Found> flight;
  bool leads = false;
  {
    const MutexLock lock(flights_mutex_);
    const auto [at, added] = flights_.try_emplace(text);
    if (added) at->second = promise.get_future().share();
    flight = at->second;
    leads = added;
  }
  if (leads) {
    promise.set_value(guarded([&]() -> Found {
      // Another leader may have landed between our look at the hot map and now.
      const LoadedKernel* landed = hot_.find(normalized);
      if (landed && landed->summary().match <= worst) return landed;
      KW_ASSIGN(std::shared_ptr<const LoadedKernel> made, make());
      return publish(written, normalized, std::move(made));
    }));
    const MutexLock lock(flights_mutex_);
    flights_.erase(text);
  }
  KW_ASSIGN(const LoadedKernel* kernel, flight.get());
  hot_.alias(written, normalized);
  return kernel;
}

const LoadedKernel* KernelTable::publish(const Problem& written, const Problem& normalized,
                                         std::shared_ptr<const LoadedKernel> kernel) {
  const LoadedKernel* served = kernel.get();
  {
    const MutexLock lock(kept_mutex_);
    kept_.push_back(std::move(kernel));
  }
  hot_.publish(normalized, served);
  hot_.alias(written, normalized);
  return served;
}

}  // namespace kernwright
