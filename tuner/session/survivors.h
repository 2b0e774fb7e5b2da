#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "compile/compile_request.h"
#include "tuner/runner.h"

namespace kernwright {

/// Compiled bits and the digest of the request they came from, hex.
struct CompiledCandidate {
  std::string digest;
  std::shared_ptr<const CompiledKernel> kernel;
};

/// A candidate that passed screening. Samples are corrected for the device's drift.
struct Survivor {
  std::size_t candidate = 0;
  std::size_t trial = 0;  ///< index into the search's trials
  CompiledCandidate compiled;
  Runner::Id id = -1;  ///< -1: not loaded
  std::vector<double> samples_us;
  double score_us = 0;  ///< their median
};

/// All candidates that passed, the fastest first. The first few stay loaded, so that they can be
/// sampled at any time.
class Survivors {
 public:
  explicit Survivors(Runner& runner) : runner_(runner) {}

  /// How many stay loaded.
  static constexpr std::size_t kLoaded = 24;

  bool empty() const { return all_.empty(); }
  std::size_t size() const { return all_.size(); }
  Survivor& operator[](std::size_t rank) { return all_[rank]; }
  const Survivor& operator[](std::size_t rank) const { return all_[rank]; }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

  void insert(Survivor survivor);
  /// Takes it out, loaded or not.
  Survivor take(std::size_t candidate);
  void unload(Survivor& survivor) const;
  void unload_all();

 private:
  Runner& runner_;
  std::vector<Survivor> all_;
};

}  // namespace kernwright
