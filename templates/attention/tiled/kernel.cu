#include <kernwright/config.cuh>
#include <kernwright/math/activation.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/cp_async.cuh>
#include <kernwright/ptx/ldmatrix.cuh>
#include <kernwright/ptx/mma.cuh>
#include <kernwright/ptx/programmatic.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr bool kCausal = mask != mask_none;
constexpr bool kWindow = mask == mask_window;
constexpr bool kPaged = cache == cache_paged;
constexpr bool kRagged = lengths == lengths_ragged;
// Scores are turned into exponents of 2 before the largest is found. Elsewhere one multiply-add
// scales a score and subtracts the largest.
constexpr bool kScaledFirst = softcap != softcap_none || bias != bias_none;
constexpr float kLog2e = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

constexpr int kMmaM = WM / 16;
constexpr int kMmaN = KEYS / 8;
constexpr int kSteps = KEYS / 16;  // of 16 keys each, in the product with v
constexpr int kMmaV = DEPTH_V / 8;
constexpr int kStages = STAGES;
constexpr int kHeadsOfUnit = PACK ? GROUP : 1;  // heads of q that share a block's rows
constexpr int kUnits = static_cast<int>(heads) / kHeadsOfUnit;
constexpr int kSumPitch = DEPTH_V + 8;  // floats from a staged row of sums to the next

// A tile of `Rows` rows of `Columns` elements in shared memory, and the threads' shares of its copy
// in pieces of 16 bytes. A power of two of neighbouring threads copies a row, so the pieces of a
// thread lie at constant distances. A row is padded with zeros to a multiple of 16 elements, and by
// 16 bytes more: then eight consecutive rows have the same piece in eight different bank groups.
template <int Rows, int Columns>
struct Tile {
  static constexpr int kPieces = (Columns + 15) / 16 * 2;  // in a row
  static constexpr int kPitch = kPieces * 16 + 16;
  static constexpr int kBytes = Rows * kPitch;
  static constexpr int kAcross = kPieces % 16 == 0  ? 16
                                 : kPieces % 8 == 0 ? 8
                                 : kPieces % 4 == 0 ? 4
                                                    : 2;
  static constexpr int kDown = THREADS / kAcross;

  // The row of this thread's first piece, and the piece's place in it. The other pieces lie `down`
  // rows further and `across` pieces further.
  static __device__ __forceinline__ int own_row() { return threadIdx.x / kAcross; }
  static __device__ __forceinline__ int own_piece() { return threadIdx.x % kAcross; }

  // Calls visit(down, across, shared address) for each piece of this thread.
  template <typename Visit>
  static __device__ __forceinline__ void each(unsigned tile, const Visit& visit) {
    const unsigned own = tile + own_row() * kPitch + own_piece() * 16;
#pragma unroll
    for (int down = 0; down < Rows; down += kDown) {
      if (Rows % kDown == 0 || own_row() + down < Rows) {
#pragma unroll
        for (int across = 0; across < kPieces; across += kAcross) {
          visit(down, across, own + down * kPitch + across * 16);
        }
      }
    }
  }

  // Whether this thread's piece `across` further holds elements, not padding.
  static __device__ __forceinline__ bool has(int across) {
    return Columns % 16 == 0 || own_piece() + across < Columns / 8;
  }
};
using QueryTile = Tile<BM, static_cast<int>(head_dim)>;
using KeyTile = Tile<BN, static_cast<int>(head_dim)>;
using ValueTile = Tile<BN, static_cast<int>(head_dim_v)>;

constexpr int kKeysAt = QueryTile::kBytes;
constexpr int kValuesAt = kKeysAt + kStages * KeyTile::kBytes;
constexpr int kSlotsAt = kValuesAt + kStages * ValueTile::kBytes;
static_assert(kSlotsAt + (kPaged ? 16 * BN : 0) == RING_BYTES);

__device__ __forceinline__ float minus_infinity() { return -INFINITY; }

// The queries and keys of one sequence.
struct Sequence {
  int queries, keys;
  long long first_query, first_key;  // among those of all sequences
};

// Keys of a sequence: [low, high).
struct Range {
  int low, high;
};

