#include <kernwright/config.cuh>
#include <kernwright/matmul/activate_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kStack = gate == gate_stacked ? 2 : 1;  // matrices of n rows in b

// The error that the checks accept in a sum of one term, relative to its magnitude: kAdded for sums
// of tensor cores, and the error of fp32 arithmetic for fp32 operands. unit() returns it for
// `terms` terms.
constexpr float kAdded = 8 * 0x1p-22f;
constexpr float kAccepted = dtype == dtype_fp32 ? 8 * 0x1p-24f : kAdded;
__device__ float unit(float terms) { return sqrtf(terms) * kAccepted; }

// Returns by how much a sum may be off because its operands were taken as tf32, rounded or cut off
// after 10 bits. A product may lose up to 2^-9 of itself. A sum may lose as much, towards 0, and
// beside that the part that differs from product to product, which has either sign.
__device__ float error_of_tf32(float terms, float absolute, float sum) {
  return smaller(0x1p-9f * absolute, 0x1p-8f / sqrtf(terms) * absolute + 0x1p-9f * fabsf(sum));
}

// Returns this error for fp8: tensor cores keep about 14 bits when they add its products. Sums of
// 128 terms, which are added in fp32, may be off by 2^-12 each, and the signs of many differ. A sum
// that stays in the tensor cores may be off by 2^-11 of its terms. It is also cut off towards 0
// after every 32 of them, by 2^-14 of its final value. If blocks have scales, one may outweigh all
// others, and one of a million sums of 128 terms is off by 1.5 * 2^-12. `squares` is the sum of the
// squares of each 32 terms' absolute values, of which 3 times the root is 1.5 times that of 128
// terms or more.
__device__ float error_of_fp8(float terms, float absolute, float sum, double squares) {
  if (accumulate == accumulate_fast) {
    return 0x1p-11f * absolute + 0x1p-14f * ceilf(terms / 32) * fabsf(sum);
  }
  if (scaling == scaling_block) {
    return 0x1p-11f * smaller(absolute, 3 * static_cast<float>(sqrt(squares)));
  }
  return 0x1p-12f * smaller(1.0f, 1.5f / sqrtf(terms / 128)) * absolute;
}

