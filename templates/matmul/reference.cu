#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

// value[m, n] = a[m, k] * b[n, k]^T and magnitude[m, n] = |a| * |b|^T, not rounded to the
// operation's type. One block of 256 threads per 64x64 tile, 4x4 outputs per thread. Products are
// added in fp32 over 32 of k at a time and those sums in fp64, so the error does not grow with k.
extern "C" __global__ void __launch_bounds__(256)
    matmul_reference(const dtype_t* a, const dtype_t* b, float* value, float* magnitude,
                     long long m_size, long long n_size, long long k_size) {
  constexpr int kTile = 64;
  constexpr int kDepth = 32;
  __shared__ float tile_a[kDepth][kTile + 4];
  __shared__ float tile_b[kDepth][kTile + 4];
  const long long tiles_n = (n_size + kTile - 1) / kTile;
  const long long m_first = blockIdx.x / tiles_n * kTile;
  const long long n_first = blockIdx.x % tiles_n * kTile;
  const int row = threadIdx.x / 16 * 4;
  const int column = threadIdx.x % 16 * 4;

  double sum[4][4] = {};
  float absolute[4][4] = {};
  for (long long k_first = 0; k_first < k_size; k_first += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += 256) {
      const int r = i / kDepth;
      const int c = i % kDepth;
      const bool in_k = k_first + c < k_size;
      const bool in_a = in_k && m_first + r < m_size;
      const bool in_b = in_k && n_first + r < n_size;
      tile_a[c][r] = in_a ? to_float(a[(m_first + r) * k_size + k_first + c]) : 0.0f;
      tile_b[c][r] = in_b ? to_float(b[(n_first + r) * k_size + k_first + c]) : 0.0f;
    }
    __syncthreads();
    float part[4][4] = {};
    for (int c = 0; c < kDepth; ++c) {
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          const float x = tile_a[c][row + i];
          const float y = tile_b[c][column + j];
          part[i][j] += x * y;
          absolute[i][j] += fabsf(x) * fabsf(y);
        }
      }
    }
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) sum[i][j] += part[i][j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      if (m_first + row + i < m_size && n_first + column + j < n_size) {
        const long long at = (m_first + row + i) * n_size + n_first + column + j;
        value[at] = static_cast<float>(sum[i][j]);
        magnitude[at] = absolute[i][j];
      }
    }
  }
}
