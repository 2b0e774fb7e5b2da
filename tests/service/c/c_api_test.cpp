#include <cmath>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cache/stores/record_store.h"
#include "compile/compiler.h"
#include "device/cuda/cuda_device.h"
#include "service/c/c_api_support.h"
#include "tests/comma_locale.h"
#include "tests/results.h"
#include "tests/service/c/c_kernel_fixture.h"
#include "tests/service/report/known_record.h"
#include "tests/temp_dir.h"
#include <kernwright/c.h>

namespace kernwright {
namespace {

using CApiKernelTest = CKernelFixture;

/// The options of a service for the sku h200 with an empty cache of its own.
struct SkuOptions : kw_options {
  SkuOptions() : kw_options{} {
    struct_size = sizeof(kw_options);
    cache = root.c_str();
    sku = "h200";
  }
  const ScopedTempDir folder;
  const std::string root = folder.path();
};

TEST(CApiTest, FailuresLeaveTheirReason) {
  kw_service* service = nullptr;
  kw_options options{};
  options.struct_size = sizeof options;
  options.sku = "h9000";
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "h9000"), nullptr) << kw_last_error();
  EXPECT_EQ(service, nullptr);

  options.sku = "h200";
  options.on_miss = "guess";
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "guess"), nullptr) << kw_last_error();

  options.on_miss = nullptr;
  options.l2 = "hot";
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_STREQ(kw_last_error(), "kw_options.l2 is \"hot\"; it must be cold, warm or mixed");

  options.l2 = nullptr;
  options.epilogue = "/nowhere/clamp.cu";
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "/nowhere/clamp.cu"), nullptr) << kw_last_error();

  kw_options unset{};
  EXPECT_EQ(kw_open(&unset, &service), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "struct_size"), nullptr) << kw_last_error();
}

TEST(CApiTest, EveryKindOfFailureHasItsNumber) {
  const std::pair<ErrorCode, int> numbers[] = {
      {ErrorCode::invalid_argument, 1}, {ErrorCode::not_found, 2},
      {ErrorCode::unavailable, 3},      {ErrorCode::io, 4},
      {ErrorCode::corrupt, 5},          {ErrorCode::compile, 6},
      {ErrorCode::device, 7},           {ErrorCode::timed_out, 8},
      {ErrorCode::refused, 9},          {ErrorCode::internal, 10}};
  for (const auto& [code, number] : numbers) {
    EXPECT_EQ(c_api::guarded("f", {}, [&] { return Result<void>(Error{code, "so"}); }), -1);
    EXPECT_EQ(kw_last_error_code(), number);
    EXPECT_STREQ(kw_last_error(), "so");
  }
  const auto throws = []() -> Result<void> { throw std::runtime_error("thrown"); };
  EXPECT_EQ(c_api::guarded("f", {}, throws), -1);
  EXPECT_EQ(kw_last_error_code(), KW_INTERNAL);
  int of_new_thread = -1;
  std::thread([&] { of_new_thread = kw_last_error_code(); }).join();
  EXPECT_EQ(of_new_thread, KW_OK);
}

TEST(CApiTest, EveryNameOfAnOptionIsTaken) {
  const auto read = [](const char* on_miss, const char* l2, const char* min_match) {
    kw_options options{};
    options.struct_size = sizeof options;
    options.on_miss = on_miss;
    options.l2 = l2;
    options.min_match = min_match;
    return must(c_api::read_options(&options));
  };
  EXPECT_EQ(read("predict", nullptr, nullptr).on_miss, MissPolicy::predict);
  EXPECT_EQ(read("tune_now", nullptr, nullptr).on_miss, MissPolicy::tune_now);
  EXPECT_EQ(read("tune_in_background", nullptr, nullptr).on_miss, MissPolicy::tune_in_background);
  EXPECT_EQ(read("fail", nullptr, nullptr).on_miss, MissPolicy::fail);
  for (const L2State state : {L2State::cold, L2State::warm, L2State::mixed}) {
    EXPECT_EQ(read(nullptr, std::string(to_string(state)).c_str(), nullptr).l2, state);
  }
  for (const Match match : {Match::exact, Match::recheck, Match::stale_code, Match::bucket,
                            Match::predicted, Match::none}) {
    EXPECT_EQ(read(nullptr, nullptr, std::string(to_string(match)).c_str()).min_match, match);
  }
}

