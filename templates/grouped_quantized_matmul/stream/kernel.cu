// d[r, n] = a[r, k] * w[expert of r, n, k]^T with packed weights, and the epilogue of experts, for
// experts with few rows (Hopper). k is a multiple of 64.
//
// Such a product costs as much as reading the weights of the experts that have rows. A tile is up
// to BM rows of an expert by ROWS rows of its weights. All thread blocks have equal runs of the
// tiles' blocks of 64 columns (stream.cuh), so all multiprocessors read at the same rate, whatever
// the sizes of the experts. The rows of a come with the stages, wherever they are.
//
// All tiles are one list: expert by expert, in each one row of blocks after another, and for each
// of those all tiles of the expert's rows. So weights that several tiles take come from the L2.

#include <kernwright/config.cuh>
#include <kernwright/math/types.cuh>
#include <kernwright/matmul/group_schedule.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/quantized/expert_epilogue.cuh>
#include <kernwright/quantized/stream.cuh>

namespace {

using namespace kernwright;
using namespace kernwright::config;

using Table = GroupTable<experts, BM>;

constexpr int kK = static_cast<int>(k), kN = static_cast<int>(n);
constexpr int kTileBlocks = static_cast<int>(ceil_div(k, 64));  // of a tile, along k
constexpr int kRowBlocks = static_cast<int>(STACK == 1 ? ceil_div(n, 64) : ceil_div(n, 32));
static_assert(kK % 64 == 0 && STAGED == 1 && A_ROWS == BM);

// The parts of a product that are the same in every tile.
struct Shape {
  static constexpr int groups = GROUPS;
  static constexpr bool reads = true;

  Table table;
  int tiles, runs;  // of all experts; a run for each of the first thread blocks

  __device__ explicit Shape(const Table& table)
      : table(table), tiles(table.tiles_before(experts) * (kRowBlocks * kTilesOfBlock)) {
    // Thread blocks behind the last run have nothing to do: each run has work.
    const int most = SPLIT ? tiles * kTileBlocks / kStageBlocks : tiles;
    runs = ::max(::min(most, static_cast<int>(gridDim.x)), 1);
  }
  __device__ static int tile_blocks() { return kTileBlocks; }
  // Returns the first block of weights in the run of thread block `number`.
  __device__ int begin_of(int number) const {
    const long long pieces = SPLIT ? tiles * kTileBlocks : tiles;
    const auto piece = static_cast<int>(::min(number, runs) * pieces / runs);
    return SPLIT ? piece : piece * kTileBlocks;
  }
  __device__ static int group_of(int column) { return kernwright::group_of(column, GROUPS); }
};

// The expert of a tile, which is never behind the expert of the tile before.
class Place {
 public:
  __device__ explicit Place(const Table& table) : table_(table) {}

  int expert = experts - 1;
  int row_block = 0;            // of the expert's weights
  int first_row = 0, rows = 0;  // of d

  // Turns to a tile. Run by a whole warp.
  __device__ __forceinline__ void find(int tile) {
    const int in_blocks = tile / kTilesOfBlock;
    const int tile_row = in_blocks / kRowBlocks;  // as if a row of blocks were a tile of rows
    while (true) {                                // 32 experts at a time
      const int at = expert - static_cast<int>(threadIdx.x) % 32;
      const bool behind = at > 0 && table_.tiles_before(::max(at, 0)) > tile_row;
      const int steps = __popc(__ballot_sync(~0u, behind));
      expert -= steps;
      if (steps < 32) break;
    }
    const int before = table_.tiles_before(expert);
    const int height = table_.tiles_before(expert + 1) - before;
    const int in_expert = in_blocks - before * kRowBlocks;
    row_block = in_expert / height;
    // The tiles of an expert have about the same number of rows.
    const int all = table_.rows(expert), each = (all + height - 1) / height;
    const int row = in_expert % height * each;
    first_row = table_.first_row(expert) + row;
    rows = ::min(each, all - row);
  }

