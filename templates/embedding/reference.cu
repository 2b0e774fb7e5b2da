#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Copies a row of the table in each block. For a token that the table does not have it writes a row
// of NaN.
extern "C" __global__ void embedding_reference(KW_PARAMETERS(embedding_reference)) {
  for (long long t = blockIdx.x; t < token_count; t += gridDim.x) {
    const long long row = tokens[t];
    for (long long c = threadIdx.x; c < hidden; c += blockDim.x) {
      const float element = row >= 0 && row < vocabulary ? to_float(table[row * hidden + c]) : NAN;
      x_reference[t * hidden + c] = element;
      x_magnitude[t * hidden + c] = fabsf(element);
    }
    if (config::lengths == lengths_advance && threadIdx.x == 0)
      lengths_out_reference[t] = lengths[t] + 1ll;
  }
}
