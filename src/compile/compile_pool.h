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

/// Compiles requests in parallel, on threads that it starts when there is work. Equal requests that
/// are in flight are compiled once. Thread-safe.
///
/// A compile cannot be stopped. At its deadline it is abandoned: its waiters get `timed_out`, its
/// result is dropped, and another thread takes its place. That happens for at most two abandoned
/// compiles at a time. Once every thread runs an abandoned compile, requests fail with `timed_out`
/// until one ends. Where no thread can be started, requests fail with `unavailable`, which names
/// the limit.
///
/// Destruction drops compiles that have not started, and waits for those that have, except
/// abandoned ones.
class CompilePool {
 public:
  CompilePool(std::shared_ptr<Compiler> compiler, CompilePoolOptions options);
  ~CompilePool();

  /// Starts the compile, or joins an equal one. The future never throws.
  std::shared_future<CompileResult> submit(CompileRequest request);

  /// The number of compiles that run at the same time.
  int threads() const;
  Compiler& compiler();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kernwright
