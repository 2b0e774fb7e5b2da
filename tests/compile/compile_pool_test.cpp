#include "compile/compile_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/results.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// Compiles by calling a function; the counters say how often and how many at once.
class FakeCompiler final : public Compiler {
 public:
  using Function = std::function<Result<CompiledKernel>(const CompileRequest&)>;
  explicit FakeCompiler(Function function) : function_(std::move(function)) {}

  Result<std::string> identity() override {
    if (missing) return Error{ErrorCode::unavailable, "no toolkit"};
    return std::string("fake 1.0");
  }
  Result<CompiledKernel> compile(const CompileRequest& request) override {
    ++calls;
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    Result<CompiledKernel> result = function_(request);
    --running;
    return result;
  }
  Result<CompiledKernel> link(const std::vector<std::string>&, const std::string&) override {
    return Error{ErrorCode::unavailable, "the fake compiler does not link"};
  }

  bool missing = false;
  std::atomic<int> calls = 0;
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;

 private:
  Function function_;
};

CompileRequest request_named(std::string source) {
  CompileRequest request;
  request.name = source + ".cu";
  request.source = std::move(source);
  request.target = "sm_90a";
  return request;
}

CompiledKernel kernel_of(const CompileRequest& request) {
  CompiledKernel kernel;
  kernel.bits = request.source;
  return kernel;
}

/// Holds compiles until it is opened.
class Gate {
 public:
  void open() { opened_.count_down(); }
  void pass() { opened_.wait(); }

 private:
  std::latch opened_{1};
};

/// Sources "slow..." wait at the gate, all others are compiled at once.
std::shared_ptr<FakeCompiler> gated(const std::shared_ptr<Gate>& gate) {
  return std::make_shared<FakeCompiler>(
      [gate](const CompileRequest& request) -> Result<CompiledKernel> {
        if (request.source.starts_with("slow")) gate->pass();
        return kernel_of(request);
      });
}

using Builds = std::vector<Build>;

/// Submits the sources "0", "1", ...
Builds submit_numbered(CompilePool& pool, int count) {
  Builds builds;
  builds.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) builds.push_back(pool.submit(request_named(std::to_string(i))));
  return builds;
}

constexpr auto kPatience = 15min;  // however busy the machine is

template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

TEST(CompilePoolTest, GivesEveryRequestItsOwnResult) {
  const auto compiler = std::make_shared<FakeCompiler>(kernel_of);
  CompilePool pool(compiler, {.threads = 3});
  const Builds builds = submit_numbered(pool, 100);
  for (int i = 0; i < 100; ++i) {
    const CompileResult& result = builds[static_cast<std::size_t>(i)].get();
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ((*result)->bits, std::to_string(i));
  }
  EXPECT_EQ(compiler->calls, 100);
  EXPECT_LE(compiler->most, 3);
}

TEST(CompilePoolTest, RunsAsManyCompilesAtOnceAsItHasThreads) {
  const auto together = std::make_shared<std::latch>(5);
  const auto compiler = std::make_shared<FakeCompiler>(
      [together](const CompileRequest& request) -> Result<CompiledKernel> {
        together->arrive_and_wait();
        return kernel_of(request);
      });
  CompilePool pool(compiler, {.threads = 5});
  EXPECT_EQ(pool.threads(), 5);
  for (const Build& build : submit_numbered(pool, 5)) EXPECT_TRUE(build.get());
}

TEST(CompilePoolTest, EqualRequestsInFlightAreCompiledOnce) {
  const auto gate = std::make_shared<Gate>();
  const auto compiler = gated(gate);
  CompilePool pool(compiler, {.threads = 2});
  const auto first = pool.submit(request_named("slow"));
  const auto second = pool.submit(request_named("slow"));
  gate->open();
  ASSERT_TRUE(first.get());
  EXPECT_EQ(*first.get(), *second.get());
  EXPECT_EQ(compiler->calls, 1);
}

