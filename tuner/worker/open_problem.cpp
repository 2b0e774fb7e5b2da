#include "tuner/worker/open_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/text.h"
#include "support/try.h"

namespace kernwright::detail {
namespace {

constexpr double kOpenSeconds = 120;
constexpr double kCloseSeconds = 10;

/// How much slower than at first the canary may be, and the number of samples that it gets for it:
/// the clocks of an idle GPU rise only under load.
constexpr double kCanarySlack = 1.2;
constexpr int kCanarySamples = 8;
constexpr int kMaxCanarySamples = 300;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Error canary_failed(const Runner::Step& step) {
  return {ErrorCode::device,
          concat("the SM probe kernel failed: ", to_string(step.outcome), ' ', step.detail)};
}

}  // namespace

std::optional<Runner::Step> failure_in(const Worker::Answer& answer) {
  if (!answer.reply) return answer.ended;
  if (!answer.reply->lost) return std::nullopt;
  Runner::Step step;
  const AnyReply& content = answer.reply->content;
  if (const auto* prepared = std::get_if<PrepareReply>(&content)) step = prepared->prepared.step;
  if (const auto* checked = std::get_if<CheckReply>(&content)) step = checked->checked.step;
  if (const auto* sampled = std::get_if<SampledReply>(&content)) step = sampled->sampled.step;
  if (const auto* error = std::get_if<ErrorReply>(&content)) step.detail = error->error.message;
  if (step.outcome == Outcome::ok) step.outcome = Outcome::launch_failed;
  return step;
}

Error unexpected(const AnyReply& reply) {
  if (const auto* error = std::get_if<ErrorReply>(&reply)) return error->error;
  return {ErrorCode::corrupt, "the worker answered another question"};
}

OpenProblem::~OpenProblem() {
  if (is_open()) worker_.ask(CloseRequest{}, kCloseSeconds);
}

Result<void> OpenProblem::start() {
  KW_TRY(ensure());
  KW_ASSIGN(canary_us_, canary_us(kCanarySamples, kNoLimit));
  return {};
}

Result<void> OpenProblem::ensure() {
  if (worker_.lost()) return Error{ErrorCode::device, "the device was lost earlier"};
  if (is_open()) return {};
  if (!worker_.alive()) {
    KW_TRY(worker_.restart());
  }
  return open();
}

Result<void> OpenProblem::open() {
  worker_.count_opened();
  const Worker::Answer answer = worker_.ask(request_, kOpenSeconds);
  if (!answer.reply) {
    return Error{ErrorCode::device,
                 concat("the worker could not open ", request_.problem, ": ",
                        to_string(answer.ended.outcome), ' ', answer.ended.detail)};
  }
  const auto* opened = std::get_if<OpenReply>(&answer.reply->content);
  if (opened == nullptr) return unexpected(answer.reply->content);
  seconds_ = opened->seconds;
  opened_ = worker_.opened();
  ++epoch_;
  return {};
}

Result<double> OpenProblem::canary_us(int samples, double limit_us) {
  double best = std::numeric_limits<double>::infinity();
  for (int taken = 0; taken < samples; ++taken) {
    const Worker::Answer answer = worker_.ask(SampleRequest{{Runner::kSmProbe}},
                                              worker_.options().floor_seconds + sample_seconds());
    if (const auto failure = failure_in(answer)) return canary_failed(*failure);
    const auto* sampled = std::get_if<SampledReply>(&answer.reply->content);
    if (sampled == nullptr) return unexpected(answer.reply->content);
    if (sampled->sampled.step.outcome != Outcome::ok) return canary_failed(sampled->sampled.step);
    best = std::min(best, sampled->sampled.sample.us);
    if (best <= limit_us && std::isfinite(limit_us)) break;
  }
  return best;
}

Result<std::string> OpenProblem::replace() {
  Result<std::string> end = worker_.restart();
  if (!end) return end;
  KW_TRY(open());
  const double limit_us = canary_us_ * kCanarySlack;
  KW_ASSIGN(const double us, canary_us(kMaxCanarySamples, limit_us));
  if (us > limit_us) {
    return Error{ErrorCode::device,
                 concat("the SM probe kernel takes ", us, " us, at first ", canary_us_)};
  }
  return end;
}

}  // namespace kernwright::detail