TEST(CApiTest, WhatIsNotGivenIsTheDefault) {
  kw_options options{};
  options.struct_size = sizeof options;
  const ServiceOptions taken = must(c_api::read_options(&options));
  const ServiceOptions standard;
  EXPECT_EQ(taken.on_miss, standard.on_miss);
  EXPECT_EQ(taken.l2, standard.l2);
  EXPECT_EQ(taken.min_match, standard.min_match);
  EXPECT_EQ(taken.tune_seconds, standard.tune_seconds);
  EXPECT_EQ(taken.background_seconds, standard.background_seconds);
  EXPECT_EQ(taken.measure_in_process, standard.measure_in_process);
  EXPECT_TRUE(taken.template_dirs.empty());

  options.tune_seconds = -0.5;
  EXPECT_EQ(c_api::read_options(&options).error().message,
            "kw_options.tune_seconds is -0.5; it must be 0 or more");
  options.tune_seconds = 0;
  options.compile_threads = -1;
  EXPECT_EQ(c_api::read_options(&options).error().message,
            "kw_options.compile_threads is -1; it must be 0 or more");
}

TEST(CApiTest, NothingIsTunedForASku) {
  SkuOptions options;
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  kw_kernel* kernel = nullptr;
  EXPECT_EQ(kw_tune(service, "vector_add n=1000 dtype=fp32", nullptr, &kernel), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "for the sku h200"), nullptr) << kw_last_error();
  const auto refused = [&](const auto& set, const char* reason) {
    kw_tune_options tuning{};
    tuning.struct_size = sizeof tuning;
    set(tuning);
    EXPECT_EQ(kw_tune(service, "vector_add n=1000 dtype=fp32", &tuning, &kernel), -1);
    EXPECT_NE(std::strstr(kw_last_error(), reason), nullptr) << kw_last_error();
    EXPECT_EQ(kw_last_error_code(), KW_INVALID_ARGUMENT);
  };
  refused([](kw_tune_options& o) { o.struct_size = 1; }, "kw_tune_options.struct_size is 1; set");
  refused([](kw_tune_options& o) { o.seconds = -1; },
          "kw_tune_options.seconds is -1; it must be 0 or more");
  refused([](kw_tune_options& o) { o.seconds = std::nan(""); }, "kw_tune_options.seconds is nan");
  refused([](kw_tune_options& o) { o.trials = -2; },
          "kw_tune_options.trials is -2; it must be 0 or more");
  refused([](kw_tune_options& o) { o.strategy = "portfolo"; },
          "no strategy \"portfolo\" (did you mean portfolio?)");
  for (const char* problem : {"", "vector_add", "vector_add n=many dtype=fp32", "= =", "\xff"}) {
    EXPECT_EQ(kw_tune(service, problem, nullptr, &kernel), -1) << problem;
    EXPECT_EQ(kw_get_best_kernel(service, problem, &kernel), -1) << problem;
    EXPECT_EQ(kw_last_error_code(), KW_INVALID_ARGUMENT) << kw_last_error();
    EXPECT_EQ(kw_prewarm(service, &problem, 1), -1) << problem;
    EXPECT_STRNE(kw_last_error(), "");
  }
  EXPECT_EQ(kernel, nullptr);
  kw_close(service);
}

TEST_F(CApiKernelTest, ABakedLaunchTakesOtherTensors) {
  kw_baked* baked = nullptr;
  ASSERT_EQ(kw_bake(kernel_, kTensors, 2, nullptr, 0, &baked), 0) << kw_last_error();
  const void* const swapped[] = {kTensors[1], kTensors[0]};
  EXPECT_EQ(kw_rebind(baked, swapped, 2, nullptr, 0), 0) << kw_last_error();
  ASSERT_EQ(kw_launch_baked(baked, nullptr), 0) << kw_last_error();
  const auto& nodes = driver_.executables[driver_.graph_launches.back()];
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_EQ(nodes[0].value(1), kX);
  EXPECT_EQ(kw_rebind(baked, swapped, 1, nullptr, 0), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "1 and 0 given"), nullptr) << kw_last_error();
  kw_release_baked(baked);
}

