#pragma once
// From the sums of a tile to the result. Run by one consumer warpgroup, but the epilogue belongs to
// the warp, which has 16 rows of each block of 64. The order: add_bias, finish, then the tile
// leaves by store_tile, or through the ring by store_last_tile, or as a WaitingTile during the next
// one. The functions of wgmma_epilogue.cuh do the arithmetic.

#include "layout.cuh"
#include <kernwright/matmul/split.cuh>
#include <kernwright/ptx/warp_roles.cuh>

namespace {

// LATE, a tile's columns are finished piece by piece, one a k step. The two special functions of an
// element take a warp 8 clocks a column and a step of its products 2 * BN: a piece takes no longer.
constexpr int kPiece = BN >= 160 ? 32 : 16;
constexpr int kPieces = (COLUMNS + kPiece - 1) / kPiece;
constexpr int kLeaving = LATE ? kPieces : kStores;  // k steps in which a waiting tile leaves
// The chunks of the last tile leave through A, where each consumer has rows of its own, or, wide
// ones, through B too, once all have read it.
constexpr bool kThroughB = STAGES * kBoxes < kChunks;
static_assert(!LATE || (kBlocks == 1 && CHUNK % kPiece == 0));

// The result, and the maps of its tensors where TMA can address them.
struct Target {
  Output<int> output;
  const TensorMap& map_d;
  const TensorMap& map_k;
  const TensorMap& map_v;
  int m;
};

// Where a warp's rows of a tile belong: its first row and the tile's first column in their product,
// whose first row of D is `first`.
struct Place {
  int row, column, first;

  __device__ __forceinline__ Place of_chunk(int index) const {
    return {row + chunk_row(index), column + chunk_column(index), first};
  }
};

// Starts the store of a staged chunk, all of whose columns are one tensor's. Run by one thread.
__device__ __forceinline__ void store_box(const Target& target, unsigned slot, int column,
                                          int row) {
  if constexpr (kSplit) {
    const Part<int> part = part_of(column, target.output.n, target.output.ldd);
    const TensorMap& map = part.tensor == 0   ? target.map_d
                           : part.tensor == 1 ? target.map_k
                                              : target.map_v;
    tma_store(map, slot, part.column, row);
  } else {
    tma_store(target.map_d, slot, column, row);
  }
}

// Stores a chunk through `slot`. TMA leaves out what lies beyond all rows: those beyond the
// product's own are sent there.
__device__ __forceinline__ void store_chunk(const unsigned (&words)[kChunkWords],
                                            const Target& target, unsigned slot, Place place) {
  const int lane = threadIdx.x % 32;
  stage_chunk<out_t>(words, slot, lane);
  if constexpr (ALIGNED_D) {
    const int row = batch == 1 || place.row < target.m ? place.first + place.row : batch * target.m;
    tma_store_fence();
    __syncwarp();
    if (lane == 0) store_box(target, slot, place.column, row);
  } else {
    __syncwarp();
    const auto row_at = [&](int line) {
      const long long row = place.first + place.row + line;
      out_t* const first = target.output.at(row, place.column);
      return [=, &target](int i) {
        return kSplit ? target.output.at(row, place.column + i) : first + i;
      };
    };
    store_rows<out_t>(slot, target.m - place.row, target.output.n - place.column, row_at);
  }
}

__device__ __forceinline__ void round_chunk_of(const Sums& d, int index,
                                               unsigned (&words)[kChunkWords]) {
  round_chunk<out_t>(&d[index / kChunks][chunk_column(index) / 2], words);
}

__device__ __forceinline__ void store_tile(const Sums& d, const Target& target, Place place,
                                           Staging& staging) {
#pragma unroll
  for (int index = 0; index < kStores; ++index) {
    unsigned words[kChunkWords];
    round_chunk_of(d, index, words);
    const Place chunk = place.of_chunk(index);
    store_chunk(words, target, staging.next(), chunk);
  }
}

// Stores a block's last tile through the ring, which nothing will fill again. `first_row` is the
// first of the warp's rows in the tile.
__device__ __forceinline__ void store_last_tile(const Sums& d, const Target& target, Place place,
                                                Addresses at, int first_row, int consumer) {
  if constexpr (kThroughB) {
    named_barrier_sync(2, 128 * CONSUMERS);
  } else {
    named_barrier_sync(2 + consumer, 128);  // the warpgroup has read its rows of A
  }
#pragma unroll
  for (int index = 0; index < kStores; ++index) {
    unsigned words[kChunkWords];
    round_chunk_of(d, index, words);
    const int line = index % kChunks * BM + first_row + chunk_row(index);
    store_chunk(words, target, at.a(0) + line * kRowBytes, place.of_chunk(index));
  }
}

// OVERLAP, the tile before the present one. It leaves in kLeaving parts, one each time
// store_part() is called: rounded chunks or, LATE, pieces of its sums, which are finished first.
class WaitingTile {
 public:
  __device__ __forceinline__ WaitingTile(const Target& target, float alpha)
      : target_(target), alpha_(alpha) {}

