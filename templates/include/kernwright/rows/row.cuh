#pragma once
// What kernels over rows share: a matrix [rows, columns] of dtype_t whose rows are each read once
// by a group of THREADS_PER_ROW neighbouring threads in each of CLUSTER blocks, ROWS_PER_BLOCK
// groups to a block. A row is made of ROW_VECTORS vectors of VECTOR_BYTES, of which each block of a
// cluster has a slice of SLICE_VECTORS; the vectors of one step lie side by side, so that a warp's
// accesses are contiguous. Of its STEPS vectors a thread keeps the first KEPT in registers.
//
// A row's vectors begin at multiples of ALIGN bytes of memory. Where the bytes of a row are no such
// multiple rows are skewed: a row begins in some lane of its first vectors, which is its skew, and
// ROW_VECTORS is enough for any. Lanes of other rows are read along, as 0, and not written. Only
// the vector in which the tensor ends is read by elements, since nothing may lie behind it.
//
// With STAGES = 0 a block owns ROWS_PER_BLOCK rows, or several times as many, and loads them
// straight into registers. With more it takes rows in turn; each warp has a run of the slice for
// its own, and a ring of the runs of that many rows in shared memory, which bulk copies fill ahead:
// as it waits for no other warp, a run's place is refilled as soon as the run is in registers. All
// these names come from the manifest; STREAMS is how many tensors are read.

#include <kernwright/config.cuh>
#include <kernwright/math/reduce.cuh>
#include <kernwright/math/vector.cuh>
#include <kernwright/ptx/mbarrier.cuh>
#include <kernwright/ptx/programmatic.cuh>
#include <kernwright/ptx/tma.cuh>

namespace kernwright::row {

using namespace kernwright::config;

constexpr int kLanes = VECTOR_BYTES / sizeof(dtype_t);
// The vectors from one multiple of ALIGN to the next. For loads one is enough; bulk copies are slow
// where they begin within a sector of 32 bytes.
constexpr int kAligned = ALIGN / VECTOR_BYTES;
constexpr bool kSkewed = columns % (kAligned * kLanes) != 0;
// In how many ways rows begin in a vector: after as many rows they do so again.
__device__ constexpr int skews() {
  int count = kLanes;
  while (count > 1 && columns * (count / 2LL) % kLanes == 0) count /= 2;
  return count;
}
constexpr int kSkews = skews();
constexpr int kWarpThreads = min(THREADS_PER_ROW, 32);
constexpr int kWarps = THREADS_PER_ROW / kWarpThreads;
// The threads that share a run: with a ring a warp, else the group, which then reads its slice in
// order: blocks that come and go are 2 % slower where every warp goes its own way.
constexpr int kRunThreads = STAGES > 0 ? kWarpThreads : THREADS_PER_ROW;
constexpr int kRuns = THREADS_PER_ROW / kRunThreads;
// Where there are several they are whole lines of 128 bytes.
constexpr int kRunUnit = kRuns > 1 ? 128 / VECTOR_BYTES : 1;
constexpr int kRun = (SLICE_VECTORS + kRuns * kRunUnit - 1) / (kRuns * kRunUnit) * kRunUnit;
static_assert(kRun <= STEPS * kRunThreads);
// The last run of the last slice may be shorter, and those before it too; of a row without skew it
// is the shortest.
constexpr int kShortestRun =
    (columns + kLanes - 1) / kLanes - (CLUSTER - 1) * SLICE_VECTORS - (kRuns - 1) * kRun;

using Vector = Packed<VECTOR_BYTES>;

// Through the L1: loads that pass it by (no_allocate) cost 5 % of the rate of a stream on an H200.
constexpr Load kRead = Load::read_only;

// Which lanes of a vector belong to the row, a bit each.
struct Lanes {
  static constexpr unsigned kAll = (1u << kLanes) - 1;
  unsigned bits = kAll;

  __device__ __forceinline__ bool has(int i) const { return (bits >> i & 1) != 0; }
};

// Four bytes, each filled with the sign of one of the bytes of x: byte i with that which the i-th
// digit of `Bytes` names, which is 8 more than its number.
template <unsigned Bytes>
__device__ __forceinline__ unsigned signs_of(unsigned x) {
  unsigned y;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(y) : "r"(x), "n"(Bytes));
  return y;
}

