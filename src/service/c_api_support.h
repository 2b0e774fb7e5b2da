#pragma once

#include <exception>
#include <string>
#include <utility>

#include <kernwright/c.h>
#include <kernwright/kernwright.h>

struct kw_kernel {
  kernwright::Kernel kernel;
  std::string description;
};

namespace kernwright::c_api {

/// Keeps the message for the calling thread's kw_last_error and gives -1.
int fail(std::string message);

/// Runs `body`, which gives an empty string for success; nothing is thrown across the C boundary.
template <typename Body>
int guarded(Body&& body) noexcept {
  try {
    std::string message = body();
    return message.empty() ? 0 : fail(std::move(message));
  } catch (const std::exception& e) {
    return fail(std::string("unexpected exception: ") + e.what());
  }
}

/// An empty string for success.
inline std::string message_of(const Result<void>& result) {
  return result ? std::string() : result.error().message;
}

}  // namespace kernwright::c_api
