// Attention on cp.async, ldmatrix and mma.sync, for sm_80 and newer.
//
// A block copies its rows of q once and walks over tiles of BN keys. A warp multiplies WM rows with
// KEYS keys of each tile, turns their scores into probabilities in registers, and adds the values
// times these. If several warps share rows, each takes a part of a tile's keys, and their sums are
// added at the end. If keys are split, a second kernel adds the sums of all parts.

#include "results.cuh"
#include "tiles.cuh"
#include <kernwright/attention/bias.cuh>
#include <kernwright/attention/narrow.cuh>
#include <kernwright/attention/plain_row.cuh>
#include <kernwright/attention/scales.cuh>
#include <kernwright/attention/scores.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/tile/accumulator.cuh>
#include <kernwright/tile/softmax_tile.cuh>

namespace {

constexpr int kBlocks = WM / 16;               // of 16 rows of a warp
constexpr int kPending = 2 * (STAGES - 1);     // groups of copies after the one needed next
constexpr int kSumPitch = DEPTH_V + 8;         // floats from a staged row of sums to the next
constexpr int kWarpSumsAt = WARPS_K * BM * 8;  // in shared memory, behind the rows' parts
constexpr int kMergeWarps = 4;

constexpr int kSteps = kFp8 ? 2 : 1;  // of 16 elements of a key that a lane gets at once

using Scores = float[kBlocks][KEYS / 2];
using OperandP = RegisterOperand<KEYS / 16>[kBlocks];
using Bias = BiasOfScores<KEYS / 2>[kBlocks];

// Adds the products of operands of T with 16 columns to the sums of these.
template <typename T, int Registers>
__device__ __forceinline__ void multiply(float (&acc)[Registers], int column,
                                         const unsigned (&a)[4], const unsigned (&b)[4]) {
  mma_m16n8<T>(reinterpret_cast<float(&)[4]>(acc[column / 2]), a, b[0], b[1]);
  mma_m16n8<T>(reinterpret_cast<float(&)[4]>(acc[column / 2 + 4]), a, b[2], b[3]);
}

// The rows of one warp, with their accumulators.
class Warp {
 public:
  // The queries are in the ring.
  //
  // ldmatrix: matrices 0..3 of q are (rows 0, d 0), (rows 8, d 0), (rows 0, d 8), (rows 8, d 8), of
  // k (keys 0, d 0), (keys 0, d 8), (keys 8, d 0), (keys 8, d 8), and of v, transposed, (keys 0, d
  // 0), (keys 8, d 0), (keys 0, d 8), (keys 8, d 8): the order in which mma.sync expects them. With
  // fp8, whose matrix rows have 16 elements, they are (keys 0, d 0), (keys 8, d 0), (keys 0, d 16),
  // (keys 8, d 16), in k and in v.
  __device__ __forceinline__ Warp(unsigned ring, const Share& share, const Logits& logits)
      : share_(share), logits_(logits) {
    const int lane = threadIdx.x % 32;
    lane_q_ = ring + (row_ + lane % 16) * QueryTile::kPitch + lane / 16 * 16;
    const int key = kFp8 ? lane % 16 : lane / 16 * 8 + lane % 8;
    const int piece = kFp8 ? lane / 16 : lane / 8 % 2;
    lane_k_ = ring + kKeysAt + (first_key_ + key) * KeyTile::kPitch + piece * 16;
    lane_v_ = ring + kValuesAt + (first_key_ + lane % 16) * ValueTile::kPitch + lane / 16 * 16;
    const int last = min(share.rows, row_ + WM) - 1;
    if (last >= row_) {
      seen_by_any_ = share.seen_by_any(row_, last);
      seen_by_all_ = share.seen_by_all(row_, last);
    }
#pragma unroll
    for (SoftmaxTile& softmax : softmax_) softmax = SoftmaxTile(logits.unit());
    if constexpr (Q_IN_REGS) {
#pragma unroll
      for (int step = 0; step < DEPTH / 16; ++step) read_queries(step, step);
    }
  }

  // Returns the warp's first key of a tile.
  __device__ __forceinline__ int key(int tile) const {
    return share_.first_key + tile * BN + first_key_;
  }
  // Returns whether one of the rows sees one of the keys from `key` on.
  __device__ __forceinline__ bool sees(int key) const {
    return key < seen_by_any_.end && (!kWindow || key + KEYS > seen_by_any_.begin);
  }

