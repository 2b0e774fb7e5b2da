#pragma once
// A work list of attention, entry by entry: for the reference of attention_schedule, and for the
// kernels that draw the inputs of attention.

#include <kernwright/attention/schedule.cuh>

namespace kernwright {

// The begin of a slot: a sequence, and how many times kPieceKeys of its keys come before.
struct PieceBegin {
  long long sequence, tile;
};

// Returns the place of unit `unit` of all work. The first two units of a sequence are its begin, so
// that no piece is without keys. Behind all work it returns the end.
template <typename DemandOf>
__device__ PieceBegin place_of_unit(long long unit, long long sequences,
                                    const DemandOf& demand_of) {
  for (long long s = 0; s < sequences; ++s) {
    const long long units = demand_of(s).units;
    if (unit < units) return {s, unit < 1 ? 0 : unit - 1};
    unit -= units;
  }
  return {sequences, 0};
}

// Writes the entry of a slot. demand_of(s) is the demand of sequence s.
template <typename T, typename DemandOf>
__device__ void write_entry(T* to, long long slot, long long slots, long long sequences,
                            const DemandOf& demand_of) {
  const auto units_before = [&](long long sequence) {
    long long units = 0;
    for (long long s = 0; s < sequence; ++s) units += demand_of(s).units;
    return units;
  };
  const long long all = units_before(sequences);
  const long long share = max(1ll, (all + slots - 1) / slots);
  const PieceBegin from = place_of_unit(slot * share, sequences, demand_of);
  const PieceBegin until = place_of_unit((slot + 1) * share, sequences, demand_of);
  for (int i = 0; i < 8; ++i) to[i] = -1;
  if (from.sequence == until.sequence && from.tile == until.tile) return;

  const bool is_cut = until.tile > 0;  // within its last sequence
  const long long last = is_cut ? until.sequence : until.sequence - 1;
  const Demand first_demand = demand_of(from.sequence), last_demand = demand_of(last);
  const long long first_unit = units_before(from.sequence);
  to[0] = static_cast<T>(from.sequence);
  to[1] = static_cast<T>(first_demand.begin + from.tile * kPieceKeys);
  to[2] = static_cast<T>(last);
  to[3] = static_cast<T>(is_cut ? last_demand.begin + until.tile * kPieceKeys : last_demand.end);
  to[4] = static_cast<T>(from.tile > 0 ? (first_unit + 1) / share : slot);
  to[5] = static_cast<T>((first_unit + first_demand.units - 1) / share);
  to[6] = static_cast<T>(is_cut ? (units_before(last) + last_demand.units - 1) / share : slot);
}

}  // namespace kernwright