TEST(CompilePoolTest, AFailedCompileIsItsErrorAndIsNotKept) {
  const auto compiler =
      std::make_shared<FakeCompiler>([](const CompileRequest&) -> Result<CompiledKernel> {
        return Error{ErrorCode::compile, "line 3: nonsense"};
      });
  CompilePool pool(compiler, {.threads = 1});
  for (int i = 0; i < 2; ++i) {
    const CompileResult result = pool.submit(request_named("bad")).get();
    EXPECT_THAT(result, Fails(ErrorCode::compile, "line 3: nonsense"));
  }
  EXPECT_EQ(compiler->calls, 2);
}

TEST(CompilePoolTest, AnExceptionBecomesAnError) {
  const auto compiler =
      std::make_shared<FakeCompiler>([](const CompileRequest&) -> Result<CompiledKernel> {
        throw std::runtime_error("out of luck");
      });
  CompilePool pool(compiler, {.threads = 1});
  const CompileResult result = pool.submit(request_named("thrower")).get();
  EXPECT_THAT(result, Fails(ErrorCode::internal, "thrower.cu: out of luck"));
}

TEST(CompilePoolTest, PastItsDeadlineACompileIsAbandoned) {
  const auto gate = std::make_shared<Gate>();
  const auto compiler = gated(gate);
  CompilePool pool(compiler, {.threads = 2, .deadline = 2000ms});
  const CompileResult slow = pool.submit(request_named("slow")).get();
  EXPECT_THAT(slow,
              Fails(ErrorCode::timed_out,
                    ::testing::AllOf(
                        HasSubstr("slow.cu"),
                        HasSubstr("2000 ms; a larger KERNWRIGHT_COMPILE_SECONDS allows more"))));

  EXPECT_TRUE(eventually([&] { return pool.submit(request_named("quick")).get().has_value(); }));
  EXPECT_EQ(compiler->running, 1);
  gate->open();
  EXPECT_TRUE(eventually([&] { return compiler->running == 0; }));
  EXPECT_TRUE(eventually([&] { return pool.submit(request_named("later")).get().has_value(); }));
}

TEST(CompilePoolTest, TheDeadlineIsThatOfTheEnvironment) {
  const char* const variable = "KERNWRIGHT_COMPILE_SECONDS";
  const char* const set = std::getenv(variable);
  const std::string before = set == nullptr ? "" : set;
  ::setenv(variable, "900", 1);
  EXPECT_EQ(compile_deadline(), 900s);
  EXPECT_EQ(CompilePoolOptions().deadline, 910s);
  for (const char* const odd : {"0", "-3", "1e3", "10 s", "99999999999999999999"}) {
    ::setenv(variable, odd, 1);
    EXPECT_EQ(compile_deadline(), 60s);
    EXPECT_THAT(more_compile_time(), HasSubstr(std::string("is \"") + odd + '"'));
  }
  ::unsetenv(variable);
  EXPECT_EQ(compile_deadline(), 60s);
  if (set != nullptr) ::setenv(variable, before.c_str(), 1);
}

TEST(CompilePoolTest, TheDeadlineCountsFromTheStartOfTheCompile) {
  // The last ends more than a deadline after it was submitted, though each takes a small part of
  // it. If the machine is so busy that one takes longer, it is tried again with longer parts and a
  // longer deadline.
  for (const std::chrono::milliseconds part : {50ms, 250ms, 1000ms}) {
    const auto compiler = std::make_shared<FakeCompiler>(
        [part](const CompileRequest& request) -> Result<CompiledKernel> {
          std::this_thread::sleep_for(part);
          return kernel_of(request);
        });
    CompilePool pool(compiler, {.threads = 1, .deadline = 40 * part});
    const Builds builds = submit_numbered(pool, 50);
    if (std::ranges::all_of(builds, [](const Build& build) { return build.get().has_value(); })) {
      return;
    }
  }
  FAIL() << "a compile of a second took forty";
}