// x with 0 in the lanes that are not the row's. Without a branch, which would wait for x: a
// multiplication takes four bits to the signs of four bytes, whose signs then fill the lanes.
__device__ __forceinline__ Vector only(Vector x, const Lanes& lanes) {
  if constexpr (sizeof(dtype_t) == 2) {
    const unsigned lower = (lanes.bits & 15) * 0x10204080u;
    const unsigned upper = (lanes.bits >> 4) * 0x10204080u;
    x.word[0] &= signs_of<0x9988>(lower);
    x.word[1] &= signs_of<0xbbaa>(lower);
    x.word[2] &= signs_of<0x9988>(upper);
    x.word[3] &= signs_of<0xbbaa>(upper);
  } else {
    const unsigned signs = lanes.bits * 0x10204080u;
    x.word[0] &= signs_of<0x8888>(signs);
    x.word[1] &= signs_of<0x9999>(signs);
    x.word[2] &= signs_of<0xaaaa>(signs);
    x.word[3] &= signs_of<0xbbbb>(signs);
  }
  return x;
}

// This thread's vectors of a row: of any, or, where rows are skewed, of the one it follows.
class Share {
 public:
  __device__ __forceinline__ Share() {
    if constexpr (CLUSTER > 1) slice_ = cluster_rank() * SLICE_VECTORS;
    run_ = threadIdx.x % THREADS_PER_ROW / kRunThreads * kRun;
    first_ = run_ + threadIdx.x % kRunThreads;
    if constexpr (!kSkewed && kShortestRun < kRun) run_vectors_ = vectors_of_run(ROW_VECTORS);
  }
  // Turns to a row of `row_count`: before anything else is asked of it.
  __device__ __forceinline__ void follow(long long row, long long row_count) {
    if constexpr (kSkewed) {
      skew_ = skew_of(row);
      run_vectors_ = vectors_of_run((skew_ + columns + kLanes - 1) / kLanes);
      is_near_end_ = is_near_end(row, row_count);
    }
  }
  // Whether the last vector of a row may reach beyond the end of the tensor, and so be cut.
  static __device__ __forceinline__ bool is_near_end(long long row, long long row_count) {
    return row + (kLanes + columns - 1) / columns >= row_count;
  }
  // The lanes ahead of a row's first element.
  static __device__ __forceinline__ int skew_of(long long row) {
    return kSkewed
               ? static_cast<unsigned>(row) * static_cast<unsigned>(columns) % (kAligned * kLanes)
               : 0;
  }
  __device__ __forceinline__ int skew() const { return skew_; }
  // Whether the row reaches this thread in `step`: known to the compiler for all steps but the
  // last, where the runs are equal.
  __device__ __forceinline__ bool has(int step) const {
    const bool begun = kAligned == 1 || !may_begin(step) || column(step) > -kLanes;
    return begun && ((step + 1) * kRunThreads <= kShortestRun || place(step) < run_ + run_vectors_);
  }
  // Whether a row may begin in a vector of `step`, or end in one: known to the compiler.
  static __device__ __forceinline__ bool may_begin(int step) {
    return kSkewed && step * kRunThreads < kAligned;
  }
  static __device__ __forceinline__ bool may_end(int step) {
    return kSkewed && (step + 1) * kRunThreads >= kShortestRun;
  }
  // True in the first thread of the row.
  __device__ __forceinline__ bool leads() const { return slice_ + first_ == 0; }
  // The place of the vector of `step` in the block's slice, and in the row.
  __device__ __forceinline__ int place(int step) const { return step * kRunThreads + first_; }
  __device__ __forceinline__ int vector(int step) const { return slice_ + place(step); }
  // The column of its first lane, which lies before the row where the row begins in the vector.
  __device__ __forceinline__ int column(int step) const { return vector(step) * kLanes - skew_; }
  // The place of the vector of `step` in a row, or in another tensor of its length, that begins at
  // `row`: by a distance from that of the first step that the compiler knows.
  template <typename T>
  __device__ __forceinline__ T* at(T* row, int step) const {
    if constexpr (!kSkewed) return row + column(step);
    return row + column(0) + step * (kRunThreads * kLanes);
  }
  // Which of its lanes are the row's: known to the compiler for all but the first and last steps.
  __device__ __forceinline__ Lanes lanes(int step) const {
    Lanes own;
    if (may_begin(step)) own.bits &= Lanes::kAll << max(-column(step), 0);
    if (may_end(step)) own.bits &= ~(~0u << min(columns - column(step), kLanes));
    return own;
  }
  // Whether the tensor may end in the vector of `step`, so that it is not read as a whole.
  __device__ __forceinline__ bool is_cut(int step) const {
    return may_end(step) && is_near_end_ && column(step) + kLanes > columns;
  }
  // The first vector of the block's slice.
  __device__ __forceinline__ int slice() const { return slice_; }
  // The thread's run: its place in the slice, its first vector in the row, and how many of a row of
  // `row_vectors` lie in it.
  __device__ __forceinline__ int run() const { return run_; }
  __device__ __forceinline__ int run_vector() const { return slice_ + run_; }
  __device__ __forceinline__ int vectors_of_run(int row_vectors) const {
    return min(max(min(SLICE_VECTORS, row_vectors - slice_) - run_, 0), kRun);
  }
  __device__ __forceinline__ int run_vectors() const { return run_vectors_; }
  // Of this row; known to the compiler where none is skewed.
  __device__ __forceinline__ bool is_near_end() const { return kSkewed && is_near_end_; }

