#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/matmul/expert_reference.cuh>
#include <kernwright/matmul/group_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kStack = gate == gate_none ? 1 : 2;  // rows of b for a column of d
constexpr bool kInterleaves = gate == gate_interleaved;

constexpr float kAccepted = 8 * 0x1p-22f;  // in a sum of one term, relative to its magnitude

// Returns the magnitude to which the error of a sum is relative. Tensor cores keep about 14 bits
// when they add products of fp8. Sums of 128 terms, which are added in fp32, may be off by 2^-12
// each, and the signs of many differ. A few may outweigh all others: `squares` is the sum of the
// squares of each 32 terms' absolute values, of which 3 times the root is 1.5 times that of 128
// terms or more.
__device__ float uncertainty(float unit, float absolute, double squares) {
  if (dtype != dtype_fp8_e4m3) return absolute;
  const float error = 0x1p-12f * smaller(absolute, 3 * static_cast<float>(sqrt(squares)));
  return larger(error / unit, absolute);
}

// d_reference[places, n] = activation(a * b[group]^T + bias[group]), or with a gate activation(a *
// gates^T + ...) * (a * others^T + ...). Row r of d is made of row row_of[r] of an indexed a. A
// place that belongs to no group keeps its content in d. With scales of blocks the terms of each
// 128 of k are multiplied by the scale of a row of a, scale_a[k / 128, rows], and the scale of 128
// rows of b, scale_b[group, n / 128, k / 128].
//
// A block of 256 threads computes a tile of 64x64 of one group, 4x4 elements each. Products are
// added in fp32 over 32 of k at a time and those sums in fp64. Errors e X and e Y of the two
// factors of a gated product make e (|x| Y + |y| X + e X Y).
extern "C" __global__ void __launch_bounds__(256)
    grouped_matmul_reference(KW_PARAMETERS(grouped_matmul_reference)) {
  constexpr int kTile = 64;
  constexpr int kDepth = 32;
  constexpr int kBlock = 128;  // of k, and rows of b, that share a scale
  __shared__ float tile_a[kDepth][kTile + 4];
  __shared__ float tile_b[kDepth][kTile + 4];

  const bool is_masked = layout == layout_masked;
  keep_places(d, d_reference, d_magnitude, ends, counts, groups, is_masked ? groups * room : rows,
              room, n);

  const long long tiles_n = (n + kTile - 1) / kTile;
  const long long n_first = blockIdx.x % tiles_n * kTile;
  long long tile = blockIdx.x / tiles_n;  // of the group, in the end
  const long long group = group_of_tile(tile, groups, kTile, ends, counts, room);
  if (group == groups) return;
  const GroupRows its = rows_of(group, ends, counts, room);
  const long long m_first = tile * kTile;
  const long long blocks_of_k = (k + kBlock - 1) / kBlock;
  const long long pitch_scale = is_masked ? room : rows;
  scale_a += is_masked ? group * blocks_of_k * room : its.first;
  scale_b += group * ((kStack * n + kBlock - 1) / kBlock) * blocks_of_k;
  b += group * kStack * n * k;
  d_reference += its.first * n;
  d_magnitude += its.first * n;
  const int row = threadIdx.x / 16 * 4;
  const int column = threadIdx.x % 16 * 4;

  double sum[kStack][4][4] = {};
  float absolute[kStack][4][4] = {};
  double squares[kStack][4][4] = {};  // of the absolute terms of each kDepth of k
#pragma unroll
  for (int half = 0; half < kStack; ++half) {
    // Column c of d is made of row b_first + c * kStep of b.
    constexpr int kStep = kInterleaves ? 2 : 1;
    const long long b_first = kInterleaves ? 2 * n_first + half : half * n + n_first;
    for (long long k_first = 0; k_first < k; k_first += kDepth) {
      for (int i = threadIdx.x; i < kTile * kDepth; i += 256) {
        const int r = i / kDepth;
        const int c = i % kDepth;
        const bool in_k = k_first + c < k;
        const bool in_a = in_k && m_first + r < its.count;
        const bool in_b = in_k && n_first + r < n;
        tile_a[c][r] = 0;
        if (in_a) {
          const long long place = its.first + m_first + r;
          const long long of_a = a_rows == a_rows_indexed ? row_of[place] : place;
          tile_a[c][r] = to_float(a[of_a * k + k_first + c]);
        }
        const long long row_b = b_first + r * kStep, column_b = k_first + c;
        const long long of_b =
            b_layout == b_layout_kn ? column_b * kStack * n + row_b : row_b * k + column_b;
        tile_b[c][r] = in_b ? to_float(b[of_b]) : 0.0f;
      }
      __syncthreads();
      float part[4][4] = {}, terms[4][4] = {};
      for (int c = 0; c < kDepth; ++c) {
        for (int i = 0; i < 4; ++i) {
          for (int j = 0; j < 4; ++j) {
            const float x = tile_a[c][row + i];
            const float y = tile_b[c][column + j];
            part[i][j] += x * y;
            terms[i][j] += fabsf(x) * fabsf(y);
          }
        }
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          const long long r = m_first + row + i, row_b = b_first + (column + j) * kStep;
          double factor = 1;
          if (dtype == dtype_fp8_e4m3 && r < its.count && row_b < kStack * n) {
            const long long block = k_first / kBlock;
            factor = static_cast<double>(scale_a[block * pitch_scale + r]) *
                     scale_b[row_b / kBlock * blocks_of_k + block];
          }
          const double its_terms = fabs(factor) * terms[i][j];
          sum[half][i][j] += factor * part[i][j];
          absolute[half][i][j] += static_cast<float>(its_terms);
          squares[half][i][j] += its_terms * its_terms;
        }
      }
      __syncthreads();
    }
  }
  const float unit = sqrtf(static_cast<float>(k)) * kAccepted;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const long long r = m_first + row + i, c = n_first + column + j;
      if (r >= its.count || c >= n) continue;
      const auto sum_of = [&](int half) {
        const long long row_b = kInterleaves ? 2 * c + half : half * n + c;
        const float shift =
            config::bias == bias_expert ? to_float(bias[group * kStack * n + row_b]) : 0;
        return ExpertSum{
            sum[half][i][j] + shift,
            uncertainty(unit, absolute[half][i][j], squares[half][i][j]) + fabsf(shift)};
      };
      const ExpertResult result = finished(sum_of(0), sum_of(kStack - 1), unit, limit, gate_alpha);
      d_reference[r * n + c] = static_cast<float>(result.value);
      d_magnitude[r * n + c] = static_cast<float>(result.magnitude);
    }
  }
}
