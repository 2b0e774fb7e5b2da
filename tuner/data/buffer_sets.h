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
#include <kernwright/result.h>

namespace kernwright {

/// How many buffer sets a problem needs. Cold: as many as pass 3x the L2 together and at least two,
/// but one where that alone passes 5x; bounded by the memory there is and by what one graph holds.
/// Warm: one. Mixed: as cold, of the bytes that are not warm.
struct SetCount {
  std::int64_t set_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;  ///< that all sets together may take
  bool cold = true;

  int count() const;
};

/// The byte that red zones are filled with: read as a float of any format it is a NaN.
inline constexpr std::uint8_t kRedZoneByte = 0xFF;

/// Which sets are checked beside set 0.
struct CheckedSets {
  std::optional<DrawKind> exact = {};  ///< how the exact set is drawn; none: there is none
  bool nan = false;                    ///< a NaN set, where an input has floats
};

/// The elements of a tensor that are NaN in the NaN set, in places that `seed` decides: the last
/// and, so that most of a result stays a number, one in at most a quarter of the rows or, where
/// there is one row alone, in 64 elements; 64 at most. Counted in elements, without what lies
/// between rows; some may come twice.
std::vector<std::int64_t> nan_elements(const TensorShape& shape, std::uint64_t seed);

/// Bytes on either side of a checked tensor that nobody may write: a tile's overhang, at least.
std::int64_t red_zone_bytes(std::span<const TensorShape> shapes);

/// Memory that a correct candidate leaves as it is: a red zone or an input of a checked set.
struct WatchedRegion {
  MemoryRegion region;
  std::uint64_t hash = 0;
  std::string before;  ///< the tensor that ends where the zone begins; the input itself
  std::string behind;  ///< the tensor that begins where the zone ends; empty for inputs
  bool is_input = false;

  /// "wrote 12 bytes behind the end of d", by how many bytes of the region lie between its start
  /// and the first changed one, and between the last changed one and its end.
  std::string describe(std::int64_t from_start, std::int64_t from_end) const;
};

/// All tensors of a problem, several times, in one allocation made once, every tensor at a multiple
/// of 256 bytes. Sets 0 .. count()-1 are timed; with l2=mixed they share the warm tensors. Up to
/// three are checked and have red zones around every tensor: set 0; the exact set, whose values
/// make every order of summation give the same bits; the NaN set, which holds what set 0 holds but
/// for some elements that are NaN. Inputs are drawn from the seed; the last timed set, the twin,
/// holds the same as set 0.
class BufferSets {
 public:
  static constexpr int kExactSet = -1;
  static constexpr int kNanSet = -2;

  /// Where memory is short there is no NaN set. Errors: `device` where not even one timed set fits.
  static Result<BufferSets> make(Device& device, DataOps& data_ops, std::vector<TensorShape> shapes,
                                 L2State l2, std::uint64_t seed, const CheckedSets& checked = {});

  int count() const { return count_; }
  int twin() const { return count_ - 1; }
  bool has_exact_set() const { return checked_.exact.has_value(); }
  bool has_nan_set() const { return checked_.nan; }
  const std::vector<TensorShape>& shapes() const { return shapes_; }
  /// True where what the timed sets do not share passes 3x the L2.
  bool passes_l2() const { return passes_l2_; }
  DevicePointer address(int set, std::size_t tensor) const;
  /// Of every tensor.
  std::vector<DevicePointer> addresses(int set) const;

  /// The addresses of one set in the order of `tensors`, matched by name; 0 for names not held.
  std::vector<DevicePointer> addresses(int set, std::span<const TensorShape> tensors) const;

  /// Fills the outputs of a set with a byte, and draws its in-place tensors anew.
  Result<void> poison(Device& device, DataOps& data_ops, int set, std::uint8_t byte) const;

  /// Fills an output that lies `at` some place with a byte, what lies between its rows apart.
  Result<void> poison_output(Device& device, DataOps& data_ops, std::size_t tensor,
                             DevicePointer at, std::uint8_t byte) const;

  /// Draws what `tensor` holds in `set` to another place.
  Result<void> draw(Device& device, DataOps& data_ops, int set, std::size_t tensor,
                    DevicePointer to) const;

  /// Draws the warm tensors of the timed sets anew: in the L2 is then what it would be behind the
  /// kernel that produces them.
  Result<void> produce_warm(DataOps& data_ops) const;

  const std::vector<WatchedRegion>& watched() const { return watched_; }

  /// Refills the red zones and draws every input again.
  Result<void> restore(Device& device, DataOps& data_ops) const;

 private:
  void place(const DeviceProfile& profile, L2State l2);
  bool is_warm(std::size_t tensor) const { return mixed_ && shapes_[tensor].warm; }
  std::int64_t checked_bytes() const;
  void watch();
  Result<void> draw_numbers(DataOps& data_ops, int set, std::size_t tensor, DevicePointer to) const;

  std::vector<TensorShape> shapes_;
  std::vector<std::int64_t> guarded_;  ///< offsets of the tensors in a checked set
  std::vector<std::int64_t> dense_;    ///< offsets in the others, where the warm ones are not
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