  // The vector of `step` of the row that begins at `row`, which has it.
  template <Load Hint>
  __device__ __forceinline__ Vector load_from(const dtype_t* row, int step) const {
    if (is_cut(step)) return load_cut<Hint>(row, step);
    const Vector x = load<Hint, VECTOR_BYTES>(at(row, step));
    return may_begin(step) || may_end(step) ? only(x, lanes(step)) : x;
  }
  // One that is cut.
  template <Load Hint>
  __device__ __forceinline__ Vector load_cut(const dtype_t* row, int step) const {
    const Lanes own = lanes(step);
    Vector x{};
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      if (own.has(i)) set_element(x, i, load<Hint, sizeof(dtype_t)>(at(row, step) + i));
    }
    return x;
  }
  // Writes the vector of `step` to the row that begins at `row`.
  __device__ __forceinline__ void store_to(dtype_t* row, int step, const Vector& x) const {
    if (may_begin(step) || may_end(step)) {
      store_some(at(row, step), x, lanes(step).bits);
    } else {
      store<Store::plain>(at(row, step), x);
    }
  }
  // The same of values, rounded to a type that the result may have for its own.
  template <typename T>
  __device__ __forceinline__ void store_to(T* row, int step, const float (&value)[kLanes]) const {
    if (may_begin(step) || may_end(step)) {
      store_some_elements(at(row, step), value, lanes(step).bits);
    } else {
      store_elements<Store::plain>(at(row, step), value);
    }
  }

 private:
  int slice_ = 0;
  int run_;
  int first_;
  int run_vectors_ = kRun;
  int skew_ = 0;
  bool is_near_end_ = false;
};

// The skew of a row is a number of whole words and, of 16-bit elements, perhaps half a word. Rows
// begin after 0, kWordStep, 2 * kWordStep, ... of a vector's words.
constexpr int kWords = VECTOR_BYTES / 4;
constexpr int kWordStep = kSkews < kWords ? kWords / kSkews : 1;
__device__ __forceinline__ int whole_words(int skew) { return skew % kLanes / (kLanes / kWords); }

// The vector that begins `skew` lanes, of which `Words` are whole words, before `second`, which
// follows `first` in memory. Words that are chosen while a kernel runs would take a selection each.
template <int Words>
__device__ __forceinline__ Vector lanes_ahead(const Vector& first, const Vector& second, int skew) {
  const auto word = [&](int i) { return i < kWords ? first.word[i] : second.word[i - kWords]; };
  Vector x;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int last = kWords + i - Words;
    x.word[i] = __funnelshift_l(word(last - 1), word(last), skew % (kLanes / kWords) * 16);
  }
  return x;
}
// The same of a skew of which the compiler knows no more than that it is `Words` words or more.
template <int Words = 0>
__device__ __forceinline__ Vector any_lanes_ahead(const Vector& first, const Vector& second,
                                                  int skew) {
  if constexpr (Words + kWordStep < kWords) {
    if (whole_words(skew) > Words) return any_lanes_ahead<Words + kWordStep>(first, second, skew);
  }
  return lanes_ahead<Words>(first, second, skew);
}

