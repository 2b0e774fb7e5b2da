#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "support/file_descriptor.h"
#include "support/processes/process_exit.h"
#include <kernwright/result.h>

namespace kernwright {

/// The right to measure on one GPU, which all tuning processes of a host share. It is a lock on a
/// file that has the GPU's UUID as its name, and it ends with its holder, however that ends.
/// Move-only.
class GpuLock {
 public:
  using Log = std::function<void(std::string_view)>;

  /// Waits for the lock, and tells `log` once which process has it. Errors: `io` if no lock file
  /// can be made; `unavailable` if `stopped` says so.
  static Result<GpuLock> acquire(std::string_view uuid, const Log& log = {},
                                 const std::function<bool()>& stopped = exiting);

  /// The folder of the lock files: the system's for temporary files, which all users share.
  static Result<std::filesystem::path> path(std::string_view uuid);

 private:
  explicit GpuLock(FileDescriptor file) : file_(std::move(file)) {}

  FileDescriptor file_;
};

}  // namespace kernwright
