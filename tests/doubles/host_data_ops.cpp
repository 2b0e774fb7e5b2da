#include "tests/doubles/host_data_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>
#include <optional>
#include <utility>

#include "model/operation/dtype_format.h"
#include "support/random.h"
#include "tuner/data/element.h"

namespace kernwright {
namespace {

/// Returns whether the draw yields integers for every dtype.
bool is_whole(DrawKind kind) { return kind == DrawKind::small_integers || kind == DrawKind::signs; }

/// The place of `i` in a permutation of `count`: a Feistel network of four rounds over the smallest
/// even number of bits that hold `count`, applied until the place is below `count`.
std::uint64_t permuted(std::uint64_t seed, std::uint64_t i, std::uint64_t count) {
  unsigned half = 1;
  while ((std::uint64_t{1} << 2 * half) < count) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = i >> half;
    std::uint64_t right = i & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      left = std::exchange(right, left ^ (hash_at(seed + round, right) & mask));
    }
    i = left << half | right;
  } while (i >= count);
  return i;
}

/// Returns an element of an integer dtype, or of a draw that yields integers for every dtype.
double whole(DType dtype, const Draw& draw, std::uint64_t seed, std::int64_t row,
             std::int64_t column, std::int64_t columns) {
  const std::uint64_t bits = hash_at(seed, static_cast<std::uint64_t>(row * columns + column));
  switch (draw.kind) {
    case DrawKind::uniform: {
      const auto values = static_cast<std::uint64_t>(draw.to - draw.from) + 1;
      // Computed in integers, because a double may not hold the distance from one end exactly.
      return static_cast<double>(static_cast<std::int64_t>(draw.from) +
                                 static_cast<std::int64_t>(bits % values));
    }
    case DrawKind::permutation:
      return static_cast<double>(permuted(hash_at(seed, static_cast<std::uint64_t>(row)),
                                          static_cast<std::uint64_t>(column),
                                          static_cast<std::uint64_t>(columns)));
    case DrawKind::offsets: {
      if (column == 0) return 0;
      if (column == columns - 1) return draw.to;
      const double jitter = static_cast<double>(bits >> 11) * 0x1p-53;
      const double steps = static_cast<double>(column) - 0.5 + jitter;
      return std::floor(draw.to * steps / static_cast<double>(columns - 1));
    }
    case DrawKind::constant:
      return draw.from;
    default: {
      if (dtype == DType::int8 && draw.kind == DrawKind::normal) {
        return static_cast<double>(((bits >> 56) + (bits >> 48 & 0xff)) / 2) - 128;
      }
      const bool signs = draw.kind == DrawKind::signs;
      const double value = signs ? static_cast<double>(((bits >> 32) * 3) >> 32) - 1
                                 : static_cast<double>(((bits >> 32) * 7) >> 32) - 3;
      if (dtype == DType::uint8) return std::fabs(value);
      if (dtype == DType::boolean) return std::fmod(std::fabs(value), 2);
      return value;
    }
  }
}

/// An element of a floating dtype.
double real(const Draw& draw, std::uint64_t bits) {
  if (draw.kind == DrawKind::constant) return draw.from;
  if (draw.kind == DrawKind::uniform) {
    return static_cast<float>(draw.from +
                              (draw.to - draw.from) * (static_cast<double>(bits >> 40) * 0x1p-24));
  }
  const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24F;
  const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24F;
  const double angle = 2 * std::numbers::pi * static_cast<double>(v);
  return std::sqrt(-2 * std::log(u)) * static_cast<float>(std::cos(angle));
}

/// `value` after it was stored as `dtype`.
double rounded(DType dtype, double value) {
  std::uint64_t storage = 0;
  store_element(&storage, dtype, 0, value);
  return load_element(&storage, dtype, 0);
}

/// Returns whether `x`, an element of `dtype`, is the value that represents NaN.
bool is_nan_in(DType dtype, double x) { return is_integer(dtype) ? x == 0 : std::isnan(x); }

/// Limits a value to the range. NaN stays NaN.
double limited(double x, double end) { return x > end ? end : x < -end ? -end : x; }

/// Works on memory of this process, with the addresses of a fake device. The formulas are the same
/// as in tuner/data/kernels/data_ops.cu.
class HostDataOps final : public DataOps {
 public:
  Result<void> draw(DevicePointer to, DType dtype, const Layout& layout, const Draw& draw,
                    std::uint64_t seed) override {
    void* data = at(to);
    for (std::int64_t i = 0; i < layout.elements; ++i) {
      const std::int64_t row = i / layout.columns;
      const std::int64_t column = i % layout.columns;
      const double value = is_integer(dtype) || is_whole(draw.kind)
                               ? whole(dtype, draw, seed, row, column, layout.columns)
                               : real(draw, hash_at(seed, static_cast<std::uint64_t>(i)));
      store_element(data, dtype, layout.place(i), value);
    }
    return fill_gaps(to, dtype, layout);
  }

