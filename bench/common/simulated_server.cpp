#include "bench/common/simulated_server.h"

#include <algorithm>
#include <cmath>

namespace kernwright {
namespace {

constexpr double kStepsOfARate = 200;
// At the higher rate more requests arrive than are answered.
constexpr double kLeastRate = 0.01;
constexpr double kMostRate = 1;

}  // namespace

double SimulatedServer::draw() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

std::int64_t SimulatedServer::draw_length(std::int64_t longest) {
  return std::llround(std::pow(static_cast<double>(longest), draw()));
}

void SimulatedServer::arrive() {
  while (next_arrival_ <= clock_ || next_rate_ <= clock_) {
    if (next_rate_ <= next_arrival_) {
      // The process has no memory: what was drawn by the old rate is dropped.
      rate_ = kLeastRate * std::pow(kMostRate / kLeastRate, draw());
      next_arrival_ = next_rate_ - std::log1p(-draw()) / rate_;
      next_rate_ += kStepsOfARate;
    } else {
      waiting_.push_back({draw_length(kLongestPrompt), draw_length(kLongestAnswer), 0});
      next_arrival_ -= std::log1p(-draw()) / rate_;
    }
  }
}

ServerStep SimulatedServer::take() {
  ServerStep step;
  step.decoding = static_cast<std::int64_t>(decoding_.size());
  for (Request& request : decoding_) step.longest = std::max(step.longest, ++request.done);
  std::erase_if(decoding_, [](const Request& request) {
    return request.done >= request.prompt + request.answer;
  });
  if (waiting_.empty() || step.decoding == static_cast<std::int64_t>(kMostRequests)) return step;
  Request& request = waiting_.front();
  step.prompt = std::min(kMostTokens - step.decoding, request.prompt - request.done);
  step.context = request.done += step.prompt;
  if (request.done == request.prompt) {
    decoding_.push_back(request);
    waiting_.pop_front();
  }
  return step;
}

ServerStep SimulatedServer::next() {
  while (true) {
    arrive();
    ServerStep step = take();
    ++clock_;
    if (step.tokens() > 0) return step;
    clock_ = std::max(clock_, std::floor(next_arrival_));
  }
}

}  // namespace kernwright
