#pragma once

#include <string_view>

#include "support/files.h"
#include "tests/temp_dir.h"

namespace kernwright {

/// The behaviour of a candidate of `vector_add/faulty`, by its parameter FAULT. Candidates with
/// another VARIANT are others that do the same.
enum class Fault {
  none,
  illegal_address,
  misaligned_address,
  hang,  ///< spins for 10 s, then ends by itself
  wrong_output,
  unwritten_output,
  out_of_bounds_write,
  out_of_memory,
  trap
};

inline constexpr std::string_view kFaultyManifest = R"json({
  "operation": "vector_add", "description": "does wrong on purpose", "source": "kernel.cu",
  "arch": {"min": 80}, "when": [], "dims": {"n": "runtime"},
  "parameters": {"FAULT": [0, 1, 2, 3, 4, 5, 6, 7, 8], "VARIANT": [0, 1, 2, 3]},
  "default": {"FAULT": 0, "VARIANT": 0},
  "derived": {"THREADS": "256"}, "rules": [], "spill_bytes": 0,
  "workspace": {"huge": {"bytes": "FAULT == 7 ? 1099511627776 : 0"}},
  "launches": [{"kernel": "faulty", "grid": ["ceil_div(n, THREADS)"], "block": ["THREADS"],
    "arguments": [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "c"}, {"workspace": "huge"},
                  {"int64": "n"}]}]
})json";

inline constexpr std::string_view kFaultyKernel = R"(
#include <kernwright/config.cuh>

using namespace kernwright;
using namespace kernwright::config;

__device__ unsigned long long now_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

// VARIANT gives code of its own to candidates that do the same.
__device__ __noinline__ void idle() {
#pragma unroll
  for (int i = 0; i < VARIANT; ++i) asm volatile("nanosleep.u32 1;");
}

extern "C" __global__ void faulty(const dtype_t* a, const dtype_t* b, dtype_t* c, void* workspace,
                                  long long count) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= count) return;
  if (i == 0) idle();
  const dtype_t sum = from_float<dtype_t>(to_float(a[i]) + to_float(b[i]));
  const bool last = i == count - 1;
  if (FAULT == 1 && last) *reinterpret_cast<volatile int*>(16) = 1;
  if (FAULT == 2 && last) {
    *reinterpret_cast<volatile int*>(reinterpret_cast<char*>(c) + 1) = 1;
  }
  if (FAULT == 3 && last) {
    const unsigned long long start = now_ns();
    while (now_ns() - start < 10000000000ull) {
    }
  }
  if (FAULT == 6 && last) c[i + 2] = sum;
  if (FAULT == 8 && last) __trap();
  if (FAULT == 5 && last) return;
  c[i] = FAULT == 4 && last ? from_float<dtype_t>(to_float(sum) + 64) : sum;
}
)";

/// A folder of templates with `vector_add/faulty`.
class FaultyTemplates {
 public:
  FaultyTemplates() {
    for (const auto& [name, text] : {std::pair{"vector_add/faulty/manifest.json", kFaultyManifest},
                                     {"vector_add/faulty/kernel.cu", kFaultyKernel}}) {
      if (auto done = publish_file(directory_ / name, text); !done) {
        throw std::runtime_error(done.error().message);
      }
    }
  }
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  ScopedTempDir directory_;
};

}  // namespace kernwright