TEST(CApiTest, FieldsBeyondTheCallersStructAreNotRead) {
  const ScopedTempDir cache;
  const std::string root = cache.path();
  kw_options options{};
  options.struct_size = offsetof(kw_options, worker);
  options.cache = root.c_str();
  options.sku = "h200";
  options.worker = reinterpret_cast<const char*>(16);  // behind the end of an older, smaller struct
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  kw_close(service);
}

TEST(CApiTest, ATuningTakesAnOlderStructAndTellsTheSizeOfItsOwn) {
  kw_tune_options options{};
  options.struct_size = offsetof(kw_tune_options, progress);
  options.trials = 7;
  EXPECT_FALSE(c_api::read_options(&options)->seconds) << "0 is the default";
  options.seconds = 2;
  EXPECT_EQ(c_api::read_options(&options)->seconds, 2);
  options.data = reinterpret_cast<void*>(16);  // behind the end of an older, smaller struct
  EXPECT_EQ(c_api::read_options(&options)->trials, 7);
  EXPECT_FALSE(c_api::read_options(&options)->progress);
  kw_tune_progress seen{};
  options.struct_size = sizeof options;
  options.data = &seen;
  options.progress = [](void* data, const kw_tune_progress* at) {
    *static_cast<kw_tune_progress*>(data) = *at;
  };
  c_api::read_options(&options)->progress({.candidates = 9, .measured = 3});
  EXPECT_EQ(seen.struct_size, sizeof(kw_tune_progress));
  EXPECT_EQ(seen.candidates, 9);
  EXPECT_EQ(seen.measured, 3);
}

TEST(CApiTest, AProblemIsParsedOnceForManyLookups) {
  SkuOptions options;
  ASSERT_TRUE(RecordStore(options.folder.path()).put(known_win()));
  options.on_miss = "fail";
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  kw_problem* problem = nullptr;
  EXPECT_EQ(kw_parse_problem("vector_add n", &problem), -1);
  EXPECT_EQ(kw_last_error_code(), KW_INVALID_ARGUMENT);
  ASSERT_EQ(kw_parse_problem("vector_add n=1000 dtype=fp32", &problem), 0) << kw_last_error();
  kw_kernel* kernel = nullptr;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(kw_find_kernel(service, problem, nullptr, &kernel), -1);
    EXPECT_EQ(kw_last_error_code(), KW_NOT_FOUND) << kw_last_error();
  }
  EXPECT_EQ(kw_find_and_launch(service, problem, nullptr, nullptr, 0, nullptr, 0, nullptr), -1);
  EXPECT_EQ(kw_last_error_code(), KW_NOT_FOUND) << kw_last_error();
  kw_release_problem(problem);
  kw_close(service);
}

TEST(CApiTest, AProblemFollowsFromTensorsWithoutAService) {
  const long long sizes[] = {4, 64};
  const long long strides[] = {64, 1};
  kw_tensor tensor{};
  tensor.name = "x";
  tensor.dtype = "bf16";
  tensor.ndim = 2;
  tensor.extent = sizes;
  tensor.strides = strides;
  kw_text* text = nullptr;
  ASSERT_EQ(kw_bind(nullptr, "rmsnorm", &tensor, 1, nullptr, 0, &text), 0) << kw_last_error();
  const auto json = nlohmann::json::parse(kw_characters(text));
  kw_release_text(text);
  EXPECT_EQ(json["problem"], "rmsnorm rows=4 columns=64 dtype=bf16 weight=none");
  EXPECT_EQ(json["refusal"], "");
  EXPECT_EQ(json["made"][0]["extent"], nlohmann::json::array({4, 64}));

  tensor.dtype = "bf17";
  EXPECT_EQ(kw_bind(nullptr, "rmsnorm", &tensor, 1, nullptr, 0, &text), -1);
  EXPECT_STREQ(kw_last_error(), "kw_bind: tensors[0]: bf17 is no dtype");
  tensor.dtype = nullptr;
  const char* const none = nullptr;
  EXPECT_EQ(kw_bind(nullptr, "rmsnorm", &tensor, 1, &none, 1, &text), -1);
  EXPECT_STREQ(kw_last_error(), "kw_bind: scalars[0] is null");
  const size_t order[] = {2, 0};
  tensor.order = order;
  EXPECT_EQ(kw_bind(nullptr, "rmsnorm", &tensor, 1, nullptr, 0, &text), -1);
  EXPECT_STREQ(kw_last_error(), "kw_bind: tensors[0]: order has axis 2 of 2");

  ASSERT_EQ(kw_describe_operation("rmsnorm", &text), 0) << kw_last_error();
  EXPECT_NE(std::strstr(kw_characters(text), "columns"), nullptr);
  kw_release_text(text);
  EXPECT_EQ(kw_describe_operation("vector_subtract", &text), -1);
  EXPECT_EQ(kw_last_error_code(), KW_NOT_FOUND);
}