// The keys that a query sees. The last query of a sequence stands at its last key.
__device__ __forceinline__ Range seen_by(int query, const Sequence& sequence) {
  const int place = query + sequence.keys - sequence.queries;
  return {kWindow ? ::max(place - static_cast<int>(window) + 1, 0) : 0,
          kCausal ? ::min(place + 1, sequence.keys) : sequence.keys};
}

// The softmax of a row so far: the largest exponent of 2, and the sum of the powers of 2 relative
// to it.
struct State {
  float largest, sum;
};

// 2^(from - to), for `from` not above `to`. Both may be -inf, which gives 0.
__device__ __forceinline__ float power_between(float from, float to) {
  return exp2_fast(from - (to == minus_infinity() ? 0.0f : to));
}

// Adds the sink to the state. Returns the factor that turns sums of weighted values into the
// result; of a row that sees nothing it is 0.
__device__ __forceinline__ float finish(State& state, const float* sinks, int head) {
  float factor = 1;
  if constexpr (sink != sink_none) {
    const float logit = sinks[head] * kLog2e;
    const float largest = larger(state.largest, logit);
    factor = power_between(state.largest, largest);
    state.sum = state.sum * factor + power_between(logit, largest);
    state.largest = largest;
  }
  return state.sum == 0 ? 0.0f : factor / state.sum;
}

__device__ __forceinline__ float log_of(const State& state) {
  const float exponent = state.largest + log2f(state.sum);
  return lse == lse_base2 ? exponent : exponent * kLn2;
}

// The place of one row of the result: in o or, for a part of the keys, in the workspace.
struct Row {
  dtype_t* o;
  float* sums;
  float factor;

  template <int Count>
  __device__ __forceinline__ void write(int column, float (&value)[Count]) const {
    if (sums != nullptr) {
      store_elements<Store::plain>(sums + column, value);
    } else {
#pragma unroll
      for (int i = 0; i < Count; ++i) value[i] *= factor;
      store_elements<Store::plain>(o + column, value);
    }
  }
};

// The rows of a sequence's result.
struct Result {
  dtype_t* o;
  long long o_head;
  float* lse_out;
  float* sums;  // null where a block sees all keys of its rows
  State* states;
  long long row_head;  // rows from a head to the next in sums, states and lse_out
  const float* sinks;

  // Also stores the row's state or LSE, by the one of its threads with `writes_state`.
  __device__ __forceinline__ Row row(int head, int query, State state, bool writes_state) const {
    const long long at = head * row_head + query;
    Row to{o + head * o_head + query * static_cast<long long>(ldo), nullptr, 1};
    if (sums != nullptr) {
      to.sums = sums + at * static_cast<int>(head_dim_v);
      if (writes_state) states[at] = state;
    } else {
      to.factor = finish(state, sinks, head);
      if (lse != lse_none && writes_state) lse_out[at] = log_of(state);
    }
    return to;
  }
};

// Starts the copy of a tile of keys or values, whose first row is key `first`. Rows outside of
// `range` are not read and become 0, because a weight of 0 does not hide a NaN. In a paged cache
// `slots` has the place of each row of the tile.
template <typename Shape, long long Pitch>
__device__ __forceinline__ void copy_rows(unsigned to, const dtype_t* from, const long long* slots,
                                          int first, const Range& range) {
  const int own = first + Shape::own_row();
  const int below = range.high - own;  // rows that exist, from this thread's first on
  from += Shape::own_piece() * 8;
  if constexpr (!kPaged) from += own * Pitch;
  Shape::each(to, [&](int down, int across, unsigned address) {
    const bool exists = down < below && (!kWindow || own + down >= range.low) && Shape::has(across);
    const long long row = kPaged ? slots[Shape::own_row() + down] : down;
    cp_async<16>(address, from + row * Pitch + across * 8, exists ? 16 : 0);
  });
}

// Makes an element of `sum` NaN if the one of `pair` is NaN or infinite. `sum` begins with 0.
template <typename T>
__device__ __forceinline__ void mark_not_finite(unsigned& sum, unsigned pair);
template <>
__device__ __forceinline__ void mark_not_finite<bf16>(unsigned& sum, unsigned pair) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0));
}
template <>
__device__ __forceinline__ void mark_not_finite<fp16>(unsigned& sum, unsigned pair) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0));
}

