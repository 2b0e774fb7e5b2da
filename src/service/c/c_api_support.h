#pragma once

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <string>
#include <vector>

#include <kernwright/c.h>
#include <kernwright/kernwright.h>

namespace kernwright::c_api {

/// How many arguments a kernel has.
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

/// Keeps the message for the calling thread's kw_last_error and gives -1.
int fail(const std::string& message);

/// The message of an error, for `fail`. kw_last_error_is_refusal knows its code then.
std::string message_of(const Error& error);

/// The same of what may have failed, and an empty string for success.
inline std::string message_of(const Result<void>& result) {
  return result ? std::string() : message_of(result.error());
}

/// A pointer that a call cannot do without: an array only where it is to have elements.
struct Needed {
  template <typename T>
  Needed(const char* name, const T* pointer, bool needed = true)
      : parameter(name), missing(needed && pointer == nullptr) {}

  const char* parameter;
  bool missing;
};

/// True, with the reason in kw_last_error, where one of them is null.
bool lacks(const char* function, std::initializer_list<Needed> pointers);

/// Runs `body`, which gives an empty string for success, once all `pointers` are there; nothing is
/// thrown across the C boundary.
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

/// What a caller's struct says, whatever version of it that is; an empty string for success, else
/// the field that is wrong.
std::string read_options(const kw_options& given, ServiceOptions& options);

}  // namespace kernwright::c_api
