#include "tuner/data/buffer_sets.h"

#include <algorithm>
#include <utility>

#include "model/operation/dtype_format.h"
#include "support/random.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/data/alignment.h"

namespace kernwright {
namespace {

/// The limit of sets; more would make a rotation longer than a sample should be.
constexpr std::int64_t kMaxSets = 512;
/// The share of memory for buffer sets. The reference, workspaces and other processes need the
/// rest.
constexpr double kMemoryShare = 0.6;
constexpr std::int64_t kRotation = 3;    // times the L2
constexpr std::int64_t kLargeSet = 5;    // times the L2: after it nothing older is in the L2
constexpr std::int64_t kTileRows = 256;  // the tallest tile that may overhang
constexpr std::int64_t kLeastZone = 2 << 20;
constexpr std::int64_t kLargestZone = 16 << 20;
/// Offsets for the seeds of the exact set and of the places of NaN, which keep them apart from the
/// seeds of timed sets.
constexpr std::uint64_t kExactStream = std::uint64_t{1} << 32;
constexpr std::uint64_t kNanStream = std::uint64_t{2} << 32;
constexpr std::int64_t kMaxNan = 64;     // in a tensor
constexpr std::int64_t kRowsPerNan = 4;  // at least
constexpr std::int64_t kColumnsPerNan = 64;

/// Returns whether the tensor may have NaN in the NaN set. With a draw of its own that is not
/// continuous its values have a meaning.
bool takes_nan(const TensorShape& shape) {
  return shape.role != TensorRole::out && !is_integer(shape.dtype) &&
         (!shape.always || shape.draw.kind == DrawKind::uniform);
}

}  // namespace

int SetCount::count() const {
  if (!cold || moved_bytes > kLargeSet * l2_bytes) return 1;
  const std::int64_t wanted = (kRotation * l2_bytes + moved_bytes - 1) / moved_bytes;
  const std::int64_t fitting = std::max<std::int64_t>(memory_bytes / set_bytes, 1);
  return static_cast<int>(std::min({std::max<std::int64_t>(wanted, 2), fitting, kMaxSets}));
}

std::int64_t red_zone_bytes(std::span<const TensorShape> shapes) {
  std::int64_t row = 0;
  for (const TensorShape& shape : shapes) {
    row = std::max(row, bytes_of(shape.row_pitch(), shape.dtype));
  }
  return std::clamp(aligned(kTileRows * row), kLeastZone, kLargestZone);
}

std::vector<std::int64_t> nan_elements(const TensorShape& shape, std::uint64_t seed) {
  const std::int64_t elements = shape.elements();
  const std::int64_t rows = elements / shape.columns();
  const std::int64_t count = std::clamp<std::int64_t>(
      rows > 1 ? rows / kRowsPerNan : elements / kColumnsPerNan, 1, kMaxNan);
  std::vector<std::int64_t> places{elements - 1};
  for (std::int64_t i = 1; i < count; ++i) {
    const std::uint64_t bits = hash_at(seed, static_cast<std::uint64_t>(i));
    places.push_back(static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(elements)));
  }
  return places;
}

std::string WatchedRegion::describe(std::int64_t from_start, std::int64_t from_end) const {
  if (is_input) return concat("changed input ", before);
  if (behind.empty() || (!before.empty() && from_start <= from_end)) {
    return concat("wrote ", from_start, " bytes behind the end of ", before);
  }
  return concat("wrote ", from_end, " bytes before the start of ", behind);
}

