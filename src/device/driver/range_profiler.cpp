#include "device/driver/range_profiler.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// Returns the metrics that a counter is made of, as zero-terminated texts. CUPTI's own rate of
/// hits divides numbers of two launches, which differ by several percent if blocks wait for each
/// other's data in the L2: on an H100 it went from 72 to 76 % and beyond 100 %, and the share of
/// hits in hits and misses from 69 to 70 % and never beyond.
std::vector<const char*> metrics_of(const Counter& counter) {
  if (counter.name == kL2HitCounter) {
    return {"lts__t_sectors_lookup_hit.sum", "lts__t_sectors_lookup_miss.sum"};
  }
  return {counter.name.data()};
}

/// Returns the counter's value from the values of its metrics.
double combined(std::span<const double> values) {
  return values.size() == 1 ? values[0] : 100 * values[0] / (values[0] + values[1]);
}

}  // namespace

RangeProfiler::Host::~Host() {
  if (object_ == nullptr) return;
  auto end = cupti_structure(&CuptiApi::HostDeinitialize::host);
  end.host = object_;
  api_->host_deinitialize(&end);
}

RangeProfiler::~RangeProfiler() {
  if (profiler_ == nullptr) return;
  auto disable = cupti_structure(&CuptiApi::Profiler::profiler);
  disable.profiler = profiler_;
  api_.range_disable(&disable);
}

Result<void> RangeProfiler::check(std::string_view function, int status) const {
  if (status == kCuptiSuccess) return {};
  return cupti_error(api_, function, status);
}

Result<std::unique_ptr<RangeProfiler>> RangeProfiler::open(const CuptiApi& api, void* context,
                                                           int ordinal) {
  std::unique_ptr<RangeProfiler> profiler(new RangeProfiler(api));
  KW_TRY(profiler->read_chip(context, ordinal));
  KW_TRY(profiler->plan_all());
  auto enable = cupti_structure(&CuptiApi::Enable::profiler);
  enable.context = context;
  KW_TRY(profiler->check("cuptiRangeProfilerEnable", api.range_enable(&enable)));
  profiler->profiler_ = enable.profiler;
  return profiler;
}

Result<void> RangeProfiler::read_chip(void* context, int ordinal) {
  auto initialize = cupti_structure(&CuptiApi::Head::reserved);
  KW_TRY(check("cuptiProfilerInitialize", api_.profiler_initialize(&initialize)));
  auto name = cupti_structure(&CuptiApi::ChipName::name);
  name.device = static_cast<std::size_t>(ordinal);
  KW_TRY(check("cuptiDeviceGetChipName", api_.device_get_chip_name(&name)));
  chip_ = name.name != nullptr ? name.name : "";
  auto available = cupti_structure(&CuptiApi::CounterAvailability::image);
  available.context = context;
  const auto ask = [&] {
    return check("cuptiProfilerGetCounterAvailability", api_.get_counter_availability(&available));
  };
  KW_TRY(ask());
  // An empty image would end the process in the next call.
  if (available.image_bytes == 0) {
    return Error{ErrorCode::device,
                 concat("CUPTI ", version(), " knows no counters of the chip \"", chip_, '"')};
  }
  availability_.resize(available.image_bytes);
  available.image = availability_.data();
  return ask();
}

Result<RangeProfiler::Plan> RangeProfiler::plan(std::vector<const Counter*> counters) const {
  auto host = cupti_structure(&CuptiApi::HostInitialize::host);
  host.profiler = CuptiApi::kRangeProfiler;
  host.chip = chip_.c_str();
  host.availability = availability_.data();
  KW_TRY(check("cuptiProfilerHostInitialize", api_.host_initialize(&host)));
  Plan plan{Host(api_, host.host), std::move(counters), {}, {}};
  for (const Counter* counter : plan.counters) {
    std::ranges::copy(metrics_of(*counter), std::back_inserter(plan.names));
  }

  auto add = cupti_structure(&CuptiApi::AddMetrics::count);
  add.host = host.host;
  add.names = plan.names.data();
  add.count = plan.names.size();
  KW_TRY(check("cuptiProfilerHostConfigAddMetrics", api_.host_add_metrics(&add)));
  auto size = cupti_structure(&CuptiApi::ConfigImageSize::bytes);
  size.host = host.host;
  KW_TRY(check("cuptiProfilerHostGetConfigImageSize", api_.host_get_config_image_size(&size)));
  plan.config.resize(size.bytes);
  auto config = cupti_structure(&CuptiApi::ConfigImage::image);
  config.host = host.host;
  config.bytes = plan.config.size();
  config.image = plan.config.data();
  KW_TRY(check("cuptiProfilerHostGetConfigImage", api_.host_get_config_image(&config)));
  auto passes = cupti_structure(&CuptiApi::Passes::passes);
  passes.config_bytes = plan.config.size();
  passes.config = plan.config.data();
  KW_TRY(check("cuptiProfilerHostGetNumOfPasses", api_.host_get_passes(&passes)));
  plan.passes = static_cast<int>(passes.passes);
  return plan;
}