TEST(CompilePoolTest, WhereEveryThreadRunsAnAbandonedCompileRequestsAreRefused) {
  const auto gate = std::make_shared<Gate>();
  const auto compiler = gated(gate);
  CompilePool pool(compiler, {.threads = 2, .deadline = 50ms});
  for (const char* name : {"slow 1", "slow 2"}) {
    EXPECT_EQ(pool.submit(request_named(name)).get().error().code, ErrorCode::timed_out);
  }
  EXPECT_EQ(compiler->running, 2);
  const CompileResult refused = pool.submit(request_named("quick")).get();
  EXPECT_THAT(refused, Fails(ErrorCode::timed_out));
  EXPECT_EQ(compiler->calls, 2);

  gate->open();
  EXPECT_TRUE(eventually([&] { return compiler->running == 0; }));
  EXPECT_TRUE(eventually([&] { return pool.submit(request_named("quick")).get().has_value(); }));
}

TEST(CompilePoolTest, TheOldestRequestIsCompiledFirst) {
  const auto gate = std::make_shared<Gate>();
  std::vector<std::string> order;
  const auto compiler =
      std::make_shared<FakeCompiler>([&](const CompileRequest& request) -> Result<CompiledKernel> {
        if (request.source == "slow") gate->pass();
        order.push_back(request.source);
        return kernel_of(request);
      });
  CompilePool pool(compiler, {.threads = 1});
  const Build slow = pool.submit(request_named("slow"));
  const Builds builds = submit_numbered(pool, 3);
  gate->open();
  for (const Build& build : builds) EXPECT_TRUE(build.get());
  EXPECT_EQ(order, (std::vector<std::string>{"slow", "0", "1", "2"}));
}

TEST(CompilePoolTest, WhatNobodyWaitsForAnyMoreIsNotStarted) {
  const auto gate = std::make_shared<Gate>();
  const auto compiler = gated(gate);
  CompilePool pool(compiler, {.threads = 1});
  const Build slow = pool.submit(request_named("slow"));
  ASSERT_TRUE(eventually([&] { return compiler->running == 1; }));
  Builds left = submit_numbered(pool, 10);
  const Build joined = pool.submit(request_named("3"));
  const std::shared_future<CompileResult> dropped = left.front().kernel;
  left.clear();
  const Build asked_again = pool.submit(request_named("7"));
  gate->open();
  ASSERT_TRUE(joined.get());
  EXPECT_EQ((*joined.get())->bits, "3");
  ASSERT_TRUE(asked_again.get());
  EXPECT_EQ(dropped.get().error().code, ErrorCode::unavailable);
  EXPECT_EQ(compiler->calls, 3);
}

TEST(CompilePoolTest, ClosingDropsWhatHasNotStartedAndWaitsForWhatHas) {
  const auto gate = std::make_shared<Gate>();
  const auto compiler = gated(gate);
  Build started;
  Build waiting;
  {
    CompilePool pool(compiler, {.threads = 1});
    started = pool.submit(request_named("slow"));
    ASSERT_TRUE(eventually([&] { return compiler->running == 1; }));
    waiting = pool.submit(request_named("quick"));
    std::thread([gate] {
      std::this_thread::sleep_for(50ms);
      gate->open();
    }).detach();
  }
  EXPECT_TRUE(started.get());
  ASSERT_FALSE(waiting.get());
  EXPECT_EQ(waiting.get().error().code, ErrorCode::unavailable);
  EXPECT_EQ(compiler->calls, 1);
}

TEST(CompilePoolTest, ClosingDoesNotWaitForAnAbandonedCompile) {
  const auto gate = std::make_shared<Gate>();
  const auto compiler = gated(gate);
  {
    CompilePool pool(compiler, {.threads = 2, .deadline = 20ms});
    EXPECT_FALSE(pool.submit(request_named("slow 1")).get());
    // Started, and past its deadline only while the pool closes.
    const Build second = pool.submit(request_named("slow 2"));
  }
  const int left = compiler->running;
  EXPECT_GE(left, 1);
  EXPECT_LE(left, 2);
  gate->open();
  EXPECT_TRUE(eventually([&] { return compiler->running == 0 && compiler.use_count() == 1; }));
}

