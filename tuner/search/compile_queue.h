#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "compile/compile_pool.h"

namespace kernwright {

/// Compiles candidates, named by their index, ahead of whoever measures them. Used by one thread.
/// Implementations: on a pool of threads; on a virtual clock.
class CompileQueue {
 public:
  virtual ~CompileQueue() = default;

  /// A candidate whose compile has ended.
  struct Ready {
    std::size_t candidate = 0;
    std::string digest;  ///< of its artifact, hex
    CompileResult kernel;
  };

  virtual void start(std::size_t candidate) = 0;

  /// True while further starts keep the compilers busy and not far ahead of the measuring.
  virtual bool wants_more() const = 0;
  /// Nothing is started that was not taken.
  virtual bool empty() const = 0;
  /// Returns whether the compile of a candidate has ended that was started and not taken.
  virtual bool ended(std::size_t candidate) const = 0;

  /// The first in the order of the starts whose compile has ended.
  virtual std::optional<Ready> take() = 0;
  /// The same for one candidate that was started, however long it takes.
  virtual Ready wait_for(std::size_t candidate) = 0;

  /// Compiles that ended and were taken, and the seconds they took on all threads together.
  virtual int compiled() const = 0;
  virtual double compile_seconds() const = 0;
  virtual int threads() const = 0;
};

}  // namespace kernwright
