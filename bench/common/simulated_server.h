#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

namespace kernwright {

/// The work of one step of a server.
struct ServerStep {
  std::int64_t prompt = 0;    ///< the next tokens of a prompt; 0: no prompt waits
  std::int64_t context = 0;   ///< its keys in the cache, these tokens' keys too
  std::int64_t decoding = 0;  ///< requests that get their next token
  std::int64_t longest = 0;   ///< of their contexts, the new token's key too

  std::int64_t tokens() const { return prompt + decoding; }
};

/// A server on a clock of steps. Requests arrive by a Poisson process, whose rate is drawn anew
/// from time to time, so that there are busy and quiet hours. Prompts and answers have lengths
/// whose logarithms are evenly spread. A step takes the waiting prompts in their order, as many
/// tokens as fit beside those that decode. The same seed makes the same steps everywhere.
class SimulatedServer {
 public:
  static constexpr std::int64_t kMostTokens = 2048;  ///< of a step
  static constexpr std::size_t kMostRequests = 64;   ///< that have begun
  static constexpr std::int64_t kLongestPrompt = 8192;
  static constexpr std::int64_t kLongestAnswer = 1024;

  explicit SimulatedServer(std::uint64_t seed) : random_(seed) {}

  /// Returns the next step that has work.
  ServerStep next();

 private:
  struct Request {
    std::int64_t prompt = 0;
    std::int64_t answer = 0;
    std::int64_t done = 0;  ///< tokens whose keys are in the cache
  };

  /// Returns a number of [0, 1).
  double draw();
  std::int64_t draw_length(std::int64_t longest);
  /// Lets requests arrive until the clock.
  void arrive();
  ServerStep take();

  std::mt19937_64 random_;
  double clock_ = 0;  ///< in steps
  double rate_ = 0;   ///< requests a step
  double next_rate_ = 0;
  double next_arrival_ = 0;
  std::deque<Request> waiting_;  ///< the first one's prompt may be in the cache in part
  std::vector<Request> decoding_;
};

}  // namespace kernwright
