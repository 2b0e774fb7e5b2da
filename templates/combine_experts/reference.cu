#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Adds up one element in each iteration, in fp64. out_magnitude is the sum of the absolute terms.
extern "C" __global__ void combine_experts_reference(KW_PARAMETERS(combine_experts_reference)) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < tokens * columns; i += stride) {
    const long long token = i / columns, column = i % columns;
    double sum = 0, terms = 0;
    const auto add = [&](double term) {
      sum += term;
      terms += fabs(term);
    };
    for (long long j = token * top; j < (token + 1) * top; ++j) {
      if (place[j] < 0) continue;
      const double weight = weights ? weights[j] : 1;
      add(weight * to_float(y[place[j] * columns + column]));
    }
    if (shared) add(to_float(shared[i]));
    if (residual) add(to_float(residual[i]));
    out_reference[i] = static_cast<float>(sum);
    out_magnitude[i] = static_cast<float>(terms);
  }
}
