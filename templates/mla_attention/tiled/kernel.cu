// Attention over latents of any size by mma.sync: a block takes 16 rows of a sequence, which are
// its heads times its queries, and SPLIT keys.
//
// Keys are loaded in tiles of TILE to shared memory, and the queries once. Every warp multiplies
// the queries by 16 keys of the tile, and the weights of all of them by its quarter of the latents.
// Warps exchange the largest scores of rows, and weights, through shared memory.
//
// At the end blocks that share rows add up their sums (split_sums.cuh).
//
// A weight of zero times a NaN is NaN. So latents that are not finite are overwritten with zeros
// in the tiles of which some query does not see all keys, once the tile's scores have been
// computed. A query that sees such a key has a score of NaN, and with it all of its result.

#include <kernwright/attention/split_sums.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/exp.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/mla/sequences.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/stmatrix.cuh>
#include <kernwright/tile/accumulator.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr int kRows = 16;
constexpr int kKeysOfWarp = 16;
constexpr int kGroups = (latent + 3) / 4;  // of 4 columns of a row
constexpr int kPitch = DEPTH * 2 + 16;     // bytes of a row; 8 rows are in different banks
constexpr int kWeightPitch = TILE * 2 + 16;
constexpr int kSumsPitch = kGroups * 16 + 16;
constexpr int kAtOnce = RING_BYTES / (2 * 16 * THREADS) / 4 * 4;

using Share = MlaShare<kRows, 1>;
using Sums = SplitSums<1, 1, kRows, kGroups, THREADS, kAtOnce>;
using Acc = float[COLUMNS / 2];

struct Addresses {
  unsigned base;
  __device__ unsigned query(int row) const { return base + row * kPitch; }
  __device__ unsigned key(int row) const { return query(kRows + row); }
  __device__ unsigned weight(int row) const { return base + RING_BYTES + row * kWeightPitch; }
  // Returns the address of a warp's number for a row.
  __device__ unsigned exchange(int warp, int row) const {
    return weight(kRows) + (warp * kRows + row) * 4;
  }
  __device__ unsigned part(int, int row) const {
    return exchange(WARPS, 0) + row * static_cast<int>(sizeof(SoftmaxPart));
  }
  __device__ unsigned last() const { return part(0, kRows); }
  // Sums are where queries and keys were.
  __device__ unsigned sums(int, int row) const { return base + row * kSumsPitch; }
  __device__ unsigned copy(int i) const { return base + (i * THREADS + threadIdx.x) * 16; }
};
static_assert(kRows * kSumsPitch <= RING_BYTES && kAtOnce > 0);

// Copies a row of the two parts to shared memory, as a warp; without parts it is zeros. All behind
// the row's elements is zeros too.
__device__ __forceinline__ void copy_row(unsigned to, const dtype_t* latents,
                                         const dtype_t* rotated, bool exists) {
  for (int vector = threadIdx.x % 32; vector < DEPTH / 8; vector += 32) {
    const int element = vector * 8;
    if constexpr (VECTORS) {
      const dtype_t* const from =
          element < latent ? latents + element : rotated + (element - latent);
      const bool is_there = exists && element < width;
      cp_async<16>(to + vector * 16, is_there ? from : latents, is_there ? 16 : 0);
    } else {
      unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int at = element + i;
        if (!exists || at >= width) continue;
        const dtype_t x = at < latent ? latents[at] : rotated[at - latent];
        words[i / 2] |= static_cast<unsigned>(x.bits) << i % 2 * 16;
      }
      store_quad(to + vector * 16, {__uint_as_float(words[0]), __uint_as_float(words[1]),
                                    __uint_as_float(words[2]), __uint_as_float(words[3])});
    }
  }
}

