#include "device/driver/range_profiler.h"

#include <algorithm>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {

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
  KW_TRY(profiler->plan());
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

Result<RangeProfiler::Group> RangeProfiler::make_group(std::vector<const char*> names) const {
  auto host = cupti_structure(&CuptiApi::HostInitialize::host);
  host.profiler = CuptiApi::kRangeProfiler;
  host.chip = chip_.c_str();
  host.availability = availability_.data();
  KW_TRY(check("cuptiProfilerHostInitialize", api_.host_initialize(&host)));
  Group group{Host(api_, host.host), std::move(names), {}};

  auto add = cupti_structure(&CuptiApi::AddMetrics::count);
  add.host = host.host;
  add.names = group.names.data();
  add.count = group.names.size();
  KW_TRY(check("cuptiProfilerHostConfigAddMetrics", api_.host_add_metrics(&add)));
  auto size = cupti_structure(&CuptiApi::ConfigImageSize::bytes);
  size.host = host.host;
  KW_TRY(check("cuptiProfilerHostGetConfigImageSize", api_.host_get_config_image_size(&size)));
  group.config.resize(size.bytes);
  auto config = cupti_structure(&CuptiApi::ConfigImage::image);
  config.host = host.host;
  config.bytes = group.config.size();
  config.image = group.config.data();
  KW_TRY(check("cuptiProfilerHostGetConfigImage", api_.host_get_config_image(&config)));
  auto passes = cupti_structure(&CuptiApi::Passes::passes);
  passes.config_bytes = group.config.size();
  passes.config = group.config.data();
  KW_TRY(check("cuptiProfilerHostGetNumOfPasses", api_.host_get_passes(&passes)));
  group.passes = static_cast<int>(passes.passes);
  return group;
}

Result<void> RangeProfiler::plan() {
  Error last;
  for (const Counter& counter : counters()) {
    const char* name = counter.name.data();
    Result<Group> alone = make_group({name});
    if (!alone) {
      last = alone.error();
      missing_.push_back({std::string(counter.name), std::nullopt,
                          concat("the chip ", chip_, " does not count it: ", last.message)});
      continue;
    }
    // Joins the first group with which it still takes one pass.
    bool joined = false;
    for (Group& group : groups_) {
      if (alone->passes > 1 || group.passes > 1) continue;
      std::vector<const char*> names = group.names;
      names.push_back(name);
      Result<Group> both = make_group(std::move(names));
      joined = both && both->passes == 1;
      if (!joined) continue;
      group = *std::move(both);
      break;
    }
    if (!joined) groups_.push_back(*std::move(alone));
  }
  if (groups_.empty()) return last;
  return {};
}

int RangeProfiler::passes() const {
  int passes = 0;
  for (const Group& group : groups_) passes += group.passes;
  return passes;
}

Result<std::vector<std::vector<CounterValue>>> RangeProfiler::count(std::size_t kernels,
                                                                    const Step& before,
                                                                    const Step& launch) {
  std::vector<std::vector<CounterValue>> values(kernels, missing_);
  for (Group& group : groups_) {
    KW_TRY(count(group, before, launch, values));
  }
  for (std::vector<CounterValue>& of_kernel : values) {
    std::ranges::sort(of_kernel, {}, [](const CounterValue& value) {
      return std::ranges::find(counters(), value.name, &Counter::name) - counters().begin();
    });
  }
  return values;
}

Result<void> RangeProfiler::count(Group& group, const Step& before, const Step& launch,
                                  std::vector<std::vector<CounterValue>>& values) {
  auto size = cupti_structure(&CuptiApi::DataSize::bytes);
  size.profiler = profiler_;
  size.names = group.names.data();
  size.count = group.names.size();
  size.ranges = values.size();
  size.tree_nodes = static_cast<std::uint32_t>(values.size());
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
  config.config_bytes = group.config.size();
  config.config = group.config.data();
  config.data_bytes = data.size();
  config.data = data.data();
  config.range = CuptiApi::kAutoRange;
  config.replay = CuptiApi::kKernelReplay;
  config.ranges_per_pass = values.size();
  config.nesting_levels = 1;
  config.least_nesting_level = 1;
  KW_TRY(check("cuptiRangeProfilerSetConfig", api_.range_set_config(&config)));

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

  auto decode = cupti_structure(&CuptiApi::Decode::dropped_ranges);
  decode.profiler = profiler_;
  KW_TRY(check("cuptiRangeProfilerDecodeData", api_.range_decode(&decode)));
  auto info = cupti_structure(&CuptiApi::DataInfo::ranges);
  info.data = data.data();
  info.bytes = data.size();
  KW_TRY(check("cuptiRangeProfilerGetCounterDataInfo", api_.range_data_info(&info)));
  const std::size_t ran = info.ranges + decode.dropped_ranges;
  if (ran != values.size()) {
    return Error{ErrorCode::device,
                 concat("CUPTI counted ", ran, " kernels of a launch that has ", values.size())};
  }
  for (std::size_t range = 0; range < values.size(); ++range) {
    std::vector<double> numbers(group.names.size());
    auto evaluate = cupti_structure(&CuptiApi::Evaluate::values);
    evaluate.host = group.host.object();
    evaluate.data = data.data();
    evaluate.data_bytes = data.size();
    evaluate.range = range;
    evaluate.names = group.names.data();
    evaluate.count = group.names.size();
    evaluate.values = numbers.data();
    KW_TRY(check("cuptiProfilerHostEvaluateToGpuValues", api_.host_evaluate(&evaluate)));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      values[range].push_back(judged(group.names[i], numbers[i]));
    }
  }
  return {};
}

}  // namespace kernwright