  __device__ __forceinline__ void multiply_keys(Scores& s, int stage) {
    const unsigned from = lane_k_ + stage * KeyTile::kBytes;
#pragma unroll
    for (int first = 0; first < DEPTH / 16; first += kSteps) {
      if constexpr (!Q_IN_REGS) {
#pragma unroll
        for (int step = first; step < min(first + kSteps, DEPTH / 16); ++step) {
          read_queries(step, step - first);
        }
      }
#pragma unroll
      for (int column = 0; column < KEYS; column += 16) {
        unsigned words[4];
        ldmatrix_x4(words, from + column * KeyTile::kPitch + first * 16 * sizeof(kv_t));
#pragma unroll
        for (int step = first; step < min(first + kSteps, DEPTH / 16); ++step) {
          const int part = step - first;
          unsigned b[4] = {words[0], words[1], words[2], words[3]};
          if constexpr (kFp8) widen_keys<product_t>(b, words[part * 2], words[part * 2 + 1]);
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) {
            multiply<product_t>(s[i], column, q_[Q_IN_REGS ? step : part][i], b);
          }
        }
      }
    }
  }

  // Loads the bias of the keys from `key` on.
  __device__ __forceinline__ void load_bias(Bias& bias, int key) const {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const auto row_of = [&](int half) {
        const int row = min(row_ + i * 16 + accumulator_row() + half * 8, share_.rows - 1);
        return logits_.tensor.row(share_.sequence.number, share_.head(row), share_.query(row));
      };
      bias[i].load(logits_.tensor, {row_of(0), row_of(1)}, key);
    }
  }

  // Turns scores of the keys from `key` on into probabilities. When the largest score of a row
  // grows, its earlier sums are scaled down.
  __device__ __forceinline__ void weigh(OperandP& p, Scores& s, const Bias& bias, int key) {
    const bool seen = key + KEYS <= seen_by_all_.end && (!kWindow || key >= seen_by_all_.begin);
    RowFactors factor[kBlocks];
    bool shrinks = false;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const int row = row_ + i * 16 + accumulator_row(), shift = share_.sequence.shift();
      const int positions[2] = {share_.query(row) + shift, share_.query(row + 8) + shift};
      const int head[2] = {share_.head(row), share_.head(row + 8)};
      make_scores(s[i], logits_, positions, head, key);
      if constexpr (biased) bias[i].apply(s[i]);
      if (!seen) apply_mask(s[i], positions, share_.sequence.keys, key);
      softmax_[i].exponentiate<0, kAdds>(s[i], factor[i]);
      shrinks = shrinks || factor[i][0] != 1 || factor[i][1] != 1;
      round_operand<p_t>(s[i], p[i]);
    }
    if (!__any_sync(~0u, shrinks)) return;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) rescale(acc_[i], factor[i]);
  }

  __device__ __forceinline__ void multiply_values(const OperandP& p, int stage) {
    const unsigned from = lane_v_ + stage * ValueTile::kBytes;
#pragma unroll
    for (int step = 0; step < KEYS / 16; ++step) {
      unsigned fp8[4];
#pragma unroll
      for (int column = 0; column < DEPTH_V; column += 16) {
        const unsigned at = from + step * 16 * ValueTile::kPitch + column * sizeof(kv_t);
        unsigned b[4];
        if constexpr (kFp8) {
          if (column % 32 == 0) ldmatrix_transposed_x4(fp8, at);
          widen_values(b, fp8[column / 16 % 2 * 2], fp8[column / 16 % 2 * 2 + 1]);
        } else {
          ldmatrix_transposed_x4(b, at);
        }
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) multiply<p_t>(acc_[i], column, p[i][step], b);
      }
    }
  }

  // Writes all rows. to(row, part, writes_part) returns the destination of a row, given its
  // SoftmaxPart. It is called by all threads of a row, by one of them with `writes_part`.
  template <typename To>
  __device__ __forceinline__ void store(const To& to, const Operands& from,
                                        const Sequences& of) const {
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      const int half = i % 2, row = row_ + i * 8 + accumulator_row();
      const RowResult result = to(row, softmax_[i / 2].part(half), threadIdx.x % 4 == 0);
      if (!result.exists()) continue;
      if constexpr (kFp8) {
#pragma unroll
        for (int column = 0; column < head_dim_v; column += 16) {
          float quad[4];
          fp8_columns(quad, acc_[i / 2], column, half);
          result.write(column + threadIdx.x % 4 * 4, quad);
        }
      } else {
#pragma unroll
        for (int at = 2 * half; at < head_dim_v / 2; at += 4) {
          float pair[2] = {acc_[i / 2][at], acc_[i / 2][at + 1]};
          result.write(accumulator_column() + register_column(at), pair);
        }
      }
    }
    if constexpr (kRowsDiffer) store_slow_path_rows(to, from, of);
  }

 private:
  // Reads fragments of q: all of them are kept, or only the fragments of the steps at hand.
  __device__ __forceinline__ void read_queries(int step, int to) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      ldmatrix_x4(q_[to][i], lane_q_ + i * 16 * QueryTile::kPitch + step * 32);
    }
  }

  // Recomputes the rows whose accumulators a masked NaN or infinity may have reached.
  template <typename To>
  __device__ __forceinline__ void store_slow_path_rows(const To& to, const Operands& from,
                                                       const Sequences& of) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      each_not_finite(acc_[i], softmax_[i], [&](int row_of_block, const SoftmaxPart& part) {
        const int row = row_ + i * 16 + row_of_block;
        const RowResult result = to(row, part, false);
        if (row >= share_.rows) return;
        SlowPathRow slow(part.largest);
        for (int key = share_.first_key + first_key_; key < share_.keys.end; key += BN) {
          slow.add(from, of, share_.sequence, share_.query(row), share_.head(row), logits_, key,
                   min(key + KEYS, share_.keys.end));
        }
        slow.each([&](int column, float x) {
          float one[1] = {x};
          result.write(column, one);
        });
      });
    }
  }

  const Share& share_;
  Logits logits_;
  int row_ = static_cast<int>(threadIdx.x / 32 % WARPS_M) * WM;          // first one of the block's
  int first_key_ = static_cast<int>(threadIdx.x / 32 / WARPS_M) * KEYS;  // of each tile
  unsigned lane_q_, lane_k_, lane_v_;  // shared addresses of this lane's rows
  Range seen_by_any_ = {0, 0}, seen_by_all_ = {0, 0};
  unsigned q_[Q_IN_REGS ? DEPTH / 16 : kSteps][kBlocks][4];
  float acc_[kBlocks][DEPTH_V / 2] = {};
  SoftmaxTile softmax_[kBlocks];
};