  __device__ __forceinline__ void take(const Sums& d, Place place) {
    if constexpr (LATE) {
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) sums_[i] = d[0][i];
    } else {
#pragma unroll
      for (int index = 0; index < kStores; ++index) round_chunk_of(d, index, words_[index]);
    }
    stored_ = 0;
    place_ = place;
  }

  __device__ __forceinline__ bool is_leaving() const { return stored_ < kLeaving; }

  __device__ __forceinline__ void store_part(Staging& staging) {
    if constexpr (LATE) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {  // an index would put the array into memory
        if (piece == stored_) store_piece(piece, staging);
      }
    } else {
      store_chunk(words_[0], target_, staging.next(), place_.of_chunk(stored_));
#pragma unroll
      for (int i = 0; i + 1 < kStores; ++i)  // an index would put the array into memory
#pragma unroll
        for (int j = 0; j < kChunkWords; ++j) words_[i][j] = words_[i + 1][j];
    }
    ++stored_;
  }

 private:
  // Finishes a piece of the sums, and stores the chunk that it completes, if any: every one ends
  // with a piece. words_[0] is a ring of the last CHUNK columns, rounded.
  __device__ __forceinline__ void store_piece(int piece, Staging& staging) {
    finish_piece(piece);
    const int end = (piece + 1) * kPiece;
    if (end % CHUNK != 0 && end < COLUMNS) return;
    const int chunk = piece * kPiece / CHUNK;
    unsigned words[kChunkWords];
#pragma unroll
    for (int j = 0; j < kChunkWords; ++j) {
      words[j] = words_[0][(word_of<out_t>(chunk_column(chunk) / 2) + j) % kChunkWords];
    }
    store_chunk(words, target_, staging.next(),
                {place_.row, place_.column + chunk_column(chunk), place_.first});
  }

  __device__ __forceinline__ void finish_piece(int piece) {
#pragma unroll
    for (int pair = 0; pair < kPiece / 4; ++pair) {
      const int i = piece * kPiece / 2 + 2 * pair;
      if (i >= COLUMNS / 2) break;
      float x[2 * STACK];
#pragma unroll
      for (int j = 0; j < 2 * STACK; ++j) x[j] = sums_[i + j % 2 + j / 2 * (COLUMNS / 2)];
      wgmma_pin(x);  // else the compiler may activate all sums in front of the k steps
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if constexpr (kGated) {
          x[j] = gated(alpha_, x[j], x[j + 2]);
        } else {
          x[j] = activate(x[j]);
        }
      }
      round_pair<out_t>(x[0], x[1], words_[0], word_of<out_t>(i) % kChunkWords);
    }
  }

  const Target& target_;
  const float alpha_;
  unsigned words_[kStores][kChunkWords];  // rounded; the next chunk is in front
  float sums_[BN / 2];                    // LATE
  int stored_ = kLeaving;                 // of the parts
  Place place_{};
};

// The bias and the residual of a tile come through the ring, behind its operands. `read` reads the
// next of their stages by ordinary loads.
template <typename Read>
__device__ __forceinline__ void read_addend(TilePipeline& pipeline, const Read& read) {
  pipeline.consumer_wait();
  read(pipeline.stage());
  tma_store_fence();
  __syncwarp();
  pipeline.consumer_release(pipeline.stage());
  pipeline.advance();
}

__device__ __forceinline__ void scale_and_add_bias(Sums& d, const Addends& addends,
                                                   TilePipeline& pipeline, Addresses at) {
  if constexpr (kScaling && !kGated) scale_all(d, addends.alpha);  // gating scales both sums
  if constexpr (kBias) {
    read_addend(pipeline, [&](int stage) { add_columns<out_t>(d, at.bias(stage)); });
  }
}

// Activates or gates the sums and adds the residual. `first_row` is the first of the warp's rows
// in the tile.
__device__ __forceinline__ void finish(Sums& d, const Addends& addends, TilePipeline& pipeline,
                                       Addresses at, int first_row) {
  if constexpr (kGated) {
    gate_all(d, addends.alpha);
  } else if constexpr (kActivation) {
    activate_all(d);
  }
  if constexpr (kResidual) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      read_addend(pipeline, [&](int stage) {
        const unsigned rows = at.a(stage) + first_row * kRowBytes;
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {  // what the chunk before has is not added again
          add_rows<out_t>(d[i], rows + i * 64 * kRowBytes, chunk_column(chunk), chunk * CHUNK,
                          residual_factor(addends.beta));
        }
      });
    }
  }
}

}  // namespace
