#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/matmul/epilogue.cuh>
#include <kernwright/matmul/split.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/multiply_tile.cuh>

using namespace kernwright;
using namespace kernwright::config;

// Computes one BM x COLUMNS tile of d in a block. Blocks walk GROUP rows of tiles down before they
// step right, so that concurrent blocks share operands in the L2.
extern "C" __global__ void __launch_bounds__(THREADS)
    quantized_matmul_tiled(KW_PARAMETERS(quantized_matmul_tiled)) {
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned ring = shared_address(shared);
  await_previous_kernel();
  release_next_kernel();

  const unsigned tiles_m = static_cast<unsigned>((m + BM - 1) / BM);
  constexpr unsigned kTilesN = static_cast<unsigned>(ceil_div(n, COLUMNS));
  const unsigned band = blockIdx.x / (GROUP * kTilesN) * GROUP;
  const unsigned in_band = blockIdx.x % (GROUP * kTilesN);
  const unsigned height = ::min(tiles_m - band, static_cast<unsigned>(GROUP));
  const long long m_first = static_cast<long long>(band + in_band % height) * BM;
  const int tile_n = static_cast<int>(in_band / height);
  const int stages = reads_operands(alpha) ? kStageCount : 0;

  TileSums sum = {};
  multiply_tile(sum, ring, a, b, b_scale, b_zero, tile_n, stages,
                [&](int row) { return m_first + row < m ? (m_first + row) * lda : -1LL; });
  float* const staged = reinterpret_cast<float*>(shared);
  stage_sums(staged, sum);
  __syncthreads();

  constexpr int kStores = COLUMNS / ALIGN_D;  // of a row
  const Epilogue epilogue(alpha, bias, beta, residual, m, kN);
  const Output<long long> output{d, d_k, d_v, kN, ldd};
#pragma unroll 4
  for (int piece = threadIdx.x; piece < BM * kStores; piece += THREADS) {
    const int row = piece / kStores;
    const int column = piece % kStores * ALIGN_D, in_d = tile_n * COLUMNS + column;
    if (m_first + row >= m || in_d >= kN) continue;
    const float* const from = staged + row * kStoreStride + column;
    float x[ALIGN_D];
#pragma unroll
    for (int i = 0; i < ALIGN_D; ++i) x[i] = from[i];
    if constexpr (kGated) {
#pragma unroll
      for (int i = 0; i < ALIGN_D; ++i) {
        x[i] = epilogue.gated(x[i], from[i + COLUMNS], m_first + row, in_d + i);
      }
    } else {
      epilogue.apply(x, m_first + row, in_d);
    }
    store<Store::plain>(output.at(m_first + row, in_d), pack<out_t, ALIGN_D * sizeof(out_t)>(x));
  }
}
