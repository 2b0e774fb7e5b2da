#pragma once

namespace kernwright {

/// How many units of work one sample takes: a graph of `units`, replayed `replays` times.
struct SampleLength {
  int units = 1;
  int replays = 1;
};

/// Returns the length of a sample of about `sample_us`, for a unit that takes `unit_us`. The graph
/// rotates through `sets` buffer sets, so `units` is a multiple of them. If one rotation alone
/// would take too long, it is as many units as fit. Graphs of very short units are replayed, unless
/// `once` says that a second pass over the sets would find them in the L2.
SampleLength sample_length(double unit_us, double sample_us, int sets, bool once);

}  // namespace kernwright