// Whether all elements of a tile that this thread has copied are finite.
template <typename Shape>
__device__ __forceinline__ bool is_finite(unsigned tile) {
  unsigned sum = 0;
  Shape::each(tile, [&](int, int, unsigned address) {
    const Packed<16> x = load_shared<16>(address);
#pragma unroll
    for (int i = 0; i < 4; ++i) mark_not_finite<dtype_t>(sum, x.word[i]);
  });
  return (sum & 0x7fff7fff) == 0;
}

using Scores = float[kMmaM][kMmaN][4];
using Weights = unsigned[kSteps][kMmaM][4];  // powers of 2, as fragments of mma.sync
using Values = float[kMmaM][kMmaV][4];

// values += weights * v, for the KEYS rows of v at `from`.
__device__ __forceinline__ void multiply(Values& values, const Weights& weights, unsigned from) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int j = 0; j < kMmaV / 2; ++j) {
      unsigned b[4];
      ldmatrix_transposed_x4(b, from + step * 16 * ValueTile::kPitch + j * 32);
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
        mma_m16n8<dtype_t>(values[i][2 * j], weights[step][i], b[0], b[1]);
        mma_m16n8<dtype_t>(values[i][2 * j + 1], weights[step][i], b[2], b[3]);
      }
    }
  }
}

// The same for v with a NaN or an infinity, which would reach queries that do not see its key,
// since 0 times it is NaN. The keys are multiplied one at a time, and each product is added to the
// rows that see the key. `sees` has the keys that this thread's rows see, counted from the first at
// `from`.
__device__ __forceinline__ void multiply_one_by_one(Values& values, const Weights& weights,
                                                    unsigned from, const Range (&sees)[kMmaM][2]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll 1
    for (int one = 0; one < 16; ++one) {
      const int key = step * 16 + one;
      const unsigned kept = threadIdx.x % 4 != one % 8 / 2 ? 0u
                            : one % 2 == 0                 ? 0x0000ffffu
                                                           : 0xffff0000u;
      const unsigned low = one < 8 ? kept : 0u;
      const unsigned high = one < 8 ? 0u : kept;
      unsigned a[kMmaM][4];
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
          a[i][quarter] = weights[step][i][quarter] & (quarter < 2 ? low : high);
        }
      }
#pragma unroll
      for (int j = 0; j < kMmaV / 2; ++j) {
        unsigned b[4];
        ldmatrix_transposed_x4(b, from + step * 16 * ValueTile::kPitch + j * 32);
#pragma unroll
        for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float product[4] = {};
            mma_m16n8<dtype_t>(product, a[i], b[2 * half] & low, b[2 * half + 1] & high);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const Range& range = sees[i][e / 2];
              if (key >= range.low && key < range.high) values[i][2 * j + half][e] += product[e];
            }
          }
        }
      }
    }
  }
}

// The rows of this thread's elements: in each 16 rows of its warp, lane / 4 and the eighth after
// it.
struct OwnRows {
  Sequence sequence;
  int first;

  __device__ __forceinline__ int query(int i, int h) const {
    return (first + i * 16 + h * 8) / kHeadsOfUnit;
  }
  __device__ __forceinline__ int head_of_unit(int i, int h) const {
    return (first + i * 16 + h * 8) % kHeadsOfUnit;
  }
  __device__ __forceinline__ Range sees(int i, int h) const {
    return seen_by(query(i, h), sequence);
  }
};

// Fragments of q: all of them, or those of one step.
struct Queries {
  unsigned from;  // shared address of this lane's row
  unsigned kept[Q_IN_REGS ? DEPTH / 16 : 1][kMmaM][4];

  __device__ __forceinline__ void read(int step, int to) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
      ldmatrix_x4(kept[to][i], from + i * 16 * QueryTile::kPitch + step * 32);
    }
  }
};

