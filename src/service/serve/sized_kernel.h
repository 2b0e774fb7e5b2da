#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "launch/loaded_kernel.h"
#include "service/answer/family.h"

namespace kernwright {

/// The kernel of a family at one size.
class SizedKernel final : public LazyKernel {
 public:
  using Load = std::function<std::shared_ptr<const LoadedKernel>(const SizedKernel&)>;
  /// The family and `load`, which implements `LazyKernel::load`, outlive it until it is loaded.
  SizedKernel(const Family& family, const FreeSizes& sizes, std::size_t kernel, const Load& load)
      : family_(family), sizes_(sizes), kernel_(kernel), load_(load) {}

  const Family& family() const { return family_; }
  const FreeSizes& sizes() const { return sizes_; }
  const Family::Kernel& kernel() const { return family_.kernels[kernel_]; }

 protected:
  std::shared_ptr<const LoadedKernel> load() const override { return load_(*this); }

 private:
  const Family& family_;
  FreeSizes sizes_;
  std::size_t kernel_;
  const Load& load_;
};

}  // namespace kernwright
