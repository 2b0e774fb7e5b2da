// Decodes a Llama or a Qwen3 model on GPU 0, greedily, with kernels of kernwright alone:
//
//   kernwright_decode --config configs/qwen3-0.6b.json --context 512 --steps 64 --seconds 1
//
// It prints the tokens of each sequence, how long a step takes, and how long the memory takes for
// the bytes that a step needs. With --check it compares every step with the same in fp32 on the
// host. Exits 0; 1 if something fails or a check finds errors that rounding does not explain; 2 for
// a wrong command line; 77 if there is no GPU.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <new>
#include <numeric>
#include <random>

#include "decoder.h"
#include "input.h"
#include "options.h"
#include <kernwright/kernwright.h>

namespace decode {
namespace {

using nlohmann::json;

constexpr int kTimedRounds = 7;

kw::Result<ModelConfig> read_config(const std::string& file) {
  constexpr std::uint64_t kLongestConfig = 4 << 20;
  const kw::Result<std::string> text = read_text(file, kLongestConfig);
  if (!text) return text.error();
  return parse_config(*text, file);
}

kw::Result<ModelWeights> read_weights(const Options& options, const ModelConfig& config) {
  if (options.weights.empty()) return read_model(config, random_source(options.seed));
  const kw::Result<Safetensors> files = Safetensors::open(options.weights);
  if (!files) return files.error();
  return read_model(config, [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    return files->read(name, shape);
  });
}

DecodeShape shape_of(const Options& options) {
  const std::int64_t more = options.prompt_steps() + options.steps;
  DecodeShape shape;
  shape.batch = static_cast<std::int64_t>(options.lengths.size());
  shape.capacity = *std::max_element(options.lengths.begin(), options.lengths.end()) + more;
  shape.all_tokens =
      std::accumulate(options.lengths.begin(), options.lengths.end(), shape.batch * more);
  shape.paged = options.paged;
  return shape;
}

/// One decoding. Its results are printed as it goes, and kept in a report.
class Run {
 public:
  Run(const Options& options, const ModelConfig& config, const ModelWeights& weights)
      : options_(options), config_(config), weights_(weights), shape_(shape_of(options)) {}

  /// Returns whether all comparisons are as they should be.
  kw::Result<bool> all(Gpu& gpu) {
    kw::ServiceOptions service_options;
    if (options_.seconds > 0) service_options.on_miss = kw::MissPolicy::tune_now;
    service_options.tune_seconds = options_.seconds;
    const kw::Result<kw::Service> service = kw::Service::open(service_options);
    if (!service) return service.error();
    kw::Result<Decoder> decoder =
        Decoder::make(gpu, *service, config_, weights_, shape_, options_.lengths, options_.seed);
    if (!decoder) return decoder.error();
    report_ = {{"config", options_.config},
               {"device", gpu.name()},
               {"steps", options_.steps},
               {"cache", shape_.paged ? "paged" : "contiguous"},
               {"lengths", options_.lengths}};
    kw::Result<void> done = choose_path(*decoder);
    report_kernels(decoder->chain());
    if (done) done = decode(*decoder);
    if (done && options_.check) report_errors();
    if (done) done = time(gpu, *decoder);
    if (!done) return done.error();
    if (!options_.json.empty()) {
      std::ofstream file(options_.json);
      file << report_.dump(1, ' ', false, json::error_handler_t::replace) << '\n' << std::flush;
      if (!file) return kw::Error{kw::ErrorCode::io, options_.json + ": cannot be written"};
    }
    return passed_;
  }

 private:
  void report_kernels(const kw::Chain& chain) {
    std::printf("%-9s %zu in a step\n", "kernels", chain.kernels());
    std::map<std::string, int> counts;
    for (std::size_t i = 0; i < chain.kernels(); ++i) ++counts[chain.summary(i).problem];
    for (std::size_t i = 0; i < chain.kernels(); ++i) {
      const kw::KernelSummary& kernel = chain.summary(i);
      const auto use = counts.extract(kernel.problem);
      if (use.empty()) continue;  // it was told at an earlier place
      const bool measured = kernel.measured_us > 0;
      const double us = measured ? kernel.measured_us : kernel.predicted_us;
      std::printf("%5d of %7.2f us %s, %s: %s\n", use.mapped(), us,
                  measured ? "measured" : "predicted", kernel.kernel_template.c_str(),
                  kernel.problem.c_str());
      report_["kernels"].push_back({{"problem", kernel.problem},
                                    {"count", use.mapped()},
                                    {"template", kernel.kernel_template},
                                    {"configuration", kernel.configuration},
                                    {"match", kw::to_string(kernel.match)},
                                    {measured ? "measured_us" : "predicted_us", us}});
    }
  }

