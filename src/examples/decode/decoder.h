#pragma once
// The model on the GPU: weights, caches, and the chain that makes one step.

#include <cstdint>
#include <optional>
#include <vector>

#include "../device_memory.h"
#include "config.h"
#include "model.h"
#include "reference.h"
#include "step.h"
#include <kernwright/chain.h>
#include <kernwright/service.h>

namespace decode {

/// Decodes one token of each sequence after the other. Everything between two steps stays on the
/// device: the lengths advance there, and the tokens of a step are the next one's input. So the
/// same graph is launched for every step.
class Decoder {
 public:
  /// Sequences begin with `lengths` tokens, whose keys and values are random. All else of the
  /// caches is NaN, so that a kernel that reads it shows. Errors: see `Service::get_best_kernels`
  /// and `ChainBuilder::build`; `invalid_argument` if a kernel has other arguments than the step.
  static kw::Result<Decoder> make(Gpu& gpu, const kw::Service& service, const ModelConfig& config,
                                  const ModelWeights& weights, const DecodeShape& shape,
                                  const Ints& lengths, std::uint64_t seed);

  /// Chooses the fastest kernels and way to launch a step with sequences of `lengths`.
  kw::Result<std::vector<kw::ChainTime>> tune(const Ints& lengths);
  kw::Chain& chain() { return *chain_; }

  /// The inputs of the next step, except for the caches.
  void set_tokens(const Ints& tokens) { gpu_->write(tokens_, tokens); }
  void set_lengths(const Ints& lengths) { gpu_->write(lengths_, lengths); }
  Ints tokens() const { return numbers(tokens_); }

  kw::Result<void> step() { return chain_->launch(stream_); }
  /// Measures the time of `count` steps, one after the other.
  kw::Result<double> time_us(int count);

  StepState state() const;
  /// Returns the results of the last step, for sequences that had `lengths` tokens before.
  StepResult result(const Ints& lengths) const;

  const Ints& page_table() const { return page_table_; }

 private:
  using Address = Gpu::Address;
  Decoder(Gpu& gpu, const ModelConfig& config, const DecodeShape& shape)
      : gpu_(&gpu), stream_(gpu.make_stream()), config_(config), shape_(shape) {}

  StepMemory allocate(const ModelWeights& weights, const Ints& lengths, std::uint64_t seed,
                      kw::ChainBuilder& builder);
  Ints numbers(Address address) const {
    return gpu_->download<std::int32_t>(address, static_cast<std::size_t>(shape_.batch));
  }

  Gpu* gpu_;
  void* stream_;
  ModelConfig config_;
  DecodeShape shape_;
  Ints page_table_;
  Address tokens_ = 0, lengths_ = 0, other_lengths_ = 0;
  Address x_ = 0, logits_ = 0;
  std::vector<Address> keys_, values_;  ///< of each layer
  std::optional<kw::Chain> chain_;
};

}  // namespace decode
