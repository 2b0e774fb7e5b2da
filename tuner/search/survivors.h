#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tuner/finals/survivor.h"
#include "tuner/runner.h"

namespace kernwright {

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
  std::span<const Survivor> all() const { return all_; }

  void insert(Survivor survivor);
  /// Takes it out, loaded or not.
  Survivor take(std::size_t candidate);
  void unload(Survivor& survivor) const;
  void unload_all();
  /// Forgets those that are not loaded.
  void keep_loaded();

 private:
  Runner& runner_;
  std::vector<Survivor> all_;
};

}  // namespace kernwright
