#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "tuner/check/checker.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/data_ops.h"
#include "tuner/data/workspace.h"
#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

/// A loaded candidate, and the results of its checks.
struct Subject {
  std::shared_ptr<LoadedProgram> program;
  /// The same code with the arguments that read most ahead in a chain; null if none does.
  std::shared_ptr<LoadedProgram> ahead;
  std::vector<TensorShape> tensors;  ///< of its plan
  std::vector<double> scalars;
  std::int64_t workspace_bytes = 0;
  std::vector<WorkspacePart> kept_zero;  ///< of the workspace
  CheckReport report;
  std::vector<std::uint64_t> output_hashes;  ///< of set 0, one per output
};

/// Compares a candidate's results with the reference. All launches of a check are enqueued at once,
/// and their findings are read once. Memory that a candidate damaged is repaired before the next
/// one. Errors are the runner's own. A candidate's failure is the outcome of the step.
class Examiner {
 public:
  /// `disturber` runs at the same time as candidates, and empties the L2. `disposable` says that a
  /// fault may cost this process its context. Finalists are run against unmapped pages only then.
  Examiner(Device& device, DataOps& data_ops, const BufferSets& sets, const Checker& checker,
           const Workspace& workspace, const LoadedProgram& disturber, bool disposable)
      : device_(device),
        data_ops_(data_ops),
        sets_(sets),
        checker_(checker),
        workspace_(workspace),
        disturber_(disturber),
        disposable_(disposable) {}

  /// Examines the subject and replaces its report. The checks come in this order: the first run,
  /// which is poisoned and guarded, and exact if there is an exact set; the memory that is kept
  /// zero; the realistic run within its bound; the run on the count set if there is one; repeats
  /// with identical bits, some of them reading ahead; the run on the NaN set if there is one; and
  /// for finalists the runs against unmapped pages.
  Result<Runner::Checked> examine(Subject& subject, Runner::CheckDepth depth);

  /// Poisons the outputs of set 0, and with `with_twin` the twin's too, lets `replay` write them,
  /// and examines them.
  Result<Runner::Checked> examine_replay(Subject& subject, bool with_twin,
                                         const std::function<Runner::Step()>& replay);

  /// Examines one fresh run by the bound. This is for operations that work in place, whose inputs a
  /// replay changes.
  Result<Runner::Checked> examine_once(Subject& subject);

  /// The arguments of a subject on the tensors of a set.
  LaunchArguments arguments(const Subject& subject, int set) const;

 private:
  /// The numbers of the findings of enqueued checks.
  struct Numbers {
    std::size_t first_run = 0;
    std::size_t realistic = 0;
    std::vector<std::size_t> hashes;  ///< one per run: of its first output
    std::size_t nan = 0;
    std::size_t count = 0;
    std::size_t zeros = 0;          ///< of the workspaces that are kept zero, as they should be
    std::vector<std::size_t> kept;  ///< of the same, one per run: of its first
    std::size_t watched = 0;
    std::size_t zones_before = 0;  ///< of the workspace
    std::size_t zones_after = 0;
  };
  using Addresses = std::span<const DevicePointer>;

  int first_set() const { return sets_.has_exact_set() ? BufferSets::kExactSet : 0; }
  Result<void> enqueue_run(const Subject& subject, int set, std::uint8_t poison);
  /// The same as a step of a chain behind one that writes nothing, if the subject may read ahead
  /// there.
  Result<void> enqueue_run_ahead(const Subject& subject, int set, std::uint8_t poison);
  Result<void> enqueue_repeats(const Subject& subject, int runs, Numbers& numbers);
  Result<Numbers> enqueue_examination(const Subject& subject, int runs);
  Result<void> enqueue_watch(const Subject& subject, Numbers& numbers);
  std::vector<MemoryRegion> kept_zero(const Subject& subject) const;
  Result<void> enqueue_zeros(const Subject& subject, Numbers& numbers);
  /// Behind a run.
  Result<void> enqueue_kept(const Subject& subject, Numbers& numbers);

  /// Turns an error into a step if it is the candidate's failure; else returns it as the runner's
  /// own.
  Result<Runner::Step> failed(const Error& error);
  /// Each of these judges one kind of finding. A step that is not ok ends the examination.
  Result<Runner::Step> judge_watched(const Subject& subject, const Numbers& numbers,
                                     std::span<const Finding> findings);
  Result<Runner::Step> judge_values(CheckReport& report, int set, Addresses addresses,
                                    std::span<const Finding> findings, std::size_t first);
  static Runner::Step judge_kept(const Subject& subject, const Numbers& numbers,
                                 std::span<const Finding> findings);
  Result<Runner::Step> judge_repeats(Subject& subject, const Numbers& numbers,
                                     std::span<const Finding> findings) const;
  Result<Runner::Step> judge_examination(Subject& subject, const Numbers& numbers,
                                         std::span<const Finding> findings);
  Result<std::string> find_damage(const WatchedRegion& watched);

  /// Runs with every tensor and the workspace next to an unmapped page, at their ends and then at
  /// their starts.
  Result<Runner::Step> run_fenced(Subject& subject);
  Result<Runner::Step> run_fenced_at(Subject& subject, bool at_end,
                                     std::span<const std::unique_ptr<DeviceBuffer>> fences);

  Device& device_;
  DataOps& data_ops_;
  const BufferSets& sets_;
  const Checker& checker_;
  const Workspace& workspace_;
  const LoadedProgram& disturber_;
  bool disposable_;
};

}  // namespace kernwright