TEST(CApiToolkitTest, AKernelIsFoundAndLaunchedByTheHandleOfItsProblem) {
  if (const Result<std::string> toolkit = make_toolkit_compiler()->identity(); !toolkit) {
    GTEST_SKIP() << toolkit.error().message;
  }
  SkuOptions options;
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  kw_problem* problem = nullptr;
  ASSERT_EQ(kw_parse_problem("vector_add n=1000 dtype=fp32", &problem), 0) << kw_last_error();
  kw_kernel* kernel = nullptr;
  ASSERT_EQ(kw_find_kernel(service, problem, nullptr, &kernel), 0) << kw_last_error();
  EXPECT_EQ(nlohmann::json::parse(kw_describe(kernel))["problem"], "vector_add n=1000 dtype=fp32");
  kw_release(kernel);
  const auto launch = [&](std::size_t count) {
    const void* const tensors[] = {&options, &options, &options};
    return kw_find_and_launch(service, problem, nullptr, tensors, count, nullptr, 0, nullptr);
  };
  EXPECT_EQ(launch(2), -1);
  EXPECT_EQ(kw_last_error_code(), KW_INVALID_ARGUMENT) << kw_last_error();
  EXPECT_EQ(launch(3), -1);
  EXPECT_EQ(kw_last_error_code(), KW_UNAVAILABLE) << "it is launched, without a GPU";
  kw_release_problem(problem);
  kw_close(service);
}

TEST(CApiToolkitTest, AKernelIsFoundByTheSizesOfTensors) {
  if (const Result<std::string> toolkit = make_toolkit_compiler()->identity(); !toolkit) {
    GTEST_SKIP() << toolkit.error().message;
  }
  SkuOptions options;
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  const long long first[] = {1000, 1};
  kw_tensor tensors[2]{};
  for (kw_tensor& tensor : tensors) {
    tensor.dtype = "fp32";
    tensor.ndim = 1;
    tensor.extent = first;
    tensor.strides = first + 1;
  }
  tensors[0].name = "a";
  tensors[1].name = "b";
  kw_pattern* pattern = nullptr;
  ASSERT_EQ(kw_make_pattern(service, "vector_add", tensors, 2, nullptr, 0, &pattern), 0)
      << kw_last_error();
  ASSERT_NE(pattern, nullptr);

  const auto find = [&](const std::vector<long long>& numbers, long long& made, int& follows) {
    kw_kernel* kernel = nullptr;
    EXPECT_EQ(kw_find_by_pattern(service, pattern, numbers.data(), numbers.size(), &made, 1,
                                 &follows, &kernel),
              0)
        << kw_last_error();
    return kernel;
  };
  long long made = 0;
  int follows = 0;
  EXPECT_EQ(find({2048, 1, 2048, 1}, made, follows), nullptr) << "it is not in memory";
  EXPECT_EQ(follows, 1);
  EXPECT_EQ(made, 2048);
  kw_kernel* kernel = nullptr;
  ASSERT_EQ(kw_get_best_kernel(service, "vector_add n=2048 dtype=fp32", &kernel), 0)
      << kw_last_error();
  kw_release(kernel);
  kernel = find({2048, 1, 2048, 1}, made, follows);
  ASSERT_NE(kernel, nullptr);
  EXPECT_STREQ(kw_problem_of(kernel), "vector_add n=2048 dtype=fp32");
  kw_release(kernel);
  for (const std::vector<long long>& numbers : std::vector<std::vector<long long>>{
           {2048, 1, 2047, 1}, {2048, 2, 2048, 1}, {2048, 1, 2048}, {}}) {
    EXPECT_EQ(find(numbers, made, follows), nullptr);
    EXPECT_EQ(follows, 0);
  }
  const long long numbers[] = {2048, 1, 2048, 1};
  EXPECT_EQ(kw_find_by_pattern(service, pattern, numbers, 4, nullptr, 0, &follows, &kernel), -1);
  EXPECT_STREQ(kw_last_error(), "kw_find_by_pattern: made_count is 0, and 1 expected");
  tensors[1].name = "c";
  EXPECT_EQ(kw_make_pattern(service, "vector_add", tensors, 2, nullptr, 0, &pattern), -1);
  kw_release_pattern(pattern);
  kw_close(service);
}

