#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/operation/operation.h"
#include "tuner/data/data_ops.h"
#include "tuner/data/input_drawer.h"
#include <kernwright/result.h>

namespace kernwright {

/// The number of buffer sets that a problem needs, so that a rotation through them finds the L2
/// cold: enough that launches on all of them together move `kRotation` times the L2, and at least
/// two. One set is enough if a launch moves `kLargeSet` times the L2. The number is bounded by the
/// memory there is and by the size of one graph. If `cold` is false there is one set. With l2=mixed
/// `set_bytes` counts only the tensors that are not warm.
struct SetCount {
  std::int64_t set_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;  ///< for all sets together
  bool cold = true;
  std::int64_t moved_bytes = set_bytes;  ///< of a set, by one launch

  int count() const;
};

/// The byte that red zones are filled with. Read as a float of any format it is a NaN.
inline constexpr std::uint8_t kRedZoneByte = 0xFF;

/// How sets are drawn and used, and which are checked besides set 0.
struct CheckedSets {
  std::optional<DrawKind> exact = {};  ///< the draw of the exact set; nullopt: there is none
  bool nan = false;                    ///< there is a NaN set, if an input has floats
  bool count = false;                  ///< there is a count set, if the drawer has one
  /// Draws the inputs of an operation that has kernels for them; null if it has none.
  std::shared_ptr<const InputDrawer> drawer = {};
  /// Bytes of a set that a launch reads and writes, if that is less than the set; 0: all of it. A
  /// launch that appends to a cache leaves most of it alone.
  std::int64_t moved_bytes = 0;
};

/// Returns the elements of a tensor that are NaN in the NaN set. One is the last element. The
/// others are in places that `seed` decides: one in each of at most a quarter of the rows, or, if
/// there is only one row, one in every 64 elements. There are at most 64 in all, so most of a
/// result stays a number. The places count elements, without the gaps between rows. Some may come
/// twice.
std::vector<std::int64_t> nan_elements(const TensorShape& shape, std::uint64_t seed);

/// The bytes on either side of a checked tensor that nobody may write. They hold at least what a
/// tile may hang over.
std::int64_t red_zone_bytes(std::span<const TensorShape> shapes);

/// Memory that a correct candidate leaves as it is: a red zone, or an input of a checked set.
struct WatchedRegion {
  MemoryRegion region;
  std::uint64_t hash = 0;
  std::string before;  ///< the tensor before the zone; the input itself
  std::string behind;  ///< the tensor behind the zone; empty for inputs
  bool is_input = false;

  /// A sentence such as "wrote 12 bytes behind the end of d". `from_start` is the number of bytes
  /// between the region's start and the first changed byte, `from_end` the number between the last
  /// changed byte and the region's end.
  std::string describe(std::int64_t from_start, std::int64_t from_end) const;
};

/// All tensors of a problem, several times, in one allocation that is made once. Every tensor
/// begins at a multiple of 256 bytes. Inputs are drawn from the seed.
///
/// Sets 0 to count()-1 are timed. With l2=mixed they share the warm tensors. The last of them, the
/// twin, holds the same as set 0.
///
/// Up to four sets are checked, and have red zones around every tensor: set 0; the exact set, whose
/// values make every order of summation produce the same bits; the count set, whose results say how
/// many elements went into each; and the NaN set, which equals set 0 except for some elements that
/// are NaN.
class BufferSets {
 public:
  static constexpr int kExactSet = -1;
  static constexpr int kNanSet = -2;
  static constexpr int kCountSet = -3;

  /// If memory is short there is no NaN set. Errors: `device` if not even one timed set fits.
  static Result<BufferSets> make(Device& device, DataOps& data_ops, std::vector<TensorShape> shapes,
                                 L2State l2, std::uint64_t seed, const CheckedSets& checked = {});

  int count() const { return count_; }
  int twin() const { return count_ - 1; }
  bool has_exact_set() const { return checked_.exact.has_value(); }
  bool has_nan_set() const { return checked_.nan; }
  bool has_count_set() const { return checked_.count; }
  const std::vector<TensorShape>& shapes() const { return shapes_; }
  /// Returns whether launches move `kRotation` times the L2 of the timed sets, without the tensors
  /// that these share.
  bool passes_l2() const { return passes_l2_; }
  DevicePointer address(int set, std::size_t tensor) const;
  /// Returns the address of every tensor.
  std::vector<DevicePointer> addresses(int set) const;

  /// The addresses of one set in the order of `tensors`, matched by name; 0 for names not held.
  std::vector<DevicePointer> addresses(int set, std::span<const TensorShape> tensors) const;

  /// Fills the outputs of a set with a byte, and draws its in-place tensors anew.
  Result<void> poison(Device& device, DataOps& data_ops, int set, std::uint8_t byte) const;

  /// Fills an output at the address `at` with `byte`, except the gaps between its rows.
  Result<void> poison_output(Device& device, DataOps& data_ops, std::size_t tensor,
                             DevicePointer at, std::uint8_t byte) const;

  /// Draws to another place what `tensor` holds in `set`.
  Result<void> draw(Device& device, DataOps& data_ops, int set, std::size_t tensor,
                    DevicePointer to) const;

  /// Draws the warm tensors of the timed sets anew. The L2 then holds what it would hold after the
  /// kernel that produces them.
  Result<void> produce_warm(DataOps& data_ops) const;

  const std::vector<WatchedRegion>& watched() const { return watched_; }

  /// Refills the red zones and draws every input again.
  Result<void> restore(Device& device, DataOps& data_ops) const;

 private:
  void place(const DeviceProfile& profile, L2State l2);
  std::int64_t moved_bytes() const;
  bool is_warm(std::size_t tensor) const { return mixed_ && shapes_[tensor].warm; }
  /// Returns the sets that are checked, in the order of their addresses: set 0 first, the NaN set
  /// last.
  std::vector<int> checked_sets() const;
  std::int64_t checked_bytes() const;
  void watch();
  Result<void> draw_numbers(DataOps& data_ops, int set, std::size_t tensor, DevicePointer to) const;
  /// Returns whether a kernel of the operation's own draws the NaN set.
  bool draws_nan() const;
  Result<void> run_drawer(int set, std::size_t tensor, DevicePointer to) const;

  std::vector<TensorShape> shapes_;
  std::vector<std::int64_t> guarded_;  ///< offsets of the tensors in a checked set
  std::vector<std::int64_t> dense_;    ///< offsets in the other sets, which lack the warm ones
  std::int64_t guarded_bytes_ = 0;
  std::int64_t dense_bytes_ = 0;
  std::int64_t zone_bytes_ = 0;
  int count_ = 0;
  bool passes_l2_ = false;
  bool mixed_ = false;
  std::uint64_t seed_ = 0;
  CheckedSets checked_;
  std::unique_ptr<DeviceBuffer> arena_;
  std::vector<WatchedRegion> watched_;
};

}  // namespace kernwright
