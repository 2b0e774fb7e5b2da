#pragma once
// Rows that a kernel reads, and how its threads share them: a matrix [rows, columns] whose rows are
// each read once by a group of `row_threads` neighbouring threads in each of `cluster` blocks,
// `block_rows` groups to a block.
//
// A row is made of kRowVectors vectors of 16 bytes, of which each block of a cluster has a slice of
// kSliceVectors. The vectors of one step are side by side, so that a warp's accesses are
// contiguous. A thread keeps the first kKept of its kSteps vectors in registers.
//
// A row's vectors begin at multiples of kAlignBytes of memory. If the bytes of a row are not such a
// multiple, rows are skewed: a row begins in some lane of its first vectors, which is its skew, and
// kRowVectors is enough for any. Lanes of other rows are read along, as 0, and not written. Only
// the vector in which the tensor ends is read by elements, since there may be no memory behind it.
//
// Without stages a block owns `block_rows` rows, or several times as many, and loads them straight
// into registers. With stages it takes rows in turn. Each warp then has a run of the slice for its
// own, and a ring of the runs of that many rows in shared memory, which bulk copies fill ahead. As
// it waits for no other warp, a run's place is refilled as soon as the run is in registers.
//
// A kernel may read rows of several kinds: each is a Row of its own. The other headers here define
// a row's members.

#include <kernwright/math/vector.cuh>

namespace kernwright::rows {

// Describes a kind of rows, beside the type of its elements. Kinds of one kernel differ in this, at
// least in `first_byte`: rows of one kind share the same shared memory.
struct Sizes {
  int columns;
  int row_threads;  // a power of two up to 32, or whole warps
  int block_rows = 1;
  int cluster = 1;
  int stages = 0;
  int streams = 1;     // tensors of such rows that are read together
  int kept = 1;        // vectors of a row that a thread keeps in registers
  int first_byte = 0;  // of the dynamic shared memory that a ring takes, a multiple of 128
};

// Loads through the L1: loads that bypass it (no_allocate) cost 5 % of the rate of a stream on an
// H200.
constexpr Load kRead = Load::read_only;

template <typename T, Sizes Of>
struct Row {
  using Element = T;
  static constexpr int kColumns = Of.columns;
  static constexpr int kRowThreads = Of.row_threads;
  static constexpr int kBlockRows = Of.block_rows;
  static constexpr int kThreads = kRowThreads * kBlockRows;
  static constexpr int kCluster = Of.cluster;
  static constexpr int kStages = Of.stages;
  static constexpr int kStreams = Of.streams;
  static constexpr int kKept = Of.kept;

  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
  static_assert(Of.first_byte % 128 == 0);

  static constexpr int kVectorBytes = 16;
  using Vector = Packed<kVectorBytes>;
  static constexpr int kWords = kVectorBytes / 4;
  static constexpr int kLanes = kVectorBytes / sizeof(T);
  // Vectors from one place where a row may begin to the next. For loads one is enough; bulk copies
  // are slow if they begin within a sector of 32 bytes.
  static constexpr int kAligned = kStages > 0 ? 2 : 1;
  static constexpr int kAlignBytes = kAligned * kVectorBytes;
  static constexpr bool kSkewed = kColumns % (kAligned * kLanes) != 0;
  static constexpr int kRowVectors =
      (kColumns + (kSkewed ? kAligned * kLanes - 1LL : 0) + kLanes - 1) / kLanes;
  static constexpr int kSliceVectors = (kRowVectors + kCluster - 1) / kCluster;
  static constexpr long long kRowBytes = kColumns * static_cast<long long>(sizeof(T));
  static constexpr int kSteps = (kSliceVectors + kRowThreads - 1) / kRowThreads;

  // Returns in how many ways rows begin in a vector: after as many rows the ways repeat.
  static __device__ constexpr int skews() {
    int count = kLanes;
    while (count > 1 && kColumns * (count / 2LL) % kLanes == 0) count /= 2;
    return count;
  }
  static constexpr int kSkews = skews();
  // The skew of a row is a number of whole words and, with 16-bit elements, perhaps half a word.
  // Rows begin after 0, kWordStep, 2 * kWordStep, ... of a vector's words.
  static constexpr int kWordStep = kSkews < kWords ? kWords / kSkews : 1;

  static constexpr int kWarpThreads = kRowThreads < 32 ? kRowThreads : 32;
  static constexpr int kWarps = kRowThreads / kWarpThreads;
  static constexpr int kParts = kWarps * kCluster;
  // Threads that share a run: with a ring a warp, else the group, which then reads its slice in
  // order. Blocks that come and go are 2 % slower if every warp goes its own way.
  static constexpr int kRunThreads = kStages > 0 ? kWarpThreads : kRowThreads;
  static constexpr int kRuns = kRowThreads / kRunThreads;
  // If there are several runs, they are whole lines of 128 bytes.
  static constexpr int kRunUnit = kRuns > 1 ? 128 / kVectorBytes : 1;
  static constexpr int kRun =
      (kSliceVectors + kRuns * kRunUnit - 1) / (kRuns * kRunUnit) * kRunUnit;
  static_assert(kRun <= kSteps * kRunThreads);
  // The last run of the last slice may be shorter, and the runs before it too; in a row without
  // skew it is the shortest.
  static constexpr int kShortestRun =
      (kColumns + kLanes - 1) / kLanes - (kCluster - 1) * kSliceVectors - (kRuns - 1) * kRun;

  struct Lanes;
  class Share;
  template <int Rows = 1, int Held = 0>
  class Feed;
  template <typename RowFeed, bool Given, int Place, bool Early>
  class Weights;

  static __device__ Vector only(Vector x, const Lanes& lanes);
  static __device__ int whole_words(int skew);
  template <int Words>
  static __device__ Vector lanes_ahead(const Vector& first, const Vector& second, int skew);
  template <int Words = 0>
  static __device__ Vector any_lanes_ahead(const Vector& first, const Vector& second, int skew);
};

}  // namespace kernwright::rows