  /// Chooses the path that was asked for, or the fastest.
  kw::Result<void> choose_path(Decoder& decoder) {
    kw::Chain& chain = decoder.chain();
    kw::ChainPath chosen = chain.path();
    if (options_.path.empty()) {
      const kw::Result<std::vector<kw::ChainTime>> times = decoder.tune(options_.lengths);
      if (!times) return times.error();
      for (const kw::ChainTime& time : *times) {
        const std::string name(kw::to_string(time.path));
        std::printf("%-9s %s %.1f us\n", "path", name.c_str(), time.period_us);
        report_["paths"][name] = time.period_us;
      }
      chosen = chain.path();
    } else {
      const std::vector<kw::ChainPath> paths = chain.paths();
      const auto found = std::find_if(paths.begin(), paths.end(), [this](kw::ChainPath path) {
        return kw::to_string(path) == options_.path;
      });
      if (found == paths.end()) {
        return kw::Error{kw::ErrorCode::invalid_argument,
                         "--path: '" + options_.path + "' is not a path of this chain"};
      }
      chosen = *found;
    }
    report_["path"] = kw::to_string(chosen);
    std::printf("%-9s %s\n", "launched", std::string(kw::to_string(chosen)).c_str());
    return chain.set_path(chosen);
  }

  /// Reads the prompt and decodes all steps once, token by token.
  kw::Result<void> decode(Decoder& decoder) {
    std::mt19937_64 random(options_.seed);
    first_tokens_.resize(options_.lengths.size());
    for (std::int32_t& token : first_tokens_) {
      token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(config_.vocabulary));
    }
    kw::Result<void> done;
    decoder.set_lengths(options_.lengths);
    for (int i = 0; i < options_.prompt_steps() && done; ++i) {
      decoder.set_tokens(Ints(first_tokens_.size(), options_.prompt[at(i)]));
      done = step(decoder);
    }
    if (!options_.prompt.empty())
      first_tokens_.assign(first_tokens_.size(), options_.prompt.back());
    decoder.set_tokens(first_tokens_);
    std::vector<Ints> sequences(first_tokens_.size());
    for (int i = 0; i < options_.steps && done && passed_; ++i) {
      done = step(decoder);
      last_tokens_ = decoder.tokens();
      for (std::size_t s = 0; s < sequences.size(); ++s) sequences[s].push_back(last_tokens_[s]);
    }
    for (const Ints& sequence : sequences) {
      std::printf("%-9s", "tokens");
      for (const std::int32_t token : sequence) std::printf(" %d", token);
      std::printf("\n");
    }
    report_["tokens"] = sequences;
    return done;
  }

  kw::Result<void> step(Decoder& decoder) {
    if (!options_.check) return decoder.step();
    const StepState state = decoder.state();
    kw::Result<void> launched = decoder.step();
    if (!launched) return launched;
    const RopeTable rope = rope_table(config_, shape_.capacity);
    const auto reference = [&](bool rounded) {
      return reference_step(config_, weights_, shape_, decoder.page_table(), rope, state, rounded);
    };
    const StepResult exact = reference(false), rounded = reference(true);
    const Errors errors = compare(decoder.result(state.lengths), decoder.tokens(), exact);
    const Errors rounding = compare(rounded, greedy_tokens(rounded, state.tokens.size()), exact);
    passed_ = passed_ && errors.explained_by(rounding);
    errors_.merge(errors);
    rounding_.merge(rounding);
    return {};
  }

  void report_errors() {
    for (const auto& [part, error] : errors_.relative) {
      std::printf("%-9s %s are off by %.4f, by rounding alone %.4f\n", "check", part.c_str(), error,
                  rounding_.relative[part]);
    }
    std::printf(
        "%-9s %d tokens are not those of their logits; %d not the reference's, whose logits "
        "are up to %.4f of their size apart\n",
        "check", errors_.wrong_tokens, errors_.other_tokens, errors_.gap);
    std::printf("%-9s %s: errors may be %.0f times the errors of rounding alone in each step\n",
                "check", passed_ ? "passed" : "FAILED", Errors::kOverRounding);
    report_["check"] = {{"passed", passed_},
                        {"errors", errors_.relative},
                        {"rounding", rounding_.relative},
                        {"wrong_tokens", errors_.wrong_tokens},
                        {"other_tokens", errors_.other_tokens},
                        {"gap", errors_.gap}};
  }

