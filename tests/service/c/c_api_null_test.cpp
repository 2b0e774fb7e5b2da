#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/files/embedded_files.h"
#include "support/text.h"
#include "tests/service/c/c_kernel_fixture.h"
#include "tests/temp_dir.h"

namespace kernwright {

std::span<const EmbeddedFile> embedded_c_header();

namespace {

/// A function and one of its pointers.
using Pointer = std::pair<std::string, std::string>;

/// Returns the pointers of kernwright/c.h, in its order: every parameter that is written with a
/// star, or that is the `stream`.
std::vector<Pointer> declared_pointers() {
  std::string text;
  for (const EmbeddedFile& file : embedded_c_header()) text += file.content;
  text = std::regex_replace(text, std::regex(R"(/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)"), "");
  std::vector<Pointer> pointers;
  const std::regex function(R"((kw_\w+)\(([^()]*)\);)");
  const std::regex parameter(R"(\*\s*(\w+)\s*(?:,|$))");
  for (std::sregex_iterator i(text.begin(), text.end(), function), end; i != end; ++i) {
    const std::string parameters = (*i)[2];
    for (std::sregex_iterator j(parameters.begin(), parameters.end(), parameter); j != end; ++j) {
      pointers.emplace_back((*i)[1], (*j)[1]);
    }
  }
  return pointers;
}

/// Returns the pointers that may be null, with what that means.
const std::set<Pointer>& optional_pointers() {
  static const std::set<Pointer> optional{
      {"kw_open", "options"},               // all defaults
      {"kw_close", "service"},              // nothing to do
      {"kw_tune", "options"},               // all defaults
      {"kw_bind", "service"},               // a built-in operation
      {"kw_record_shapes", "file"},         // ends the recording
      {"kw_seal", "mode"},                  // error
      {"kw_record", "form"},                // json
      {"kw_release", "kernel"},             // nothing to do
      {"kw_release_problem", "problem"},    // nothing to do
      {"kw_release_text", "text"},          // nothing to do
      {"kw_release_pattern", "pattern"},    // nothing to do
      {"kw_release_baked", "baked"},        // nothing to do
      {"kw_release_chain", "chain"},        // nothing to do
      {"kw_chain_end", "builder"},          // nothing to do
      {"kw_get_best_kernel_on", "stream"},  // the default stream
      {"kw_find_kernel", "stream"},         // the default stream
      {"kw_find_and_launch", "stream"},     // the default stream
      {"kw_launch", "stream"},              // the default stream
      {"kw_launch_checked", "stream"},      // the default stream
      {"kw_launch_baked", "stream"},        // the default stream
      {"kw_launch_chain", "stream"},        // the default stream
      {"kw_tune_chain", "stream"},          // the default stream
      {"kw_add_to_capture", "stream"},      // which is in no capture: the driver says so
      {"kw_add_chain_to_capture", "stream"},
      {"kw_find_and_launch", "workspace"},  // one of the pool
      {"kw_launch", "workspace"},           // one of the pool
      {"kw_launch_checked", "workspace"},   // one of the pool
      {"kw_chain_parameter", "address"},    // refused when the chain is built
  };
  return optional;
}

/// Objects of every kind, over a driver that runs nothing.
class CApiNullTest : public CKernelFixture {
 protected:
  CApiNullTest() {
    root_ = cache_.path();
    kw_options options{};
    options.struct_size = sizeof options;
    options.cache = root_.c_str();
    options.sku = "h200";
    EXPECT_EQ(kw_open(&options, &service_), 0) << kw_last_error();
    EXPECT_EQ(kw_parse_problem("vector_add n=1000 dtype=fp32", &problem_), 0) << kw_last_error();
    kw_tensor x{};
    x.name = "x";
    x.dtype = "bf16";
    x.ndim = 1;
    x.extent = x.strides = kNumbers;
    EXPECT_EQ(kw_make_pattern(service_, "elementwise formula=x", &x, 1, nullptr, 0, &pattern_), 0)
        << kw_last_error();
    EXPECT_EQ(kw_bake(kernel_, kTensors, 2, nullptr, 0, &baked_), 0) << kw_last_error();
    EXPECT_EQ(kw_chain_begin(&builder_), 0) << kw_last_error();
    for (std::size_t i = 0; i < 2; ++i) arguments_[i].pointer = kTensors[i];
    EXPECT_EQ(kw_chain_add(builder_, kernel_, arguments_, 2), 0) << kw_last_error();
    EXPECT_EQ(kw_chain_build(builder_, &chain_), 0) << kw_last_error();
  }
  ~CApiNullTest() override {
    kw_release_chain(chain_);
    kw_chain_end(builder_);
    kw_release_baked(baked_);
    kw_release_pattern(pattern_);
    kw_release_problem(problem_);
    kw_close(service_);
  }

