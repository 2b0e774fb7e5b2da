#pragma once
// Turns the sums of a tile into the result. Run by one consumer warpgroup; each warp works on its
// own 16 rows of each block of 64. The order is scale_and_add_bias, finish, and then one of three
// ways to store the tile: store_tile, store_last_tile through the ring, or a WaitingTile during the
// next tile. The arithmetic is in wgmma_epilogue.cuh.

#include "layout.cuh"
#include <kernwright/matmul/split.cuh>
#include <kernwright/ptx/warp_roles.cuh>

namespace {

// With LATE a tile's columns are finished in pieces of kPiece, one piece in each k step. A warp's
// two special functions for each element take 8 clocks a column, and the products of a step take
// 2 * BN clocks: a piece takes no longer than these.
constexpr int kPiece = BN >= 160 ? 32 : 16;
constexpr int kPieces = (COLUMNS + kPiece - 1) / kPiece;
constexpr int kLeaving = LATE ? kPieces : kStores;  // k steps that store a waiting tile
// The last tile of a block has no successor, so it is staged in the A part of the ring: there each
// consumer has rows of its own. A wide tile needs the B part too, after all consumers have read it.
constexpr bool kThroughB = STAGES * kBoxes < kChunks;
static_assert(!LATE || (kBlocks == 1 && CHUNK % kPiece == 0));
static_assert(!TRANSPOSED ||
                  !(kBias || kResidual || kGated || kSplit || kScaled || kRowScaled || kFunction),
              "what is added or combined has its place in rows of D");

// The result, with the maps of its tensors for TMA (unused unless ALIGNED_D).
struct Target {
  Output<int> output;
  const TensorMap& map_d;
  const TensorMap& map_k;
  const TensorMap& map_v;
  int m;
};

// The place of a warp's rows of a tile: the warp's first row and the tile's first column in their
// product, and the first row of that product in D.
struct Place {
  int row, column, first;

