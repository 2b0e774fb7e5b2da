// What single questions need: how kernels with programmatic edges lie on the multiprocessors, and
// how fast a multiprocessor consumes weights from its shared memory.
#include <boundaries/boundaries.cuh>

/// Gives every 32-bit word of the weights its own number.
extern "C" __global__ void number_words(uint4* weights, u32 vectors) {
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += gridDim.x * blockDim.x) {
    weights[i] = make_uint4(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
  }
}

#if BOUNDARIES_HOPPER
/// A kernel of a cascade. Of each block four words go to `log`: its multiprocessor, when it
/// started, when its predecessor had ended, and when it ended.
extern "C" __global__ void cascade(u64* log, u32 index, u32 hold_ns) {
  start_dependents();
  const u64 started = now_ns();
  await_previous();
  const u64 ready = now_ns();
  u64 end = ready;
  while (end - ready < hold_ns) end = now_ns();
  if (threadIdx.x != 0) return;
  u32 multiprocessor;
  asm volatile("mov.u32 %0, %smid;" : "=r"(multiprocessor));
  u64* mine = log + (static_cast<u64>(index) * gridDim.x + blockIdx.x) * 4;
  mine[0] = multiprocessor;
  mine[1] = started;
  mine[2] = ready;
  mine[3] = end;
}
#endif

// 64 KB of weights in bf16. Rows are padded so that eight of them lie in different banks.
constexpr u32 kRows = 32;
constexpr u32 kColumns = 1024;
constexpr u32 kPitch = kColumns + 8;

__device__ __forceinline__ unsigned short bf16_of(int value) {  // exact for small integers
  return static_cast<unsigned short>(__float_as_uint(static_cast<float>(value)) >> 16);
}
__device__ __forceinline__ int weight_at(u32 row, u32 column) {
  return static_cast<int>((row * 7 + column * 3) % 5) - 2;
}
__device__ __forceinline__ int input_at(u32 column) { return static_cast<int>(column % 3) - 1; }

__device__ __forceinline__ void fill_weights(unsigned short* weights, float* sums) {
  for (u32 i = threadIdx.x; i < kRows * kColumns; i += blockDim.x) {
    const u32 row = i / kColumns, column = i % kColumns;
    weights[row * kPitch + column] = bf16_of(weight_at(row, column));
  }
  if (threadIdx.x < kRows) sums[threadIdx.x] = 0;
  __syncthreads();
}

/// The warps divide the columns, and multiply by mma with one column of eight in use.
template <u32 WARPS>
__device__ __forceinline__ void consume_mma(float* result, u32 passes) {
  extern __shared__ __align__(128) unsigned short weights[];
  __shared__ float sums[kRows];
  constexpr u32 STEPS = kColumns / WARPS / 16;
  fill_weights(weights, sums);
  const u32 lane = threadIdx.x % 32;
  const u32 begin = threadIdx.x / 32 * STEPS * 16;
  u32 input[STEPS][2];
#pragma unroll
  for (u32 step = 0; step < STEPS; ++step) {
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      const u32 column = begin + step * 16 + half * 8 + lane % 4 * 2;
      const u32 pair = bf16_of(input_at(column)) | static_cast<u32>(bf16_of(input_at(column + 1)))
                                                       << 16;
      input[step][half] = lane / 4 == 0 ? pair : 0;
    }
  }
  float acc[2][2][4] = {};  // by 16 rows, and by odd and even steps
  for (u32 pass = 0; pass < passes; ++pass) {
#pragma unroll
    for (u32 step = 0; step < STEPS; ++step) {
#pragma unroll
      for (u32 tile = 0; tile < 2; ++tile) {
        const unsigned short* from =
            weights + (tile * 16 + lane % 16) * kPitch + begin + step * 16 + lane / 16 * 8;
        u32 a[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(shared_address(from))
                     : "memory");
        float* d = acc[tile][step % 2];
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, "
            "%7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(input[step][0]), "r"(input[step][1]));
      }
    }
  }
  if (lane % 4 == 0) {
    for (u32 tile = 0; tile < 2; ++tile) {
      for (u32 half = 0; half < 2; ++half) {
        atomicAdd(&sums[tile * 16 + half * 8 + lane / 4],
                  acc[tile][0][half * 2] + acc[tile][1][half * 2]);
      }
    }
  }
  __syncthreads();
  if (threadIdx.x < kRows) result[blockIdx.x * kRows + threadIdx.x] = sums[threadIdx.x];
}

/// The warps divide the rows, and multiply in fp32.
template <u32 WARPS>
__device__ __forceinline__ void consume_fma(float* result, u32 passes) {
  extern __shared__ __align__(128) unsigned short weights[];
  __shared__ float sums[kRows];
  constexpr u32 ROWS = kRows / WARPS;
  constexpr u32 VECTORS = kColumns / 256;  // of 8 weights, that a lane reads of a row
  fill_weights(weights, sums);
  const u32 lane = threadIdx.x % 32;
  const u32 first_row = threadIdx.x / 32 * ROWS;
  float input[VECTORS][8];
#pragma unroll
  for (u32 i = 0; i < VECTORS; ++i) {
#pragma unroll
    for (u32 j = 0; j < 8; ++j) input[i][j] = static_cast<float>(input_at(i * 256 + lane * 8 + j));
  }
  float acc[ROWS][2] = {};
  for (u32 pass = 0; pass < passes; ++pass) {
#pragma unroll
    for (u32 row = 0; row < ROWS; ++row) {
#pragma unroll
      for (u32 i = 0; i < VECTORS; ++i) {
        u32 v[4];
        asm volatile(
            "ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
            : "r"(shared_address(weights + (first_row + row) * kPitch + i * 256 + lane * 8))
            : "memory");
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
          acc[row][0] = fmaf(__uint_as_float(v[j] << 16), input[i][2 * j], acc[row][0]);
          acc[row][1] = fmaf(__uint_as_float(v[j] & 0xffff0000u), input[i][2 * j + 1], acc[row][1]);
        }
      }
    }
  }
  for (u32 row = 0; row < ROWS; ++row) {
    float sum = acc[row][0] + acc[row][1];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) result[blockIdx.x * kRows + first_row + row] = sum;
  }
}

#define CONSUME(name, function, warps)                                                          \
  extern "C" __global__ void __launch_bounds__(warps * 32, 1) name(float* result, u32 passes) { \
    function<warps>(result, passes);                                                            \
  }

CONSUME(consume_mma_8, consume_mma, 8)
CONSUME(consume_mma_16, consume_mma, 16)
CONSUME(consume_fma_8, consume_fma, 8)
CONSUME(consume_fma_16, consume_fma, 16)