Result<void> RangeProfiler::plan_all() {
  std::vector<const Counter*> known;
  for (const Counter& counter : counters()) known.push_back(&counter);
  Result<Plan> made = plan(known);
  if (!made) {
    // A counter that the chip does not have makes the whole plan fail.
    known.clear();
    for (const Counter& counter : counters()) {
      const Result<Plan> alone = plan({&counter});
      if (alone) {
        known.push_back(&counter);
      } else {
        missing_.push_back(
            {std::string(counter.name), std::nullopt,
             concat("the chip ", chip_, " does not count it: ", alone.error().message)});
      }
    }
    if (!known.empty()) made = plan(std::move(known));
  }
  KW_ASSIGN(plan_, std::move(made));
  return {};
}

Result<bool> RangeProfiler::run_pass(const Step& before, const Step& launch) {
  KW_TRY(before());
  auto start = cupti_structure(&CuptiApi::Profiler::profiler);
  start.profiler = profiler_;
  KW_TRY(check("cuptiRangeProfilerStart", api_.range_start(&start)));
  const Result<void> launched = launch();
  auto stop = cupti_structure(&CuptiApi::Stop::all_passes_done);
  stop.profiler = profiler_;
  const Result<void> stopped = check("cuptiRangeProfilerStop", api_.range_stop(&stop));
  KW_TRY(launched);
  KW_TRY(stopped);
  return stop.all_passes_done != 0;
}

Result<std::vector<std::vector<CounterValue>>> RangeProfiler::count(std::size_t kernels,
                                                                    const Step& before,
                                                                    const Step& launch) {
  if (!has_counted_) KW_TRY(count_once(kernels, before, launch));
  has_counted_ = true;
  return count_once(kernels, before, launch);
}

Result<std::vector<std::vector<CounterValue>>> RangeProfiler::count_once(std::size_t kernels,
                                                                         const Step& before,
                                                                         const Step& launch) {
  auto size = cupti_structure(&CuptiApi::DataSize::bytes);
  size.profiler = profiler_;
  size.names = plan_.names.data();
  size.count = plan_.names.size();
  size.ranges = kernels;
  size.tree_nodes = static_cast<std::uint32_t>(kernels);
  KW_TRY(check("cuptiRangeProfilerGetCounterDataSize", api_.range_data_size(&size)));
  std::vector<std::uint8_t> data(size.bytes);
  auto initialize = cupti_structure(&CuptiApi::DataInitialize::data);
  initialize.profiler = profiler_;
  initialize.bytes = data.size();
  initialize.data = data.data();
  KW_TRY(check("cuptiRangeProfilerCounterDataImageInitialize",
               api_.range_data_initialize(&initialize)));
  auto config = cupti_structure(&CuptiApi::SetConfig::nesting_level);
  config.profiler = profiler_;
  config.config_bytes = plan_.config.size();
  config.config = plan_.config.data();
  config.data_bytes = data.size();
  config.data = data.data();
  config.range = CuptiApi::kAutoRange;
  config.replay = CuptiApi::kUserReplay;
  config.ranges_per_pass = kernels;
  config.nesting_levels = 1;
  config.least_nesting_level = 1;
  KW_TRY(check("cuptiRangeProfilerSetConfig", api_.range_set_config(&config)));

  bool done = false;
  for (int pass = 0; pass < plan_.passes && !done; ++pass) {
    KW_ASSIGN(done, run_pass(before, launch));
  }
  if (!done) {
    return Error{ErrorCode::device,
                 concat("CUPTI wants more passes than the ", plan_.passes, " that it planned")};
  }

  auto decode = cupti_structure(&CuptiApi::Decode::dropped_ranges);
  decode.profiler = profiler_;
  KW_TRY(check("cuptiRangeProfilerDecodeData", api_.range_decode(&decode)));
  auto info = cupti_structure(&CuptiApi::DataInfo::ranges);
  info.data = data.data();
  info.bytes = data.size();
  KW_TRY(check("cuptiRangeProfilerGetCounterDataInfo", api_.range_data_info(&info)));
  const std::size_t ran = info.ranges + decode.dropped_ranges;
  if (ran != kernels) {
    return Error{ErrorCode::device,
                 concat("CUPTI counted ", ran, " kernels of a launch that has ", kernels)};
  }
  std::vector<std::vector<CounterValue>> values(kernels, missing_);
  for (std::size_t range = 0; range < kernels; ++range) {
    std::vector<double> numbers(plan_.names.size());
    auto evaluate = cupti_structure(&CuptiApi::Evaluate::values);
    evaluate.host = plan_.host.object();
    evaluate.data = data.data();
    evaluate.data_bytes = data.size();
    evaluate.range = range;
    evaluate.names = plan_.names.data();
    evaluate.count = plan_.names.size();
    evaluate.values = numbers.data();
    KW_TRY(check("cuptiProfilerHostEvaluateToGpuValues", api_.host_evaluate(&evaluate)));
    std::span<const double> rest = numbers;
    for (const Counter* counter : plan_.counters) {
      const std::size_t metrics = metrics_of(*counter).size();
      values[range].push_back(judged(counter->name, combined(rest.first(metrics))));
      rest = rest.subspan(metrics);
    }
    std::ranges::sort(values[range], {}, [](const CounterValue& value) {
      return std::ranges::find(counters(), value.name, &Counter::name) - counters().begin();
    });
  }
  return values;
}

}  // namespace kernwright