  /// Decodes the same steps without a look at them, which must end with the same tokens.
  kw::Result<void> time(Gpu& gpu, Decoder& decoder) {
    if (!passed_) return {};
    Ints lengths = options_.lengths;
    for (std::int32_t& length : lengths) length += options_.prompt_steps();
    std::vector<double> rounds;
    for (int round = 0; round < kTimedRounds; ++round) {
      decoder.set_tokens(first_tokens_);
      decoder.set_lengths(lengths);
      const kw::Result<double> us = decoder.time_us(options_.steps);
      if (!us) return us.error();
      rounds.push_back(*us / options_.steps);
      passed_ = passed_ && decoder.tokens() == last_tokens_;
    }
    std::sort(rounds.begin(), rounds.end());
    const double us = rounds[rounds.size() / 2];
    // Old tokens grow by one a step, so the old tokens of the middle step are the mean.
    const StepBytes bytes = step_bytes(
        config_, shape_.batch,
        std::accumulate(lengths.begin(), lengths.end(), shape_.batch * (options_.steps - 1) / 2));
    const double rate = gpu.bytes_per_second();
    const double floor_us = static_cast<double>(bytes.all()) / rate * 1e6;
    const double tokens_a_second = static_cast<double>(shape_.batch) * 1e6 / us;
    const auto megabytes = [](std::int64_t count) { return static_cast<double>(count) / 1e6; };
    std::printf("%-9s %.2f MB a step: weights %.2f, embedding %.2f, keys and values %.2f\n",
                "bytes", megabytes(bytes.all()), megabytes(bytes.weights),
                megabytes(bytes.embedding), megabytes(bytes.cache));
    std::printf("%-9s %.1f us for these bytes at %.0f GB/s\n", "floor", floor_us, rate / 1e9);
    std::printf("%-9s %.1f us (%.1f to %.1f), %.1f %% of the floor's speed, %.1f tokens a second\n",
                "step", us, rounds.front(), rounds.back(), 100 * floor_us / us, tokens_a_second);
    if (!passed_) std::printf("%-9s are OTHERS if nobody looks at the steps\n", "tokens");
    report_["bytes"] = {
        {"weights", bytes.weights}, {"embedding", bytes.embedding}, {"cache", bytes.cache}};
    report_["bytes_per_second"] = rate;
    report_["step_us"] = us;
    report_["rounds_us"] = rounds;
    report_["floor_us"] = floor_us;
    report_["tokens_per_second"] = tokens_a_second;
    report_["repeatable"] = passed_;
    return {};
  }

  const Options& options_;
  const ModelConfig& config_;
  const ModelWeights& weights_;
  DecodeShape shape_;
  Ints first_tokens_, last_tokens_;
  Errors errors_, rounding_;  ///< of all steps together
  bool passed_ = true;
  json report_;
};

int fail(const kw::Error& error, int code = 1) {
  std::fprintf(stderr, "kernwright_decode: %s\n", kw::visible(error.message).c_str());
  return code;
}

int run(const std::vector<std::string>& words) {
  const kw::Result<Options> options = parse_options(words);
  if (!options) {
    std::fprintf(stderr, "%s", kUsage);
    return fail(options.error(), 2);
  }
  const kw::Result<ModelConfig> config = read_config(options->config);
  if (!config) return fail(config.error());
  const kw::Result<void> fits = check_tokens(*config, shape_of(*options).capacity);
  if (!fits) return fail(fits.error());
  for (const std::int32_t token : options->prompt) {
    if (token < config->vocabulary) continue;
    return fail({kw::ErrorCode::invalid_argument, "--prompt: token " + std::to_string(token) +
                                                      " is not below vocab_size " +
                                                      std::to_string(config->vocabulary)});
  }
  const kw::Result<ModelWeights> weights = read_weights(*options, *config);
  if (!weights) return fail(weights.error());
  Gpu gpu;
  if (const std::string missing = gpu.open(); !missing.empty()) {
    std::printf("no GPU: %s\n", missing.c_str());
    return 77;
  }
  const kw::Result<bool> right = Run(*options, *config, *weights).all(gpu);
  if (!right) return fail(right.error());
  return *right ? 0 : 1;
}

}  // namespace
}  // namespace decode

int main(int argc, char** argv) {
  try {
    return decode::run(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const std::bad_alloc&) {
    return decode::fail({kernwright::ErrorCode::unavailable, "out of memory"});
  } catch (const std::exception& error) {
    return decode::fail({kernwright::ErrorCode::internal, error.what()});
  }
}
