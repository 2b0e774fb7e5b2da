#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include <kernwright/result.h>

namespace kernwright {

/// The results file of one bench. Rows are kept by problem and peer: a row measured again replaces
/// the old one, all others stay with the date and commit they were measured at, so that a bench can
/// be continued over several visits to a device. One file holds results of one bench on one device.
class BenchJson {
 public:
  /// Starts from the file at `path` where it exists; with an empty `path` nothing is ever written.
  /// `command` is recorded as given; `device` is an object of at least "name". Errors: a file that
  /// is no results file, or one of another bench or device name, naming both.
  static Result<BenchJson> open(std::filesystem::path path, std::string bench, std::string command,
                                nlohmann::ordered_json device);

  /// Adds or replaces the row with the same "problem" (and "peer", where it has one), dates it,
  /// adds "ratio" = peer_us / ours_us where both are there, and publishes the file.
  Result<void> add(nlohmann::ordered_json row);

 private:
  std::filesystem::path path_;
  nlohmann::ordered_json document_;
};

/// The device block of benches that use no GPU: the CPU's name and the number of its cores.
nlohmann::ordered_json cpu_device();

}  // namespace kernwright