// score += q * k^T, for the KEYS rows of k at `from`.
__device__ __forceinline__ void multiply(Scores& score, Queries& queries, unsigned from) {
#pragma unroll
  for (int step = 0; step < DEPTH / 16; ++step) {
    if constexpr (!Q_IN_REGS) queries.read(step, 0);
#pragma unroll
    for (int j = 0; j < kMmaN / 2; ++j) {
      unsigned b[4];
      ldmatrix_x4(b, from + j * 16 * KeyTile::kPitch + step * 32);
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
        const unsigned(&a)[4] = queries.kept[Q_IN_REGS ? step : 0][i];
        mma_m16n8<dtype_t>(score[i][2 * j], a, b[0], b[1]);
        mma_m16n8<dtype_t>(score[i][2 * j + 1], a, b[2], b[3]);
      }
    }
  }
}

// The factors that turn scores into exponents of 2.
struct Exponents {
  float scale, cap, twice_over_cap;
  float slope[kMmaM][2];

  __device__ __forceinline__ void apply(Scores& score, const OwnRows& rows, int lane_key) const {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int to_key = rows.query(i, h) + rows.sequence.keys - rows.sequence.queries - lane_key;
#pragma unroll
        for (int j = 0; j < kMmaN; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& x = score[i][j][2 * h + e];
            if constexpr (softcap == softcap_none) {
              x *= scale;
            } else {  // tanh(x) = 1 - 2 / (1 + e^2x)
              x = fmaf(-2 * cap, reciprocal_fast(1 + exp2_fast(x * twice_over_cap)), cap);
            }
            if constexpr (bias == bias_alibi) {
              x = fmaf(-slope[i][h], fabsf(static_cast<float>(to_key - j * 8 - e)), x);
            }
          }
        }
      }
    }
  }
};

// Sets the scores of keys that a row does not see to -inf. `lane_key` is this lane's first key.
__device__ __forceinline__ void hide(Scores& score, const OwnRows& rows, int lane_key) {
#pragma unroll
  for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Range sees = rows.sees(i, h);
      const int low = sees.low - lane_key;
      const int high = sees.high - lane_key;
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = j * 8 + e;
          if ((kWindow && key < low) || key >= high) score[i][j][2 * h + e] = minus_infinity();
        }
      }
    }
  }
}

// Turns scores into weights, 2^(exponent - largest of the row so far), and adds them to the states.
// If a row's largest has grown, its earlier sums are scaled down.
__device__ __forceinline__ void weigh(Weights& weights, Scores& score, State (&state)[kMmaM][2],
                                      Values& values, float scale) {
  float shrink[kMmaM][2];
  bool shrinks = false;
#pragma unroll
  for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = score[i][0][2 * h];
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
        most = larger(most, larger(score[i][j][2 * h], score[i][j][2 * h + 1]));
      }
      most = larger(most, __shfl_xor_sync(0xffffffff, most, 1));
      most = larger(most, __shfl_xor_sync(0xffffffff, most, 2));
      State& own = state[i][h];
      const float before = own.largest;
      own.largest = larger(before, most * scale);
      shrinks |= own.largest != before;
      shrink[i][h] = power_between(before, own.largest);
      const float base = own.largest == minus_infinity() ? 0.0f : own.largest;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kMmaN; ++j) {
        const float first = exp2_fast(fmaf(score[i][j][2 * h], scale, -base));
        const float second = exp2_fast(fmaf(score[i][j][2 * h + 1], scale, -base));
        sum += first;
        sum += second;
        weights[j / 2][i][j % 2 * 2 + h] = pack_pair<dtype_t>(first, second);
      }
      own.sum = own.sum * shrink[i][h] + sum;
    }
  }
  if (__any_sync(0xffffffff, shrinks)) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
      for (int j = 0; j < kMmaV; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) values[i][j][e] *= shrink[i][e / 2];
      }
    }
  }
}