Result<BufferSets> BufferSets::make(Device& device, DataOps& data_ops,
                                    std::vector<TensorShape> shapes, L2State l2, std::uint64_t seed,
                                    const CheckedSets& checked) {
  BufferSets sets;
  sets.shapes_ = std::move(shapes);
  sets.seed_ = seed;
  sets.checked_ = checked;
  sets.checked_.nan =
      checked.nan && std::any_of(sets.shapes_.begin(), sets.shapes_.end(), takes_nan);
  const auto own = std::ranges::find(sets.shapes_, DrawKind::kernel,
                                     [](const TensorShape& shape) { return shape.draw.kind; });
  if (own != sets.shapes_.end() && !checked.drawer) {
    return Error{ErrorCode::internal,
                 concat("nothing is given that draws ", own->name, " as its operation says")};
  }
  sets.checked_.count = checked.count && checked.drawer && checked.drawer->has(InputSet::count);
  sets.mixed_ = l2 == L2State::mixed;
  sets.place(device.profile(), l2);
  // The profile has the size of the memory, but other processes may hold some of it.
  for (;;) {
    // The last zone takes what a candidate writes after the end of the last timed set.
    auto arena = device.allocate(sets.checked_bytes() + sets.dense_bytes_ * (sets.count_ - 1) +
                                 sets.zone_bytes_);
    if (arena) {
      sets.arena_ = std::move(arena).value();
      break;
    }
    if (device.lost() || (sets.count_ == 1 && !sets.checked_.nan)) return arena.error();
    if (sets.count_ == 1) sets.checked_.nan = false;
    sets.count_ = (sets.count_ + 1) / 2;
  }
  sets.passes_l2_ = sets.moved_bytes() * sets.count_ >= kRotation * device.profile().l2_bytes;
  sets.watch();
  // The whole arena, so that the padding between tensors is not uninitialised memory.
  KW_TRY(device.fill(sets.arena_->address(), kRedZoneByte, sets.arena_->bytes()));
  KW_TRY(sets.restore(device, data_ops));
  std::vector<MemoryRegion> regions;
  for (const WatchedRegion& watched : sets.watched_) regions.push_back(watched.region);
  KW_ASSIGN(const auto first, data_ops.enqueue_hash(regions));
  KW_ASSIGN(const auto findings, data_ops.take_findings());
  for (std::size_t i = 0; i < regions.size(); ++i) {
    sets.watched_[i].hash = findings[first + i].hash;
  }
  return sets;
}

/// Determines the offsets within a set, and the number of sets.
void BufferSets::place(const DeviceProfile& profile, L2State l2) {
  zone_bytes_ = red_zone_bytes(shapes_);
  guarded_bytes_ = zone_bytes_;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    guarded_.push_back(guarded_bytes_);
    dense_.push_back(dense_bytes_);
    guarded_bytes_ += aligned(shapes_[i].bytes()) + zone_bytes_;
    if (!is_warm(i)) dense_bytes_ += aligned(shapes_[i].bytes());
  }
  const auto memory =
      static_cast<std::int64_t>(kMemoryShare * static_cast<double>(profile.memory_bytes)) -
      static_cast<std::int64_t>(std::max<std::size_t>(checked_sets().size(), 3)) * guarded_bytes_;
  count_ =
      SetCount{dense_bytes_, profile.l2_bytes, memory, l2 != L2State::warm, moved_bytes()}.count();
}

std::int64_t BufferSets::moved_bytes() const {
  return checked_.moved_bytes > 0 ? std::min(checked_.moved_bytes, dense_bytes_) : dense_bytes_;
}

std::vector<int> BufferSets::checked_sets() const {
  std::vector<int> sets{0};
  if (has_exact_set()) sets.push_back(kExactSet);
  if (has_count_set()) sets.push_back(kCountSet);
  if (has_nan_set()) sets.push_back(kNanSet);
  return sets;
}

std::int64_t BufferSets::checked_bytes() const {
  return guarded_bytes_ * std::ssize(checked_sets());
}

/// Lists the watched regions. A zone reaches from the end of a tensor to the start of the next.
void BufferSets::watch() {
  for (const int set : checked_sets()) {
    DevicePointer from = address(set, 0) - static_cast<DevicePointer>(zone_bytes_);
    std::string before;
    for (std::size_t i = 0; i <= shapes_.size(); ++i) {
      const bool last = i == shapes_.size();
      const DevicePointer to =
          last ? from + static_cast<DevicePointer>(zone_bytes_) : address(set, i);
      WatchedRegion zone;
      zone.region = {from, static_cast<std::int64_t>(to - from)};
      zone.before = before;
      if (!last) zone.behind = shapes_[i].name;
      watched_.push_back(std::move(zone));
      if (last) break;
      before = shapes_[i].name;
      from = to + static_cast<DevicePointer>(shapes_[i].bytes());
      if (shapes_[i].role != TensorRole::in) continue;
      WatchedRegion input;
      input.region = {to, shapes_[i].bytes()};
      input.before = shapes_[i].name;
      input.is_input = true;
      watched_.push_back(std::move(input));
    }
  }
}

DevicePointer BufferSets::address(int set, std::size_t tensor) const {
  std::int64_t offset = 0;
  if (set < 0) {
    const std::vector<int> checked = checked_sets();
    offset =
        (std::ranges::find(checked, set) - checked.begin()) * guarded_bytes_ + guarded_[tensor];
  } else if (set == 0 || is_warm(tensor)) {
    offset = guarded_[tensor];
  } else {
    offset = checked_bytes() + (set - 1) * dense_bytes_ + dense_[tensor];
  }
  return arena_->address() + static_cast<DevicePointer>(offset);
}

std::vector<DevicePointer> BufferSets::addresses(int set) const { return addresses(set, shapes_); }