TEST(CApiTest, AServiceOpensUnderAnyLocaleOfTheHost) {
  const CommaLocale locale;
  if (!locale.missing().empty()) GTEST_SKIP() << locale.missing();
  const ScopedTempDir cache;
  const std::string root = cache.path();
  for (const char* sku : {"h200", "b200", "a100_80", "rtx_4090"}) {
    kw_options options{};
    options.struct_size = sizeof options;
    options.cache = root.c_str();
    options.sku = sku;
    kw_service* service = nullptr;
    ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
    kw_close(service);
  }
}

TEST(CApiTest, FieldsThatTheLibraryDoesNotKnowAreRefusedUnlessTheyAreZero) {
  const ScopedTempDir cache;
  const std::string root = cache.path();
  struct {
    kw_options known{};
    std::size_t later = 0;
  } newer;
  newer.known.struct_size = sizeof newer;
  newer.known.cache = root.c_str();
  newer.known.sku = "h200";
  kw_service* service = nullptr;
  EXPECT_EQ(kw_open(&newer.known, &service), 0) << kw_last_error();
  kw_close(service);
  newer.later = 1;
  EXPECT_EQ(kw_open(&newer.known, &service), -1);
  EXPECT_EQ(kw_last_error(), "kw_options has fields set that kernwright " +
                                 std::string(kw_version()) + " does not know: struct_size is " +
                                 std::to_string(sizeof newer) + ", it knows " +
                                 std::to_string(sizeof newer.known) + " bytes");
}

TEST(CApiTest, AServiceThatOnlyServesTellsWhatItLacksAndCounts) {
  SkuOptions options;
  const ScopedTempDir bundle;
  const ScopedTempDir own_templates;
  const std::string layer = bundle.path();
  const std::string templates = own_templates.path();
  const char* const layers[] = {layer.c_str()};
  const char* const folders[] = {templates.c_str(), nullptr};
  options.min_match = "good";
  kw_service* service = nullptr;
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_STREQ(kw_last_error(),
               "kw_options.min_match is \"good\"; it must be exact, recheck, seed, bucket, "
               "predicted or none");
  options.min_match = "recheck";
  options.read_only_cache_count = 1;
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_STREQ(kw_last_error(), "kw_options.read_only_caches is null; 1 are counted");
  options.read_only_caches = layers;
  options.template_dirs = folders;
  options.template_dir_count = 2;
  EXPECT_EQ(kw_open(&options, &service), -1);
  EXPECT_STREQ(kw_last_error(), "kw_options.template_dirs[1] is null");
  options.template_dir_count = 1;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();

  const char* const problems[] = {"vector_add n=1000 dtype=fp32", "vector_add n=2000 dtype=fp32"};
  EXPECT_EQ(kw_prewarm(service, problems, 2), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "2 of 2 problems cannot be served"), nullptr)
      << kw_last_error();
  EXPECT_NE(std::strstr(kw_last_error(), "n=2000"), nullptr) << kw_last_error();
  kw_text* counts = nullptr;
  ASSERT_EQ(kw_lookup_counts(service, &counts), 0) << kw_last_error();
  const char* const gap[] = {"vector_add n=1000 dtype=fp32", nullptr};
  EXPECT_EQ(kw_prewarm(service, gap, 2), -1);
  EXPECT_STREQ(kw_last_error(), "kw_prewarm: problems[1] is null");

  const std::string file = (options.folder.path() / "shapes.jsonl").string();
  EXPECT_EQ(kw_record_shapes(service, file.c_str()), 0) << kw_last_error();
  EXPECT_EQ(kw_record_shapes(service, nullptr), 0) << kw_last_error();
  EXPECT_EQ(kw_autotune(service, -1), -1);
  EXPECT_STREQ(kw_last_error(), "kw_autotune: seconds must be 0 or more");
  EXPECT_EQ(kw_autotune(service, 0), 0) << kw_last_error();
  kw_text* metrics = nullptr;
  ASSERT_EQ(kw_metrics(service, &metrics), 0) << kw_last_error();
  EXPECT_NE(std::strstr(kw_characters(metrics), "\nkernwright_ready 0\n"), nullptr)
      << kw_characters(metrics);
  kw_release_text(metrics);

  EXPECT_EQ(kw_seal(service, "gently"), -1);
  EXPECT_STREQ(kw_last_error(), "kw_seal: mode is \"gently\"; it must be error or warning");
  for (const char* mode : {"warning", "error", static_cast<const char*>(nullptr)}) {
    EXPECT_EQ(kw_seal(service, mode), 0) << kw_last_error();
  }
  kw_close(service);
  EXPECT_STREQ(kw_characters(counts), R"([{"match":"none","reason":"absent","count":2}])")
      << "a text outlives later calls and the service";
  kw_release_text(counts);
}

