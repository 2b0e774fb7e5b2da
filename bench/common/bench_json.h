#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include <kernwright/result.h>

namespace kernwright {

/// The results file of one bench on one device. Rows are kept by problem and peer. A row that is
/// measured again replaces the old one; all others keep their date and commit. So a bench can be
/// continued over several visits to a device.
class BenchJson {
 public:
  /// Reads the file at `path` if it exists. With an empty `path` nothing is ever written. `command`
  /// is stored in the file; `device` is an object with at least "name". Errors: a file that does
  /// not hold results, or holds results of another bench or device, with both names.
  static Result<BenchJson> open(std::filesystem::path path, std::string bench, std::string command,
                                nlohmann::ordered_json device);

  /// Adds a row, or replaces the one with the same "problem" and "peer", if it has one. Adds the
  /// date, and "ratio" = peer_us / ours_us if both exist, and publishes the file.
  Result<void> add(nlohmann::ordered_json row);

 private:
  std::filesystem::path path_;
  nlohmann::ordered_json document_;
};

/// The device block of benches that use no GPU: the CPU's name and the number of its cores.
nlohmann::ordered_json cpu_device();

}  // namespace kernwright
