#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/expression/expression.h"
#include <kernwright/result.h>

namespace kernwright {

/// What is known of one GPU SKU, as plain data: with it everything but measuring works where no GPU
/// is present. Its `id` is the SKU fingerprint in record keys, live and predicted alike.
struct DeviceProfile {
  std::string id;    ///< "h200"
  std::string name;  ///< the driver's name, "NVIDIA H200"
  int sm_arch = 0;   ///< compute capability times ten, 90
  std::int64_t sm_count = 0;
  std::int64_t smem_per_block_optin = 0;  ///< bytes
  std::int64_t smem_per_sm = 0;           ///< bytes
  std::int64_t registers_per_sm = 0;
  std::int64_t max_threads_per_sm = 0;
  std::int64_t max_blocks_per_sm = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  double dram_gbps = 0;           ///< 1e9 bytes/s, by the datasheet
  double sm_clock_mhz = 0;        ///< maximum boost
  double dense_16bit_tflops = 0;  ///< tensor cores, bf16/fp16 in, fp32 accumulate, no sparsity
  double fp32_tflops = 0;
  double graph_node_us = 0;     ///< an empty kernel in a graph; 0: not known
  double stream_launch_us = 0;  ///< of the host, per kernel launched; 0: not known

  /// The multiprocessors on which clusters of so many `blocks` find a place at once, as counted on
  /// H200s: a cluster lies within a group of multiprocessors (GPC), and what a group has left is
  /// lost. Cards of one SKU differ by a few.
  std::int64_t sms_for_clusters(std::int64_t blocks) const;

  /// Adds the device fields of the expression language (sm_count, sms_for_fours, sms_for_eights,
  /// smem_per_block_optin, smem_per_sm, registers_per_sm, max_threads_per_sm, l2_bytes, sm_arch).
  void add_to(Scope& scope) const;
};

/// The names that `DeviceProfile::add_to` gives, in its order.
std::span<const std::string_view> device_field_names();

/// The built-in profiles (h200, h100_sxm, h100_pcie, a100_40, a100_80, a10g, l40s, rtx_3090,
/// rtx_4090, b200); read once from embedded data.
const std::vector<DeviceProfile>& built_in_profiles();

/// The built-in profile `id`. Errors: `not_found` listing what exists.
Result<DeviceProfile> find_profile(std::string_view id);

/// Parses one profile file: every number is {"value": v, "source": "..."}.
Result<DeviceProfile> parse_profile(std::string_view text, std::string_view file);

/// The profile of a live device described by `measured` (as filled from driver attributes, `id`
/// empty): the built-in one of the same arch, SM count and memory class whose name fits best, with
/// the live figures kept where the driver knows better; or a profile with an id made from the name
/// and SM count where none fits.
DeviceProfile identify_profile(const DeviceProfile& measured);

}  // namespace kernwright