// A block computes BM rows of a sequence: queries of one head or, with PACK, of all heads that
// share keys, with the heads of a query as neighbours. Blocks of later queries, which see more,
// come first. A block sees all keys or, if `part_keys` is not 0, one part of so many keys.
extern "C" __global__ void __launch_bounds__(THREADS) attention_tiled(
    const dtype_t* __restrict__ q, const dtype_t* __restrict__ k, const dtype_t* __restrict__ v,
    const int* __restrict__ q_offsets, const int* __restrict__ kv_offsets,
    const int* __restrict__ kv_lengths, const int* __restrict__ page_table,
    const float* __restrict__ sinks, const float* __restrict__ slopes, dtype_t* __restrict__ o,
    float* __restrict__ lse_out, float* __restrict__ sums, State* __restrict__ states, int q_length,
    int kv_length, long long q_batch, long long q_head, long long k_batch, long long k_head,
    long long v_batch, long long v_head, long long o_batch, long long o_head, long long row_batch,
    long long row_head, long long part_rows, int parts, int part_keys, float scale, float cap) {
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned ring = shared_address(shared);
  await_previous_kernel();
  release_next_kernel();

  const unsigned row_tiles = (static_cast<unsigned>(q_length) * kHeadsOfUnit + BM - 1) / BM;
  unsigned index = blockIdx.x;
  const int row_tile = static_cast<int>(row_tiles - 1 - index % row_tiles);
  index /= row_tiles;
  const int first_head = static_cast<int>(index % kUnits) * kHeadsOfUnit;
  index /= kUnits;
  const int part = static_cast<int>(index % parts);
  const int b = static_cast<int>(index / parts);

  Sequence sequence{q_length, kv_length, 0, 0};
  if constexpr (kRagged) {
    sequence.first_query = q_offsets[b];
    sequence.queries = q_offsets[b + 1] - q_offsets[b];
  }
  if constexpr (kRagged && !kPaged) {
    sequence.first_key = kv_offsets[b];
    sequence.keys = kv_offsets[b + 1] - kv_offsets[b];
  } else if constexpr (lengths != lengths_full) {
    sequence.keys = kv_lengths[b];
  }
  const int first_row = row_tile * BM;
  const int rows = ::min(sequence.queries * kHeadsOfUnit - first_row, BM);
  if (rows <= 0) return;

  // `range` has the keys that at least one row sees, and `common` those that all rows see.
  const Range first_sees = seen_by(first_row / kHeadsOfUnit, sequence);
  const Range last_sees = seen_by((first_row + rows - 1) / kHeadsOfUnit, sequence);
  Range range{first_sees.low, last_sees.high};
  const Range common{last_sees.low, first_sees.high};
  int first_key = range.low / BN * BN;
  if (part_keys > 0) {
    first_key += part * part_keys;
    range = {::max(range.low, first_key), ::min(range.high, first_key + part_keys)};
  }
  const int tiles = (::max(range.high - first_key, 0) + BN - 1) / BN;

  const int lane_id = threadIdx.x % 32;
  const int warp_m = threadIdx.x / 32 % WARPS_M;
  const int warp_k = threadIdx.x / 32 / WARPS_M;
  const int warp_row = warp_m * WM;
  const int warp_last = ::min(rows, warp_row + WM) - 1;  // the warp's last row
  Range warp_sees{seen_by((first_row + warp_row) / kHeadsOfUnit, sequence).low,
                  seen_by((first_row + warp_last) / kHeadsOfUnit, sequence).high};
  if (warp_last < warp_row) warp_sees.high = 0;  // the warp has no rows

  // In a paged cache one thread for each key of a tile finds the key's slot, which is its place in
  // the pool. It loads the page of its key in the next tile meanwhile, so the table's latency is
  // hidden. Shared memory has the slots of two tiles.
  long long* const slots = reinterpret_cast<long long*>(shared + kSlotsAt);
  const int* const table =
      page_table + b * static_cast<long long>(ceil_div(kv_length, static_cast<int>(page)));
  int next_page = 0;
  auto fetch_page = [&](int tile) {
    const int key = first_key + tile * BN + static_cast<int>(threadIdx.x);
    if (threadIdx.x < BN && key >= range.low && key < range.high) next_page = table[key / page];
  };
  auto publish_slots = [&](int tile) {
    const int key = first_key + tile * BN + static_cast<int>(threadIdx.x);
    if (threadIdx.x < BN) {
      slots[tile % 2 * BN + threadIdx.x] =
          static_cast<long long>(next_page) * PAGE_SLOTS + key % page;
    }
    fetch_page(tile + 1);
  };

  const dtype_t* const from_k =
      k + b * k_batch + sequence.first_key * ldk + first_head / GROUP * k_head;
  const dtype_t* const from_v =
      v + b * v_batch + sequence.first_key * ldv + first_head / GROUP * v_head;
  // Each tile has a group of copies for keys and one for values. Behind the last tile groups are
  // empty, so that the number of pending groups stays the same.
  auto copy_keys = [&](int tile) {
    if (tile < tiles) {
      copy_rows<KeyTile, ldk>(ring + kKeysAt + tile % kStages * KeyTile::kBytes, from_k,
                              slots + tile % 2 * BN, first_key + tile * BN, range);
    }
    cp_async_commit();
  };
  auto copy_values = [&](int tile) {
    if (tile < tiles) {
      copy_rows<ValueTile, ldv>(ring + kValuesAt + tile % kStages * ValueTile::kBytes, from_v,
                                slots + tile % 2 * BN, first_key + tile * BN, range);
    }
    cp_async_commit();
  };

  const dtype_t* const from_q = q + b * q_batch + sequence.first_query * ldq + first_head * q_head;
  QueryTile::each(ring, [&](int down, int across, unsigned address) {
    const int row = QueryTile::own_row() + down;
    const int at = first_row + row;
    const dtype_t* const from = from_q + at / kHeadsOfUnit * static_cast<long long>(ldq) +
                                at % kHeadsOfUnit * q_head + (QueryTile::own_piece() + across) * 8;
    cp_async<16>(address, from, row < rows && QueryTile::has(across) ? 16 : 0);
  });
  if constexpr (kPaged) fetch_page(0);
#pragma unroll
  for (int tile = 0; tile < kStages; ++tile) {
    if constexpr (kPaged) {
      publish_slots(tile);
      __syncthreads();
    }
    copy_keys(tile);
    if (tile < kStages - 1) copy_values(tile);
  }

  constexpr int kPending = 2 * (kStages - 1);  // groups after the one that is needed next
  cp_async_wait<kPending>();
  if (scale < 0) {  // q changes its sign: the largest score then is the largest product's
    QueryTile::each(ring, [&](int, int, unsigned address) {
      Packed<16> x = load_shared<16>(address);
#pragma unroll
      for (int i = 0; i < 4; ++i) x.word[i] ^= 0x80008000;
      store_shared(address, x);
    });
    scale = -scale;
  }
  __syncthreads();

  // ldmatrix: matrices 0..3 of q are (rows 0, d 0), (rows 8, d 0), (rows 0, d 8), (rows 8, d 8),
  // of k (keys 0, d 0), (keys 0, d 8), (keys 8, d 0), (keys 8, d 8), and of v, transposed, (keys 0,
  // d 0), (keys 8, d 0), (keys 0, d 8), (keys 8, d 8): the order in which mma.sync wants them.
  const unsigned lane_k = ring + kKeysAt +
                          (warp_k * KEYS + lane_id / 16 * 8 + lane_id % 8) * KeyTile::kPitch +
                          lane_id / 8 % 2 * 16;
  const unsigned lane_v =
      ring + kValuesAt + (warp_k * KEYS + lane_id % 16) * ValueTile::kPitch + lane_id / 16 * 16;
  Queries queries{ring + (warp_row + lane_id % 16) * QueryTile::kPitch + lane_id / 16 * 16};
  if constexpr (Q_IN_REGS) {
#pragma unroll
    for (int step = 0; step < DEPTH / 16; ++step) queries.read(step, step);
  }
  const OwnRows own{sequence, first_row + warp_row + lane_id / 4};
  Exponents exponents{scale * kLog2e, cap * kLog2e, 2 * scale * kLog2e / cap};
  Values values = {};
  State state[kMmaM][2];
#pragma unroll
  for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      state[i][h] = {minus_infinity(), 0};
      if constexpr (bias == bias_alibi) {
        exponents.slope[i][h] = slopes[first_head + own.head_of_unit(i, h)] * kLog2e;
      }
    }
  }

