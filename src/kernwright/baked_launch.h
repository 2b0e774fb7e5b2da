#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>

#include <kernwright/export.h>
#include <kernwright/kernel.h>
#include <kernwright/result.h>

namespace kernwright {

/// A kernel with its arguments as an instantiated CUDA graph, which costs the host about a third of
/// a launch. It owns its workspace, as long as it lives, and keeps the kernel loaded: it outlives
/// the service, and a new winner leaves it as it is. Bound to the context that was current when it
/// was baked. Used by one thread at a time; launches share the workspace, so they follow each
/// other: on one stream, or in an order that the caller sees to. Destroyed after its last launch
/// has finished.
class KERNWRIGHT_API BakedLaunch {
 public:
  BakedLaunch(BakedLaunch&& other) noexcept;
  BakedLaunch& operator=(BakedLaunch&& other) noexcept;
  ~BakedLaunch();

  /// Enqueues on `stream` (a CUstream or cudaStream_t; null is the default stream), in one driver
  /// call, without allocating. Errors: `device` with the driver's words; a stream that is being
  /// captured takes `add_to_capture` instead.
  Result<void> launch(void* stream);

  /// Other pointers and scalars for launches from now on, as `Kernel::launch` takes them; launches
  /// that are enqueued keep theirs. Up to four sets that come back stay ready: buffers that
  /// alternate between them cost no driver call. Allocates nothing. Errors as `Kernel::launch`;
  /// the arguments are then those of before.
  Result<void> rebind(std::initializer_list<Arg> arguments);
  Result<void> rebind(const Arg* arguments, std::size_t count);

  /// Adds the launch, with its present arguments, to the capture that `stream` is in. The graph
  /// that comes of it refers to this object's workspace and kernel: it is destroyed first. Errors:
  /// `invalid_argument` where the stream is not being captured; `device`.
  Result<void> add_to_capture(void* stream) const;

  const KernelSummary& summary() const;

 private:
  friend class LoadedKernel;
  struct State;
  explicit BakedLaunch(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace kernwright
