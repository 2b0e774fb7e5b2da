#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/candidate/candidate.h"
#include "model/result/measurement.h"
#include "model/result/trial.h"
#include <kernwright/result.h>

namespace kernwright {

/// A recorded space's own description.
struct LandscapeHeader {
  std::string space;
  std::string device;
  std::string kernel;
  std::string problem;
  std::string policy;
  std::string compiler;
  double sample_ms = 0;
};

/// Measurements of one candidate.
struct LandscapeEntry {
  Outcome outcome = Outcome::ok;
  std::string detail;
  std::vector<Sample> samples;
  std::vector<Sample> sm_probe;  ///< taken between them
  std::vector<Sample> dram_probe;
  Resources resources;
  double compile_seconds = 0;
  double predicted_us = 0;
};

/// A space while it is being recorded. Entries are appended to the file `path` + ".part", so that a
/// recording that stopped can continue. `finish` makes the compressed file that
/// `read_recorded_space` reads. A candidate that was begun and not ended has ended its process, and
/// is recorded as such.
class LandscapeFile {
 public:
  /// Opens or creates the file. Errors: `invalid_argument` if an existing file was recorded of
  /// something else, naming both headers; `corrupt`, `io`.
  static Result<LandscapeFile> open(const std::filesystem::path& path,
                                    const LandscapeHeader& header,
                                    std::span<const Candidate> candidates,
                                    std::size_t default_index);

  bool has(std::size_t candidate) const { return recorded_.contains(candidate); }
  std::size_t recorded() const { return recorded_.size(); }

  Result<void> begin(std::size_t candidate);
  Result<void> add(std::size_t candidate, const LandscapeEntry& entry);
  Result<void> finish() const;

 private:
  LandscapeFile(std::filesystem::path path, std::span<const Candidate> candidates);

  std::string header_text(const LandscapeHeader& header, std::size_t default_index) const;
  Result<void> resume(std::string_view text, const std::string& header);
  /// The values of a candidate in the header's order, as JSON.
  std::string point(std::size_t candidate) const;

  std::filesystem::path path_;
  std::filesystem::path part_;
  std::span<const Candidate> candidates_;
  std::vector<std::string> templates_;
  std::vector<std::string> parameters_;  ///< of all templates
  std::map<std::string, std::size_t> by_point_;
  std::set<std::size_t> recorded_;
};

}  // namespace kernwright
