#pragma once
// Draws how the rows of a grouped product are shared out among the groups.

#include <kernwright/attention/drawing.cuh>
#include <kernwright/config.cuh>

namespace kernwright {

class GroupDraw {
 public:
  // With `routed` shares are as a trained router's, else of each kind in turn.
  __device__ GroupDraw(unsigned long long seed, bool routed, long long groups, long long rows,
                       long long room)
      : seed_(seed),
        kind_(routed ? kRouted : static_cast<Kind>(bits(kKind, 0) % kKinds)),
        groups_(groups),
        rows_(rows),
        room_(room) {}

  // Calls visit(group, first, count) with the places of a group's rows, and fills the tensors that
  // are not null.
  template <typename Visit>
  __device__ void each(int* ends, int* counts, const Visit& visit) const {
    double all = 0;
    for (long long g = 0; g < groups_; ++g) all += share(g);
    // Some rows at the end belong to no group.
    const long long total = kind_ == kFew ? rows_ - rows_ / 3 : rows_;
    double shares = 0;
    long long end = 0;
    for (long long g = 0; g < groups_; ++g) {
      shares += share(g);
      const long long begin = end;
      end = g + 1 == groups_
                ? total
                : min(total, static_cast<long long>(static_cast<double>(total) * shares / all));
      const long long count = min(end - begin, room_);
      if (blockIdx.x == 0 && threadIdx.x == 0) {
        if (ends) ends[g] = static_cast<int>(end);
        if (counts) counts[g] = static_cast<int>(count);
      }
      visit(g, config::layout == config::layout_masked ? g * room_ : begin, count);
    }
  }

 private:
  // Streams of random numbers.
  enum Stream { kShare = 2, kKind };
  enum Kind { kRouted, kEven, kOneHasAll, kManyEmpty, kFew, kKinds };

  __device__ unsigned long long bits(Stream stream, long long place) const {
    return config::hash_at(config::hash_at(seed_, stream), static_cast<unsigned long long>(place));
  }
  // Returns a group's share of all rows, relative to the shares of the others.
  __device__ double share(long long group) const {
    const unsigned long long random = bits(kShare, group);
    const auto chosen =
        static_cast<long long>(bits(kKind, 1) % static_cast<unsigned long long>(groups_));
    if (kind_ == kOneHasAll) return group == chosen ? 1 : 0;
    if (kind_ == kManyEmpty) return random % 4 == 0 || group == chosen ? 1 + random / 4 % 64 : 0;
    if (kind_ == kRouted) return exp(0.5 * config::normal(random));
    return 1;
  }

  unsigned long long seed_;
  Kind kind_;
  long long groups_, rows_, room_;
};

}  // namespace kernwright