  Result<void> fill_gaps(DevicePointer to, DType dtype, const Layout& layout) override {
    const auto size = static_cast<DevicePointer>(bytes_of(1, dtype));
    for (std::int64_t place = 0; place < layout.span(); ++place) {
      if (layout.element_at(place)) continue;
      std::memset(at(to + static_cast<DevicePointer>(place) * size), kGapByte, size);
    }
    return {};
  }

  Result<std::size_t> enqueue_compare(DevicePointer actual, DType dtype, const Layout& layout,
                                      DevicePointer reference, DevicePointer magnitude,
                                      const ErrorBound& bound) override {
    const double floor = error_floor(dtype) + bound.absolute;
    const double end = range_end(dtype);
    const bool is_wide = reference_dtype(dtype) == DType::int64;
    Finding found;
    for (std::int64_t place = 0; place < layout.span(); ++place) {
      const std::optional<std::int64_t> element = layout.element_at(place);
      if (!element) {
        if (!is_gap(actual, dtype, place) && found.mismatches++ == 0) found.first = place;
        continue;
      }
      const std::int64_t i = *element;
      if (is_wide) {
        if (wide_element(actual, dtype, place) == wide_element(reference, DType::int64, i))
          continue;
        found.max_error = kWorstError;
        if (found.mismatches++ == 0) found.first = place;
        continue;
      }
      double r = load_element(at(reference), DType::fp32, i);
      const double x = load_element(at(actual), dtype, place);
      if (bound.nan && std::isnan(r)) {
        if (is_nan_in(dtype, x)) continue;
        found.max_error = kWorstError;
        if (found.mismatches++ == 0) found.first = place;
        continue;
      }
      if (bound.infinite && std::isinf(r)) {
        if (x == r) continue;
        found.max_error = kWorstError;
        if (found.mismatches++ == 0) found.first = place;
        continue;
      }
      double limit = 0;
      if (bound.exact) r = rounded(dtype, r);
      r = limited(r, end);
      if (!bound.exact) {
        const double terms = load_element(at(magnitude), DType::fp32, i);
        limit = bound.accumulate_unit * terms + bound.output_unit * std::fabs(r) + floor;
      }
      const double error = std::fabs(limited(x, end) - r);
      if (error != 0) {
        const double ratio = error / limit;
        found.max_error = std::max(found.max_error, ratio < kWorstError ? ratio : kWorstError);
      }
      if (!(error <= limit)) {
        if (found.mismatches++ == 0) found.first = place;
      }
    }
    findings_.push_back(found);
    return findings_.size() - 1;
  }

  Result<std::size_t> enqueue_hash(std::span<const MemoryRegion> regions) override {
    const std::size_t first = findings_.size();
    for (const MemoryRegion& region : regions) {
      Finding found;
      found.hash = hash(region);
      findings_.push_back(found);
    }
    return first;
  }

  Result<std::vector<Finding>> take_findings() override { return std::exchange(findings_, {}); }

 private:
  static void* at(DevicePointer address) { return reinterpret_cast<void*>(address); }

  /// For int32 and int64, without rounding to a double.
  static std::int64_t wide_element(DevicePointer array, DType dtype, std::int64_t place) {
    if (dtype == DType::int64) return static_cast<const std::int64_t*>(at(array))[place];
    return static_cast<const std::int32_t*>(at(array))[place];
  }

  static bool is_gap(DevicePointer array, DType dtype, std::int64_t place) {
    const auto size = static_cast<std::size_t>(bytes_of(1, dtype));
    const auto* bytes = static_cast<const std::uint8_t*>(at(array)) + bytes_of(place, dtype);
    return std::all_of(bytes, bytes + size, [](std::uint8_t byte) { return byte == kGapByte; });
  }

  /// Hashes whole words of 8 bytes, of which only the bytes of the region count.
  static std::uint64_t hash(const MemoryRegion& region) {
    const DevicePointer base = region.address & ~DevicePointer{7};
    const DevicePointer end = region.address + static_cast<DevicePointer>(region.bytes);
    std::uint64_t sum = 0;
    for (DevicePointer word = base; word < end; word += 8) {
      const DevicePointer from = std::max(word, region.address);
      const DevicePointer to = std::min(word + 8, end);
      std::uint64_t bits = 0;
      std::memcpy(reinterpret_cast<char*>(&bits) + (from - word), at(from), to - from);
      sum += hash_at(bits, (word - base) / 8);
    }
    return sum;
  }

  std::vector<Finding> findings_;
};

}  // namespace

std::unique_ptr<DataOps> make_host_data_ops() { return std::make_unique<HostDataOps>(); }

}  // namespace kernwright