  static int find_and_launch(kw_service* service, const kw_problem* problem,
                             const void* const* tensors, std::size_t scalars) {
    return kw_find_and_launch(service, problem, nullptr, tensors, 2, nullptr, scalars, nullptr);
  }

  static constexpr long long kNumbers[] = {1, 1};
  int find_by_pattern(kw_service* service, const kw_pattern* pattern, const long long* numbers,
                      long long* made, int* follows) {
    return kw_find_by_pattern(service, pattern, numbers, 2, made, 1, follows, &out_kernel_);
  }

  /// Every call with one pointer null that must not be, and all others in order.
  std::map<Pointer, std::function<int()>> calls() {
    const auto size = [](std::size_t bytes) {
      return bytes == static_cast<std::size_t>(-1) ? -1 : 0;
    };
    const auto text = [](const char* given) { return given == nullptr ? -1 : 0; };
    const char* const problem = "vector_add n=1000 dtype=fp32";
    return {
        {{"kw_open", "service"}, [] { return kw_open(nullptr, nullptr); }},
        {{"kw_get_best_kernel", "service"},
         [=, this] { return kw_get_best_kernel(nullptr, problem, &out_kernel_); }},
        {{"kw_get_best_kernel", "problem"},
         [this] { return kw_get_best_kernel(service_, nullptr, &out_kernel_); }},
        {{"kw_get_best_kernel", "kernel"},
         [=, this] { return kw_get_best_kernel(service_, problem, nullptr); }},
        {{"kw_get_best_kernel_on", "service"},
         [=, this] { return kw_get_best_kernel_on(nullptr, problem, nullptr, &out_kernel_); }},
        {{"kw_get_best_kernel_on", "problem"},
         [this] { return kw_get_best_kernel_on(service_, nullptr, nullptr, &out_kernel_); }},
        {{"kw_get_best_kernel_on", "kernel"},
         [=, this] { return kw_get_best_kernel_on(service_, problem, nullptr, nullptr); }},
        {{"kw_parse_problem", "text"}, [this] { return kw_parse_problem(nullptr, &problem_); }},
        {{"kw_parse_problem", "problem"}, [=] { return kw_parse_problem(problem, nullptr); }},
        {{"kw_find_kernel", "service"},
         [this] { return kw_find_kernel(nullptr, problem_, nullptr, &out_kernel_); }},
        {{"kw_find_kernel", "problem"},
         [this] { return kw_find_kernel(service_, nullptr, nullptr, &out_kernel_); }},
        {{"kw_find_kernel", "kernel"},
         [this] { return kw_find_kernel(service_, problem_, nullptr, nullptr); }},
        {{"kw_find_and_launch", "service"},
         [this] { return find_and_launch(nullptr, problem_, kTensors, 0); }},
        {{"kw_find_and_launch", "problem"},
         [this] { return find_and_launch(service_, nullptr, kTensors, 0); }},
        {{"kw_find_and_launch", "tensors"},
         [this] { return find_and_launch(service_, problem_, nullptr, 0); }},
        {{"kw_find_and_launch", "scalars"},
         [this] { return find_and_launch(service_, problem_, kTensors, 1); }},
        {{"kw_characters", "text"}, [=] { return text(kw_characters(nullptr)); }},
        {{"kw_get_best_kernels", "service"},
         [=, this] { return kw_get_best_kernels(nullptr, problem, &out_kernel_, 1, &out_slot_); }},
        {{"kw_get_best_kernels", "problem"},
         [this] { return kw_get_best_kernels(service_, nullptr, &out_kernel_, 1, &out_slot_); }},
        {{"kw_get_best_kernels", "kernels"},
         [=, this] { return kw_get_best_kernels(service_, problem, nullptr, 1, &out_slot_); }},
        {{"kw_get_best_kernels", "found"},
         [=, this] { return kw_get_best_kernels(service_, problem, &out_kernel_, 1, nullptr); }},
        {{"kw_bind", "options"},
         [this] { return kw_bind(service_, nullptr, nullptr, 0, nullptr, 0, &out_text_); }},
        {{"kw_bind", "tensors"},
         [this] { return kw_bind(service_, "argmax", nullptr, 1, nullptr, 0, &out_text_); }},
        {{"kw_bind", "scalars"},
         [this] { return kw_bind(service_, "argmax", nullptr, 0, nullptr, 1, &out_text_); }},
        {{"kw_bind", "binding"},
         [this] { return kw_bind(service_, "argmax", nullptr, 0, nullptr, 0, nullptr); }},
        {{"kw_make_pattern", "service"},
         [this] { return kw_make_pattern(nullptr, "argmax", nullptr, 0, nullptr, 0, &pattern_); }},
        {{"kw_make_pattern", "options"},
         [this] { return kw_make_pattern(service_, nullptr, nullptr, 0, nullptr, 0, &pattern_); }},
        {{"kw_make_pattern", "tensors"},
         [this] { return kw_make_pattern(service_, "argmax", nullptr, 1, nullptr, 0, &pattern_); }},
        {{"kw_make_pattern", "scalars"},
         [this] { return kw_make_pattern(service_, "argmax", nullptr, 0, nullptr, 1, &pattern_); }},
        {{"kw_make_pattern", "pattern"},
         [this] { return kw_make_pattern(service_, "argmax", nullptr, 0, nullptr, 0, nullptr); }},
        {{"kw_find_by_pattern", "service"},
         [this] { return find_by_pattern(nullptr, pattern_, kNumbers, made_, &follows_); }},
        {{"kw_find_by_pattern", "pattern"},
         [this] { return find_by_pattern(service_, nullptr, kNumbers, made_, &follows_); }},
        {{"kw_find_by_pattern", "numbers"},
         [this] { return find_by_pattern(service_, pattern_, nullptr, made_, &follows_); }},
        {{"kw_find_by_pattern", "made"},
         [this] { return find_by_pattern(service_, pattern_, kNumbers, nullptr, &follows_); }},
        {{"kw_find_by_pattern", "follows"},
         [this] { return find_by_pattern(service_, pattern_, kNumbers, made_, nullptr); }},
        {{"kw_find_by_pattern", "kernel"},
         [this] {
           return kw_find_by_pattern(service_, pattern_, kNumbers, 2, made_, 1, &follows_, nullptr);
         }},
        {{"kw_problem_of", "kernel"}, [=] { return text(kw_problem_of(nullptr)); }},
        {{"kw_describe_operation", "operation"},
         [this] { return kw_describe_operation(nullptr, &out_text_); }},
        {{"kw_describe_operation", "description"},
         [] { return kw_describe_operation("argmax", nullptr); }},
        {{"kw_tune", "service"},
         [=, this] { return kw_tune(nullptr, problem, nullptr, &out_kernel_); }},
        {{"kw_tune", "problem"},
         [this] { return kw_tune(service_, nullptr, nullptr, &out_kernel_); }},
        {{"kw_tune", "kernel"}, [=, this] { return kw_tune(service_, problem, nullptr, nullptr); }},
        {{"kw_stop_tuning", "service"}, [] { return kw_stop_tuning(nullptr); }},
        {{"kw_prewarm", "service"}, [&] { return kw_prewarm(nullptr, nullptr, 0); }},
        {{"kw_prewarm", "problems"}, [this] { return kw_prewarm(service_, nullptr, 1); }},
        {{"kw_prewarm_worklist", "service"}, [] { return kw_prewarm_worklist(nullptr, "f"); }},
        {{"kw_prewarm_worklist", "file"},
         [this] { return kw_prewarm_worklist(service_, nullptr); }},
        {{"kw_record_shapes", "service"}, [] { return kw_record_shapes(nullptr, "f"); }},
        {{"kw_autotune", "service"}, [] { return kw_autotune(nullptr, 1); }},
        {{"kw_seal", "service"}, [] { return kw_seal(nullptr, nullptr); }},
        {{"kw_metrics", "service"}, [this] { return kw_metrics(nullptr, &out_text_); }},
        {{"kw_record", "service"}, [this] { return kw_record(nullptr, "p", nullptr, &out_text_); }},
        {{"kw_record", "problem"},
         [this] { return kw_record(service_, nullptr, nullptr, &out_text_); }},
        {{"kw_record", "record"}, [this] { return kw_record(service_, "p", nullptr, nullptr); }},
        {{"kw_metrics", "metrics"}, [this] { return kw_metrics(service_, nullptr); }},
        {{"kw_lookup_counts", "service"}, [this] { return kw_lookup_counts(nullptr, &out_text_); }},
        {{"kw_lookup_counts", "counts"}, [this] { return kw_lookup_counts(service_, nullptr); }},
        {{"kw_workspace_bytes", "kernel"}, [=] { return size(kw_workspace_bytes(nullptr)); }},
        {{"kw_describe", "kernel"}, [=] { return text(kw_describe(nullptr)); }},
        {{"kw_launch", "kernel"},
         [] { return kw_launch(nullptr, nullptr, kTensors, 2, nullptr, 0, nullptr); }},
        {{"kw_launch", "tensors"},
         [this] { return kw_launch(kernel_, nullptr, nullptr, 2, nullptr, 0, nullptr); }},
        {{"kw_launch", "scalars"},
         [this] { return kw_launch(kernel_, nullptr, kTensors, 2, nullptr, 1, nullptr); }},
        {{"kw_launch_checked", "kernel"},
         [] { return kw_launch_checked(nullptr, nullptr, kTensors, 2, nullptr, 0, nullptr); }},
        {{"kw_launch_checked", "tensors"},
         [this] { return kw_launch_checked(kernel_, nullptr, nullptr, 2, nullptr, 0, nullptr); }},
        {{"kw_launch_checked", "scalars"},
         [this] { return kw_launch_checked(kernel_, nullptr, kTensors, 2, nullptr, 1, nullptr); }},
        {{"kw_bake", "kernel"},
         [this] { return kw_bake(nullptr, kTensors, 2, nullptr, 0, &out_baked_); }},
        {{"kw_bake", "tensors"},
         [this] { return kw_bake(kernel_, nullptr, 2, nullptr, 0, &out_baked_); }},
        {{"kw_bake", "scalars"},
         [this] { return kw_bake(kernel_, kTensors, 2, nullptr, 1, &out_baked_); }},
        {{"kw_bake", "baked"},
         [this] { return kw_bake(kernel_, kTensors, 2, nullptr, 0, nullptr); }},
        {{"kw_launch_baked", "baked"}, [] { return kw_launch_baked(nullptr, nullptr); }},
        {{"kw_rebind", "baked"}, [] { return kw_rebind(nullptr, kTensors, 2, nullptr, 0); }},
        {{"kw_rebind", "tensors"}, [this] { return kw_rebind(baked_, nullptr, 2, nullptr, 0); }},
        {{"kw_rebind", "scalars"}, [this] { return kw_rebind(baked_, kTensors, 2, nullptr, 1); }},
        {{"kw_add_to_capture", "baked"}, [] { return kw_add_to_capture(nullptr, nullptr); }},
        {{"kw_chain_begin", "builder"}, [] { return kw_chain_begin(nullptr); }},
        {{"kw_chain_parameter", "builder"},
         [this] { return kw_chain_parameter(nullptr, kTensors[0], &out_slot_); }},
        {{"kw_chain_parameter", "slot"},
         [this] { return kw_chain_parameter(builder_, kTensors[0], nullptr); }},
        {{"kw_chain_buffer", "builder"},
         [this] { return kw_chain_buffer(nullptr, 16, &out_slot_); }},
        {{"kw_chain_buffer", "slot"}, [this] { return kw_chain_buffer(builder_, 16, nullptr); }},
        {{"kw_chain_add", "builder"},
         [this] { return kw_chain_add(nullptr, kernel_, arguments_, 2); }},
        {{"kw_chain_add", "kernel"},
         [this] { return kw_chain_add(builder_, nullptr, arguments_, 2); }},
        {{"kw_chain_add", "arguments"},
         [this] { return kw_chain_add(builder_, kernel_, nullptr, 2); }},
        {{"kw_chain_add_alternatives", "builder"},
         [this] { return kw_chain_add_alternatives(nullptr, &kernel_, 1, arguments_, 2); }},
        {{"kw_chain_add_alternatives", "kernels"},
         [this] { return kw_chain_add_alternatives(builder_, nullptr, 1, arguments_, 2); }},
        {{"kw_chain_add_alternatives", "arguments"},
         [this] { return kw_chain_add_alternatives(builder_, &kernel_, 1, nullptr, 2); }},
        {{"kw_chain_build", "builder"}, [this] { return kw_chain_build(nullptr, &out_chain_); }},
        {{"kw_chain_build", "chain"}, [this] { return kw_chain_build(builder_, nullptr); }},
        {{"kw_launch_chain", "chain"}, [] { return kw_launch_chain(nullptr, nullptr); }},
        {{"kw_rebind_chain", "chain"}, [] { return kw_rebind_chain(nullptr, kTensors, 0); }},
        {{"kw_rebind_chain", "parameters"}, [this] { return kw_rebind_chain(chain_, nullptr, 1); }},
        {{"kw_add_chain_to_capture", "chain"},
         [] { return kw_add_chain_to_capture(nullptr, nullptr); }},
        {{"kw_set_chain_path", "chain"}, [] { return kw_set_chain_path(nullptr, "graph"); }},
        {{"kw_set_chain_path", "path"}, [this] { return kw_set_chain_path(chain_, nullptr); }},
        {{"kw_tune_chain", "chain"}, [] { return kw_tune_chain(nullptr, nullptr); }},
        {{"kw_describe_chain", "chain"}, [=] { return text(kw_describe_chain(nullptr)); }},
    };
  }