// Returns the magnitude to which the error of a sum is relative: the sum of its absolute terms, or
// more.
__device__ float uncertainty(float terms, float absolute, float sum, double squares) {
  const float added = kAdded / kAccepted * absolute;
  if (dtype == dtype_fp32) return added + error_of_tf32(terms, absolute, sum) / unit(terms);
  if (dtype != dtype_fp8_e4m3) return added;
  return larger(error_of_fp8(terms, absolute, sum, squares) / unit(terms), added);
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

// d_reference[m, n] = activation(alpha * a[m, k] * b[n, k]^T + bias[n]) + beta * residual[m, n],
// where b may also be [k, n]. The values are not rounded to the operation's type. d_magnitude[m, n]
// is the same of absolute values, with the activation's steepest slope in its place.
//
// With a gate, b is the gates' [n, k] and another, and value = activation(alpha * a * gate^T) *
// alpha * a * other^T. Errors e X and e Y of the two factors make e (|x| Y + |y| X + e X Y). A
// problem's function is applied to the value. The error is then its spread over the error so far,
// and a share of the result. Split, the last columns belong to d_k_reference and d_v_reference,
// n_kv each.
//
// With scales of blocks, the terms of each 128 of k are multiplied by the scale of a row of a,
// scale_a[k / 128, m], and the scale of 128 rows of b, scale_b[n / 128, k / 128]. With scales of
// rows, all terms are multiplied by scale_a[m] and scale_b[n].
//
// The products of a batch follow each other. Rows of a, b and scale_b are lda, ldb and lds elements
// apart, all else is contiguous. A block of 256 threads computes a tile of 64x64, 4x4 outputs per
// thread. Products are added in fp32 over 32 of k at a time and those sums in fp64, so the error
// does not grow with k. With a norm an element of a is multiplied by its weight and rounded to a's
// type, and the sums of a row are divided by the root of the mean of its squares, taken in fp64.
extern "C" __global__ void __launch_bounds__(256)
    matmul_reference(KW_PARAMETERS(matmul_reference)) {
  constexpr int kTile = 64;
  constexpr int kDepth = 32;
  __shared__ float tile_a[kDepth][kTile + 4];
  __shared__ float tile_b[kDepth][kTile + 4];
  __shared__ double factors[kTile];  // of a row's sums
  const long long tiles_n = (n + kTile - 1) / kTile;
  const long long tiles = (m + kTile - 1) / kTile * tiles_n;
  const long long batch = blockIdx.x / tiles;
  const long long m_first = blockIdx.x % tiles / tiles_n * kTile;
  const long long n_first = blockIdx.x % tiles % tiles_n * kTile;
  a += batch * m * lda;
  b += batch * (b_layout == b_layout_nk ? kStack * n : k) * ldb;
  constexpr int kBlock = 128;  // of k, and rows of b, that share a scale
  scale_a += batch * (scaling == scaling_row ? 1 : (k + kBlock - 1) / kBlock) * m;
  scale_b +=
      batch * (scaling == scaling_row ? kStack * n : (kStack * n + kBlock - 1) / kBlock * lds);
  residual += batch * m * n;
  d_reference += batch * m * n;
  d_magnitude += batch * m * n;
  const int row = threadIdx.x / 16 * 4;
  const int column = threadIdx.x % 16 * 4;

  double root = 1;  // of the mean square of row threadIdx.x / 4
  if (config::norm == norm_rms && alpha != 0) {
    const long long r = m_first + threadIdx.x / 4;
    double squares = 0;
    for (long long c = threadIdx.x % 4; c < k && r < m; c += 4) {
      const double x = to_float(a[r * lda + c]);
      squares += x * x;
    }
    squares += __shfl_xor_sync(~0u, squares, 1);
    squares += __shfl_xor_sync(~0u, squares, 2);
    root = sqrt(squares / static_cast<double>(k) + eps);
  }
  factors[threadIdx.x / 4] = alpha / root;
  __syncthreads();
  const auto element = [&](long long r, long long c) {
    const float x = to_float(a[r * lda + c]);
    return config::norm == norm_rms ? to_float(from_float<dtype_t>(x * to_float(norm_weight[c])))
                                    : x;
  };
  const auto scale_of = [&](long long r, long long row_b, long long c) {
    if ((scaling != scaling_block && scaling != scaling_row) || r >= m || row_b >= kStack * n) {
      return 1.0f;
    }
    if (scaling == scaling_row) return scale_a[r] * scale_b[row_b];
    return scale_a[c / kBlock * m + r] * scale_b[row_b / kBlock * lds + c / kBlock];
  };

  double sum[kStack][4][4] = {};
  float absolute[kStack][4][4] = {};
  double squares[kStack][4][4] = {};  // of the absolute terms of each kDepth of k
#pragma unroll
  for (int half = 0; half < kStack; ++half) {
    const long long b_first = half * n + n_first;
    for (long long k_first = 0; k_first < k && alpha != 0; k_first += kDepth) {
      for (int i = threadIdx.x; i < kTile * kDepth; i += 256) {
        const int r = i / kDepth;
        const int c = i % kDepth;
        const bool in_k = k_first + c < k;
        const bool in_a = in_k && m_first + r < m;
        const bool in_b = in_k && n_first + r < n;
        tile_a[c][r] = in_a ? element(m_first + r, k_first + c) : 0.0f;
        const long long at_b = b_layout == b_layout_nk ? (b_first + r) * ldb + k_first + c
                                                       : (k_first + c) * ldb + b_first + r;
        tile_b[c][r] = in_b ? to_float(b[at_b]) : 0.0f;
      }
      __syncthreads();
      float part[4][4] = {}, factor[4][4], before[4][4];
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          factor[i][j] = scale_of(m_first + row + i, b_first + column + j, k_first);
          before[i][j] = absolute[half][i][j];
        }
      }
      for (int c = 0; c < kDepth; ++c) {
        for (int i = 0; i < 4; ++i) {
          for (int j = 0; j < 4; ++j) {
            const float x = tile_a[c][row + i];
            const float y = tile_b[c][column + j];
            part[i][j] += x * y;
            absolute[half][i][j] += fabsf(x) * fabsf(y) * fabsf(factor[i][j]);
          }
        }
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          const double added = absolute[half][i][j] - before[i][j];
          squares[half][i][j] += added * added;
          sum[half][i][j] += static_cast<double>(factor[i][j]) * part[i][j];
        }
      }
      __syncthreads();
    }
  }
  const float terms = static_cast<float>(k);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      if (m_first + row + i < m && n_first + column + j < n) {
        const long long r = m_first + row + i, c = n_first + column + j;
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
        const double factor = factors[row + i];
        const auto uncertain = [&](int half) {
          return fabsf(static_cast<float>(factor)) *
                 uncertainty(terms, absolute[half][i][j], static_cast<float>(sum[half][i][j]),
                             squares[half][i][j]);
        };
        const double activated = activate(factor * sum[0][i][j] + shift);
        const float steep = kSteepest * (uncertain(0) + fabsf(shift));
        if (gate == gate_stacked) {
          const double other = factor * sum[kStack - 1][i][j];
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
}