 private:
  Table table_;
};

// Fills the stages of the run. Run by a whole warp, whose lanes share the copies.
__device__ __forceinline__ void load_run(const dtype_t* a, const unsigned char* b,
                                         const TensorMap& codes, const scale_t* scales,
                                         const unsigned char* zeros, const int* row_of,
                                         const Shape& shape, Addresses at) {
  Cursor<Shape> stage(shape, at);
  Place place(shape.table);
  int tile = -1;
  const int lane_id = threadIdx.x % 32;
  const dtype_t* row = a;  // this lane's row of a in the tile
#pragma unroll 1
  while (stage.next()) {
    if (stage.run.tile != tile) {
      tile = stage.run.tile;
      place.find(tile);
      if (lane_id < place.rows) {
        const int of_d = place.first_row + lane_id;
        row = a + static_cast<long long>(a_rows == a_rows_indexed ? row_of[of_d] : of_d) * kK;
      }
    }
    load_weights(stage, shape, at, b, codes, scales, zeros,
                 static_cast<long long>(place.expert) * kRowBlocks + place.row_block,
                 place.rows * stage.count * 128);
    if (lane_id < place.rows) {
      bulk_load(at.stage(stage.ring.stage()) + kRowsAt + lane_id * kStagedPitch,
                row + stage.column * 64, stage.count * 128, stage.ring.full());
    }
  }
}

// The rows of d of a tile.
struct ExpertRows {
  using Element = out_t;
  using Addends = ScaledExpertEpilogue::Addends;

  ScaledExpertEpilogue epilogue;
  Element* d;
  int first_row, rows;

  __device__ __forceinline__ bool has(int row_a, int column) const {
    return row_a < rows && column < kN;
  }
  // Returns what an element needs besides its sums; nothing if there is no such element.
  __device__ __forceinline__ Addends addends(int row_a, int column) const {
    return has(row_a, column) ? epilogue.addends(first_row + row_a, column) : Addends{};
  }
  __device__ __forceinline__ void store(int row_a, int column, float x, float other,
                                        const Addends& addends) const {
    if (!has(row_a, column)) return;
    d[static_cast<long long>(first_row + row_a) * kN + column] =
        from_float<Element>(epilogue.finished(x, other, addends));
  }
};

// The rows of d, and the number of a tile of the expert's weights.
struct Target {
  using Addends = ExpertRows::Addends;
  ExpertRows d;
  int tile;
};

}  // namespace

// Computes the product with a loader, consumers and finishers in each block.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    grouped_quantized_matmul_stream(KW_PARAMETERS(grouped_quantized_matmul_stream)) {
  extern __shared__ unsigned char memory[];
  release_next_kernel();
  const Addresses at{aligned_shared(memory), 0};
  const int warp = warp_number();
  if (warp == WARPS && elect_one()) {
    if constexpr (kTilesOfBlock > 1) tma_prefetch(map_codes);
    StageRing(at.stage_barriers()).init(WARPS);
    SumsRing(at.sums_barriers()).init(kFinishers, WARPS);
    mbarrier_init_fence();
  }
  await_previous_kernel();
  if (warp == 0) Table::build(at.rest(), ends, counts);
  __syncthreads();
  const Shape shape(Table(at.rest(), room));
  if (warp == WARPS) {
    load_run(a, b, map_codes, b_scale, b_zero, row_of, shape, at);
  } else if (warp < WARPS) {
    consume(shape, warp, at);
  } else {
    Place place(shape.table);
    const auto target_of = [&](int tile) {
      place.find(tile);
      const ScaledExpertEpilogue epilogue(
          ExpertEpilogue(bias + static_cast<long long>(place.expert) * STACK * kN, limit,
                         gate_alpha, kN),
          row_scale);
      return Target{{epilogue, d, place.first_row, place.rows},
                    place.row_block * kTilesOfBlock + tile % kTilesOfBlock};
    };
    finish(target_of, {partials, flags}, shape, warp - WARPS - 1, at);
  }
}
