#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>

#include <kernwright/export.h>
#include <kernwright/kernel.h>
#include <kernwright/result.h>

namespace kernwright {

/// A kernel with its arguments as an instantiated CUDA graph. Launching it costs the host about a
/// third of an ordinary launch.
///
/// It owns its workspace and keeps the kernel loaded for as long as it lives. So it outlives the
/// service, and a new winner does not change it. It is bound to the context that was current when
/// it was baked.
///
/// One thread uses it at a time. Its launches share the workspace, so they must follow each other:
/// on one stream, or in an order that the caller ensures. Destroy it after its last launch has
/// finished.
class KERNWRIGHT_API BakedLaunch {
 public:
  BakedLaunch(BakedLaunch&& other) noexcept;
  BakedLaunch& operator=(BakedLaunch&& other) noexcept;
  ~BakedLaunch();

  /// Enqueues the graph on `stream` (a CUstream or cudaStream_t; null is the default stream), in
  /// one driver call, without allocating. A stream that is being captured takes `add_to_capture`
  /// instead. Errors: `device` with the driver's words.
  Result<void> launch(void* stream);

  /// Sets other pointers and scalars for the launches from now on, as `Kernel::launch` takes them.
  /// Launches that are already enqueued keep theirs. Up to four sets that come back stay ready, so
  /// alternating between them costs no driver call. Allocates nothing. Errors: as for
  /// `Kernel::launch`; the arguments then stay as they were.
  Result<void> rebind(std::initializer_list<Arg> arguments);
  Result<void> rebind(const Arg* arguments, std::size_t count);

  /// Adds the launch, with its present arguments, to the capture that `stream` is in. The captured
  /// graph refers to this object's workspace and kernel, so destroy the graph first. Errors:
  /// `invalid_argument` if the stream is not being captured; `device`.
  Result<void> add_to_capture(void* stream) const;

  const KernelSummary& summary() const;

 private:
  friend class LoadedKernel;
  struct State;
  explicit BakedLaunch(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace kernwright
