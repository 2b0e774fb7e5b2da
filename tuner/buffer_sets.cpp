#include "tuner/buffer_sets.h"

#include <algorithm>
#include <utility>

#include "tuner/draw.h"

namespace kernwright {
namespace {

constexpr std::int64_t kAlignment = 256;
/// More sets would make a rotation longer than a sample should be.
constexpr std::int64_t kMaxSets = 512;
/// The reference, workspaces and other processes need the rest.
constexpr double kMemoryShare = 0.6;

}  // namespace

int SetCount::count() const {
  if (!cold) return 1;
  const std::int64_t wanted = (3 * l2_bytes + set_bytes - 1) / set_bytes;
  const std::int64_t fitting = std::max<std::int64_t>(memory_bytes / set_bytes, 1);
  return static_cast<int>(std::min({std::max<std::int64_t>(wanted, 2), fitting, kMaxSets}));
}

Result<BufferSets> BufferSets::make(Device& device, DataOps& data_ops,
                                    std::vector<TensorShape> shapes, bool cold,
                                    std::uint64_t seed) {
  BufferSets sets;
  sets.shapes_ = std::move(shapes);
  sets.seed_ = seed;
  for (const TensorShape& shape : sets.shapes_) {
    sets.offsets_.push_back(sets.set_bytes_);
    sets.set_bytes_ += (shape.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  const DeviceProfile& profile = device.profile();
  const auto memory =
      static_cast<std::int64_t>(kMemoryShare * static_cast<double>(profile.memory_bytes));
  sets.count_ = SetCount{sets.set_bytes_, profile.l2_bytes, memory, cold}.count();
  // The profile knows the size of the memory, not what others hold of it.
  for (;; sets.count_ = (sets.count_ + 1) / 2) {
    auto arena = device.allocate(sets.set_bytes_ * sets.count_);
    if (arena) {
      sets.arena_ = std::move(arena).value();
      break;
    }
    if (sets.count_ == 1 || device.lost()) return arena.error();
  }
  for (int set = 0; set < sets.count_; ++set) {
    for (std::size_t i = 0; i < sets.shapes_.size(); ++i) {
      if (sets.shapes_[i].role == TensorRole::out) continue;
      if (auto done = sets.draw(data_ops, set, i); !done) return done.error();
    }
  }
  return sets;
}

DevicePointer BufferSets::address(int set, std::size_t tensor) const {
  return arena_->address() + static_cast<DevicePointer>(set * set_bytes_ + offsets_[tensor]);
}

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
      done = device.fill(address(set, i), byte, shapes_[i].bytes());
    } else if (shapes_[i].role == TensorRole::inout) {
      done = draw(data_ops, set, i);
    }
    if (!done) return done;
  }
  return {};
}

Result<void> BufferSets::draw(DataOps& data_ops, int set, std::size_t tensor) const {
  const auto stream = static_cast<std::uint64_t>(set) * shapes_.size() + tensor;
  return data_ops.draw(address(set, tensor), shapes_[tensor].dtype, shapes_[tensor].elements(),
                       InputDistribution::normal, hash_at(seed_, stream));
}

}  // namespace kernwright
