// Kernels that are never tuned. Their times show the drift of the device and the cost of a launch.

// Bound by the SMs' arithmetic: eight chains of fused multiply-adds per thread.
extern "C" __global__ void __launch_bounds__(512) kernwright_sm_probe(int steps, float* never) {
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = static_cast<float>(threadIdx.x + i);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = fmaf(x[i], 0.9990234375f, 0.25f);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += x[i];
  if (sum < 0) *never = sum;  // x stays positive, which the compiler does not know
}

// Bound by DRAM: copies `count` times 16 bytes.
extern "C" __global__ void __launch_bounds__(512)
    kernwright_dram_probe(const uint4* from, uint4* to, long long count) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) words[j] = from[i + j * stride];
#pragma unroll
    for (int j = 0; j < 4; ++j) to[i + j * stride] = words[j];
  }
  for (; i < count; i += stride) to[i] = from[i];
}

extern "C" __global__ void kernwright_empty() {}
