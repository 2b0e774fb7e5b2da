#include "tuner/worker/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "cache/stores/artifact_store.h"
#include "tests/results.h"
#include "tests/tuner/toy.h"

namespace kernwright {
namespace {

using ::testing::HasSubstr;
using namespace detail;

/// Takes every candidate, and throws when one is checked.
class ThrowingRunner final : public Runner {
 public:
  Result<Prepared> prepare(const Candidate&, const CompiledKernel&) override {
    return Prepared{7, {}};
  }
  Result<Checked> check(Id, CheckDepth) override { throw std::runtime_error("out of luck"); }
  Result<Checked> check_after_timing(Id) override { throw 3; }
  Result<std::vector<Sampled>> sample(std::span<const Id> order) override {
    samples += static_cast<int>(order.size());
    return std::vector<Sampled>{{{Outcome::illegal_address, "at 0"}, {}}};
  }
  Result<double> launch_gap_us(Id) override {
    return Error{ErrorCode::device, "no gap was measured"};
  }
  Result<Audit> audit() override { return Audit{{{"mig", Trust::b, "on"}}}; }
  void drop(Id) override {}
  bool lost() const override { return false; }

  int samples = 0;
};

class ThrowingFactory final : public RunnerFactory {
 public:
  Result<void> start(const HelloRequest&, std::shared_ptr<Compiler>) override {
    if (no_gpu) return Error{ErrorCode::unavailable, "no GPU here"};
    return {};
  }
  const DeviceProfile& profile() const override { return profile_; }
  Result<std::unique_ptr<Runner>> open(const Catalog&, const BoundProblem&,
                                       DeviceRunnerOptions) override {
    auto made = std::make_unique<ThrowingRunner>();
    runner = made.get();
    return std::unique_ptr<Runner>(std::move(made));
  }

  bool no_gpu = false;
  ThrowingRunner* runner = nullptr;

 private:
  const DeviceProfile profile_ = *find_profile("h200");
};

/// The worker's loop on a thread, asked as the tuning process would.
class ServeTest : public ::testing::Test {
 protected:
  ServeTest() {
    auto channels = Channel::make_pair();
    EXPECT_TRUE(channels);
    ours_.emplace(std::move(channels->first));
    thread_ = std::thread([this, theirs = std::move(channels->second)]() mutable {
      ended_ = serve_runner(std::move(theirs), factory_);
    });
  }
  ~ServeTest() override { static_cast<void>(end()); }

  Result<void> end() {
    ours_.reset();
    if (thread_.joinable()) thread_.join();
    return ended_;
  }

  Reply ask(const Request& request, int file = -1) {
    EXPECT_TRUE(ours_->send(encode(request), file));
    return receive();
  }
  Reply receive() {
    const auto message = ours_->receive();
    EXPECT_TRUE(message) << message.error().message;
    auto reply = parse_reply(message->text);
    EXPECT_TRUE(reply) << reply.error().message;
    return *std::move(reply);
  }
  std::string error(const Request& request, int file = -1) {
    const Reply reply = ask(request, file);
    const auto* failed = std::get_if<ErrorReply>(&reply.content);
    return failed != nullptr ? failed->error.message : "no error";
  }
  OpenRequest problem() const {
    OpenRequest open;
    open.problem = catalog_.problem().text();
    open.template_dirs = {
        std::filesystem::path(catalog_.operation().folder).parent_path().native()};
    open.catalog_digest = detail::digest_of(*catalog_);
    return open;
  }
  void open() {
    EXPECT_EQ(error(HelloRequest{}), "no error");
    EXPECT_EQ(error(problem()), "no error");
  }
  static PrepareRequest candidate(std::string name, std::int64_t a) {
    return {{std::move(name), Configuration({{"A", a}, {"B", 1}, {"R", 1}})}};
  }

