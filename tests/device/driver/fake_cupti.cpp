#include "fake_cupti.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace kernwright {
namespace {

FakeCupti* living = nullptr;

std::vector<std::string>& metrics(void* host) {
  return *static_cast<std::vector<std::string>*>(host);
}

}  // namespace

/// The functions, with the sizes of the structures in CUPTI 13.0's header.
struct FakeCuptiFunctions {
  static int version(std::uint32_t* version) {
    *version = 130001;
    return kCuptiSuccess;
  }
  static int result_string(int status, const char** text) {
    *text = status == kCuptiHardwareBusy ? "CUPTI_ERROR_HARDWARE_BUSY" : "CUPTI_ERROR_OTHER";
    return kCuptiSuccess;
  }
  static int initialize(CuptiApi::Head* p) {
    return living->enter("cuptiProfilerInitialize", p->size, 16);
  }
  static int chip_name(CuptiApi::ChipName* p) {
    p->name = "GH100";
    return living->enter("cuptiDeviceGetChipName", p->size, 32);
  }
  static int availability(CuptiApi::CounterAvailability* p) {
    if (p->image == nullptr) p->image_bytes = living->availability_bytes;
    return living->enter("cuptiProfilerGetCounterAvailability", p->size, 40);
  }
  static int host_initialize(CuptiApi::HostInitialize* p) {
    const int status = living->enter("cuptiProfilerHostInitialize", p->size, 48);
    if (status != kCuptiSuccess) return status;
    p->host = new std::vector<std::string>();
    ++living->hosts;
    return status;
  }
  static int host_deinitialize(CuptiApi::HostDeinitialize* p) {
    delete &metrics(p->host);
    --living->hosts;
    return living->enter("cuptiProfilerHostDeinitialize", p->size, 24);
  }
  static int add_metrics(CuptiApi::AddMetrics* p) {
    for (std::size_t i = 0; i < p->count; ++i) {
      if (living->unknown.contains(p->names[i])) return 18;
      metrics(p->host).emplace_back(p->names[i]);
    }
    return living->enter("cuptiProfilerHostConfigAddMetrics", p->size, 40);
  }
  static int config_image_size(CuptiApi::ConfigImageSize* p) {
    p->bytes = 1;
    return living->enter("cuptiProfilerHostGetConfigImageSize", p->size, 32);
  }
  static int config_image(CuptiApi::ConfigImage* p) {
    living->configs_.push_back(metrics(p->host));
    *p->image = static_cast<std::uint8_t>(living->configs_.size() - 1);
    return living->enter("cuptiProfilerHostGetConfigImage", p->size, 40);
  }
  static int passes(CuptiApi::Passes* p) {
    p->passes = living->passes(living->configs_.at(*p->config));
    return living->enter("cuptiProfilerHostGetNumOfPasses", p->size, 40);
  }
  static int evaluate(CuptiApi::Evaluate* p) {
    for (std::size_t i = 0; i < p->count; ++i) {
      const auto found = living->values.find(p->names[i]);
      const double value = found == living->values.end() ? 1 : found->second;
      const bool counted =
          std::ranges::find(*living->in_force_, p->names[i]) != living->in_force_->end();
      p->values[i] = counted ? value + static_cast<double>(p->range)
                             : std::numeric_limits<double>::quiet_NaN();
    }
    return living->enter("cuptiProfilerHostEvaluateToGpuValues", p->size, 72);
  }
  static int enable(CuptiApi::Enable* p) {
    const int status = living->enter("cuptiRangeProfilerEnable", p->size, 32);
    if (status != kCuptiSuccess) return status;
    ++living->enabled;
    living->in_force_.reset();
    p->profiler = living;
    return status;
  }
  static int disable(CuptiApi::Profiler* p) {
    --living->enabled;
    return living->enter("cuptiRangeProfilerDisable", p->size, 24);
  }
  static int start(CuptiApi::Profiler* p) {
    const int status = living->enter("cuptiRangeProfilerStart", p->size, 24);
    living->started_ = status == kCuptiSuccess;
    if (living->started_) {
      living->ranges_ = 0;
      ++living->starts;
    }
    return status;
  }
  static int stop(CuptiApi::Stop* p) {
    living->started_ = false;
    ++living->pass_;
    p->all_passes_done = living->pass_ >= living->passes_done_after(*living->in_force_) ? 1 : 0;
    return living->enter("cuptiRangeProfilerStop", p->size, 41);
  }
  /// As CUPTI 13.0 does, says that all is well to a second config, and goes on with the first.
  static int set_config(CuptiApi::SetConfig* p) {
    if (!living->in_force_) living->in_force_ = living->configs_.at(*p->config);
    living->pass_ = 0;
    const bool automatic = p->range == CuptiApi::kAutoRange && p->replay == CuptiApi::kUserReplay &&
                           p->nesting_levels == 1;
    const int status = living->enter("cuptiRangeProfilerSetConfig", p->size, 90);
    return automatic ? status : kCuptiInvalidParameter;
  }
  static int decode(CuptiApi::Decode* p) {
    return living->enter("cuptiRangeProfilerDecodeData", p->size, 32);
  }
  static int data_size(CuptiApi::DataSize* p) {
    p->bytes = 8 * p->ranges;
    return living->enter("cuptiRangeProfilerGetCounterDataSize", p->size, 64);
  }
  static int data_initialize(CuptiApi::DataInitialize* p) {
    return living->enter("cuptiRangeProfilerCounterDataImageInitialize", p->size, 40);
  }
  static int data_info(CuptiApi::DataInfo* p) {
    p->ranges = living->ranges_;
    return living->enter("cuptiRangeProfilerGetCounterDataInfo", p->size, 40);
  }
};

FakeCupti::FakeCupti() {
  living = this;
  using F = FakeCuptiFunctions;
  api = {F::version,
         F::result_string,
         F::initialize,
         F::chip_name,
         F::availability,
         F::host_initialize,
         F::host_deinitialize,
         F::add_metrics,
         F::config_image_size,
         F::config_image,
         F::passes,
         F::evaluate,
         F::enable,
         F::disable,
         F::start,
         F::stop,
         F::set_config,
         F::decode,
         F::data_size,
         F::data_initialize,
         F::data_info};
}

FakeCupti::~FakeCupti() { living = nullptr; }

std::size_t FakeCupti::passes_done_after(const std::vector<std::string>& metrics) const {
  return passes(metrics) + late_passes;
}

int FakeCupti::enter(const char* function, std::size_t size, std::size_t expected) {
  calls.emplace_back(function);
  if (size != expected) return kCuptiInvalidParameter;
  const auto failure = failures.find(function);
  return failure == failures.end() ? kCuptiSuccess : failure->second;
}

}  // namespace kernwright
