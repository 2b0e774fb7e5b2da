#pragma once

#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "bench/common/mutant_list.h"
#include "compile/compile_pool.h"
#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"
#include <kernwright/result.h>

namespace kernwright {

/// One mutant in one case, or the template as it is (the control), ready to compile.
struct MutantTry {
  const Mutant* mutant = nullptr;  ///< null: the control
  const MutantCase* where = nullptr;
  Candidate candidate;
  CompileRequest request;
  std::size_t control = 0;  ///< index of the control of the same case in MutantBuilds::tries

  /// "wave_addend_not_awaited on matmul/persistent_wave, fused".
  std::string label() const;
};

/// All mutants and controls, ready to compile. Mutants of a manifest are templates of their own, in
/// a temporary folder that lives as long as this object. Mutants of sources and device headers are
/// the template itself, compiled from another text. In all of them, controls included, a wait for
/// an mbarrier gives up after ten seconds, and all later waits at once, so a kernel that hangs ends
/// by itself.
class MutantBuilds {
 public:
  /// `list` must outlive this. Errors: one line for each mutant of a list whose text is not found
  /// or whose candidate is rejected. Mutants that operators made are then left out.
  static Result<std::unique_ptr<MutantBuilds>> make(const MutantList& list,
                                                    const DeviceProfile& profile);
  ~MutantBuilds();

  const Catalog& catalog() const { return *catalog_; }
  /// Returns the folder that `Catalog::load` was given.
  const std::filesystem::path& template_dir() const { return folder_; }
  /// The tries in the order of the list, after the controls of all cases.
  const std::vector<MutantTry>& tries() const { return tries_; }

 private:
  explicit MutantBuilds(const MutantList& list) : list_(list) {}
  Result<void> write_manifests(const Catalog& built_in);
  Result<MutantTry> make_try(const Mutant* mutant, std::size_t where,
                             const DeviceProfile& profile) const;

  const MutantList& list_;
  std::filesystem::path folder_;
  std::shared_ptr<const Catalog> catalog_;
  std::vector<MutantTry> tries_;
};

/// How a try differs from its control.
enum class Change {
  none,
  code,
  no_code
};  // the same launches and machine code; it does not compile

/// Returns it for each of `tries`, which have the control of every mutant in them; `compiled` has
/// the results of their requests. A control that compiles has `code`.
std::vector<Change> changes_of(const std::vector<const MutantTry*>& tries,
                               const std::vector<Build>& compiled);

/// Returns the defects of the list itself, a line each: controls and mutants of a list that do not
/// compile or change nothing.
std::vector<std::string> find_defects(const std::vector<const MutantTry*>& tries,
                                      const std::vector<Build>& compiled,
                                      const std::vector<Change>& changes);

}  // namespace kernwright
