#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>

#include "compile/compile_request.h"
#include "compile/compiler.h"
#include <kernwright/result.h>

namespace kernwright {

using CompileResult = Result<std::shared_ptr<const CompiledKernel>>;

struct CompilePoolOptions {
  int threads = 0;  ///< 0: max(1, cores - 2), at least 2 where there are 2 cores
  std::chrono::milliseconds deadline{60'000};  ///< per compile, from its start
};

/// Compiles requests in parallel on threads that it starts when there is work. Equal requests in
/// flight are compiled once. A compile cannot be stopped: past its deadline it is abandoned (its
/// waiters get `timed_out`, its result is dropped, its slot replaced); with two abandoned compiles
/// still running no further replacement is made, and once every thread runs an abandoned one,
/// requests fail with `timed_out` until one ends. Where no thread can be started requests fail with
/// `unavailable`, which names the limit. Thread-safe. Destruction drops what has not started and
/// waits for what has, but not for abandoned compiles.
class CompilePool {
 public:
  CompilePool(std::shared_ptr<Compiler> compiler, CompilePoolOptions options);
  ~CompilePool();

  /// Starts (or joins) the compile. The future never throws.
  std::shared_future<CompileResult> submit(CompileRequest request);

  /// Number of compiles that run at once.
  int threads() const;
  Compiler& compiler();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kernwright