TEST(CApiTest, ARecordIsGivenInEitherForm) {
  SkuOptions options;
  ASSERT_TRUE(RecordStore(options.folder.path()).put(known_win()));
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  const char* problem = "matmul m=16 n=4096 k=4096 dtype=bf16";
  kw_text* record = nullptr;
  for (const char* form : {static_cast<const char*>(nullptr), "json"}) {
    ASSERT_EQ(kw_record(service, problem, form, &record), 0) << kw_last_error();
    EXPECT_EQ(nlohmann::json::parse(kw_characters(record))["verdict"], "win");
    kw_release_text(record);
  }
  ASSERT_EQ(kw_record(service, problem, "html", &record), 0) << kw_last_error();
  EXPECT_NE(std::strstr(kw_characters(record), "<svg "), nullptr) << kw_characters(record);
  kw_release_text(record);
  EXPECT_EQ(kw_record(service, problem, "pdf", &record), -1);
  EXPECT_STREQ(kw_last_error(), "kw_record: form is \"pdf\"; it must be json or html");
  EXPECT_EQ(kw_record(service, "matmul m=1 n=8 k=8 dtype=bf16", "json", &record), -1);
  EXPECT_STREQ(kw_last_error(), "no record for matmul m=1 n=8 k=8 dtype=bf16 on h200");
  kw_close(service);
}

TEST(CApiTest, WarningsGoToTheCallersFunction) {
  SkuOptions options;
  std::string heard;
  options.log_data = &heard;
  options.log = [](void* data, int level, const char* message) {
    static_cast<std::string*>(data)->append(std::to_string(level) + " " + message);
  };
  const ServiceOptions read = must(c_api::read_options(&options));
  read.log(LogLevel::warning, "record not stored");
  EXPECT_EQ(heard, std::to_string(KW_LOG_WARNING) + " record not stored");
}

TEST(CApiTest, TheHeadersVersionIsTheLibrarys) {
  EXPECT_STREQ(KERNWRIGHT_VERSION_STRING, kw_version());
  const std::string parts = std::to_string(KERNWRIGHT_VERSION_MAJOR) + "." +
                            std::to_string(KERNWRIGHT_VERSION_MINOR) + "." +
                            std::to_string(KERNWRIGHT_VERSION_PATCH);
  EXPECT_EQ(parts, kw_version());
}

