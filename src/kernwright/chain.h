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

/// A pointer of a chain: one that the caller gives, or a buffer of the chain's own.
struct ChainSlot {
  bool is_buffer = false;
  std::size_t index = 0;  ///< among the parameters or the buffers
  std::int64_t offset_bytes = 0;

  /// The same, from a byte further on.
  ChainSlot at(std::int64_t bytes) const { return {is_buffer, index, offset_bytes + bytes}; }
};

/// One argument of a kernel in a chain: a pointer or scalar that stays, or a slot.
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

/// How a chain is launched: each kernel by itself, or all as one graph; `programmatic` lets kernels
/// that wait for their predecessor themselves start while it still runs.
enum class ChainPath { stream, programmatic_stream, graph, programmatic_graph };
KERNWRIGHT_API std::string_view to_string(ChainPath path);

/// What one way to launch a chain takes.
struct ChainTime {
  ChainPath path = ChainPath::graph;
  double host_us = 0;    ///< the calling thread's time per launch, median
  double period_us = 0;  ///< of launches back to back, median
};

/// Kernels that follow each other, with the wiring of their arguments, as one object. It owns its
/// buffers and the kernels' workspaces and keeps the kernels loaded: it outlives the service. Bound
/// to the context that was current when it was built. Used by one thread at a time; launches share
/// the buffers, so they follow each other. Destroyed after its last launch has finished.
class KERNWRIGHT_API Chain {
 public:
  Chain(Chain&& other) noexcept;
  Chain& operator=(Chain&& other) noexcept;
  ~Chain();

  /// Enqueues all kernels on `stream`, by the present path. Allocates nothing. Errors: `device`.
  Result<void> launch(void* stream);

  /// Other addresses for all parameters, in order, from the next launch on; up to four sets that
  /// come back stay ready, as with `BakedLaunch::rebind`. Errors: `invalid_argument` for a wrong
  /// count, a null pointer or one that a kernel's alignment forbids; `device`.
  Result<void> rebind(std::initializer_list<const void*> parameters);
  Result<void> rebind(const void* const* parameters, std::size_t count);

  /// Adds the kernels, with the present addresses, to the capture that `stream` is in, with
  /// programmatic edges where the path has them. As `BakedLaunch::add_to_capture`.
  Result<void> add_to_capture(void* stream) const;

  /// The paths that differ for this chain: those with programmatic launches only where some kernel
  /// waits for its predecessor.
  std::vector<ChainPath> paths() const;
  ChainPath path() const;
  /// Errors: `invalid_argument` for a path that `paths` does not name; `device`.
  Result<void> set_path(ChainPath path);

  /// Finds the kernels that gain by an early start on programmatic paths, then times every path on
  /// `stream` in turn and stays with the one of the shortest period; of those that tie, with the
  /// one that costs the host least. Launches the chain up to some ten thousand times on the present
  /// addresses: its results are overwritten.
  Result<std::vector<ChainTime>> tune(void* stream);

  /// Which kernels start before their predecessor has ended on programmatic paths, by their place:
  /// all that can, until `tune` has found those that gain by it.
  std::vector<std::size_t> early_kernels() const;

  /// Device bytes of buffers and workspaces.
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

  /// A pointer that the caller gives: this one to begin with, others by `Chain::rebind`.
  ChainSlot parameter(const void* address);
  /// `bytes` of device memory of the chain's own, aligned to 256 bytes, for what passes between its
  /// kernels. Not initialised.
  ChainSlot buffer(std::int64_t bytes);
  /// The next kernel, with its arguments as `Kernel::launch` takes them.
  void add(const Kernel& kernel, std::initializer_list<ChainArg> arguments);
  void add(const Kernel& kernel, const ChainArg* arguments, std::size_t count);

  /// The chain, launched as a graph until another path is set. Errors: `invalid_argument` naming
  /// the kernel and the argument that does not fit, a slot that is not of this builder, a buffer
  /// that is too small, or that the chain has no kernel; `device`.
  Result<Chain> build() const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace kernwright