#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int tile_key = first_key + tile * BN;
    const int warp_key = tile_key + warp_k * KEYS;
    const bool all_seen = (!kWindow || tile_key >= common.low) && tile_key + BN <= common.high;
    const bool works = warp_key < warp_sees.high && (!kWindow || warp_key + KEYS > warp_sees.low);
    const int slot = tile % kStages;

    // After this barrier the keys have arrived, and no warp reads the values of the tile before.
    cp_async_wait<kPending>();
    __syncthreads();
    copy_values(tile + kStages - 1);
    if constexpr (kPaged) publish_slots(tile + kStages);

    Scores score = {};
    Weights weights;
    if (works) multiply(score, queries, lane_k + slot * KeyTile::kBytes);
    auto weigh_scores = [&]() {
      if (!works) return;
      const int lane_key = warp_key + lane_id % 4 * 2;
      if constexpr (kScaledFirst) exponents.apply(score, own, lane_key);
      if (!all_seen) hide(score, own, lane_key);
      weigh(weights, score, state, values, kScaledFirst ? 1.0f : exponents.scale);
    };
    if constexpr (!SOFTMAX_LATE) weigh_scores();

    // After this barrier the values have arrived, and no warp reads the keys any more.
    cp_async_wait<kPending>();
    bool finite = true;
    if (kCausal && !all_seen) {
      finite = is_finite<ValueTile>(ring + kValuesAt + slot * ValueTile::kBytes);
      finite = __syncthreads_and(finite);
    } else {
      __syncthreads();
    }
    copy_keys(tile + kStages);
    if constexpr (SOFTMAX_LATE) weigh_scores();

    const unsigned from_values = lane_v + slot * ValueTile::kBytes;
    if (works && finite) {
      multiply(values, weights, from_values);
    } else if (works) {
      Range sees[kMmaM][2];
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const Range all = own.sees(i, h);
          sees[i][h] = {all.low - warp_key, all.high - warp_key};
        }
      }
      multiply_one_by_one(values, weights, from_values, sees);
    }
  }

