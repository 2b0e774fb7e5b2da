#include <kernwright/attention/drawing.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Lengths of sequences in any order. With `with_edges` some are lengths at which a piece ends.
__device__ void draw(int* q_offsets, int* kv_offsets, int* kv_lengths, unsigned long long seed,
                     long long sequences, long long longest_q, long long longest_kv,
                     long long all_q, long long all_kv, bool with_edges) {
  const Order order(seed, sequences);
  const Lengths q_lengths{sequences, all_q, longest_q};
  const Lengths k_lengths{sequences, all_kv, longest_kv};
  long long q_first = 0;
  long long kv_first = 0;
  for (long long s = 0; s < sequences; ++s) {
    const long long queries = q_lengths(order(s));
    long long keys = k_lengths(order(s));
    if (with_edges) {
      keys = min(keys, edge(hash_at(seed, static_cast<unsigned long long>(s) + 2), 384, keys));
    }
    if (q_offsets) q_offsets[s] = static_cast<int>(q_first);
    if (kv_offsets) kv_offsets[s] = static_cast<int>(kv_first);
    if (kv_lengths) kv_lengths[s] = static_cast<int>(keys);
    q_first += queries;
    kv_first += keys;
  }
  if (q_offsets) q_offsets[sequences] = static_cast<int>(q_first);
  if (kv_offsets) kv_offsets[sequences] = static_cast<int>(kv_first);
}

extern "C" __global__ void attention_schedule_timing(KW_PARAMETERS(attention_schedule_timing)) {
  draw(q_offsets, kv_offsets, kv_lengths, static_cast<unsigned long long>(seed), batch, q_len,
       kv_len, q_total, kv_total, false);
}

extern "C" __global__ void attention_schedule_exact(KW_PARAMETERS(attention_schedule_exact)) {
  draw(q_offsets, kv_offsets, kv_lengths, static_cast<unsigned long long>(seed), batch, q_len,
       kv_len, q_total, kv_total, true);
}
