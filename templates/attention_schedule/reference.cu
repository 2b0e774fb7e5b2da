#include <kernwright/attention/schedule_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Writes the entry of a slot in each thread, from all sequences.
extern "C" __global__ void attention_schedule_reference(
    KW_PARAMETERS(attention_schedule_reference)) {
  const auto demand_of = [&](long long s) {
    const long long queries = q_offsets ? q_offsets[s + 1] - q_offsets[s] : q_len;
    const int keys = kv_lengths ? kv_lengths[s] : kv_offsets[s + 1] - kv_offsets[s];
    return Demand(static_cast<int>(queries), keys, static_cast<int>(window));
  };
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long slot = blockIdx.x * blockDim.x + threadIdx.x; slot < slots; slot += threads) {
    write_entry(work_reference + slot * 8, slot, slots, batch, demand_of);
  }
}
