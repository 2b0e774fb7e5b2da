#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <kernwright/service.h>

namespace kernwright {

/// The figures of one service that operators watch.
struct Metrics {
  std::string sku;
  std::vector<std::string> bundles;  ///< digests of the bundles among its layers, in hex
  std::vector<LookupCount> lookups;
  std::uint64_t compiles = 0;
  double compile_seconds = 0;  ///< of all compiles, also of those that ran at the same time
  bool ready = false;          ///< the service was sealed
  std::uint64_t compiles_after_ready = 0;
  std::uint64_t loaded_kernels = 0;
  std::uint64_t loaded_bytes = 0;
};

/// Returns them in Prometheus' text format, version 0.0.4.
std::string to_prometheus(const Metrics& metrics);

}  // namespace kernwright
