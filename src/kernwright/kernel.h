#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kernwright/dtype.h>
#include <kernwright/export.h>
#include <kernwright/kernel_path.h>
#include <kernwright/match.h>
#include <kernwright/result.h>

namespace kernwright {

class BakedLaunch;
class LazyKernel;
class LoadedKernel;

/// One argument of a launch: a device pointer or a scalar. An unsigned 64-bit value is an address.
/// Every other number is a scalar.
class Arg {
 public:
  Arg(const void* pointer) : pointer_(pointer) {}
  /// A CUdeviceptr, or an address held as std::uint64_t.
  Arg(unsigned long long address) : pointer_(reinterpret_cast<const void*>(address)) {}
  Arg(unsigned long address) : pointer_(reinterpret_cast<const void*>(address)) {}

  Arg(double scalar) : scalar_(scalar), is_scalar_(true) {}
  Arg(float scalar) : Arg(static_cast<double>(scalar)) {}
  Arg(int scalar) : Arg(static_cast<double>(scalar)) {}
  Arg(unsigned int scalar) : Arg(static_cast<double>(scalar)) {}
  Arg(long scalar) : Arg(static_cast<double>(scalar)) {}
  Arg(long long scalar) : Arg(static_cast<double>(scalar)) {}

  bool is_scalar() const { return is_scalar_; }
  const void* pointer() const { return pointer_; }
  double scalar() const { return scalar_; }

 private:
  const void* pointer_ = nullptr;
  double scalar_ = 0;
  bool is_scalar_ = false;
};

/// The argument that a launch expects at one position.
struct ArgumentInfo {
  std::string name = {};
  bool is_scalar = false;
  bool is_output = false;
  std::string in_place = {};  ///< for an output: the input whose memory it may be; empty: none
  DType dtype = DType::fp32;
  std::vector<std::int64_t> extent = {};   ///< elements, outermost first; empty for scalars
  std::vector<std::int64_t> strides = {};  ///< elements between neighbours, one for each extent
  std::int64_t alignment = 0;              ///< bytes the pointer must be aligned to
};

/// The facts about the kernel that a service chose.
struct KernelSummary {
  std::string problem = {};          ///< canonical text
  std::string kernel_template = {};  ///< "matmul/persistent_wave"
  std::string configuration = {};    ///< "BM=128 BN=256 ..."
  std::string artifact = {};         ///< digest of its compiled bits, hex
  Match match = Match::none;
  MissReason reason = MissReason::none;  ///< why the match is not exact
  double measured_us = 0;                ///< median when tuned; 0 if it was only predicted
  double predicted_us = 0;               ///< 0 if there is no prediction
  double roofline_us = 0;
  /// The launch path on which a train of launches was fastest when the kernel was tuned. Nullopt if
  /// that was not measured.
  std::optional<KernelPath> best_path = std::nullopt;
};

/// A handle to a loaded kernel with its launch plan for one problem, valid until the service
/// closes. It is cheap to copy: threads share no counter. Thread-safe: one kernel may be launched
/// from many threads and on many streams at the same time.
///
/// Some kernels need a workspace: `workspace_bytes()` of device memory for what passes between
/// their own launches. If the caller passes none, the launch takes it from a pool. If the caller
/// passes one, the launch allocates nothing. Launches that may run at the same time need a
/// workspace each.
class KERNWRIGHT_API BorrowedKernel {
 public:
  /// Enqueues the kernel on `stream` (a CUstream or cudaStream_t; null is the default stream) in
  /// the calling thread's current context. `arguments` are the pointers of the problem's tensors in
  /// the operation's order, then scalars. Scalars that are left out take the operation's defaults.
  ///
  /// `workspace` holds workspace_bytes() and belongs to the launch until it has finished. With it
  /// the launch allocates nothing and takes no lock, but for the first on a stream, or on one in a
  /// capture, of a kernel that needs zeros: these the stream or the graph keeps. If it is null and
  /// the kernel needs one, the launch takes the memory from a pool that the kernels of a GPU share,
  /// and returns it, both in the order of the stream (cuMemAllocFromPoolAsync). The pool keeps
  /// returned memory for later launches. It is destroyed with the last kernel that needs a
  /// workspace.
  ///
  /// A stream capture records the launch. No two instances of the graph may run at the same time,
  /// because they share the launch's memory. A captured launch without a workspace leaves that to
  /// the graph, which then cannot be a child of another graph.
  ///
  /// Errors: `invalid_argument`, which names the argument, what was expected and what came, and
  /// also if there is no current context or it belongs to another GPU; `unavailable` if the GPU has
  /// no memory pools; `device` with the driver's words.
  Result<void> launch(void* stream, std::initializer_list<Arg> arguments,
                      void* workspace = nullptr) const;
  Result<void> launch(void* stream, const Arg* arguments, std::size_t count,
                      void* workspace = nullptr) const;

  /// Asks the driver whether the GPU can reach the first and the last byte of every tensor and of
  /// the workspace, then launches. This takes a few microseconds more, and finds a freed or a short
  /// buffer before it costs the process its context. `ServiceOptions::check_launches` makes every
  /// launch one of these, and asks the same at every rebind.
  ///
  /// Lengths, offsets, tokens and page tables are in device memory, and `launch` trusts them. Here
  /// they are copied to the host, behind the work that is on the stream, and checked: this waits
  /// for the stream. If the stream is in a capture they have no values yet, and are not checked.
  /// Errors, besides the errors of `launch`: `invalid_argument`, which names the element, its value
  /// and what it may be.
  Result<void> launch_checked(void* stream, std::initializer_list<Arg> arguments,
                              void* workspace = nullptr) const;
  Result<void> launch_checked(void* stream, const Arg* arguments, std::size_t count,
                              void* workspace = nullptr) const;

  /// Makes a CUDA graph of the kernel with these arguments, in the current context. The graph has a
  /// workspace of its own, which lives as long as the `BakedLaunch`. This takes up to a
  /// millisecond, and must not happen while a stream of the process is being captured. Errors: as
  /// for `launch`; `invalid_argument` if the thread has no current context.
  Result<BakedLaunch> bake(std::initializer_list<Arg> arguments) const;
  Result<BakedLaunch> bake(const Arg* arguments, std::size_t count) const;

  /// Returns the device bytes that a launch needs as workspace, aligned to 256. Often 0.
  std::int64_t workspace_bytes() const;

  /// Returns the arguments that `launch` expects, in order.
  const std::vector<ArgumentInfo>& arguments() const;

  const KernelSummary& summary() const;
  Match match() const { return summary().match; }
  /// See `KernelSummary::best_path`. It depends on the host too. `kernwright dispatch` measures it
  /// anew on the present one.
  std::optional<KernelPath> best_path() const { return summary().best_path; }

 private:
  friend class Kernel;
  friend class LazyKernel;
  friend class LoadedKernel;
  explicit BorrowedKernel(const LoadedKernel* loaded) : loaded_(loaded) {}
  const LoadedKernel& loaded() const;

  const LoadedKernel* loaded_;        ///< null for a kernel that is prepared at its first use
  const LazyKernel* lazy_ = nullptr;  ///< that kernel
  std::shared_ptr<const void> kept_;
};

/// A handle that keeps its kernel loaded, also after the service has closed. The plan for a further
/// size of a family is made at the first use of a handle; if the service has closed before that,
/// launches fail with `unavailable`.
class KERNWRIGHT_API Kernel : public BorrowedKernel {
 public:
  /// Takes a reference to a kernel that is still valid.
  explicit Kernel(const BorrowedKernel& borrowed);
};

}  // namespace kernwright
