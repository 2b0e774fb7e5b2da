#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/expression/expression.h"
#include "support/json.h"

namespace kernwright {

/// The demands of a candidate on the device, from the "cost" of its template's manifest: the input
/// of the cost model. They describe the launch with the most shared memory, the first of several.
/// Its blocks take `tiles` one after another, and a tile takes `steps`.
struct Demands {
  std::int64_t tiles = 0;   ///< of the whole launch; 0: one for each block
  std::int64_t steps = 1;   ///< of a tile
  std::int64_t stages = 1;  ///< steps whose loads are in flight or in use in a block; 1: none ahead

  // Per step of one block.
  std::int64_t wgmma_flops = 0;   ///< of wgmma, as if all operands had 16 bits
  std::int64_t mma_flops = 0;     ///< the same of mma.sync
  std::int64_t instructions = 0;  ///< other arithmetic, of single lanes
  std::int64_t special_functions =
      0;                          ///< exponentials, tanh, reciprocals and roots, of single lanes
  std::int64_t smem_bytes = 0;    ///< through shared memory
  std::int64_t loaded_bytes = 0;  ///< that arrive in the multiprocessor
  std::int64_t l2_bytes = 0;      ///< of those, from the L2: a cluster shares some
  std::int64_t step_clocks = 0;   ///< its chain of dependent work, beside the loads
  std::int64_t idle_clocks = 0;   ///< for which no unit has work: barriers, addresses

  std::int64_t tile_clocks = 0;   ///< of a tile beside its steps, if no other tile hides them
  std::int64_t round_clocks = 0;  ///< each time that all blocks of a multiprocessor are replaced
  std::int64_t once_clocks = 0;   ///< before the first tile and after the last

  std::int64_t in_flight_bytes = 0;  ///< from memory to a block at most; 0: enough for the memory
  std::int64_t wave_bytes = 0;    ///< that tiles which run at once read together; 0: once for all
  std::int64_t reread_bytes = 0;  ///< of inputs, whose lines are read from memory once more
  std::int64_t registers = 0;     ///< of a thread; 0: few enough
  std::int64_t other_bytes = 0;   ///< that the other launches read and write
};

/// One name of a manifest's "cost".
struct DemandName {
  std::string_view name;
  std::int64_t Demands::* demand;
};

/// Returns all names.
std::span<const DemandName> demand_names();

/// The entry of a manifest for one demand.
struct DemandSpec {
  DemandName name;
  Expression expression;
  JsonPlace place;
};

}  // namespace kernwright
