#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "model/result/measurement.h"
#include "support/processes/subprocess.h"

namespace kernwright {

/// The result of checking one candidate.
struct Examination {
  bool ran = false;
  Outcome outcome = Outcome::ok;
  std::string found_by;  ///< "prepare", "screening", "finalist", "process"; empty if accepted
  std::string detail;
  CheckReport report;
  double seconds = 0;

  bool accepted() const { return ran && outcome == Outcome::ok; }
};

/// Checks candidates on GPU 0, in a process of its own. The process is replaced when a candidate
/// has destroyed its context, so a fault does not affect the next candidate.
class MutantExaminer {
 public:
  /// `template_dir` is loaded with the built-in templates. Every process draws data from another
  /// seed.
  MutantExaminer(std::filesystem::path template_dir, std::uint64_t seed)
      : template_dir_(std::move(template_dir)), seed_(seed) {}

  /// Screening, then the depth of finalists.
  Examination examine(const Candidate& candidate, const CompiledKernel& kernel);

 private:
  std::filesystem::path template_dir_;
  std::uint64_t seed_;
  std::optional<Subprocess> process_;
};

/// The main function of that process, for a program that was started with kExaminerOption alone.
int serve_examinations();
inline constexpr const char* kExaminerOption = "--examiner";

}  // namespace kernwright
