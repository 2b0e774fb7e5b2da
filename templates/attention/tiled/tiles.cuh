#pragma once
// The share of work of a block, and the tiles of queries, keys and values that it copies to shared
// memory.

#include <kernwright/attention/narrow.cuh>
#include <kernwright/attention/sequences.cuh>
#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/cp_async.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

constexpr bool kPaged = cache == cache_paged;
constexpr bool kWindow = mask == mask_window;
constexpr int kHeadsOfUnit = PACK ? GROUP : 1;  // heads of q that share a block's rows
constexpr int kUnits = heads / kHeadsOfUnit;

// Keys of a sequence: [begin, end).
struct Range {
  int begin, end;
};

// Rows of a sequence and their keys. Rows are queries of one head or, with PACK, of all heads that
// share keys, with the heads of a query as neighbours. The keys are all keys that a row sees or, if
// `part_keys` is not 0, one part with so many.
struct Share {
  Sequence sequence;
  int first_row, rows;  // of the sequence
  int first_head;
  int part;
  int first_key = 0;  // of the first tile
  Range keys = {0, 0};

  __device__ __forceinline__ int query(int row) const { return (first_row + row) / kHeadsOfUnit; }
  __device__ __forceinline__ int head(int row) const {
    return first_head + (first_row + row) % kHeadsOfUnit;
  }
  __device__ __forceinline__ int kv_head() const { return first_head / GROUP; }
  // Return the keys that rows [first, last] see between them, and the keys that each of them sees.
  __device__ __forceinline__ Range seen_by_any(int first, int last) const {
    return {sequence.first_key(query(first)), sequence.end_key(query(last) + 1)};
  }
  __device__ __forceinline__ Range seen_by_all(int first, int last) const {
    return {sequence.first_key(query(last)), sequence.end_key(query(first) + 1)};
  }
  __device__ __forceinline__ int tiles() const {
    return (max(keys.end - first_key, 0) + BN - 1) / BN;
  }
};

// Returns the share of this block. Blocks of later queries, which see more, come first.
__device__ __forceinline__ Share share_of_block(const Sequences& of, int parts, int part_keys) {
  const unsigned row_tiles = (static_cast<unsigned>(of.q_len) * kHeadsOfUnit + BM - 1) / BM;
  const int row_tile = static_cast<int>(row_tiles - 1 - blockIdx.x % row_tiles);
  const int index = static_cast<int>(blockIdx.x / row_tiles);
  const int unit = index % kUnits, part = index / kUnits % parts;
  const Sequence sequence(index / kUnits / parts, of);
  const int first_row = row_tile * BM;
  const int rows = min(sequence.queries * kHeadsOfUnit - first_row, BM);
  Share share{sequence, first_row, rows, unit * kHeadsOfUnit, part};
  share.keys = share.seen_by_any(0, rows - 1);
  share.first_key = share.keys.begin / BN * BN;
  if (part_keys > 0) {
    share.first_key += part * part_keys;
    share.keys.begin = max(share.keys.begin, share.first_key);
    share.keys.end = min(share.keys.end, share.first_key + part_keys);
  }
  return share;
}

// A tile of `Rows` rows of `Columns` elements of T in shared memory, and the threads' shares of its
// copy in pieces of 16 bytes. A power of two of neighbouring threads copies a row, so the pieces of
// a thread have constant distances. A row is padded with zeros to a multiple of 32 bytes, and by 16
// bytes more: then eight consecutive rows have the same piece in eight different bank groups.
template <int Rows, int Columns, typename T>
struct Tile {
  static constexpr int kOfPiece = 16 / sizeof(T);                                  // elements
  static constexpr int kPieces = (Columns + 2 * kOfPiece - 1) / kOfPiece / 2 * 2;  // in a row
  static constexpr int kPitch = kPieces * 16 + 16;
  static constexpr int kBytes = Rows * kPitch;
  static constexpr int kAcross = (kPieces | 16) & -(kPieces | 16);  // at most 16
  static constexpr int kDown = THREADS / kAcross;

  // Return the row of this thread's first piece, and the piece's place in it. The other pieces are
  // `down` rows further and `across` pieces further.
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

  // Returns whether this thread's piece `across` further holds elements, not padding.
  static __device__ __forceinline__ bool has(int across) {
    return Columns % (2 * kOfPiece) == 0 || own_piece() + across < Columns / kOfPiece;
  }
};
using QueryTile = Tile<BM, head_dim, product_t>;
using KeyTile = Tile<BN, head_dim, kv_t>;
using ValueTile = Tile<BN, head_dim_v, kv_t>;

constexpr int kKeysAt = QueryTile::kBytes;
constexpr int kValuesAt = kKeysAt + STAGES * KeyTile::kBytes;
constexpr int kSlotsAt = kValuesAt + STAGES * ValueTile::kBytes;
static_assert(kSlotsAt + (kPaged ? 16 * BN : 0) == RING_BYTES);

