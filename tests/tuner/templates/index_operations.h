#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "support/files.h"
#include "support/text.h"
#include "tests/temp_dir.h"

namespace kernwright {

/// Operations whose inputs are indices, in a folder of their own. With elements of a normal
/// distribution their kernels would go out of bounds. `gather` reads rows of a table by their
/// numbers, `inverse` finds the place of each number of a permutation, `count` counts true elements
/// by segment.
class IndexOperations {
 public:
  IndexOperations() {
    write("gather/operation.json", R"json({
  "operation": "gather", "description": "y[i,c] = table[index[i],c]",
  "dims": {"n": {"bind": "bucket"}, "rows": {"bind": "exact"}, "columns": {"bind": "exact"}},
  "dtypes": {"dtype": ["bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "int8", "uint8"],
             "index": ["int32", "int64"]},
  "tensors": [
    {"name": "table", "role": "in", "dtype": "dtype", "extent": ["rows", "columns"]},
    {"name": "index", "role": "in", "dtype": "index", "extent": ["n"],
     "draw": {"uniform": {"from": 0, "to": "rows - 1"}}},
    {"name": "y", "role": "out", "dtype": "dtype", "extent": ["n", "columns"]}
  ],
  "inputs": {"timing": "normal", "exact": "small_integers"},
  "tolerance": {"accumulate": "fp32"},
  "flops": "n", "bytes": "2 * n * columns * dtype_bytes + n * index_bytes",
  "example": {"n": 1000, "rows": 5000, "columns": 64, "dtype": "bf16", "index": "int64"},
  "reference": {"kernel": "gather_reference", "grid": ["n"], "block": ["64"],
    "arguments": [{"tensor": "table"}, {"tensor": "index"}, {"reference": "y"}, {"magnitude": "y"},
                  {"int32": "columns"}]}
})json");
    write("gather/reference.cu", R"(
#include <kernwright/config.cuh>
using namespace kernwright;
using namespace kernwright::config;
extern "C" __global__ void gather_reference(const dtype_t* table, const index_t* index,
                                            float* value, float* magnitude, int columns) {
  for (int c = threadIdx.x; c < columns; c += blockDim.x) {
    const float x = to_float(table[static_cast<long long>(index[blockIdx.x]) * columns + c]);
    value[static_cast<long long>(blockIdx.x) * columns + c] = x;
    magnitude[static_cast<long long>(blockIdx.x) * columns + c] = fabsf(x);
  }
})");
    write("gather/rows/manifest.json",
          manifest("gather", R"("n": "runtime", "rows": "runtime",
    "columns": "runtime")",
                   R"("gather_rows", "grid": ["n"], "block": ["THREADS"],
    "arguments": [{"tensor": "table"}, {"tensor": "index"}, {"tensor": "y"}, {"int32": "columns"}])"));
    write("gather/rows/kernel.cu", R"(
#include <kernwright/config.cuh>
using namespace kernwright;
using namespace kernwright::config;
extern "C" __global__ void gather_rows(const dtype_t* table, const index_t* index, dtype_t* y,
                                       int columns) {
  const long long from = static_cast<long long>(index[blockIdx.x]) * columns;
  const long long to = static_cast<long long>(blockIdx.x) * columns;
  for (int c = threadIdx.x; c < columns; c += THREADS) y[to + c] = table[from + c];
})");

    write("inverse/operation.json", R"json({
  "operation": "inverse", "description": "place[order[i]] = base + i",
  "dims": {"n": {"bind": "bucket"}},
  "dtypes": {"dtype": ["int32", "int64"]},
  "tensors": [
    {"name": "order", "role": "in", "dtype": "dtype", "extent": ["n"], "draw": "permutation"},
    {"name": "place", "role": "out", "dtype": "dtype", "extent": ["n"]}
  ],
  "scalars": [{"name": "base", "dtype": "int64", "default": 1000000007}],
  "inputs": {"timing": "normal", "exact": "none"},
  "tolerance": {"accumulate": "int64"},
  "flops": "n", "bytes": "2 * n * dtype_bytes",
  "example": {"n": 10000, "dtype": "int64"},
  "reference": {"kernel": "inverse_reference", "grid": ["ceil_div(n, 64)"], "block": ["64"],
    "arguments": [{"tensor": "order"}, {"reference": "place"}, {"int64": "n"}, {"scalar": "base"}]}
})json");
    write("inverse/reference.cu", R"(
#include <kernwright/config.cuh>
using namespace kernwright;
using namespace kernwright::config;
extern "C" __global__ void inverse_reference(const dtype_t* order, reference_t<dtype_t>* place,
                                             long long n, long long base) {
  const long long i = static_cast<long long>(blockIdx.x) * 64 + threadIdx.x;
  if (i < n) place[order[i]] = base + i;
})");
    write("inverse/scatter/manifest.json",
          manifest("inverse", R"("n": "runtime")",
                   R"json("inverse_scatter", "grid": ["ceil_div(n, THREADS)"], "block": ["THREADS"],
    "arguments": [{"tensor": "order"}, {"tensor": "place"}, {"int64": "n"}, {"scalar": "base"}])json"));
    write("inverse/scatter/kernel.cu", R"(
#include <kernwright/config.cuh>
using namespace kernwright;
using namespace kernwright::config;
extern "C" __global__ void inverse_scatter(const dtype_t* order, dtype_t* place, long long n,
                                           long long base) {
  const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n) place[order[i]] = static_cast<dtype_t>(base + i);
})");