// a + b, rounded: where a sum is written, that is also what is worked on.
__device__ __forceinline__ Vector add(const Vector& a, const Vector& b) {
  Vector sum;
#pragma unroll
  for (int i = 0; i < VECTOR_BYTES / 4; ++i) {
    sum.word[i] = add_words<dtype_t>(a.word[i], b.word[i]);
  }
  return sum;
}

// The rows of this thread's group, `Rows` neighbours at once and one turn after another:
//
//   release_next_kernel();
//   await_previous_kernel();
//   Share share;
//   Feed feed(tensors, row_count, share);
//   do {
//     feed.load(...) for every tensor; ... feed.reduce<Sum>(...), once, of all that was loaded; ...
//   } while (feed.next());
//
// All threads of a group make every turn, because reductions need them all; where there is no row
// left for it, `active` is false and what was loaded is 0. With a ring, which takes one row at
// once, `Held` vectors of weights may lie beside it in shared memory.
template <int Rows = 1, int Held = 0>
class Feed {
  static_assert(STAGES == 0 ? Held == 0 : Rows == 1);
  static_assert(!kSkewed || Rows == 1);

 public:
  // Where rows are many enough all of a block have one skew, so that the weights it holds are
  // shifted once: the rows fall into kClasses, of every so many rows one, and so do the clusters.
  static constexpr int kClasses = Held > 0 && ROW_BYTES <= 16384 ? kSkews : 1;
  static constexpr bool kHoldsRow = kClasses > 1;