TEST(CApiGpuTest, TheWorkerIsThatOfTheOptionsUnlessMeasuringInProcess) {
  if (const auto gpu = describe_cuda_device(0); !gpu) GTEST_SKIP() << gpu.error().message;
  const ScopedTempDir cache;
  const std::string root = cache.path();
  kw_options options{};
  options.struct_size = sizeof options;
  options.cache = root.c_str();
  options.worker = "/nowhere/kernwright";
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  kw_kernel* kernel = nullptr;
  const char* problem = "vector_add n=1000 dtype=fp32";
  std::vector<kw_tune_progress> told;
  kw_tune_options tuning{};
  tuning.struct_size = sizeof tuning;
  tuning.trials = 2;
  tuning.strategy = "ranked";
  tuning.data = &told;
  tuning.progress = [](void* data, const kw_tune_progress* progress) {
    static_cast<std::vector<kw_tune_progress>*>(data)->push_back(*progress);
  };
  EXPECT_EQ(kw_tune(service, problem, &tuning, &kernel), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "/nowhere/kernwright"), nullptr) << kw_last_error();
  kw_close(service);

  options.measure_in_process = 1;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  ASSERT_EQ(kw_tune(service, problem, &tuning, &kernel), 0) << kw_last_error();
  ASSERT_FALSE(told.empty());
  EXPECT_GT(told.back().measured, 0);
  EXPECT_LE(told.back().measured, 2);
  EXPECT_LE(told.back().measured, told.back().candidates);
  EXPECT_GT(told.back().best_us, 0);
  EXPECT_NE(std::strstr(kw_describe(kernel), "\"match\":\"exact\""), nullptr)
      << kw_describe(kernel);
  kw_release(kernel);
  kw_close(service);
}

TEST(CApiToolkitTest, AKernelIsPredictedAndDescribedForASku) {
  if (const Result<std::string> toolkit = make_toolkit_compiler()->identity(); !toolkit) {
    GTEST_SKIP() << toolkit.error().message;
  }
  SkuOptions options;
  kw_service* service = nullptr;
  ASSERT_EQ(kw_open(&options, &service), 0) << kw_last_error();
  kw_kernel* kernel = nullptr;
  ASSERT_EQ(kw_get_best_kernel(service, "vector_add n=1000 dtype=fp32", &kernel), 0)
      << kw_last_error();
  kw_close(service);

  const nlohmann::json description = nlohmann::json::parse(kw_describe(kernel));
  EXPECT_EQ(description["problem"], "vector_add n=1000 dtype=fp32");
  EXPECT_EQ(description["match"], "predicted");
  EXPECT_TRUE(description["best_path"].is_null());
  ASSERT_EQ(description["arguments"].size(), 3U);
  EXPECT_EQ(description["arguments"][2]["output"], true);
  EXPECT_EQ(description["arguments"][0]["extent"][0], 1000);
  EXPECT_EQ(kw_workspace_bytes(kernel), 0U);

  const void* tensors[3] = {};
  EXPECT_EQ(kw_launch(kernel, nullptr, tensors, 3, nullptr, 0, nullptr), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "without a GPU"), nullptr) << kw_last_error();
  EXPECT_EQ(kw_launch_checked(kernel, nullptr, tensors, 3, nullptr, 0, nullptr), -1);
  kw_baked* baked = nullptr;
  EXPECT_EQ(kw_bake(kernel, tensors, 3, nullptr, 0, &baked), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "without a GPU"), nullptr) << kw_last_error();
  EXPECT_EQ(baked, nullptr);

  kw_chain_builder* builder = nullptr;
  ASSERT_EQ(kw_chain_begin(&builder), 0);
  size_t buffer = 9;
  ASSERT_EQ(kw_chain_buffer(builder, 4000, &buffer), 0);
  EXPECT_EQ(buffer, 0U);
  kw_chain_arg arguments[3] = {};
  arguments[2].kind = KW_BUFFER;
  EXPECT_EQ(kw_chain_add(builder, kernel, arguments, 3), 0) << kw_last_error();
  arguments[2].kind = 7;
  EXPECT_EQ(kw_chain_add(builder, kernel, arguments, 3), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "kw_chain_arg.kind is 7"), nullptr) << kw_last_error();
  kw_chain* chain = nullptr;
  EXPECT_EQ(kw_chain_build(builder, &chain), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "without a GPU"), nullptr) << kw_last_error();
  EXPECT_EQ(chain, nullptr);
  kw_chain_end(builder);
  kw_release(kernel);
}

}  // namespace
}  // namespace kernwright
