#include "model/candidate/demands.h"

namespace kernwright {
namespace {

constexpr DemandName kNames[] = {{"tiles", &Demands::tiles},
                                 {"steps", &Demands::steps},
                                 {"stages", &Demands::stages},
                                 {"wgmma_flops", &Demands::wgmma_flops},
                                 {"mma_flops", &Demands::mma_flops},
                                 {"instructions", &Demands::instructions},
                                 {"special_functions", &Demands::special_functions},
                                 {"smem_bytes", &Demands::smem_bytes},
                                 {"loaded_bytes", &Demands::loaded_bytes},
                                 {"l2_bytes", &Demands::l2_bytes},
                                 {"step_clocks", &Demands::step_clocks},
                                 {"idle_clocks", &Demands::idle_clocks},
                                 {"tile_clocks", &Demands::tile_clocks},
                                 {"round_clocks", &Demands::round_clocks},
                                 {"once_clocks", &Demands::once_clocks},
                                 {"in_flight_bytes", &Demands::in_flight_bytes},
                                 {"wave_bytes", &Demands::wave_bytes},
                                 {"reread_bytes", &Demands::reread_bytes},
                                 {"registers", &Demands::registers},
                                 {"other_bytes", &Demands::other_bytes}};

}  // namespace

std::span<const DemandName> demand_names() { return kNames; }

}  // namespace kernwright