  __device__ __forceinline__ Place of_chunk(int index) const {
    return {row + chunk_row(index), column + chunk_column(index), first};
  }
};

// Starts the store of a staged chunk, whose columns belong to one tensor. Run by one thread.
__device__ __forceinline__ void store_box(const Target& target, unsigned slot, int column,
                                          int row) {
  if constexpr (TRANSPOSED) {
    tma_store(target.map_d, slot, row, column);
  } else if constexpr (kSplit) {
    const Part<int> part = part_of(column, target.output.n, target.output.ldd);
    const TensorMap& map = part.tensor == 0   ? target.map_d
                           : part.tensor == 1 ? target.map_k
                                              : target.map_v;
    tma_store(map, slot, part.column, row);
  } else {
    tma_store(target.map_d, slot, column, row);
  }
}

// Stores a chunk through `slot`. TMA does not store rows beyond the tensor's last row, so rows
// beyond the product's last row get a row number there.
__device__ __forceinline__ void store_chunk(const unsigned (&words)[kChunkWords],
                                            const Target& target, unsigned slot, Place place) {
  const int lane = threadIdx.x % 32;
  if constexpr (TRANSPOSED) {
    stage_chunk_transposed<out_t>(words, slot, lane);
  } else {
    stage_chunk<out_t>(words, slot, lane);
  }
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

__device__ __forceinline__ void round_chunk_of(const Acc& d, int index,
                                               unsigned (&words)[kChunkWords]) {
  round_chunk<out_t>(&d[index / kChunks][chunk_column(index) / 2], words);
}

__device__ __forceinline__ void store_tile(const Acc& d, const Target& target, Place place,
                                           TileStaging& staging) {
#pragma unroll
  for (int index = 0; index < kStores; ++index) {
    unsigned words[kChunkWords];
    round_chunk_of(d, index, words);
    const Place chunk = place.of_chunk(index);
    store_chunk(words, target, staging.next(), chunk);
  }
}

// Stores a block's last tile through the ring, which nothing will fill again. `first_row` is the
// warp's first row in the tile.
__device__ __forceinline__ void store_last_tile(const Acc& d, const Target& target, Place place,
                                                Addresses at, int first_row, int consumer) {
  if constexpr (SPLIT > 1) {
    // add_parts has waited for all consumers
  } else if constexpr (kThroughB) {
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

// The previous tile, which waits in registers, with OVERLAP. It is stored in kLeaving parts, one
// each time store_part() is called. A part is a rounded chunk or, with LATE, a piece of sums that
// is finished first.
class WaitingTile {
 public:
  __device__ __forceinline__ WaitingTile(const Target& target, float alpha)
      : target_(target), alpha_(alpha) {}

  __device__ __forceinline__ void take(const Acc& d, Place place) {
    if constexpr (LATE) {
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) acc_[i] = d[0][i];
    } else {
#pragma unroll
      for (int index = 0; index < kStores; ++index) round_chunk_of(d, index, words_[index]);
    }
    stored_ = 0;
    place_ = place;
  }

  __device__ __forceinline__ bool is_leaving() const { return stored_ < kLeaving; }

  __device__ __forceinline__ void store_part(TileStaging& staging) {
    if constexpr (LATE) {
#pragma unroll
      for (int piece = 0; piece < kPieces;
           ++piece) {  // a runtime index would put the array into memory
        if (piece == stored_) store_piece(piece, staging);
      }
    } else {
      store_chunk(words_[0], target_, staging.next(), place_.of_chunk(stored_));
#pragma unroll
      for (int i = 0; i + 1 < kStores; ++i)  // a runtime index would put the array into memory
#pragma unroll
        for (int j = 0; j < kChunkWords; ++j) words_[i][j] = words_[i + 1][j];
    }
    ++stored_;
  }

 private:
  // Finishes a piece of the sums, and stores the chunk that it completes, if any: every chunk ends
  // with a piece. words_[0] is a ring that holds the last CHUNK columns, rounded.
  __device__ __forceinline__ void store_piece(int piece, TileStaging& staging) {
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
      for (int j = 0; j < 2 * STACK; ++j) x[j] = acc_[i + j % 2 + j / 2 * (COLUMNS / 2)];
      wgmma_pin(x);  // else the compiler may activate all sums before the k steps
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
  unsigned words_[kStores][kChunkWords];  // rounded; the next chunk to store is words_[0]
  float acc_[BN / 2];                     // with LATE
  int stored_ = kLeaving;                 // parts
  Place place_{};
};

// Waits for the next stage of a tile's bias or residual, lets `read` read it by ordinary loads, and
// releases it. The bias and the residual of a tile come through the ring, after its operands.
template <typename Read>
__device__ __forceinline__ void read_addend(TilePipeline& pipeline, const Read& read) {
  pipeline.consumer_wait();
  read(pipeline.stage());
  tma_store_fence();
  __syncwarp();
  pipeline.consumer_release(pipeline.stage());
  pipeline.advance();
}

// Scales the sums and adds the bias. `place` is the warp's.
__device__ __forceinline__ void scale_and_add_bias(Acc& d, const Addends& addends, Place place,
                                                   TilePipeline& pipeline, Addresses at) {
  if constexpr (kScaling && !kGated) scale_all(d, addends.alpha);  // gate_all scales both sums
  if constexpr (kRowScaled) {
    float of_rows[kBlocks][2];
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      const int row = place.row + accumulator_row() + i / 2 * 64 + i % 2 * 8;
      of_rows[i / 2][i % 2] = row < addends.m ? __ldg(addends.scales.a + place.first + row) : 0;
    }
    read_addend(pipeline,
                [&](int stage) { scale_rows_and_columns(d, of_rows, at.column_scales(stage)); });
  }
  if constexpr (kBias) {
    read_addend(pipeline, [&](int stage) { add_columns<out_t>(d, at.bias(stage)); });
  }
}

// Activates or gates the sums and adds the residual. `first_row` is the warp's first row in the
// tile.
__device__ __forceinline__ void finish(Acc& d, const Addends& addends, TilePipeline& pipeline,
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
        for (int i = 0; i < kBlocks; ++i) {  // columns of the previous chunk are not added again
          add_rows<out_t>(d[i], rows + i * 64 * kRowBytes, chunk_column(chunk), chunk * CHUNK,
                          residual_factor(addends.beta));
        }
      });
    }
  }
}

}  // namespace
