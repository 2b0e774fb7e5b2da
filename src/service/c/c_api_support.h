#pragma once

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <kernwright/c.h>
#include <kernwright/kernwright.h>

namespace kernwright::c_api {

/// The number of arguments that a kernel has.
struct Counts {
  explicit Counts(const std::vector<ArgumentInfo>& arguments) {
    for (const ArgumentInfo& argument : arguments) ++(argument.is_scalar ? scalars : tensors);
  }
  std::size_t tensors = 0;
  std::size_t scalars = 0;
};

}  // namespace kernwright::c_api

struct kw_kernel {
  explicit kw_kernel(kernwright::Kernel given)
      : kernel(std::move(given)), counts(kernel.arguments()) {}

  const kernwright::KernelSummary& summary() const { return kernel.summary(); }

  kernwright::Kernel kernel;
  kernwright::c_api::Counts counts;
  mutable std::once_flag described;
  mutable std::string description;  ///< once it was asked for
};

namespace kernwright::c_api {

/// Keeps the error for the calling thread's kw_last_error and returns -1.
int fail(const Error& error);

/// Returns the error of a caller's mistake.
inline Error wrong(std::string message) {
  return {ErrorCode::invalid_argument, std::move(message)};
}

/// A pointer that a call cannot do without. An array is needed only if it is to have elements.
struct Needed {
  template <typename T>
  Needed(const char* name, const T* pointer, bool needed = true)
      : parameter(name), missing(needed && pointer == nullptr) {}

  const char* parameter;
  bool missing;
};

/// Returns true if one of them is null, and puts the reason into kw_last_error.
bool lacks(const char* function, std::initializer_list<Needed> pointers);

/// Runs `body`, which returns a Result<void>, once all `pointers` are there. Nothing is thrown
/// across the C boundary.
template <typename Body>
int guarded(const char* function, std::initializer_list<Needed> pointers, Body&& body) noexcept {
  try {
    if (lacks(function, pointers)) return -1;
    const Result<void> done = body();
    return done ? 0 : fail(done.error());
  } catch (const std::exception& e) {
    return fail({ErrorCode::internal, std::string("unexpected exception: ") + e.what()});
  }
}

/// Reads a caller's struct, whatever version of it that is; null: the defaults. Errors:
/// `invalid_argument`, which names the field.
Result<ServiceOptions> read_options(const kw_options* given);
Result<TuneOptions> read_options(const kw_tune_options* given);

}  // namespace kernwright::c_api
