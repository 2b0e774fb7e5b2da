#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <kernwright/export.h>
#include <kernwright/kernel.h>
#include <kernwright/result.h>

namespace kernwright {

/// A pointer of a chain: a parameter, which the caller passes, or a buffer of the chain's own.
struct ChainSlot {
  bool is_buffer = false;
  std::size_t index = 0;  ///< among the parameters or the buffers
  std::int64_t offset_bytes = 0;

  /// Returns the same pointer, moved on by `bytes`.
  ChainSlot at(std::int64_t bytes) const { return {is_buffer, index, offset_bytes + bytes}; }
};

/// One argument of a kernel in a chain: a pointer or a scalar that stays, or a slot.
class ChainArg {
 public:
  template <typename T, std::enable_if_t<std::is_convertible_v<T, Arg>, int> = 0>
  ChainArg(T fixed) : fixed_(fixed) {}
  ChainArg(ChainSlot slot) : fixed_(nullptr), slot_(slot), is_slot_(true) {}

  bool is_slot() const { return is_slot_; }
  const Arg& fixed() const { return fixed_; }
  const ChainSlot& slot() const { return slot_; }

 private:
  Arg fixed_;
  ChainSlot slot_;
  bool is_slot_ = false;
};

/// The ways to launch a chain: each kernel by itself, or all of them as one graph. On a
/// `programmatic` path a kernel that waits for its predecessor itself may start while the
/// predecessor still runs.
enum class ChainPath { stream, programmatic_stream, graph, programmatic_graph };
KERNWRIGHT_API std::string_view to_string(ChainPath path);

/// The time that one way to launch a chain takes.
struct ChainTime {
  ChainPath path = ChainPath::graph;
  double host_us = 0;    ///< the calling thread's time per launch, median
  double period_us = 0;  ///< of launches back to back, median
};

/// Kernels that follow each other, with the wiring of their arguments, as one object.
///
/// It owns its buffers and the kernels' workspaces and keeps the kernels loaded, so it outlives the
/// service. It is bound to the context that was current when it was built.
///
/// One thread uses it at a time. Its launches share the buffers, so they must follow each other.
/// Destroy it after its last launch has finished.
class KERNWRIGHT_API Chain {
 public:
  Chain(Chain&& other) noexcept;
  Chain& operator=(Chain&& other) noexcept;
  ~Chain();

  /// Enqueues all kernels on `stream`, along the present path. Allocates nothing. Errors: `device`.
  Result<void> launch(void* stream);

  /// Sets other addresses for all parameters, in order, from the next launch on. Up to four sets
  /// that come back stay ready, as with `BakedLaunch::rebind`. Errors: `invalid_argument` for a
  /// wrong count, a null pointer, or a pointer that a kernel's alignment forbids; `device`.
  Result<void> rebind(std::initializer_list<const void*> parameters);
  Result<void> rebind(const void* const* parameters, std::size_t count);

  /// Adds the kernels, with the present addresses, to the capture that `stream` is in. They have
  /// programmatic edges if the path has them. Otherwise it is like `BakedLaunch::add_to_capture`.
  Result<void> add_to_capture(void* stream) const;

  /// Returns the paths that differ for this chain. Paths with programmatic launches are among them
  /// only if some kernel waits for its predecessor.
  std::vector<ChainPath> paths() const;
  ChainPath path() const;
  /// Errors: `invalid_argument` for a path that `paths` does not name; `device`.
  Result<void> set_path(ChainPath path);

  /// If the builder was given several kernels for a step, finds the ones that make the chain
  /// fastest, together with the kernels that gain by an early start on programmatic paths. Steps
  /// with the same kernels to choose from are changed together, and the steps that take most of the
  /// time are tried first, for at most 8 s. Then it times every path on `stream` in turn, and stays
  /// with the path that has the shortest period. If paths tie, it takes the one that costs the host
  /// least. It launches the chain up to some ten thousand times on the present addresses, so the
  /// chain's results are overwritten. After an error the kernels stay as they were.
  ///
  /// Kernels of one problem may differ in the last bits of their results. All paths of a chain run
  /// the same kernels, so only another call of `tune` can change these bits.
  Result<std::vector<ChainTime>> tune(void* stream);

  /// Returns the kernel that runs at this place, out of the kernels that the builder was given for
  /// it: the first, until `tune` has chosen.
  const KernelSummary& summary(std::size_t kernel) const;

  /// Returns the kernels, by their place, that start before their predecessor has ended on
  /// programmatic paths. These are all that can, until `tune` has found the ones that gain by it.
  std::vector<std::size_t> early_kernels() const;

  /// Returns the device bytes of all buffers and workspaces, including kernels that were not
  /// chosen.
  std::int64_t memory_bytes() const;
  std::size_t kernels() const;

 private:
  friend class ChainBuilder;
  struct State;
  explicit Chain(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// Puts a chain together:
///
///     ChainBuilder builder;
///     ChainSlot x = builder.parameter(x_address), normal = builder.buffer(rows * columns * 2);
///     builder.add(rmsnorm, {x, weight, normal});
///     builder.add(matmul, {normal, b, y});
///     Result<Chain> chain = builder.build();
class KERNWRIGHT_API ChainBuilder {
 public:
  ChainBuilder();
  ChainBuilder(ChainBuilder&&) noexcept;
  ChainBuilder& operator=(ChainBuilder&&) noexcept;
  ~ChainBuilder();

  /// Adds a pointer that the caller passes: `address` to begin with, others by `Chain::rebind`.
  ChainSlot parameter(const void* address);
  /// Adds `bytes` of device memory that belong to the chain, for what passes between its kernels.
  /// The memory is aligned to 256 bytes and is not initialised.
  ChainSlot buffer(std::int64_t bytes);
  /// Adds the next kernel, with its arguments as `Kernel::launch` takes them.
  void add(const Kernel& kernel, std::initializer_list<ChainArg> arguments);
  void add(const Kernel& kernel, const ChainArg* arguments, std::size_t count);
  /// Adds the next kernel as a choice among several of one problem, such as
  /// `Service::get_best_kernels` returns. The chain begins with the first of them, and
  /// `Chain::tune` chooses.
  void add(const std::vector<Kernel>& kernels, std::initializer_list<ChainArg> arguments);
  void add(const std::vector<Kernel>& kernels, const ChainArg* arguments, std::size_t count);

  /// Makes the chain, which is launched as a graph until another path is set. Errors:
  /// `invalid_argument` for an argument that does not fit (it names the kernel and the argument), a
  /// slot of another builder, a buffer that is too small, kernels of several problems for one step,
  /// or a chain or a step without kernels; `device`.
  Result<Chain> build() const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace kernwright
