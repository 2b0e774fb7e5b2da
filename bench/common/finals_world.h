#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "compile/compile_pool.h"
#include "device/device.h"
#include "model/candidate/candidate.h"
#include "model/catalog/catalog.h"
#include "tuner/data/data_ops.h"
#include "tuner/runner.h"
#include <kernwright/result.h>

namespace kernwright {

/// A GPU with a toolkit, for benches that measure the measuring: no service, no cache.
struct FinalsWorld {
  std::unique_ptr<Device> device;
  std::unique_ptr<CompilePool> pool;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<DataOps> data_ops;

  static Result<FinalsWorld> open();
};

/// One problem's default candidate and a runner for it.
class FinalsProblem {
 public:
  static Result<FinalsProblem> open(FinalsWorld& world, const std::string& text, double sample_ms);

  Runner& runner() { return *runner_; }
  const Candidate& candidate() const { return candidate_; }
  const std::string& text() const { return text_; }

  /// Compiles the candidate, whose blocks first wait for so many cycles; unchanged if that is 0.
  Result<std::shared_ptr<const CompiledKernel>> compile(FinalsWorld& world, long long cycles) const;

  /// Compiles another candidate and loads it.
  Result<Runner::Id> load(FinalsWorld& world, const Candidate& candidate);

 private:
  std::string text_;
  Candidate candidate_;
  std::unique_ptr<Runner> runner_;
};

/// Returns `source` with a wait at the beginning of `kernel`. Errors: `internal` if the kernel is
/// not found.
Result<std::string> with_wait(std::string source, std::string_view kernel, long long cycles);

}  // namespace kernwright