    write("count/operation.json", R"json({
  "operation": "count", "description": "count[s] = how many of flag[offset[s]] to flag[offset[s+1] - 1] are true",
  "dims": {"segments": {"bind": "bucket"}, "total": {"bind": "exact"}},
  "tensors": [
    {"name": "flag", "role": "in", "dtype": "bool", "extent": ["total"]},
    {"name": "offset", "role": "in", "dtype": "int32", "extent": ["segments + 1"],
     "draw": {"offsets": {"to": "total"}}},
    {"name": "count", "role": "out", "dtype": "int32", "extent": ["segments"]},
    {"name": "any", "role": "out", "dtype": "bool", "extent": ["segments"]}
  ],
  "inputs": {"timing": "normal", "exact": "none"},
  "tolerance": {"accumulate": "int32"},
  "flops": "total", "bytes": "total + 9 * segments",
  "example": {"segments": 300, "total": 20000},
  "reference": {"kernel": "count_reference", "grid": ["segments"], "block": ["1"],
    "arguments": [{"tensor": "flag"}, {"tensor": "offset"}, {"reference": "count"},
                  {"reference": "any"}, {"magnitude": "any"}]}
})json");
    write("count/reference.cu", R"(
#include <kernwright/config.cuh>
extern "C" __global__ void count_reference(const bool* flag, const int* offset, long long* count,
                                           float* any, float* magnitude) {
  long long sum = 0;
  for (int i = offset[blockIdx.x]; i < offset[blockIdx.x + 1]; ++i) sum += flag[i] ? 1 : 0;
  count[blockIdx.x] = sum;
  any[blockIdx.x] = magnitude[blockIdx.x] = sum > 0 ? 1.0f : 0.0f;
})");
    write("count/segments/manifest.json",
          manifest("count", R"("segments": "runtime",
    "total": "runtime")",
                   R"("count_segments", "grid": ["segments"], "block": ["THREADS"],
    "arguments": [{"tensor": "flag"}, {"tensor": "offset"}, {"tensor": "count"}, {"tensor": "any"}])"));
    write("count/segments/kernel.cu", R"(
#include <kernwright/config.cuh>
using namespace kernwright::config;
extern "C" __global__ void count_segments(const bool* flag, const int* offset, int* count,
                                          bool* any) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  int part = 0;
  for (int i = offset[blockIdx.x] + threadIdx.x; i < offset[blockIdx.x + 1]; i += THREADS) {
    part += flag[i] ? 1 : 0;
  }
  atomicAdd(&sum, part);
  __syncthreads();
  if (threadIdx.x == 0) {
    count[blockIdx.x] = sum;
    any[blockIdx.x] = sum > 0;
  }
})");
  }

  const ScopedTempDir& directory() const { return directory_; }

 private:
  /// One launch of `launch`, with the threads of a block as parameter.
  static std::string manifest(std::string_view operation, std::string_view dims,
                              std::string_view launch) {
    return concat(R"({"operation": ")", operation, R"(", "description": "test",
  "source": "kernel.cu", "arch": {"min": 80}, "dims": {)",
                  dims, R"(}, "parameters": {"THREADS": [64, 256]}, "default": {"THREADS": 64},
  "launches": [{"kernel": )",
                  launch, "}]}");
  }
  void write(std::string_view name, std::string_view text) const {
    if (auto done = publish_file(directory_ / name, text); !done) {
      throw std::runtime_error(done.error().message);
    }
  }

  ScopedTempDir directory_;
};

}  // namespace kernwright
