#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bench/simulation/recorded_space.h"
#include "model/candidate/candidate.h"
#include "model/candidate/kernel_template.h"

namespace kernwright {

/// The configurations of a recorded space as candidates: a template's name and the parameters'
/// values, nothing that could be compiled or launched. Entry i is the space's configuration i.
class BareCandidates {
 public:
  explicit BareCandidates(const RecordedSpace& space);

  const std::vector<Candidate>& all() const { return candidates_; }
  const Candidate& operator[](std::size_t index) const { return candidates_[index]; }
  /// By a candidate's id.
  std::optional<std::size_t> find(std::string_view id) const;

 private:
  std::vector<std::unique_ptr<const KernelTemplate>> templates_;
  std::vector<Candidate> candidates_;
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace kernwright
