#include <kernwright/config.cuh>
#include <kernwright/matmul/activate_reference.cuh>
#include <kernwright/quantized/weight_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kStack = gate == gate_stacked ? 2 : 1;  // weights of one result

// Returns the error that the checks accept in a sum, relative to its magnitude: of adding in tensor
// cores, and of weights that are rounded to the dtype of a.
__device__ float unit(float terms) {
  return sqrtf(terms) * 8 * 0x1p-22f + (dtype == dtype_bf16 ? 0x1p-7f : 0x1p-10f);
}

// Returns how far the problem's function spreads an error of `error` in `x`: the largest difference
// to its results at eight values within that error.
__device__ float spread(float x, float error, int row, int column) {
  float largest = 0;
  if constexpr (epilogue != epilogue_none) {
    const float result = kernwright_epilogue(x, row, column);
    for (int i = -4; i <= 4; ++i) {
      const float other = kernwright_epilogue(x + 0.25f * i * error, row, column);
      largest = larger(largest, fabsf(other - result));
    }
  }
  return largest;
}

// d_reference[m, n] = activation(alpha * a[m, k] * w[n, k]^T + bias[n]) + beta * residual[m, n],
// with weights that are not rounded, or the gated or split form of it; values are not rounded to
// the operation's type either. d_magnitude[m, n] is the same of absolute values, with the
// activation's steepest slope in its place, as in matmul.
//
// A block of 256 threads computes a tile of 64x64, 4x4 outputs per thread. Products are added in
// fp64.
extern "C" __global__ void __launch_bounds__(256)
    quantized_matmul_reference(KW_PARAMETERS(quantized_matmul_reference)) {
  constexpr int kTile = 64;
  constexpr int kDepth = 32;
  __shared__ float tile_a[kDepth][kTile + 4];
  __shared__ double tile_w[kDepth][kTile + 4];
  const StoredWeights stored{b, b_scale, b_zero, n, k, group, first, groups};
  const long long tiles_n = (n + kTile - 1) / kTile;
  const long long m_first = blockIdx.x / tiles_n * kTile;
  const long long n_first = blockIdx.x % tiles_n * kTile;
  const int row = threadIdx.x / 16 * 4;
  const int column = threadIdx.x % 16 * 4;

  double sum[kStack][4][4] = {};
  double absolute[kStack][4][4] = {};
#pragma unroll
  for (int half = 0; half < kStack; ++half) {
    for (long long k_first = 0; k_first < k && alpha != 0; k_first += kDepth) {
      for (int i = threadIdx.x; i < kTile * kDepth; i += 256) {
        const int r = i / kDepth;
        const int c = i % kDepth;
        const bool in_k = k_first + c < k;
        const bool in_a = in_k && m_first + r < m;
        const bool in_w = in_k && n_first + r < n;
        tile_a[c][r] = in_a ? to_float(a[(m_first + r) * lda + k_first + c]) : 0.0f;
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
  const float terms = static_cast<float>(k);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const long long r = m_first + row + i, c = n_first + column + j;
      if (r >= m || c >= n) continue;
      const long long at = r * n + c;
      float* to = d_reference + at;
      float* to_magnitude = d_magnitude + at;
      if (split == split_qkv) {
        const long long first_k = n - 2 * n_kv, first_v = n - n_kv;
        const bool in_v = c >= first_v, in_k = !in_v && c >= first_k;
        const long long in_it = in_v   ? r * n_kv + c - first_v
                                : in_k ? r * n_kv + c - first_k
                                       : r * first_k + c;
        to = (in_v ? d_v_reference : in_k ? d_k_reference : d_reference) + in_it;
        to_magnitude = (in_v ? d_v_magnitude : in_k ? d_k_magnitude : d_magnitude) + in_it;
      }
      const float shift = config::bias == bias_column ? to_float(bias[c]) : 0;
      const float added =
          config::residual != residual_none && beta != 0 ? to_float(residual[at]) : 0;
      const auto uncertain = [&](int half) {
        return fabsf(alpha) * static_cast<float>(absolute[half][i][j]);
      };
      const double activated = activate(alpha * sum[0][i][j] + shift);
      const float steep = kSteepest * (uncertain(0) + fabsf(shift));
      if (gate == gate_stacked) {
        const double other = alpha * sum[kStack - 1][i][j];
        const float of_other = uncertain(kStack - 1);
        *to = static_cast<float>(activated * other);
        *to_magnitude = static_cast<float>(fabs(activated) * of_other +
                                           steep * (fabs(other) + unit(terms) * of_other));
      } else {
        *to = static_cast<float>(activated + static_cast<double>(beta) * added);
        *to_magnitude = steep + fabsf(beta) * fabsf(added);
      }
      if constexpr (epilogue != epilogue_none) {
        const int its_row = static_cast<int>(r), its_column = static_cast<int>(c);
        const float x = *to;
        const float accepted =
            unit(terms + (config::bias != bias_none) + (config::residual != residual_none));
        *to = kernwright_epilogue(x, its_row, its_column);
        const float error = spread(x, accepted * *to_magnitude, its_row, its_column);
        *to_magnitude = fabsf(*to) + error / accepted;
      }
    }
  }
}
