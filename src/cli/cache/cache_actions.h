#pragma once

#include <cstdint>
#include <filesystem>

#include "cli/command.h"

namespace kernwright::cli {

/// The options of the actions of `kernwright cache`.
struct CacheFlags {
  CacheFlags(llvm::cl::SubCommand& sub, const llvm::cl::opt<bool>& json);

  std::filesystem::path root() const;

  ServiceFlags service;
  llvm::cl::list<std::string> words;  ///< the action's name, then its operands
  llvm::cl::opt<bool> recompile;
  llvm::cl::opt<double> max_gib;
  llvm::cl::opt<double> max_days;
  llvm::cl::opt<std::string> kernel_template;
  llvm::cl::opt<std::string> configuration;
  llvm::cl::opt<std::string> why;
  llvm::cl::opt<bool> worklist;
  llvm::cl::opt<std::string> key;
  llvm::cl::opt<std::uint64_t> serial;
  llvm::cl::opt<std::string> trusted_keys;
  llvm::cl::opt<bool> allow_unsigned;
  llvm::cl::opt<bool> allow_older;
  const llvm::cl::opt<bool>& json;
};

Status list_cache(const CacheFlags& flags);
/// Reads all files. A file that does not decode is a defect, and so is a record without its
/// winner's artifact, or a family without the artifact of a kernel.
Status verify_cache(const CacheFlags& flags);
Status compact_cache(const CacheFlags& flags);
Status prune_cache(const CacheFlags& flags);
Status merge_caches(const CacheFlags& flags);
/// The actions `pin`, `ban` and `lift`, which the first word chooses.
Status decide(const CacheFlags& flags);
Status show_misses(const CacheFlags& flags);
Status export_cache(const CacheFlags& flags);
Status install_cache(const CacheFlags& flags);
Status make_keys(const CacheFlags& flags);

}  // namespace kernwright::cli