#pragma unroll
  for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float& sum = state[i][h].sum;
      sum += __shfl_xor_sync(0xffffffff, sum, 1);
      sum += __shfl_xor_sync(0xffffffff, sum, 2);
    }
  }
  const long long at = b * row_batch + sequence.first_query;
  const bool whole = part_keys == 0;
  const Result result{o + b * o_batch + sequence.first_query * ldo,
                      o_head,
                      lse_out + (lse == lse_none ? 0 : at),
                      whole ? nullptr : sums + (part * part_rows + at) * head_dim_v,
                      whole ? nullptr : states + (part * part_rows + at),
                      row_head,
                      sinks};

  if constexpr (WARPS_K == 1) {
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int down = warp_row + i * 16 + h * 8 + lane_id / 4;
        if (down >= rows) continue;
        const int head = first_head + own.head_of_unit(i, h);
        const Row row = result.row(head, own.query(i, h), state[i][h], lane_id % 4 == 0);
        if (!whole && tiles == 0) continue;
#pragma unroll
        for (int j = 0; j < static_cast<int>(head_dim_v) / 8; ++j) {
          float pair[2] = {values[i][j][2 * h], values[i][j][2 * h + 1]};
          row.write(j * 8 + lane_id % 4 * 2, pair);
        }
      }
    }
  } else {  // add the sums of the warps that share rows
    State* const warp_states = reinterpret_cast<State*>(shared);
    float* const warp_sums = reinterpret_cast<float*>(shared + WARPS_K * BM * 8);
    __syncthreads();  // no warp reads the ring any more
#pragma unroll
    for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int to = warp_k * BM + warp_row + i * 16 + h * 8 + lane_id / 4;
        if (lane_id % 4 == 0) warp_states[to] = state[i][h];
#pragma unroll
        for (int j = 0; j < kMmaV; ++j) {
          *reinterpret_cast<float2*>(warp_sums + to * kSumPitch + j * 8 + lane_id % 4 * 2) = {
              values[i][j][2 * h], values[i][j][2 * h + 1]};
        }
      }
    }
    __syncthreads();
    constexpr int kAcross = static_cast<int>(head_dim_v) / 8;
    for (int piece = threadIdx.x; piece < rows * kAcross; piece += THREADS) {
      const int down = piece / kAcross;
      const int column = piece % kAcross * 8;
      State all{minus_infinity(), 0};
#pragma unroll
      for (int w = 0; w < WARPS_K; ++w) {
        all.largest = larger(all.largest, warp_states[w * BM + down].largest);
      }
      float value[8] = {};
#pragma unroll
      for (int w = 0; w < WARPS_K; ++w) {
        const State one = warp_states[w * BM + down];
        const float factor = power_between(one.largest, all.largest);
        all.sum += one.sum * factor;
        const auto x =
            load_elements<Load::plain, 8>(warp_sums + (w * BM + down) * kSumPitch + column);
#pragma unroll
        for (int i = 0; i < 8; ++i) value[i] += x[i] * factor;
      }
      const int row = first_row + down;
      const Row to =
          result.row(first_head + row % kHeadsOfUnit, row / kHeadsOfUnit, all, column == 0);
      if (whole || tiles > 0) to.write(column, value);
    }
  }
}