  ScopedTempDir cache_;
  std::string root_;
  kw_chain_arg arguments_[2] = {};
  kw_service* service_ = nullptr;
  kw_baked* baked_ = nullptr;
  kw_chain_builder* builder_ = nullptr;
  kw_chain* chain_ = nullptr;
  // The results that no failing call may write.
  kw_kernel* out_kernel_ = nullptr;
  kw_baked* out_baked_ = nullptr;
  kw_chain* out_chain_ = nullptr;
  kw_text* out_text_ = nullptr;
  kw_problem* problem_ = nullptr;
  kw_pattern* pattern_ = nullptr;
  long long made_[1] = {};
  int follows_ = 0;
  std::size_t out_slot_ = 99;
};

TEST_F(CApiNullTest, ANullPointerIsAFailureThatNamesFunctionAndParameter) {
  for (const auto& [pointer, call] : calls()) {
    const auto& [function, parameter] = pointer;
    EXPECT_EQ(call(), -1) << function << ", " << parameter;
    EXPECT_EQ(kw_last_error(), concat(function, ": ", parameter, " is null"));
  }
  EXPECT_EQ(out_kernel_, nullptr);
  EXPECT_EQ(out_baked_, nullptr);
  EXPECT_EQ(out_chain_, nullptr);
  EXPECT_EQ(out_text_, nullptr);
  EXPECT_EQ(out_slot_, 99U);
}

TEST_F(CApiNullTest, EveryPointerOfTheHeaderIsTriedOrSaidToBeOptional) {
  const auto tried = calls();
  const std::vector<Pointer> declared = declared_pointers();
  std::set<Pointer> seen;
  for (const Pointer& pointer : declared) {
    seen.insert(pointer);
    EXPECT_NE(tried.count(pointer), optional_pointers().count(pointer))
        << pointer.first << " has a pointer " << pointer.second
        << " that is neither tried nor optional, or both";
  }
  for (const auto& [pointer, call] : tried) {
    EXPECT_EQ(seen.count(pointer), 1U) << pointer.first << " has no " << pointer.second;
  }
  for (const Pointer& pointer : optional_pointers()) {
    EXPECT_EQ(seen.count(pointer), 1U) << pointer.first << " has no " << pointer.second;
  }
}

TEST_F(CApiNullTest, WhatIsOptionalMayBeNull) {
  kw_close(nullptr);
  kw_release(nullptr);
  kw_release_problem(nullptr);
  kw_release_text(nullptr);
  kw_release_baked(nullptr);
  kw_release_chain(nullptr);
  kw_chain_end(nullptr);
  EXPECT_EQ(kw_launch(kernel_, nullptr, kTensors, 2, nullptr, 0, nullptr), 0) << kw_last_error();
  EXPECT_EQ(kw_launch_checked(kernel_, nullptr, kTensors, 2, nullptr, 0, nullptr), 0)
      << kw_last_error();
  EXPECT_EQ(driver_.pool_memory.size(), 2U) << "a workspace of the pool for each";
  EXPECT_EQ(kw_launch_baked(baked_, nullptr), 0) << kw_last_error();
  EXPECT_EQ(kw_launch_chain(chain_, nullptr), 0) << kw_last_error();
  EXPECT_EQ(kw_prewarm(service_, nullptr, 0), 0) << kw_last_error();
  EXPECT_EQ(kw_rebind_chain(chain_, nullptr, 0), 0) << kw_last_error();
  EXPECT_EQ(kw_add_to_capture(baked_, nullptr), -1);
  EXPECT_NE(std::strstr(kw_last_error(), "not being captured"), nullptr) << kw_last_error();
  std::size_t slot = 99;
  EXPECT_EQ(kw_chain_parameter(builder_, nullptr, &slot), 0) << kw_last_error();
  EXPECT_EQ(slot, 0U);
}

TEST_F(CApiNullTest, NoArrayIsReadBeforeItsLengthIsThatOfTheKernel) {
  constexpr std::size_t kHuge = static_cast<std::size_t>(-1);
  const double scalar = 1;
  const kw_chain_arg argument{};
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3}, kHuge}) {
    EXPECT_EQ(kw_launch(kernel_, nullptr, kTensors, count, nullptr, 0, nullptr), -1) << count;
    const std::string expected = " takes 2 tensors and up to ";
    EXPECT_NE(std::string(kw_last_error()).find(expected), std::string::npos) << kw_last_error();
    EXPECT_EQ(kw_launch_checked(kernel_, nullptr, kTensors, count, nullptr, 0, nullptr), -1);
    EXPECT_EQ(kw_bake(kernel_, kTensors, count, nullptr, 0, &out_baked_), -1) << count;
    EXPECT_EQ(kw_rebind(baked_, kTensors, count, nullptr, 0), -1) << count;
  }
  EXPECT_EQ(kw_launch(kernel_, nullptr, kTensors, 2, &scalar, kHuge, nullptr), -1);
  EXPECT_EQ(kw_launch_checked(kernel_, nullptr, kTensors, 2, &scalar, kHuge, nullptr), -1);
  EXPECT_EQ(kw_bake(kernel_, kTensors, 2, &scalar, kHuge, &out_baked_), -1);
  EXPECT_EQ(kw_rebind(baked_, kTensors, 2, &scalar, kHuge), -1);
  EXPECT_EQ(kw_chain_add(builder_, kernel_, &argument, kHuge), -1);
  EXPECT_EQ(kw_chain_add_alternatives(builder_, &kernel_, kHuge, &argument, 1), -1);
  const char* const problem = "vector_add n=1000 dtype=fp32";
  EXPECT_EQ(kw_prewarm(service_, &problem, kHuge), -1);
  EXPECT_EQ(kw_rebind_chain(chain_, kTensors, kHuge), -1);
  EXPECT_EQ(
      kw_find_by_pattern(service_, pattern_, kNumbers, kHuge, made_, 1, &follows_, &out_kernel_),
      0);
  EXPECT_EQ(follows_, 0);
}

TEST_F(CApiNullTest, ALongTextIsRefusedAtOnce) {
  const std::string name(10 << 20, 'a');
  for (const std::string& problem : {name, name + " n=1", "vector_add n=1 dtype=" + name}) {
    EXPECT_EQ(kw_get_best_kernel(service_, problem.c_str(), &out_kernel_), -1);
    EXPECT_EQ(std::string(kw_last_error()),
              "a problem of " + std::to_string(problem.size()) + " bytes; it may have 65536");
  }
}

}  // namespace
}  // namespace kernwright