__device__ __forceinline__ void copy_queries(unsigned to, const dtype_t* q, const Share& share,
                                             int q_tokens) {
  QueryTile::each(to, [&](int down, int across, unsigned address) {
    const int row = QueryTile::own_row() + down;
    const dtype_t* const from =
        q + query_place(share.sequence, share.query(row), share.head(row), q_tokens, ldq, head_dim);
    const bool exists = row < share.rows && QueryTile::has(across);
    const int piece = QueryTile::own_piece() + across;
    if constexpr (kFp8) {
      // Pieces 0 and 1 of 16 elements have the parts 0 and 1 of all lanes.
      Packed<16> wide{};
#pragma unroll
      for (int c = 0; c < 4 && exists; ++c) {
        wide.word[c] = load_pair<product_t>(from + piece / 2 * 16 + fp8_element(c, piece % 2));
      }
      store_shared(address, wide);
    } else {
      cp_async<16>(address, from + piece * 8, exists ? 16 : 0);
    }
  });
}

// The copies of a share's tiles of keys and values into rings of their own. Each tile has a group
// of copies for its keys and one for its values. Behind the last tile groups are empty, so that the
// number of pending groups stays the same.
class Copies {
 public:
  __device__ __forceinline__ Copies(unsigned ring, long long* slots, const kv_t* k, const kv_t* v,
                                    const Sequences& of, const Share& share)
      : ring_(ring),
        slots_(slots),
        k_(k + first_place(of, share, ldk, head_dim)),
        v_(v + first_place(of, share, ldv, head_dim_v)),
        table_(kPaged ? of.pages_of(share.sequence.number) : nullptr),
        first_key_(share.first_key),
        tiles_(share.tiles()),
        keys_(share.keys) {
    if constexpr (kPaged) fetch_page(0);
  }

  // Starts the copies of as many tiles as the rings have room for, except the values of the last.
  __device__ __forceinline__ void fill() {
#pragma unroll
    for (int tile = 0; tile < STAGES; ++tile) {
      if constexpr (kPaged) {
        publish_slots(tile);
        __syncthreads();
      }
      copy_keys(tile);
      if (tile < STAGES - 1) copy_values(tile);
    }
  }

  __device__ __forceinline__ void copy_keys(int tile) const {
    copy<KeyTile, ldk>(ring_ + kKeysAt, k_, tile);
  }
  __device__ __forceinline__ void copy_values(int tile) const {
    copy<ValueTile, ldv>(ring_ + kValuesAt, v_, tile);
  }

  // Publishes the slots of a tile's keys. In a paged cache one thread for each key finds the key's
  // slot, the place of its token in the pool, and shared memory has the slots of two tiles. The
  // thread loads the page of its key in the next tile meanwhile, so the table's latency is hidden.
  __device__ __forceinline__ void publish_slots(int tile) {
    if (threadIdx.x < BN) {
      slots_[tile % 2 * BN + threadIdx.x] =
          place_of(next_page_, own_key(tile) % page, 0, page, kv_heads, 1, 0);
    }
    fetch_page(tile + 1);
  }

 private:
  // Returns the place of the first key of a sequence or, in a paged cache, of slot 0 of the pool.
  static __device__ __forceinline__ long long first_place(const Sequences& of, const Share& share,
                                                          int ld, int width) {
    const Sequence& sequence = share.sequence;
    return kPaged ? place_of(0, 0, share.kv_head(), page, kv_heads, ld, width)
                  : place_of(sequence.kv_batch, sequence.kv_first, share.kv_head(), of.kv_tokens,
                             kv_heads, ld, width);
  }

  __device__ __forceinline__ int own_key(int tile) const {
    return first_key_ + tile * BN + static_cast<int>(threadIdx.x);
  }
  __device__ __forceinline__ void fetch_page(int tile) {
    const int key = own_key(tile);
    if (threadIdx.x < BN && key >= keys_.begin && key < keys_.end) next_page_ = table_[key / page];
  }

  // Copies a tile. Keys that no row sees are not read and become 0, because a p of 0 does not hide
  // a NaN.
  template <typename Shape, long long Pitch>
  __device__ __forceinline__ void copy(unsigned to, const kv_t* from, int tile) const {
    if (tile < tiles_) {
      const int own = first_key_ + tile * BN + Shape::own_row();
      const int below = keys_.end - own;  // rows that exist, from this thread's first on
      from += Shape::own_piece() * Shape::kOfPiece;
      if constexpr (!kPaged) from += own * Pitch;
      Shape::each(to + tile % STAGES * Shape::kBytes, [&](int down, int across, unsigned address) {
        const bool exists =
            down < below && (!kWindow || own + down >= keys_.begin) && Shape::has(across);
        const long long row = kPaged ? slots_[tile % 2 * BN + Shape::own_row() + down] : down;
        cp_async<16>(address, from + row * Pitch + across * Shape::kOfPiece, exists ? 16 : 0);
      });
    }
    cp_async_commit();
  }

  unsigned ring_;
  long long* slots_;
  const kv_t* k_;
  const kv_t* v_;
  const int* table_;
  int first_key_, tiles_;
  Range keys_;
  int next_page_ = 0;
};

}  // namespace
