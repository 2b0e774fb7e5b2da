#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Finds the rows of each expert in a thread of one block, which reads all ids. The last thread has
// the pairs of all other experts.
extern "C" __global__ void order_experts_reference(KW_PARAMETERS(order_experts_reference)) {
  const long long rows = tokens * top;
  const auto expert_of = [&](long long i) {
    const long long e = static_cast<long long>(ids[i]) - first;
    return e >= 0 && e < experts ? e : experts;
  };
  for (long long e = threadIdx.x; e <= experts; e += blockDim.x) {
    long long row = 0;
    for (long long i = 0; i < rows; ++i) row += expert_of(i) < e ? 1 : 0;
    for (long long i = 0; i < rows; ++i) {
      if (expert_of(i) != e) continue;
      row_of_reference[row] = i / top;
      place_reference[i] = e < experts ? row : -1;
      ++row;
    }
    if (e < experts) ends_reference[e] = row;
  }
}
