#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "support/file_descriptor.h"
#include <kernwright/result.h>

namespace kernwright {

/// The right to measure on one GPU, shared by all tuning processes of a host: a lock on a file
/// named by the GPU's UUID, which ends with its holder however that ends. Move-only.
class GpuLock {
 public:
  using Log = std::function<void(std::string_view)>;

  /// Waits for it; `log` is told once whom for. Errors: `io` where no lock file can be made;
  /// `unavailable` where `stop` became true.
  static Result<GpuLock> acquire(std::string_view uuid, const Log& log = {},
                                 const std::atomic<bool>* stop = nullptr);

  /// In the system's folder for temporary files, which all users share.
  static Result<std::filesystem::path> path(std::string_view uuid);

 private:
  explicit GpuLock(FileDescriptor file) : file_(std::move(file)) {}

  FileDescriptor file_;
};

}  // namespace kernwright
