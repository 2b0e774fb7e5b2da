#include <kernwright/config.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

using Vector = Packed<VECTOR_BYTES>;

constexpr Store kStore = STREAMING ? Store::streaming : Store::plain;

// Returns a vector of NaN: all bits set are a NaN in every format.
__device__ __forceinline__ Vector all_nan() {
  Vector x;
#pragma unroll
  for (unsigned& word : x.word) word = 0xffffffffu;
  return x;
}

// Neighbouring threads have the vectors of a row; the vectors of a thread are TASKS apart. Each
// element of `lengths_out` is written by the thread that has read it, so it may be the memory of
// `lengths`. Nothing is read for a token that the table does not have.
extern "C" __global__ void __launch_bounds__(THREADS)
    embedding_streamed(KW_PARAMETERS(embedding_streamed)) {
  release_next_kernel();
  const long long task = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
  const long long place = task / TASKS;
  const int own = static_cast<int>(task % TASKS);
  await_previous_kernel();
  if (place >= token_count) return;

  const int token = __ldg(tokens + place);
  const bool is_known = static_cast<unsigned>(token) < static_cast<unsigned>(vocabulary);
  const dtype_t* const from = table + static_cast<long long>(token) * hidden;
  Vector row[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int vector = own + i * TASKS;
    if (vector >= VECTORS) continue;
    row[i] = all_nan();
    if (is_known) {
      row[i] =
          load<Load::no_allocate, VECTOR_BYTES>(from + vector * (VECTOR_BYTES / sizeof(dtype_t)));
    }
  }
  if constexpr (config::lengths == lengths_advance) {
    if (own == 0) lengths_out[place] = lengths[place] + 1;
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int vector = own + i * TASKS;
    if (vector >= VECTORS) continue;
    store<kStore>(x + place * hidden + vector * (VECTOR_BYTES / sizeof(dtype_t)), row[i]);
  }
}
