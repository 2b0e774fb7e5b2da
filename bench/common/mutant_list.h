#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/files/embedded_files.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// The kind of a seeded fault. With faults of synchronisation results may be right by luck. Those
/// of arithmetic and indexing that a list names are chosen so that results are always wrong; those
/// that operators make may change nothing.
enum class MutantKind { arithmetic, indexing, synchronisation };

std::string_view to_string(MutantKind kind);

/// A problem and a configuration of a template in which a fault matters.
struct MutantCase {
  std::string name;
  std::string kernel_template;                                ///< "matmul/tiled"
  Problem problem;                                            ///< as written, not normalised
  std::vector<std::pair<std::string, std::int64_t>> changed;  ///< from the default configuration
};

/// One seeded fault: a text in one file of a template, and the text that replaces it.
struct Mutant {
  std::string name;  ///< unique among all
  MutantKind kind = MutantKind::arithmetic;
  std::string kernel_template;
  /// "kernel.cu", "manifest.json", a header beside these or else a device header, "ptx/mma.cuh".
  std::string file;
  std::string find;
  std::string replace;
  int occurrence = 0;                ///< of `find`, from 1; 0: it must be the only one
  std::optional<std::size_t> place;  ///< the place of `find`, if an operator made the mutant
  std::vector<std::size_t> cases;    ///< into MutantList::cases
  std::string fault;                 ///< what is wrong with it
  std::string survives_because;      ///< why no run can show it; empty if one should

  /// Returns `text` with the fault. Errors: `not_found` if `text` does not have the text to be
  /// replaced, or not as often as `occurrence` needs.
  Result<std::string> apply(std::string_view text) const;
};

/// Seeded faults of templates. One file per template:
///
///   {"template": "matmul/tiled",
///    "cases": {NAME: {"problem": "matmul m=77 ...", "configuration": {"BM": 64, ...}}},
///    "mutants": [{"name", "kind", "file", "find", "replace", "occurrence", "on", "fault",
///                 "survives_because"}]}
///
/// `find` and `replace` are arrays of lines; `on` names cases.
struct MutantList {
  std::vector<MutantCase> cases;
  std::vector<Mutant> mutants;

  /// The list built into the bench.
  static Result<MutantList> built_in();
  /// All .json files of a folder. Errors name file, line and field.
  static Result<MutantList> load(const std::filesystem::path& folder);
  static Result<MutantList> parse(std::span<const EmbeddedFile> files);
};

/// bench/mutants/, sorted by path.
std::span<const EmbeddedFile> embedded_mutants();

}  // namespace kernwright
