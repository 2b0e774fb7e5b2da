#pragma once

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <string>
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
  kernwright::Kernel kernel;
  std::string description;
  kernwright::c_api::Counts counts{kernel.arguments()};
};

namespace kernwright::c_api {

/// Keeps the message for the calling thread's kw_last_error and returns -1.
int fail(const std::string& message);

/// Returns the message of an error, for `fail`. kw_last_error_is_refusal knows its code then.
std::string message_of(const Error& error);

/// Returns the same for a result, and an empty string for success.
inline std::string message_of(const Result<void>& result) {
  return result ? std::string() : message_of(result.error());
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

/// Runs `body` once all `pointers` are there. `body` returns an empty string for success. Nothing
/// is thrown across the C boundary.
template <typename Body>
int guarded(const char* function, std::initializer_list<Needed> pointers, Body&& body) noexcept {
  try {
    if (lacks(function, pointers)) return -1;
    const std::string message = body();
    return message.empty() ? 0 : fail(message);
  } catch (const std::exception& e) {
    return fail(
        message_of(Error{ErrorCode::internal, std::string("unexpected exception: ") + e.what()}));
  }
}

/// Reads a caller's struct, whatever version of it that is. Returns an empty string for success,
/// else the field that is wrong.
std::string read_options(const kw_options& given, ServiceOptions& options);
std::string read_options(const kw_tune_options& given, TuneOptions& options);

}  // namespace kernwright::c_api
