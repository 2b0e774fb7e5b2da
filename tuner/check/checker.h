#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/catalog/catalog.h"
#include "tuner/data/buffer_sets.h"
#include "tuner/data/data_ops.h"
#include <kernwright/result.h>

namespace kernwright {

/// The error that a correct kernel may make in `output`: `kErrorFactor` * sqrt(reduction) * u_acc
/// and twice the unit of its intermediate of the magnitude, and u_out of the value, with the units
/// of rounding of the formats involved.
ErrorBound error_bound(const BoundProblem& problem, const TensorShape& output);

/// Returns how the exact set is drawn, so that partial sums stay exact in the accumulator and
/// results stay within the output's range; `kernel` if a kernel of the operation draws it. Returns
/// nothing if the operation has no exact test, if its sums are too long, or if a floating tensor is
/// always drawn as numbers that are not whole.
std::optional<DrawKind> exact_draw(const BoundProblem& problem);

/// Knows the right outputs of the checked buffer sets. The operation's reference is compiled once
/// and run on each set. For each output it computes a result (`reference_dtype`) and, except on the
/// exact set, an fp32 magnitude. Invariant: the results of set 0 and of the exact set are finite.
class Checker {
 public:
  /// `sets` have the problem's tensors. Errors: the reference does not compile or run; `internal`
  /// if it is not finite.
  static Result<Checker> make(Device& device, DataOps& data_ops, const BoundProblem& problem,
                              const Catalog& catalog, CompilePool& pool, const BufferSets& sets);

  /// Compares every output with the reference of `set`. `addresses` has one address per tensor. On
  /// the exact set outputs must equal it to the last bit, except outputs that are not exact. On the
  /// NaN set they must be NaN wherever it is NaN, and within the bound elsewhere. On set 0 and the
  /// count set they must be within the bound. Returns the number of the first finding; there is one
  /// finding per output.
  Result<std::size_t> enqueue(DataOps& data_ops, int set,
                              std::span<const DevicePointer> addresses) const;

  /// Returns the report of the findings from number `first` on; `first_mismatch` is read from the
  /// device.
  Result<CheckReport> report(Device& device, int set, std::span<const DevicePointer> addresses,
                             std::span<const Finding> findings, std::size_t first) const;

  /// Compares every output of set 0 with the reference, and waits.
  Result<CheckReport> compare(Device& device, DataOps& data_ops, const BufferSets& sets) const;

  /// Allows errors that are larger by `units` of the magnitude and by `absolute`, except on the
  /// exact set.
  void widen(double units, double absolute);

  /// The regions of the outputs at `addresses`.
  std::vector<MemoryRegion> outputs(std::span<const DevicePointer> addresses) const;

 private:
  /// Outputs of the reference for one checked set; 0 if there is no such set.
  struct Expected {
    DevicePointer value = 0;
    DevicePointer magnitude = 0;  ///< of an exact output, the exact set and set 0 share it
  };
  struct Output {
    std::size_t tensor = 0;  ///< index into the sets' shapes
    ErrorBound bound;
    bool is_exact = true;  ///< on the exact set
    Expected realistic;
    Expected exact;
    Expected nan;
    Expected count;

    const Expected& of(int set) const {
      return set == BufferSets::kExactSet   ? exact
             : set == BufferSets::kNanSet   ? nan
             : set == BufferSets::kCountSet ? count
                                            : realistic;
    }
    ErrorBound bound_of(int set) const;
  };

  std::int64_t place_outputs(const BufferSets& sets);
  Result<void> run_reference(Device& device, const LoadedProgram& program,
                             const ExecutionPlan& plan, const BufferSets& sets, int set) const;
  Result<void> expect_finite(DataOps& data_ops) const;
  Result<std::string> describe(Device& device, int set, DevicePointer actual, const Output& output,
                               std::int64_t place) const;

  std::vector<TensorShape> shapes_;
  bool has_exact_ = false;
  bool has_count_ = false;

  std::vector<Output> outputs_;
  std::unique_ptr<DeviceBuffer> buffer_;
};

}  // namespace kernwright
