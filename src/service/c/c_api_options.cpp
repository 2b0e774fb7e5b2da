#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "model/result/match_names.h"
#include "service/c/c_api_support.h"
#include "support/text.h"
#include "support/try.h"
#include "support/version.h"

namespace kernwright::c_api {
namespace {

// No version of the struct comes near it: more is a length that was never set.
constexpr std::size_t kLargestStruct = 4096;
constexpr std::size_t kMostStrings = 1024;

/// Copies as much of the struct `name` as both sides know, the rest zero. Fields that only the
/// caller knows must be zero: a setting must not be lost without a word.
template <typename Options>
Result<Options> copy_known(const char* name, const Options& given) {
  Options known{};
  if (given.struct_size < 2 * sizeof(std::size_t) || given.struct_size > kLargestStruct) {
    return wrong(concat(name, ".struct_size is ", given.struct_size, "; set it to sizeof(", name,
                        "), ", sizeof known));
  }
  const std::size_t common = std::min(sizeof known, given.struct_size);
  std::memcpy(&known, &given, common);
  const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
  if (std::any_of(bytes + common, bytes + given.struct_size,
                  [](unsigned char byte) { return byte != 0; })) {
    return wrong(concat(name, " has fields set that kernwright ", kernwright_version(),
                        " does not know: struct_size is ", given.struct_size, ", it knows ",
                        sizeof known, " bytes"));
  }
  return known;
}

/// Appends the strings of an array field.
Result<void> append(const char* field, const char* const* strings, std::size_t count,
                    std::vector<std::string>& to) {
  if (strings == nullptr && count > 0) {
    return wrong(concat("kw_options.", field, " is null; ", count, " are counted"));
  }
  if (count > kMostStrings) {
    return wrong(
        concat("kw_options.", field, " has ", count, " strings; it may have ", kMostStrings));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (strings[i] == nullptr) return wrong(concat("kw_options.", field, "[", i, "] is null"));
    to.emplace_back(strings[i]);
  }
  return {};
}

Result<MissPolicy> read_on_miss(std::string_view name) {
  if (name == "predict") return MissPolicy::predict;
  if (name == "tune_now") return MissPolicy::tune_now;
  if (name == "tune_in_background") return MissPolicy::tune_in_background;
  if (name == "fail") return MissPolicy::fail;
  return wrong(concat("kw_options.on_miss is \"", name,
                      "\"; it must be predict, tune_now, tune_in_background or fail"));
}

Result<L2State> read_l2(std::string_view name) {
  if (const std::optional<L2State> l2 = parse_l2_state(name)) return *l2;
  return wrong(concat("kw_options.l2 is \"", name, "\"; it must be cold, warm or mixed"));
}

Result<Match> read_min_match(std::string_view name) {
  if (const std::optional<Match> match = parse_as<Match>(name)) return *match;
  return wrong(concat("kw_options.min_match is \"", name,
                      "\"; it must be exact, recheck, seed, bucket, predicted or none"));
}

Result<void> not_below_zero(const char* field, double value) {
  if (value >= 0) return {};
  return wrong(concat(field, " is ", value, "; it must be 0 or more"));
}

}  // namespace

Result<ServiceOptions> read_options(const kw_options* given) {
  ServiceOptions options;
  if (given == nullptr) return options;
  KW_ASSIGN(const kw_options o, copy_known("kw_options", *given));
  if (o.on_miss) {
    KW_ASSIGN(options.on_miss, read_on_miss(o.on_miss));
  }
  if (o.l2) {
    KW_ASSIGN(options.l2, read_l2(o.l2));
  }
  if (o.min_match) {
    KW_ASSIGN(options.min_match, read_min_match(o.min_match));
  }
  KW_TRY(not_below_zero("kw_options.tune_seconds", o.tune_seconds));
  KW_TRY(not_below_zero("kw_options.background_seconds", o.background_seconds));
  KW_TRY(not_below_zero("kw_options.compile_threads", o.compile_threads));
  if (o.cache) options.cache = o.cache;
  if (o.template_dir) options.template_dirs.emplace_back(o.template_dir);
  if (o.epilogue) options.epilogues.emplace_back(o.epilogue);
  KW_TRY(append("read_only_caches", o.read_only_caches, o.read_only_cache_count,
                options.read_only_caches));
  KW_TRY(append("signed_caches", o.signed_caches, o.signed_cache_count, options.signed_caches));
  KW_TRY(append("template_dirs", o.template_dirs, o.template_dir_count, options.template_dirs));
  KW_TRY(append("epilogues", o.epilogues, o.epilogue_count, options.epilogues));
  if (o.sku) options.sku = o.sku;
  options.device = o.device;
  if (o.tune_seconds > 0) options.tune_seconds = o.tune_seconds;
  if (o.background_seconds > 0) options.background_seconds = o.background_seconds;
  if (o.worker) options.worker = o.worker;
  options.measure_in_process = o.measure_in_process != 0;
  options.compile_threads = o.compile_threads;
  options.check_launches = o.check_launches != 0;
  if (o.log) {
    options.log = [log = o.log, data = o.log_data](LogLevel level, std::string_view message) {
      log(data, static_cast<int>(level), std::string(message).c_str());
    };
  }
  return options;
}

Result<TuneOptions> read_options(const kw_tune_options* given) {
  TuneOptions options;
  if (given == nullptr) return options;
  KW_ASSIGN(const kw_tune_options o, copy_known("kw_tune_options", *given));
  KW_TRY(not_below_zero("kw_tune_options.seconds", o.seconds));
  KW_TRY(not_below_zero("kw_tune_options.trials", o.trials));
  if (o.seconds > 0) options.seconds = o.seconds;
  options.trials = o.trials;
  if (o.strategy) options.strategy = o.strategy;
  if (o.progress) {
    options.progress = [tell = o.progress, data = o.data](const TuneProgress& at) {
      const kw_tune_progress told{sizeof(kw_tune_progress), at.candidates, at.measured, at.best_us,
                                  at.seconds};
      tell(data, &told);
    };
  }
  return options;
}

}  // namespace kernwright::c_api
