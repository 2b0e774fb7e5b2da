#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/driver/cupti.h"
#include "model/result/counters.h"
#include <kernwright/result.h>

namespace kernwright {

/// Counts what single kernels do to the hardware, by CUPTI's range profiler: every kernel is a
/// range of its own, which adds nothing to its time. While an object exists it has the counters of
/// the GPU, and no other profiler can. The context is current in every call, and outlives it.
class RangeProfiler {
 public:
  /// Plans the passes for all of `counters()` that the chip has. Errors: see `cupti_error`.
  static Result<std::unique_ptr<RangeProfiler>> open(const CuptiApi& api, void* context,
                                                     int ordinal);
  ~RangeProfiler();
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;

  using Step = std::function<Result<void>()>;
  /// Counts the `kernels` kernels that `launch` runs, and waits for. It calls `before` and then
  /// `launch` once for each pass, since one pass over the hardware does not hold all counters.
  /// CUPTI could repeat the kernels by itself, but they would find in the L2 what they left there.
  /// The first count of an object does all of it twice, and returns the second: CUPTI leaves lines
  /// of its own in the L2 when it begins, which the kernels would write to device memory. Returns
  /// the values of every kernel, in the order of `counters()`. Errors: the errors of both steps;
  /// `device` if other kernels ran.
  Result<std::vector<std::vector<CounterValue>>> count(std::size_t kernels, const Step& before,
                                                       const Step& launch);

  /// Returns how often `count` runs the kernels.
  int passes() const { return plan_.passes; }
  std::string version() const { return cupti_version(api_); }

  /// Releases the context, which is lost: nothing in it is freed.
  void abandon() { profiler_ = nullptr; }

 private:
  /// CUPTI's object for the metrics of one config.
  class Host {
   public:
    Host() = default;
    Host(const CuptiApi& api, void* object) : api_(&api), object_(object) {}
    Host(Host&& other) noexcept
        : api_(other.api_), object_(std::exchange(other.object_, nullptr)) {}
    Host& operator=(Host&& other) noexcept {
      std::swap(api_, other.api_);
      std::swap(object_, other.object_);
      return *this;
    }
    ~Host();
    void* object() const { return object_; }

   private:
    const CuptiApi* api_ = nullptr;
    void* object_ = nullptr;
  };
  /// The counters, their metrics, and the number of passes.
  struct Plan {
    Host host;
    std::vector<const Counter*> counters;
    std::vector<const char*> names;  ///< of the metrics that they are made of
    std::vector<std::uint8_t> config;
    int passes = 0;
  };

  explicit RangeProfiler(const CuptiApi& api) : api_(api) {}

  Result<void> check(std::string_view function, int status) const;
  Result<void> read_chip(void* context, int ordinal);
  Result<Plan> plan(std::vector<const Counter*> counters) const;
  Result<void> plan_all();
  /// Runs one pass. Returns whether it was the last one.
  Result<bool> run_pass(const Step& before, const Step& launch);
  /// Runs all passes.
  Result<std::vector<std::vector<CounterValue>>> count_once(std::size_t kernels, const Step& before,
                                                            const Step& launch);

  const CuptiApi& api_;
  std::string chip_;
  std::vector<std::uint8_t> availability_;
  void* profiler_ = nullptr;
  bool has_counted_ = false;
  /// There is one for all counts: an enabled profiler goes on with its first config, and answers to
  /// another without an error and without numbers (CUPTI 13.0 on an H100).
  Plan plan_;
  /// Counters that the chip does not have, with the reason.
  std::vector<CounterValue> missing_;
};

}  // namespace kernwright
