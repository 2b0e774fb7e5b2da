#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/expression/expression.h"
#include <kernwright/result.h>

namespace kernwright {

/// The properties of a SKU that the cost model needs and no datasheet says.
struct DeviceRates {
  double launch_us = 0;             ///< of the smallest kernel in a graph, after the one ahead
  double further_launch_us = 0;     ///< each further launch of a kernel
  double early_start_us = 0;        ///< saved by a start that the end of the kernel ahead hides
  double load_latency_clocks = 0;   ///< from a load to its data, with idle memory
  double l2_bytes_per_clock = 0;    ///< from the L2 to a multiprocessor while all load
  double read_share = 0;            ///< share of the datasheet's memory rate that reads reach
  double write_loss = 0;            ///< of that share, if all is written
  double mma_sync_share = 0;        ///< share of the tensor cores' rate that mma.sync reaches
  double sustained_share = 0;       ///< share of that rate that the power limit leaves to GEMMs
  double flops_per_moved_byte = 0;  ///< flops that cost the energy of a byte through an SM
  double flops_per_dram_byte = 0;   ///< the same for a byte from or to memory
};

/// The properties of one GPU SKU. With them everything except measuring works without a GPU. `id`
/// is the SKU in record keys, of measured and of predicted records.
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
  DeviceRates rates;

  /// Returns the number of multiprocessors on which clusters of `blocks` blocks find a place at
  /// once, as counted on H200s. A cluster must be within one group of multiprocessors (GPC), so
  /// some of each group may stay idle. Cards of one SKU differ by a few.
  std::int64_t sms_for_clusters(std::int64_t blocks) const;

  /// Adds the device fields of the expression language (sm_count, sms_for_fours, sms_for_eights,
  /// smem_per_block_optin, smem_per_sm, registers_per_sm, max_threads_per_sm, l2_bytes, sm_arch).
  void add_to(Scope& scope) const;
};

/// Returns the names that `DeviceProfile::add_to` adds, in its order.
std::span<const std::string_view> device_field_names();

/// Returns the built-in profiles (h200, h100_sxm, h100_pcie, a100_40, a100_80, a10g, l40s,
/// rtx_3090, rtx_4090, b200); read once from embedded data.
const std::vector<DeviceProfile>& built_in_profiles();

/// Finds the built-in profile `id`. Errors: `not_found` with the existing ones.
Result<DeviceProfile> find_profile(std::string_view id);

/// Parses one profile file, in which every number is {"value": v, "source": "..."}.
Result<DeviceProfile> parse_profile(std::string_view text, std::string_view file);

/// Returns the profile of a live device. `measured` has the driver's attributes and an empty `id`.
/// Among the built-in profiles with the same architecture, SM count and memory class, the one with
/// the best fitting name is taken; figures that the driver knows better are kept. If none fits, the
/// result is `measured` with an id made from name and SM count, and with the H200's rates.
DeviceProfile identify_profile(const DeviceProfile& measured);

}  // namespace kernwright
