#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace kernwright {

/// The ways in which an operation of the library can fail; there are no others. A *candidate* that
/// fails is not an error: it is data (`Outcome`).
enum class ErrorCode {
  invalid_argument,  ///< the caller's input is wrong; the message names it and both values
  not_found,         ///< the named thing does not exist
  unavailable,       ///< a driver, toolkit or device that the call needs is not there
  io,                ///< the file system refused
  corrupt,           ///< data failed its checksum or its format
  compile,           ///< the compiler or linker refused the source
  device,            ///< the driver reported an error
  timed_out,         ///< a deadline passed
  refused,  ///< a sealed service, a stream in a capture, a bundle or a login that is not trusted
  internal  ///< a defect of kernwright
};

/// Why an operation could not be done: a code for programs and a sentence for people.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

/// A value or an `Error`, shaped like `std::expected`. `value()` requires that there is a value,
/// and `error()` that there is none; otherwise the behaviour is undefined, as with
/// `std::expected::operator*`.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<T, Error> state_;
};

/// Success with no value, or an `Error`.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace kernwright
