#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "launch/loaded_kernel.h"
#include "service/answer/family.h"

namespace kernwright {

class ServiceCore;

/// The kernel of a family at one size.
class SizedKernel final : public LazyKernel {
 public:
  /// `service` keeps the family, and loads this if it is still open then.
  SizedKernel(const Family& family, const FreeSizes& sizes, std::size_t kernel,
              std::weak_ptr<ServiceCore> service)
      : family_(family), sizes_(sizes), kernel_(kernel), service_(std::move(service)) {}

  const Family& family() const { return family_; }
  const FreeSizes& sizes() const { return sizes_; }
  const std::shared_ptr<const Family::Kernel>& kernel() const { return family_.kernels[kernel_]; }

 protected:
  std::shared_ptr<const LoadedKernel> load() const override;  // core_families.cpp

 private:
  const Family& family_;
  FreeSizes sizes_;
  std::size_t kernel_;
  std::weak_ptr<ServiceCore> service_;
};

}  // namespace kernwright
