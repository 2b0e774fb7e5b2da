#pragma once

namespace kernwright {

/// The kernels of the tests on a GPU, in one source.
inline constexpr const char* kGpuKernels = R"(
extern "C" __global__ void kinds(double* out, float f32, double f64, unsigned short bf16,
                                 unsigned short fp16, unsigned char fp8, signed char i8, int i32,
                                 int value32, long long value64, const int* zeros,
                                 const float* absent) {
  out[0] = f32;
  out[1] = f64;
  out[2] = bf16;
  out[3] = fp16;
  out[4] = fp8;
  out[5] = i8;
  out[6] = i32;
  out[7] = value32;
  out[8] = (double)value64;
  out[9] = absent == nullptr;
  int sum = 0;
  for (int i = 0; i < 64; ++i) sum += zeros[i] == 0;
  out[10] = sum;
}

extern "C" __global__ void add_one(int* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}

// Behind its launch's zeroed counter, so that a second run without zeroing would give another sum.
extern "C" __global__ void count_blocks(int* counter) {
  if (threadIdx.x == 0) atomicAdd(counter, 1);
}
extern "C" __global__ void publish(const int* counter, int* out) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (threadIdx.x == 0) *out = *counter;
}
extern "C" __global__ void publish_and_zero(int* counter, int* out) {
  if (threadIdx.x == 0) *out = *counter;
  if (threadIdx.x == 0) *counter = 0;
}

// Lets its dependents start at once and writes late: what they read proves that they waited.
extern "C" __global__ void late_count(int* counter) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const long long start = clock64();
  while (clock64() - start < 200000) {}
  if (threadIdx.x == 0) atomicAdd(counter, 1);
}

// Reads before its wait where it may, and lets its dependents start at once.
extern "C" __global__ void read_ahead(const int* in, int* out, int early) {
  int value = 0;
  if (early) value = *(const volatile int*)in;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (!early) value = *(const volatile int*)in;
  if (threadIdx.x == 0) {
    out[0] = value;
    out[1] = early;
  }
}

// The value that it gets where its launch starts early.
extern "C" __global__ void note_early(int* out, int early) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (threadIdx.x == 0) *out = early;
}

extern "C" __global__ void fill_shared(int* out, int words) {
  extern __shared__ int shared[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) shared[i] = i;
  __syncthreads();
  long long sum = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < words; ++i) sum += shared[words - 1 - i];
    *out = (int)(sum % 1000003);
  }
}

// Every block waits for all others: ends only where all of the grid is resident.
extern "C" __global__ void grid_barrier(int* counter, int* out) {
  if (threadIdx.x == 0) {
    atomicAdd(counter, 1);
    while (*(volatile int*)counter < (int)gridDim.x) {}
    out[blockIdx.x] = *(volatile int*)counter;
  }
}

extern "C" __global__ void spin_us(long long us) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < us * 1000ull);
}

extern "C" __global__ void store_at(int* address) { *address = 1; }
)";

/// The kernels that need sm_90.
inline constexpr const char* kHopperKernels = R"(
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

// Copies the box at [row, column] as it lies in shared memory. The box is 8 rows of 128 bytes.
extern "C" __global__ void copy_box(const __grid_constant__ TensorMap map, unsigned char* out,
                                    int row, int column) {
  __shared__ alignas(1024) unsigned char tile[1024];
  __shared__ alignas(8) unsigned long long barrier;
  const unsigned to = (unsigned)__cvta_generic_to_shared(tile);
  const unsigned full = (unsigned)__cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(full) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(column), "r"(row), "r"(full)
        : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(full) : "memory");
  }
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) out[i] = tile[i];
}

extern "C" __global__ void cluster_rank(int* out) {
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) out[blockIdx.x] = (int)(rank * 100 + size);
}
)";

}  // namespace kernwright