constexpr int kMergeWarps = 4;

// A block merges the parts of one row of the result.
extern "C" __global__ void __launch_bounds__(kMergeWarps * 32)
    attention_tiled_merge(const float* __restrict__ sums, const State* __restrict__ states,
                          const int* __restrict__ q_offsets, const float* __restrict__ sinks,
                          dtype_t* __restrict__ o, float* __restrict__ lse_out, int batch_count,
                          long long o_batch, long long o_head, long long row_head,
                          long long part_rows, int parts) {
  constexpr int kWidth = static_cast<int>(head_dim_v);
  constexpr int kPieces = (kWidth / 4 + 31) / 32;  // of four columns, for each lane
  __shared__ __align__(16) float warp_sums[kMergeWarps][kWidth];
  __shared__ float warp_sum[kMergeWarps];
  await_previous_kernel();
  release_next_kernel();

  const long long row = blockIdx.x;
  const int query = static_cast<int>(row % row_head);
  const int head = static_cast<int>(row / row_head % heads);
  const int b = static_cast<int>(row / row_head / heads);
  if constexpr (kRagged) {
    if (query >= q_offsets[batch_count]) return;
  }
  const int lane_id = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;

  float largest = minus_infinity();
  for (int part = lane_id; part < parts; part += 32) {
    largest = larger(largest, states[part * part_rows + row].largest);
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) {
    largest = larger(largest, __shfl_xor_sync(0xffffffff, largest, other));
  }
  float sum = 0;
  float value[kPieces][4] = {};
#pragma unroll 4
  for (int part = warp; part < parts; part += kMergeWarps) {
    const State one = states[part * part_rows + row];
    const float factor = power_between(one.largest, largest);
    sum += one.sum * factor;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int column = (piece * 32 + lane_id) * 4;
      if (column < kWidth && one.sum != 0) {  // a part without keys has written no sums
        const auto x =
            load_elements<Load::plain, 4>(sums + (part * part_rows + row) * kWidth + column);
#pragma unroll
        for (int i = 0; i < 4; ++i) value[piece][i] += x[i] * factor;
      }
    }
  }
  if (lane_id == 0) warp_sum[warp] = sum;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const int column = (piece * 32 + lane_id) * 4;
    if (column < kWidth) store_elements<Store::plain>(&warp_sums[warp][column], value[piece]);
  }
  __syncthreads();
  const int column = threadIdx.x * 4;
  if (column >= kWidth) return;
  State all{largest, 0};
  float total[4] = {};
#pragma unroll
  for (int w = 0; w < kMergeWarps; ++w) {
    all.sum += warp_sum[w];
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] += warp_sums[w][column + i];
  }
  const float factor = finish(all, sinks, head);
  if (lse != lse_none && column == 0) lse_out[row] = log_of(all);
#pragma unroll
  for (int i = 0; i < 4; ++i) total[i] *= factor;
  store_elements<Store::plain>(
      o + b * o_batch + head * o_head + query * static_cast<long long>(ldo) + column, total);
}