// Adds the staged sums of the warps that share rows.
__device__ __forceinline__ void add_warps(const unsigned char* shared, const Share& share,
                                          const Results& results) {
  const auto* const parts = reinterpret_cast<const SoftmaxPart*>(shared);
  const auto* const sums = reinterpret_cast<const float*>(shared + kWarpSumsAt);
  constexpr int kAcross = head_dim_v / 8;
  for (int piece = threadIdx.x; piece < share.rows * kAcross; piece += THREADS) {
    const int row = piece / kAcross, column = piece % kAcross * 8;
    SoftmaxPart all{hidden_score(), 0};
#pragma unroll
    for (int w = 0; w < WARPS_K; ++w)
      all.largest = larger(all.largest, parts[w * BM + row].largest);
    float value[8] = {};
#pragma unroll
    for (int w = 0; w < WARPS_K; ++w) {
      const SoftmaxPart one = parts[w * BM + row];
      const float factor = power_between(one.largest, all.largest);
      all.sum += one.sum * factor;
      const auto x = load_elements<Load::plain, 8>(sums + (w * BM + row) * kSumPitch + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) value[i] += x[i] * factor;
    }
    const RowResult result = results.row(share, row, all, column == 0);
    if (result.exists()) result.write(column, value);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_tiled(KW_PARAMETERS(attention_tiled)) {
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned ring = shared_address(shared);
  const Sequences of{q_offsets, kv_offsets, kv_lengths,   page_table, batch,
                     q_len,     kv_len,     q_tokens,     kv_tokens,  0,
                     ld_table,  table_rows, page_offsets, page_list};
  await_previous_kernel();
  release_next_kernel();
  const Share share = share_of_block(of, parts, SPLIT);
  if (share.rows <= 0) return;

  // Nothing waits for copies here, while queries beside fp8 keys come through registers.
  if constexpr (!kFp8) copy_queries(ring, q, share, q_tokens);
  Copies copies(ring, reinterpret_cast<long long*>(shared + kSlotsAt), k, v, of, share);
  copies.fill();
  if constexpr (kFp8) copy_queries(ring, q, share, q_tokens);
  const Scales scales{q_descale, k_descale, v_descale, q_scale, k_scale, v_scale};
  scale *= scales.of_products(share.sequence.number, share.kv_head());
  cp_async_wait<kPending>();
  __syncthreads();
  Warp warp(ring, share,
            Logits::of(scale, cap, slopes, seen, bias, kv_len, ldbias_batch, ldbias_head, ldbias));

  const int tiles = share.tiles();
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int key = warp.key(tile);
    const bool sees = warp.sees(key);
    // After this barrier the keys have arrived, and no warp reads the values of the tile before.
    cp_async_wait<kPending>();
    __syncthreads();
    copies.copy_values(tile + STAGES - 1);
    if constexpr (kPaged) copies.publish_slots(tile + STAGES);
    Scores s = {};
    OperandP p;
    Bias bias;  // it arrives while the keys are multiplied
    if (biased && sees) warp.load_bias(bias, key);
    if (sees) warp.multiply_keys(s, tile % STAGES);
    if (!SOFTMAX_LATE && sees) warp.weigh(p, s, bias, key);
    // After this barrier the values have arrived, and no warp reads the keys any more.
    cp_async_wait<kPending>();
    __syncthreads();
    copies.copy_keys(tile + STAGES);
    if (SOFTMAX_LATE && sees) warp.weigh(p, s, bias, key);
    if (sees) warp.multiply_values(p, tile % STAGES);
  }

  const bool is_part = SPLIT > 0;
  const Results results{o,
                        lse,
                        is_part ? sums + share.part * rows * head_dim_v : nullptr,
                        is_part ? states + share.part * rows : nullptr,
                        sinks,
                        q_tokens,
                        scales.of_values(share.sequence.number, share.kv_head())};
  const Operands from{q, k, v, ldq, ldk, ldv};
  if constexpr (WARPS_K == 1) {
    const auto to = [&](int row, const SoftmaxPart& part, bool writes_part) {
      return results.row(share, row, part, writes_part);
    };
    warp.store(to, from, of);
  } else {
    const int warp_row = static_cast<int>(threadIdx.x / 32 / WARPS_M) * BM;
    const auto to = [&](int row, const SoftmaxPart& part, bool writes_part) {
      if (writes_part) reinterpret_cast<SoftmaxPart*>(shared)[warp_row + row] = part;
      auto* const staged = reinterpret_cast<float*>(shared + kWarpSumsAt);
      return RowResult{nullptr, staged + (warp_row + row) * kSumPitch};
    };
    __syncthreads();  // no warp reads the ring any more
    warp.store(to, from, of);
    __syncthreads();
    add_warps(shared, share, results);
  }
}

// Merges the parts of one row of the result in a block.
extern "C" __global__ void __launch_bounds__(kMergeWarps * 32)
    attention_tiled_merge(KW_PARAMETERS(attention_tiled_merge)) {
  constexpr int kPieces = (head_dim_v / 4 + 31) / 32;  // of four columns, for each lane
  __shared__ __align__(16) float warp_sums[kMergeWarps][head_dim_v];
  __shared__ float warp_sum[kMergeWarps];
  await_previous_kernel();
  release_next_kernel();

  const long long row = blockIdx.x;
  const int query = static_cast<int>(row % q_tokens);
  const int head = static_cast<int>(row / q_tokens % heads);
  if constexpr (lengths == lengths_ragged) {
    if (query >= q_offsets[batch]) return;
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  float largest = hidden_score();
  for (int part = lane; part < parts; part += 32) {
    largest = larger(largest, states[part * rows + row].largest);
  }
  largest = warp_reduce<Max, 32>(largest);
  float sum = 0;
  float value[kPieces][4] = {};
#pragma unroll 4
  for (int part = warp; part < parts; part += kMergeWarps) {
    const SoftmaxPart one = states[part * rows + row];
    const float factor = power_between(one.largest, largest);
    sum += one.sum * factor;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int column = (piece * 32 + lane) * 4;
      if (column < head_dim_v && one.sum != 0) {  // a part without keys has written no sums
        const auto x =
            load_elements<Load::plain, 4>(sums + (part * rows + row) * head_dim_v + column);
#pragma unroll
        for (int i = 0; i < 4; ++i) value[piece][i] += x[i] * factor;
      }
    }
  }
  if (lane == 0) warp_sum[warp] = sum;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int column = (piece * 32 + lane) * 4;
    if (column < head_dim_v) store_elements<Store::plain>(&warp_sums[warp][column], value[piece]);
  }
  __syncthreads();
  const int column = threadIdx.x * 4;
  if (column >= head_dim_v) return;
  SoftmaxPart all{largest, 0};
  float total[4] = {};
#pragma unroll
  for (int w = 0; w < kMergeWarps; ++w) {
    all.sum += warp_sum[w];
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] += warp_sums[w][column + i];
  }
  const float factor = finish(all, sinks, head);
  if (config::lse != lse_none && column == 0) lse[row] = log_of(all);
#pragma unroll
  for (int i = 0; i < 4; ++i) total[i] *= factor;
  store_elements<Store::plain>(
      o + column + place_of(row / q_tokens / heads, query, head, q_tokens, heads, ldo, head_dim_v),
      total);
}
