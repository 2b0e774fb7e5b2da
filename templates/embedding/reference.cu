#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Copies a row of the table in each block. For a token that the table does not have it writes a row
// of NaN.
extern "C" __global__ void embedding_reference(const int* tokens, const dtype_t* table,
                                               const int* sequence_lengths, float* value,
                                               float* magnitude, long long* next_lengths,
                                               long long token_count, long long columns,
                                               long long rows) {
  for (long long t = blockIdx.x; t < token_count; t += gridDim.x) {
    const long long row = tokens[t];
    for (long long c = threadIdx.x; c < columns; c += blockDim.x) {
      const float element = row >= 0 && row < rows ? to_float(table[row * columns + c]) : NAN;
      value[t * columns + c] = element;
      magnitude[t * columns + c] = fabsf(element);
    }
    if (lengths == lengths_advance && threadIdx.x == 0) next_lengths[t] = sequence_lengths[t] + 1ll;
  }
}