  __device__ __forceinline__ Feed(const dtype_t* const (&tensors)[STREAMS], long long row_count,
                                  Share& share)
      : share_(share), row_count_(row_count) {
    block_row_ = first_row();
#pragma unroll
    for (int i = 0; i < STREAMS; ++i) tensors_[i] = tensors[i];
    if constexpr (CLUSTER > 1) {
      if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) mbarrier_init(received(i), 1);
        mbarrier_init_fence();
      }
      cluster_arrive_relaxed();
    }
    share_.follow(row(), row_count_);
    if constexpr (STAGES > 0) start();
  }

  // Starts to copy the block's part of a vector of weights, which all rows share, to the place `i`
  // of Held.
  __device__ __forceinline__ void hold(int i, const dtype_t* weights) const {
    if (threadIdx.x != 0) return;
    const int vectors = min(SLICE_VECTORS, ROW_VECTORS - share_.slice());
    mbarrier_arrive_expect(held_barrier(), vectors * VECTOR_BYTES);
    bulk_load(held_place(i), weights + share_.slice() * kLanes, vectors * VECTOR_BYTES,
              held_barrier());
  }
  // The same where rows are skewed, of weights(i): the vectors of a row's weights, or, where rows
  // of a block differ, of the weights themselves, from the one ahead of the slice on.
  template <typename Weights>
  __device__ __forceinline__ void hold_each(int i, const Weights& weights) const {
    for (int at = threadIdx.x; at < SLICE_VECTORS + kAligned; at += THREADS) {
      store_shared(held_place(i) + at * VECTOR_BYTES, weights(share_.slice() - kAligned + at));
    }
    mbarrier_arrive(held_barrier());
  }
  // The weights of the vector of `step`: after a reduction, by when the copies have been started.
  template <int Words>
  __device__ __forceinline__ Vector held(int i, int step) const {
    const unsigned from = held_place(i) + share_.place(step) * VECTOR_BYTES;
    if constexpr (!kSkewed) return load_shared<VECTOR_BYTES>(from);
    const unsigned at = from + (kAligned - share_.skew() / kLanes) * VECTOR_BYTES;
    const Vector own = load_shared<VECTOR_BYTES>(at);
    if constexpr (kHoldsRow) return own;
    return lanes_ahead<Words>(load_shared<VECTOR_BYTES>(at - VECTOR_BYTES), own, share_.skew());
  }
  __device__ __forceinline__ void await_held() const {
    if (turns_ == 0) mbarrier_wait(held_barrier(), 0);
  }

  // The first of the group's rows, which the others follow.
  __device__ __forceinline__ long long row() const {
    return block_row_ + threadIdx.x / THREADS_PER_ROW * (Rows * kClasses);
  }
  // Whether there is the group's row `i`; without the first there is none.
  __device__ __forceinline__ bool active(int i = 0) const { return row() + i < row_count_; }

  // Where the first row begins in a tensor that is written. Of several rows the compiler may not
  // share it with the addresses of the loads: it would take the first row's stores apart into
  // words.
  __device__ __forceinline__ long long first() const {
    long long element = row() * columns;
    if constexpr (Rows > 1) asm("" : "+l"(element));
    return element;
  }

  // The kept vectors of the group's row `i` in one of the tensors, the first of them first.
  __device__ __forceinline__ void load(Vector (&x)[KEPT], int stream, int i = 0) const {
    load_if(x, stream, [](int) { return true; }, i);
  }
  // Of all the group's rows, with several at once.
  __device__ __forceinline__ void load(Vector (&x)[Rows][KEPT], int stream) const {
#pragma unroll
    for (int i = 0; i < Rows; ++i) load(x[i], stream, i);
  }
  // Those of which `wanted` is true of the first column; the others are 0.
  template <typename Wanted>
  __device__ __forceinline__ void load_if(Vector (&x)[KEPT], int stream, const Wanted& wanted,
                                          int i = 0) const {
    const bool has_row = active(i);
    const dtype_t* const source = tensors_[stream] + (row() + i) * columns;
    if constexpr (STAGES > 0) {
      if (has_row && stream == 0) mbarrier_wait(barrier(place_.stage), place_.parity);
    }
    const auto reaches = [&](int step) {
      return has_row && share_.has(step) && wanted(share_.column(step));
    };
    // All are on their way before the first is looked at.
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      x[step] = {};
      if (!reaches(step) || share_.is_cut(step)) continue;
      if constexpr (STAGES == 0) {
        x[step] = kernwright::load<kRead, VECTOR_BYTES>(share_.at(source, step));
      } else {
        x[step] = load_shared<VECTOR_BYTES>(stage(place_.stage) + stream * kSliceBytes +
                                            share_.place(step) * VECTOR_BYTES);
      }
    }
    if constexpr (!kSkewed) return;
    if (share_.is_near_end()) {
#pragma unroll
      for (int step = 0; step < KEPT; ++step) {
        if (!reaches(step) || !share_.is_cut(step)) continue;
        x[step] = share_.template load_cut<kRead>(source, step);
      }
    }
