#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/layers/tiered_cache.h"
#include "launch/loaded_kernel.h"
#include "support/mutex.h"
#include <kernwright/kernel.h>
#include <kernwright/problem.h>

namespace kernwright {

/// Returns the facts about the kernel of a record for a problem. `artifact` is the digest of its
/// bits.
KernelSummary summarize(const Problem& normalized, const GradedRecord& record,
                        std::string artifact);

/// A loaded kernel of a service, with the record that it came from. All kernels of a service are
/// such.
class ServedKernel : public LoadedKernel {
 public:
  /// `of_loaded` are the arguments of a `LoadedKernel`.
  template <typename... Arguments>
  ServedKernel(std::shared_ptr<const GradedRecord> record, Arguments&&... of_loaded)
      : LoadedKernel(std::forward<Arguments>(of_loaded)...), record_(std::move(record)) {}

  /// `kernel` is of a service.
  static const ServedKernel& of(const LoadedKernel& kernel) {
    return static_cast<const ServedKernel&>(kernel);
  }

  const GradedRecord& record() const { return *record_; }

  /// The kernels that may take its place in a chain, as far as callers asked for them.
  struct Alternatives {
    Mutex mutex;  ///< held while they are found, compiled and loaded
    std::optional<std::vector<GradedRecord>> records KW_GUARDED_BY(mutex);
    std::size_t tried KW_GUARDED_BY(mutex) = 0;  ///< of the records
    std::vector<std::shared_ptr<const LoadedKernel>> loaded KW_GUARDED_BY(mutex);
  };
  Alternatives& alternatives() const { return alternatives_; }

 private:
  std::shared_ptr<const GradedRecord> record_;
  mutable Alternatives alternatives_;
};

}  // namespace kernwright
