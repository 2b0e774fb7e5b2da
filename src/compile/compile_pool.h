#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "compile/compile_request.h"
#include "compile/compiler.h"
#include <kernwright/result.h>

namespace kernwright {

using CompileResult = Result<std::shared_ptr<const CompiledKernel>>;

/// Keeps compiled kernels beyond the process, by the digests of their artifacts. Thread-safe.
class CompileCache {
 public:
  virtual ~CompileCache() = default;

  /// Returns null if the artifact is not kept.
  virtual std::shared_ptr<const CompiledKernel> find(const std::string& digest) = 0;

  /// Returns the artifact if it is kept by now, else the result of `compile`, which is kept. May
  /// wait for another process that compiles the same.
  virtual CompileResult find_or_compile(const std::string& digest,
                                        const std::function<CompileResult()>& compile) = 0;

  /// Waits for other processes no longer.
  virtual void stop() {}
};

/// A request's compile and its result. A compile that has not started is dropped once every `Build`
/// of it is gone.
struct Build {
  std::string digest;  ///< of the artifact, in hex; empty if there is no compiler
  std::shared_future<CompileResult> kernel;  ///< never throws
  bool stored = false;                       ///< the artifact was kept, so nothing is compiled
  std::shared_ptr<const void> wanted;        ///< tells the pool that this is not gone

  bool ended() const;
  /// Waits.
  CompileResult get() const { return kernel.get(); }
};

struct CompilePoolOptions {
  int threads = 0;  ///< 0: max(1, cores - 2), at least 2 if there are 2 cores
  /// Per compile, from its start. It is longer than the deadline of a compile process, so that only
  /// compiles of this process are abandoned.
  std::chrono::milliseconds deadline = compile_deadline() + std::chrono::seconds(10);
};

/// Returns the kernels of requests: from its cache if they are kept there, else by having its
/// compiler compile them, several at a time and the oldest first, on threads that it starts when
/// there is work. It is the only way from a request to a kernel: the digest of a request is
/// computed once, and equal requests that are in flight are compiled once. Thread-safe.
///
/// A compile of this process cannot be stopped. At its deadline it is abandoned: its waiters get
/// `timed_out`, its result is dropped, and its thread compiles nothing else until it ends. Once
/// every thread runs an abandoned compile, requests fail with `timed_out`. If no thread can be
/// started, requests fail with `unavailable`, which names the limit.
///
/// Destruction drops compiles that have not started, and waits for those that have, except
/// abandoned ones.
class CompilePool {
 public:
  /// Without a `cache` nothing is kept.
  CompilePool(std::shared_ptr<Compiler> compiler, CompilePoolOptions options,
              std::shared_ptr<CompileCache> cache = nullptr);
  ~CompilePool();

  /// Returns the digest of the request's artifact, in hex. Loads the toolkit. Errors: `unavailable`
  /// without one.
  Result<std::string> digest(const CompileRequest& request);

  /// Returns true if the cache keeps the artifact of this digest.
  bool keeps(const std::string& digest) const;

  /// Finds the kernel, or starts or joins its compile.
  Build submit(CompileRequest request);
  /// Does the same for a request whose digest is known.
  Build submit(CompileRequest request, std::string digest);

  /// Ends running compiles if they can be ended (see `Compiler::stop`), and compiles nothing more.
  /// Does not wait.
  void stop();

  /// Returns the number of compiles that run at the same time.
  int threads() const;
  /// Returns how many compiles have ended.
  int compiled() const;
  /// Returns how long they took, all together.
  std::chrono::nanoseconds compile_time() const;
  /// Compiles on the caller's thread, whatever the cache keeps.
  Compiler& compiler();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kernwright