std::vector<DevicePointer> BufferSets::addresses(int set,
                                                 std::span<const TensorShape> tensors) const {
  std::vector<DevicePointer> result;
  result.reserve(tensors.size());
  for (const TensorShape& tensor : tensors) {
    const auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const TensorShape& shape) {
      return shape.name == tensor.name;
    });
    result.push_back(found == shapes_.end()
                         ? 0
                         : address(set, static_cast<std::size_t>(found - shapes_.begin())));
  }
  return result;
}

Result<void> BufferSets::poison(Device& device, DataOps& data_ops, int set,
                                std::uint8_t byte) const {
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    Result<void> done;
    if (shapes_[i].role == TensorRole::out) {
      done = poison_output(device, data_ops, i, address(set, i), byte);
    } else if (shapes_[i].role == TensorRole::inout) {
      done = draw(device, data_ops, set, i, address(set, i));
    }
    if (!done) return done;
  }
  return {};
}

Result<void> BufferSets::poison_output(Device& device, DataOps& data_ops, std::size_t tensor,
                                       DevicePointer at, std::uint8_t byte) const {
  const TensorShape& shape = shapes_[tensor];
  KW_TRY(device.fill(at, byte, shape.bytes()));
  return data_ops.fill_gaps(at, shape.dtype, shape.layout());
}

Result<void> BufferSets::draw(Device& device, DataOps& data_ops, int set, std::size_t tensor,
                              DevicePointer to) const {
  const TensorShape& shape = shapes_[tensor];
  KW_TRY(draw_numbers(data_ops, set, tensor, to));
  if (set != kNanSet || !takes_nan(shape) || draws_nan()) return {};
  const std::int64_t size = bytes_of(1, shape.dtype);
  for (const std::int64_t i : nan_elements(shape, hash_at(seed_, kNanStream + tensor))) {
    const auto at = to + static_cast<DevicePointer>(shape.layout().place(i) * size);
    KW_TRY(device.fill(at, kRedZoneByte, size));
  }
  return {};
}

Result<void> BufferSets::draw_numbers(DataOps& data_ops, int set, std::size_t tensor,
                                      DevicePointer to) const {
  if (shapes_[tensor].draw.kind == DrawKind::kernel) return run_drawer(set, tensor, to);
  std::uint64_t stream = tensor;
  Draw draw = shapes_[tensor].draw;
  if (set == kExactSet) {
    stream += kExactStream;
    if (!shapes_[tensor].always) draw = {*checked_.exact};
  } else if (set > 0 && set != twin() && !is_warm(tensor)) {
    stream += static_cast<std::uint64_t>(set) * shapes_.size();
  }
  return data_ops.draw(to, shapes_[tensor].dtype, shapes_[tensor].layout(), draw,
                       hash_at(seed_, stream));
}

bool BufferSets::draws_nan() const {
  return checked_.drawer && checked_.drawer->has(InputSet::nan);
}

/// All tensors of a set have one seed: an index of one is within the range of the tensor that it
/// points into.
Result<void> BufferSets::run_drawer(int set, std::size_t tensor, DevicePointer to) const {
  const InputSet inputs = set == kExactSet                ? InputSet::exact
                          : set == kCountSet              ? InputSet::count
                          : set == kNanSet && draws_nan() ? InputSet::nan
                                                          : InputSet::timing;
  const bool as_set_zero = set == kNanSet || set == twin() || (set >= 0 && is_warm(tensor));
  const std::uint64_t stream = as_set_zero ? 0
                               : set < 0   ? kExactStream - static_cast<std::uint64_t>(set)
                                           : static_cast<std::uint64_t>(set);
  return checked_.drawer->draw(inputs, shapes_[tensor], to, hash_at(seed_, stream));
}

Result<void> BufferSets::restore(Device& device, DataOps& data_ops) const {
  for (const WatchedRegion& watched : watched_) {
    if (watched.is_input) continue;
    KW_TRY(device.fill(watched.region.address, kRedZoneByte, watched.region.bytes));
  }
  std::vector<int> all = checked_sets();
  for (int set = 1; set < count_; ++set) all.push_back(set);
  for (const int set : all) {
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      if (shapes_[i].role == TensorRole::out || (set > 0 && is_warm(i))) continue;
      KW_TRY(draw(device, data_ops, set, i, address(set, i)));
    }
  }
  return {};
}

Result<void> BufferSets::produce_warm(DataOps& data_ops) const {
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    if (!is_warm(i)) continue;
    KW_TRY(draw_numbers(data_ops, 0, i, address(0, i)));
  }
  return {};
}

}  // namespace kernwright
