#include <kernwright/config.cuh>
#include <kernwright/matmul/expert_reference.cuh>
#include <kernwright/matmul/group_reference.cuh>
#include <kernwright/quantized/weight_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kStack = gate == gate_stacked ? 2 : 1;  // weights of one result

// Returns the error that the checks accept in a sum, relative to its magnitude: of adding in tensor
// cores, and of weights that are rounded to the dtype of a.
__device__ float unit(float terms) {
  return sqrtf(terms) * 8 * 0x1p-22f + (dtype == dtype_bf16 ? 0x1p-7f : 0x1p-10f);
}

// d_reference[places, n] = row_scale * activation(a * w[expert]^T + bias[expert]), with weights
// that are not rounded, or the gated form of it; values are not rounded to the operation's type
// either. A place that belongs to no expert keeps its content in d. d_magnitude is the same of
// absolute values, with the activation's steepest slope in its place, as in matmul.
//
// A block of 256 threads computes a tile of 64x64 of one expert, 4x4 elements each. Products are
// added in fp64.
extern "C" __global__ void __launch_bounds__(256)
    grouped_quantized_matmul_reference(KW_PARAMETERS(grouped_quantized_matmul_reference)) {
  constexpr int kTile = 64;
  constexpr int kDepth = 32;
  __shared__ float tile_a[kDepth][kTile + 4];
  __shared__ double tile_w[kDepth][kTile + 4];
  keep_places(d, d_reference, d_magnitude, ends, counts, experts, places, room, n);

  const long long tiles_n = (n + kTile - 1) / kTile;
  const long long n_first = blockIdx.x % tiles_n * kTile;
  long long tile = blockIdx.x / tiles_n;  // of the expert, in the end
  const long long expert = group_of_tile(tile, experts, kTile, ends, counts, room);
  if (expert == experts) return;
  const GroupRows its = rows_of(expert, ends, counts, room);
  const long long m_first = tile * kTile;
  const StoredWeights stored{b + expert * code_bytes,
                             b_scale + expert * factors,
                             b_zero ? b_zero + expert * factors : nullptr,
                             n,
                             k,
                             group,
                             first,
                             groups};
  const int row = threadIdx.x / 16 * 4;
  const int column = threadIdx.x % 16 * 4;

  double sum[kStack][4][4] = {};
  double absolute[kStack][4][4] = {};
#pragma unroll
  for (int half = 0; half < kStack; ++half) {
    for (long long k_first = 0; k_first < k; k_first += kDepth) {
      for (int i = threadIdx.x; i < kTile * kDepth; i += 256) {
        const int r = i / kDepth;
        const int c = i % kDepth;
        const bool in_k = k_first + c < k;
        const bool in_w = in_k && n_first + r < n;
        tile_a[c][r] = 0;
        if (in_k && m_first + r < its.count) {
          const long long place = its.first + m_first + r;
          const long long of_a = a_rows == a_rows_indexed ? row_of[place] : place;
          tile_a[c][r] = to_float(a[of_a * k + k_first + c]);
        }
        tile_w[c][r] = in_w ? stored.at(half * n + n_first + r, k_first + c) : 0.0;
      }
      __syncthreads();
      for (int c = 0; c < kDepth; ++c) {
        for (int i = 0; i < 4; ++i) {
          for (int j = 0; j < 4; ++j) {
            const double product = tile_a[c][row + i] * tile_w[c][column + j];
            sum[half][i][j] += product;
            absolute[half][i][j] += fabs(product);
          }
        }
      }
      __syncthreads();
    }
  }
  const float accepted = unit(static_cast<float>(k));
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const long long r = m_first + row + i, c = n_first + column + j;
      if (r >= its.count || c >= n) continue;
      const auto sum_of = [&](int half) {
        const float shift =
            config::bias == bias_expert ? to_float(bias[expert * rows_of_b + half * n + c]) : 0;
        return ExpertSum{sum[half][i][j] + shift,
                         static_cast<float>(absolute[half][i][j]) + fabsf(shift)};
      };
      const ExpertResult result =
          finished(sum_of(0), sum_of(kStack - 1), accepted, limit, gate_alpha);
      const long long place = its.first + r;
      const double factor = scale_rows == scale_rows_given ? row_scale[place] : 1.0f;
      d_reference[place * n + c] = static_cast<float>(factor * result.value);
      d_magnitude[place * n + c] = static_cast<float>(fabs(factor) * result.magnitude);
    }
  }
}
