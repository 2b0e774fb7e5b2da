#include <kernwright/attention/drawing.cuh>
#include <kernwright/math/types.cuh>

using namespace kernwright;
using namespace kernwright::config;

enum Set { kTiming, kExact, kNan };

// Returns a token of any row. In an exact set the first row, the last one, and one that several
// tokens have are among them. In a set with NaN some tokens are not in the table.
__device__ long long draw_token(Set set, unsigned long long seed, long long t, long long count,
                                long long rows) {
  const unsigned long long random = hash_at(hash_at(seed, 0), static_cast<unsigned long long>(t));
  const auto any = static_cast<long long>(random % static_cast<unsigned long long>(rows));
  if (set == kExact) {
    if (t == count - 1) return rows - 1;
    if (t == 0) return 0;
    return t % 3 == 0 ? static_cast<long long>(seed % static_cast<unsigned long long>(rows)) : any;
  }
  if (set == kNan && (t + static_cast<long long>(seed)) % 3 == 0) {
    const long long none[] = {-1, rows, -2147483648ll, 2147483647, -rows, rows + any};
    const long long token = none[random % 6];
    return token <= 2147483647 ? token : -1;
  }
  return any;
}

__device__ void draw(Set set, int* tokens, dtype_t* table, int* sequence_lengths,
                     unsigned long long seed, long long count, long long rows, long long elements) {
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  if (tokens) {
    for (long long t = first; t < count; t += stride) {
      tokens[t] = static_cast<int>(draw_token(set, seed, t, count, rows));
    }
  }
  if (sequence_lengths) {
    const unsigned long long stream = hash_at(seed, 1);
    for (long long t = first; t < count; t += stride) {
      const unsigned long long random = hash_at(stream, static_cast<unsigned long long>(t));
      sequence_lengths[t] = static_cast<int>(random % 1000000);
    }
  }
  if (table) {
    const unsigned long long stream = hash_at(seed, 2);
    for (long long i = first; i < elements; i += stride) {
      const unsigned long long random = hash_at(stream, static_cast<unsigned long long>(i));
      const bool is_nan = set == kNan && random % 61 == 0;
      table[i] = from_float<dtype_t>(is_nan ? NAN : normal(random));
    }
  }
}

// Draws rows in any order, of a table that is normal.
extern "C" __global__ void embedding_timing(KW_PARAMETERS(embedding_timing)) {
  draw(kTiming, tokens, table, lengths, static_cast<unsigned long long>(seed), token_count,
       vocabulary, elements);
}

// Tokens at the ends of the table, and equal ones. A copy is exact whatever the table holds.
extern "C" __global__ void embedding_exact(KW_PARAMETERS(embedding_exact)) {
  draw(kExact, tokens, table, lengths, static_cast<unsigned long long>(seed), token_count,
       vocabulary, elements);
}

// Draws NaN here and there in the table, and tokens beyond its ends.
extern "C" __global__ void embedding_nan(KW_PARAMETERS(embedding_nan)) {
  draw(kNan, tokens, table, lengths, static_cast<unsigned long long>(seed), token_count, vocabulary,
       elements);
}