#pragma unroll
    for (int step = 0; step < KEPT; ++step) {
      if (!Share::may_begin(step) && !Share::may_end(step)) continue;
      x[step] = only(x[step], share_.lanes(step));
    }
  }

  // Over the whole row, once a turn. Its places in the rings are given to later rows as soon as all
  // threads of a warp have what they loaded, which the exchange of their parts proves.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value reduce(typename Reduction::Value x) {
    x = warp_reduce<Reduction, kWarpThreads>(x);
    if constexpr (STAGES > 0) {
      __syncwarp();
      if (leads()) fetch(place_.stage);
      place_.advance();
    }
    return combine<Reduction>(x);
  }
  // Over the whole row once more, where all threads of a warp and of the row come here.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value reduce_again(typename Reduction::Value x) {
    return combine<Reduction>(warp_reduce<Reduction, kWarpThreads>(x));
  }

  __device__ __forceinline__ bool next() {
    if constexpr (STAGES == 0) return false;
    block_row_ += stride();
    ++turns_;
    share_.follow(row(), row_count_);
    return block_row_ < row_count_;
  }

 private:
  static constexpr int kSliceBytes = SLICE_VECTORS * VECTOR_BYTES;
  static constexpr int kStageBytes = STREAMS * kSliceBytes;

  // Of the parts of warps, which alternates between two places: those who come to the next exchange
  // have read what they wanted of the last but one.
  template <typename Reduction>
  __device__ __forceinline__ typename Reduction::Value combine(const typename Reduction::Value& x) {
    if constexpr (PARTS == 1) {
      return x;
    } else {
      if constexpr (CLUSTER > 1) {
        if (exchanges_ == 0) cluster_wait();  // all blocks of the cluster have started
      }
      __shared__ typename Reduction::Value parts[2][ROWS_PER_BLOCK][PARTS];
      const unsigned exchange = exchanges_++;
      return combine_warps<Reduction, kWarps, CLUSTER, ROWS_PER_BLOCK>(
          x, parts[exchange % 2][threadIdx.x / THREADS_PER_ROW], received(exchange % 2),
          exchange / 2 % 2);
    }
  }

  static __device__ __forceinline__ bool leads() { return threadIdx.x % kWarpThreads == 0; }
  static __device__ __forceinline__ long long first_row() {
    const unsigned cluster = blockIdx.x / CLUSTER;
    return static_cast<long long>(cluster / kClasses) * (ROWS_PER_BLOCK * Rows * kClasses) +
           cluster % kClasses;
  }
  static __device__ __forceinline__ long long stride() {
    const unsigned clusters = gridDim.x / CLUSTER;
    const unsigned of_class = (clusters - blockIdx.x / CLUSTER % kClasses - 1) / kClasses + 1;
    return static_cast<long long>(of_class) * (ROWS_PER_BLOCK * kClasses);
  }
  // Where the parts of every second exchange have come from all of the cluster.
  static __device__ __forceinline__ unsigned received(int i) {
    __shared__ unsigned long long barriers[2];
    return shared_address(&barriers[i]);
  }
  // Shared memory: the rings of all groups, the weights, the barriers of the weights and of the
  // rings.
  static __device__ __forceinline__ unsigned memory() {
    extern __shared__ __align__(128) unsigned char bytes[];
    return shared_address(bytes);
  }
  static __device__ __forceinline__ unsigned held_place(int i) {
    return memory() + ROWS_PER_BLOCK * STAGES * kStageBytes + i * (kSliceBytes + kSkewed * ALIGN);
  }
  static __device__ __forceinline__ unsigned held_barrier() { return held_place(Held); }
  __device__ __forceinline__ unsigned stage(int i) const {
    return memory() + (threadIdx.x / THREADS_PER_ROW * STAGES + i) * kStageBytes;
  }
  __device__ __forceinline__ unsigned barrier(int i) const {
    return held_barrier() + 8 + 8 * (threadIdx.x / kWarpThreads * STAGES + i);
  }

  __device__ __forceinline__ void start() {
    next_row_ = row();
    if (leads()) {
      for (int i = 0; i < STAGES; ++i) mbarrier_init(barrier(i), 1);
      if (Held > 0 && threadIdx.x == 0) {
        mbarrier_init(held_barrier(), kSkewed ? Held * THREADS : Held);
      }
      mbarrier_init_fence();
      for (int i = 0; i < STAGES; ++i) fetch(i);
    }
    if constexpr (Held > 0) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

  __device__ __forceinline__ void fetch(int i) {
    if (next_row_ >= row_count_) return;
    const int skew = Share::skew_of(next_row_);
    int vectors = share_.run_vectors();
    if constexpr (kSkewed) {  // a vector that is cut is loaded by elements, not from the ring
      const bool whole_alone = Share::is_near_end(next_row_, row_count_);
      vectors = share_.vectors_of_run((skew + columns + (whole_alone ? 0 : kLanes - 1)) / kLanes);
    }
    const int bytes = vectors * VECTOR_BYTES;
    mbarrier_arrive_expect(barrier(i), STREAMS * bytes);
    if ((!kSkewed && kShortestRun > 0) || bytes > 0) {
#pragma unroll
      for (int stream = 0; stream < STREAMS; ++stream) {
        const dtype_t* const row = tensors_[stream] + next_row_ * columns - skew;
        bulk_load(stage(i) + stream * kSliceBytes + share_.run() * VECTOR_BYTES,
                  row + share_.run_vector() * kLanes, bytes, barrier(i));
      }
    }
    next_row_ += stride();
  }

  Share& share_;
  const dtype_t* tensors_[STREAMS];
  long long row_count_;
  long long block_row_;
  unsigned turns_ = 0;
  unsigned exchanges_ = 0;
  // Of the warp's ring; `next_row_` is its leading thread's.
  long long next_row_ = 0;
  Ring<max(STAGES, 1)> place_;
};

}  // namespace kernwright::row