TEST(CompilePoolTest, StoppedItCompilesNothingMore) {
  const auto gate = std::make_shared<Gate>();
  const auto compiler = gated(gate);
  CompilePool pool(compiler, {.threads = 1});
  const Build begun = pool.submit(request_named("slow"));
  ASSERT_TRUE(eventually([&] { return compiler->running == 1; }));
  const Build waiting = pool.submit(request_named("waiting"));
  pool.stop();
  for (const Build& build : {waiting, pool.submit(request_named("late"))}) {
    const CompileResult result = build.get();
    EXPECT_THAT(result,
                Fails(ErrorCode::unavailable, testing::HasSubstr("the compile pool was closed")));
  }
  gate->open();
  EXPECT_TRUE(begun.get());
}

/// Keeps everything in memory.
class MemoryCache final : public CompileCache {
 public:
  std::shared_ptr<const CompiledKernel> find(const std::string& digest) override {
    const std::lock_guard lock(mutex_);
    const auto found = kernels_.find(digest);
    return found == kernels_.end() ? nullptr : found->second;
  }
  CompileResult find_or_compile(const std::string& digest,
                                const std::function<CompileResult()>& compile) override {
    CompileResult compiled = compile();
    const std::lock_guard lock(mutex_);
    if (compiled) kernels_.emplace(digest, *compiled);
    return compiled;
  }
  void stop() override { stopped = true; }

  std::atomic<bool> stopped{false};

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const CompiledKernel>> kernels_;
};

TEST(CompilePoolTest, WhatTheCacheKeepsIsNotCompiledAgain) {
  const auto compiler = std::make_shared<FakeCompiler>(kernel_of);
  const auto cache = std::make_shared<MemoryCache>();
  Build first;
  {
    CompilePool pool(compiler, {.threads = 1}, cache);
    first = pool.submit(request_named("a"));
    EXPECT_FALSE(first.stored);
    ASSERT_TRUE(first.get());
    EXPECT_EQ(pool.compiled(), 1);
    EXPECT_EQ(first.digest, *pool.digest(request_named("a")));
  }
  CompilePool pool(compiler, {.threads = 1}, cache);
  const Build second = pool.submit(request_named("a"));
  EXPECT_TRUE(second.stored);
  EXPECT_TRUE(second.ended());
  EXPECT_EQ(second.digest, first.digest);
  EXPECT_EQ(*second.get(), *first.get());
  EXPECT_EQ(pool.compiled(), 0);
  EXPECT_EQ(compiler->calls, 1);
}

TEST(CompilePoolTest, StoppedItsCacheWaitsForNobodyEither) {
  const auto cache = std::make_shared<MemoryCache>();
  CompilePool pool(std::make_shared<FakeCompiler>(kernel_of), {.threads = 1}, cache);
  EXPECT_FALSE(cache->stopped);
  pool.stop();
  EXPECT_TRUE(cache->stopped);
}

TEST(CompilePoolTest, WithoutACompilerThereIsNoDigestAndNoKernel) {
  const auto compiler = std::make_shared<FakeCompiler>(kernel_of);
  compiler->missing = true;
  CompilePool pool(compiler, {.threads = 1});
  const Build build = pool.submit(request_named("a"));
  EXPECT_EQ(build.digest, "");
  EXPECT_EQ(build.get().error().code, ErrorCode::unavailable);
}

TEST(CompilePoolTest, ManyThreadsMaySubmit) {
  const auto compiler = std::make_shared<FakeCompiler>(kernel_of);
  CompilePool pool(compiler, {.threads = 4});
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const std::string source = std::to_string(i % 10);
        const CompileResult result = pool.submit(request_named(source)).get();
        if (result && (*result)->bits == source) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 1600);
  EXPECT_LE(compiler->most, 4);
}

}  // namespace
}  // namespace kernwright
