#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/catalog.h"
#include "tuner/buffer_sets.h"
#include "tuner/data_ops.h"
#include <kernwright/result.h>

namespace kernwright {

/// The error a correct kernel may make in `output`: c * sqrt(reduction) * u_acc and u_out, with c =
/// 8 and the units of the formats involved.
ErrorBound error_bound(const Operation& operation, const Problem& normalized,
                       const std::vector<TensorShape>& shapes, const TensorShape& output);

/// Knows the right outputs of buffer set 0: the operation's reference kernel is compiled and run
/// once, into an fp32 result and an fp32 magnitude per output. Invariant: the reference is finite.
class Checker {
 public:
  /// Errors: the reference does not compile or run; `internal` where it is not finite.
  static Result<Checker> make(Device& device, DataOps& data_ops, const Operation& operation,
                              const Problem& normalized, const Catalog& catalog, CompilePool& pool,
                              const BufferSets& sets);

  /// Compares every output of set 0 with the reference; the worst output's report.
  Result<CheckReport> compare(Device& device, DataOps& data_ops, const BufferSets& sets) const;

 private:
  struct Output {
    std::size_t tensor = 0;  ///< index into the sets' shapes
    ErrorBound bound;
    DevicePointer value = 0;
    DevicePointer magnitude = 0;
  };

  Result<std::string> describe(Device& device, const BufferSets& sets, const Output& output,
                               std::int64_t index) const;

  std::vector<Output> outputs_;
  std::unique_ptr<DeviceBuffer> buffer_;
};

}  // namespace kernwright