// The state of two rows of a thread; all warps know it.
struct Rows {
  float largest[2] = {hidden_score(), hidden_score()};
  float sum[2] = {0, 0};  // this thread's parts
};

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    mla_attention_tiled(KW_PARAMETERS(mla_attention_tiled)) {
  extern __shared__ __align__(16) unsigned char memory[];
  const Addresses at{shared_address(memory)};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  release_next_kernel();
  await_previous_kernel();
  const MlaSequences of{q_offsets, kv_offsets, kv_lengths, page_table, q_len,
                        kv_len,    q_tokens,   kv_tokens,  pages,      ld_table};
  const Share share(of, ROW_TILES, SPLITS, SPLIT);
  if (share.rows == 0 || share.split >= share.splits) return;
  for (int row = warp; row < kRows; row += WARPS) {
    const int own = min(row, share.rows - 1);
    const long long token = share.sequence.q_first + share.query_of(own);
    const int head = share.head_of(own);
    const dtype_t* const latents = q + token * ldq + head * query_width;
    const dtype_t* const rotated =
        query == query_split ? q_rope + token * ldq_rope + head * rope_width : latents + latent;
    copy_row(at.query(row), latents, rotated, row < share.rows);
  }
  const float unit = mla_unit(scale);
  const int all_see = share.sequence.end_of(share.query_of(0));
  int ends[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(accumulator_row() + half * 8, share.rows - 1);
    ends[half] = min(share.end, share.sequence.end_of(share.query_of(row)));
  }
  Rows rows;
  Acc acc;
  clear(acc);
#pragma unroll 1
  for (int key = share.begin; key < share.end; key += TILE) {
    for (int row = warp; row < TILE; row += WARPS) {
      const bool exists = key + row < share.sequence.keys;
      const long long token = exists ? share.sequence.token_of(key + row, of) : 0;
      const dtype_t* const latents = cache + token * ld_cache;
      copy_row(at.key(row), latents,
               config::keys == keys_apart ? rope_cache + token * ld_rope : latents + latent,
               exists);
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    const bool scores = warp * kKeysOfWarp < TILE;  // the warp has keys
    const bool whole = key + TILE <= min(all_see, share.end);
    float s[8];
    clear(s);
    if (scores) {
#pragma unroll 4
      for (int step = 0; step < SCORE_STEPS; ++step) {
        unsigned a[4], b[4];
        ldmatrix_x4(a, at.query(lane % 16) + (step * 2 + lane / 16) * 16);
        ldmatrix_x4(b, at.key(warp * kKeysOfWarp + lane / 16 * 8 + lane % 8) +
                           (step * 2 + lane / 8 % 2) * 16);
        mma_m16n8<dtype_t>(reinterpret_cast<float(&)[4]>(s[0]), a, b[0], b[1]);
        mma_m16n8<dtype_t>(reinterpret_cast<float(&)[4]>(s[4]), a, b[2], b[3]);
      }
    }
    float next[2] = {hidden_score(), hidden_score()};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int half = register_row(i) / 8;
      if (scale < 0) s[i] = -s[i];
      const int own = key + warp * kKeysOfWarp + accumulator_column() + register_column(i);
      if (!scores || own >= ends[half]) s[i] = hidden_score();
      next[half] = larger(next[half], s[i]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      next[half] = row_max(next[half]);
      if (lane % 4 == 0) {
        store_number(at.exchange(warp, accumulator_row() + half * 8), __float_as_int(next[half]));
      }
    }
    __syncthreads();
    float factor[2], base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = rows.largest[half];
#pragma unroll
      for (int other = 0; other < WARPS; ++other) {
        largest =
            larger(largest, load_shared<float>(at.exchange(other, accumulator_row() + half * 8)));
      }
      base[half] = largest == hidden_score() ? 0.0f : __fmul_rn(largest, unit);
      factor[half] = exp2_fast(__fmul_rn(rows.largest[half], unit) - base[half]);
      rows.largest[half] = largest;
      rows.sum[half] *= factor[half];
    }
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int half = register_row(i) / 8;
      const float p[2] = {exp2_fast(fmaf(s[i], unit, -base[half])),
                          exp2_fast(fmaf(s[i + 1], unit, -base[half]))};
      rows.sum[half] += p[0];
      rows.sum[half] += p[1];
      if (!scores) continue;
      const int column = warp * kKeysOfWarp + accumulator_column() + register_column(i);
      store_number(at.weight(accumulator_row() + half * 8) + column * 2,
                   static_cast<int>(pack_pair<dtype_t>(p[0], p[1])));
    }
    if (!whole) {
      const int first = max(0, min(all_see, share.end) - key);
      for (int i = first * (DEPTH / 8) + threadIdx.x; i < TILE * (DEPTH / 8); i += THREADS) {
        clear_not_finite(at.key(i / (DEPTH / 8)) + i % (DEPTH / 8) * 16);
      }
    }
    __syncthreads();
    rescale(acc, factor);
    for (int step = 0; step < TILE / 16; ++step) {
      unsigned a[4];
      ldmatrix_x4(a, at.weight(lane % 16) + (step * 2 + lane / 16) * 16);
#pragma unroll
      for (int column = 0; column < COLUMNS; column += 16) {
        unsigned b[4];
        ldmatrix_transposed_x4(
            b, at.key(step * 16 + lane % 16) + ((warp * COLUMNS + column) / 8 + lane / 16) * 16);
        mma_m16n8<dtype_t>(reinterpret_cast<float(&)[4]>(acc[column / 2]), a, b[0], b[1]);
        mma_m16n8<dtype_t>(reinterpret_cast<float(&)[4]>(acc[column / 2 + 4]), a, b[2], b[3]);
      }
    }
    __syncthreads();  // the next keys overwrite these
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = accumulator_row() + half * 8;
    const float sum = row_sum(rows.sum[half]);
    if (lane % 4 == 0) store_number(at.exchange(warp, row), __float_as_int(sum));
  }
  cp_async_wait<0>();  // a block without keys has started copies of queries
  __syncthreads();
#pragma unroll
  for (int i = 0; i < COLUMNS / 2; ++i) {
    const int column = warp * COLUMNS + accumulator_column() + register_column(i);
    if (column >= kGroups * 4) continue;
    store_number(at.sums(0, accumulator_row() + register_row(i)) + column * 4,
                 __float_as_int(acc[i]));
  }
  if (warp == 0 && lane % 4 == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = accumulator_row() + half * 8;
      const float largest = rows.largest[half];
      float sum = 0;
#pragma unroll
      for (int other = 0; other < WARPS; ++other)
        sum += load_shared<float>(at.exchange(other, row));
      store_shared_pair(
          at.part(0, row),
          __float_as_uint(largest == hidden_score() ? largest : __fmul_rn(largest, unit)),
          __float_as_uint(sum));
    }
  }
  __syncthreads();
  const Sums::Workspace workspace{counters, lines};
  Sums::add_up(share, share.rows, MlaResults{o, lse, sinks, q_tokens, ldo}, workspace, at);
}