  ToyCatalog catalog_;
  ThrowingFactory factory_;
  std::optional<Channel> ours_;
  Result<void> ended_;
  std::thread thread_;
};

TEST_F(ServeTest, ItEndsWithItsChannel) {
  open();
  EXPECT_TRUE(end());
}

TEST_F(ServeTest, AMessageThatIsNoneEndsIt) {
  EXPECT_TRUE(ours_->send("{}"));
  EXPECT_FALSE(ours_->receive()) << "it has closed its side";
  EXPECT_THAT(end(), Fails(ErrorCode::corrupt));
}

TEST_F(ServeTest, NothingIsOpenedBeforeTheGreetingNorMeasuredBeforeAProblemIsOpen) {
  EXPECT_EQ(error(problem()), "the worker was not greeted");
  EXPECT_EQ(
      error(HelloRequest{.protocol = kProtocol + 1, .uuid = {}, .cache_root = {}, .own_pids = {}}),
      concat("the worker speaks protocol ", kProtocol, ", the tuning process ", kProtocol + 1));
  EXPECT_EQ(error(problem()), "the worker was not greeted");
  const std::vector<Request> early = {candidate("toy/plain", 1),
                                      CheckRequest{},
                                      CheckAfterTimingRequest{},
                                      SampleRequest{{1}},
                                      LaunchGapRequest{},
                                      LaunchPathsRequest{},
                                      AuditRequest{}};
  for (const Request& request : early) {
    EXPECT_EQ(error(request), "the worker has no problem open") << request.index();
  }
  EXPECT_EQ(error(DropRequest{}), "no error");
  EXPECT_EQ(error(CloseRequest{}), "no error");
  EXPECT_EQ(error(CompiledRequest{}), "nobody asked for a compile");
}

TEST_F(ServeTest, AGpuThatDoesNotStartIsNoGreeting) {
  factory_.no_gpu = true;
  EXPECT_EQ(error(HelloRequest{}), "no GPU here");
  EXPECT_EQ(error(problem()), "the worker was not greeted");
}

TEST_F(ServeTest, AProblemThatItDoesNotKnowIsNotOpened) {
  EXPECT_EQ(error(HelloRequest{}), "no error");
  OpenRequest wrong = problem();
  wrong.catalog_digest = std::string(64, '0');
  EXPECT_THAT(error(wrong), HasSubstr("templates are not those of the tuning process"));
  wrong = problem();
  wrong.template_dirs = {"/nowhere"};
  EXPECT_EQ(error(wrong), "no folder of templates /nowhere");
  for (const char* text : {"=", "toys n=4096 dtype=fp32", "toy n=0 dtype=fp32"}) {
    wrong = problem();
    wrong.problem = text;
    EXPECT_NE(error(wrong), "no error") << text;
    EXPECT_EQ(error(AuditRequest{}), "the worker has no problem open") << text;
  }
}

TEST_F(ServeTest, ACandidateThatIsNoneHereIsRefused) {
  open();
  EXPECT_THAT(error(candidate("toy/none", 1)), HasSubstr("toy/none"));
  EXPECT_THAT(error(candidate("toy/plain", 99)), HasSubstr("99"));
  EXPECT_NE(error(candidate("toy/plain", 1)), "no error") << "its bits did not come along";
  const auto torn = must(memory_file("artifact", "torn"));
  EXPECT_NE(error(candidate("toy/plain", 1), torn.get()), "no error");
  CompiledKernel kernel;
  kernel.bits = "bits";
  const auto whole = must(memory_file("artifact", encode_artifact(kernel)));
  const Reply taken = ask(candidate("toy/plain", 1), whole.get());
  ASSERT_TRUE(std::holds_alternative<PrepareReply>(taken.content));
  EXPECT_EQ(std::get<PrepareReply>(taken.content).prepared.id, 7);
}

TEST_F(ServeTest, WhatTheRunnerThrowsOrRefusesIsAnErrorAndItGoesOn) {
  open();
  EXPECT_EQ(error(CheckRequest{7, Runner::CheckDepth::screening}), "out of luck");
  EXPECT_EQ(error(CheckAfterTimingRequest{7}), "unknown exception");
  EXPECT_EQ(error(LaunchGapRequest{7}), "no gap was measured");
  const Reply paths = ask(LaunchPathsRequest{7});
  EXPECT_TRUE(std::holds_alternative<LaunchPathsReply>(paths.content));
  const Reply audit = ask(AuditRequest{});
  ASSERT_TRUE(std::holds_alternative<AuditReply>(audit.content));
  EXPECT_EQ(std::get<AuditReply>(audit.content).audit.trust(), Trust::b);
}

TEST_F(ServeTest, ACandidateThatFailedGetsNoFurtherSample) {
  open();
  for (int i = 0; i < 3; ++i) {
    const Reply reply = i == 0 ? ask(SampleRequest{{7, 7, 7}}) : receive();
    ASSERT_TRUE(std::holds_alternative<SampledReply>(reply.content));
    EXPECT_EQ(std::get<SampledReply>(reply.content).sampled.step.outcome, Outcome::illegal_address);
  }
  EXPECT_EQ(factory_.runner->samples, 1);
}

}  // namespace
}  // namespace kernwright
