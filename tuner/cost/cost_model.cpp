#include "tuner/cost/cost_model.h"

#include <algorithm>
#include <cmath>

namespace kernwright {
namespace {

// Rates of every multiprocessor from sm_80 on, per clock (CUDA C++ Programming Guide, arithmetic
// instructions, and shared memory).
constexpr double kSmemBytesPerClock = 128;
constexpr double kSpecialFunctionsPerClock = 16;

// Fitted to the times that were measured on an H200: bench/results/h200, trials and searches, and
// the winners in rows_vs_pytorch.json.
constexpr double kTogether = 3;     ///< norm of the times of memory and multiprocessors
constexpr double kQueueing = 1.4;   ///< times the latency, if loads queue
constexpr double kFromMemory = 21;  ///< bytes a clock at most, to a multiprocessor with one block
constexpr double kBeside = 1.4;     ///< times as many to one with several
constexpr double kUnderWay = 0.4;  ///< of a ring's stages, if blocks of a tile wait for one another
constexpr double kReused = 1.7;  ///< times that a byte is loaded from the L2 at most, if loads wait
constexpr double kSaturation = 3;        ///< how sharply the memory's rate ends their growth
constexpr double kReceived = 1.125;      ///< of the L2's rate, with what other blocks load for one
constexpr double kSharedClocks = 140;    ///< of a step that four or more blocks wait for together
constexpr double kMeetClocks = 1000;     ///< until the blocks of a cluster are all there
constexpr double kRestartClocks = 1900;  ///< until the next block replaces one, and has loaded
constexpr double kHeld = 0.5;            ///< share of the L2 that stays in it beside all else
constexpr double kScattered = 1.06;      ///< for early blocks whose neighbours moved apart
// Early blocks with rings crowd where there is room for several, unless a cluster places them.
constexpr double kCrowds = 0.5;   ///< blocks for each multiprocessor from which on they do
constexpr double kCrowded = 0.3;  ///< of the memory's time that this costs, if all room is free
// The share of the memory's time that is lost if as much is written as is read, since stores wait
// for loads: over the blocks of a multiprocessor, which work meanwhile; per doubling of a cluster,
// whose blocks go on together; and per step that is loaded ahead, which brings them into step.
constexpr double kAlone = 0.07;
constexpr double kClustered = 0.023;
constexpr double kInStep = 0.032;

/// Returns the blocks of a grid, or the threads of a block.
std::int64_t count(const Extent3& extent) {
  return std::int64_t{extent[0]} * extent[1] * extent[2];
}

/// Returns the launch that the demands describe: the first of those with the most shared memory.
const LaunchPlan& main_launch(const Candidate& candidate) {
  const auto& launches = candidate.plan.launches;
  return *std::max_element(
      launches.begin(), launches.end(),
      [](const LaunchPlan& a, const LaunchPlan& b) { return a.dynamic_smem < b.dynamic_smem; });
}

/// Returns the occupancy of the main launch: blocks that fit one multiprocessor together, by
/// threads and shared memory, and by registers if the demand says how many. At least 1.
std::int64_t resident_blocks(const Candidate& candidate, const DeviceProfile& profile,
                             std::int64_t registers_per_thread) {
  const LaunchPlan& launch = main_launch(candidate);
  const std::int64_t threads = std::max<std::int64_t>(count(launch.block), 1);
  std::int64_t blocks = profile.max_threads_per_sm / threads;
  if (profile.max_blocks_per_sm > 0) blocks = std::min(blocks, profile.max_blocks_per_sm);
  // The driver keeps 1 KB of shared memory per block for itself.
  blocks = std::min(blocks, profile.smem_per_sm / (std::int64_t{launch.dynamic_smem} + 1024));
  if (registers_per_thread > 0) {
    blocks = std::min(blocks, profile.registers_per_sm / (registers_per_thread * threads));
  }
  return std::max<std::int64_t>(blocks, 1);
}

/// Returns the demands of a template that states none: an even share for each block, of products in
/// mma.sync if inputs are narrow, with up to 64 bytes under way for each thread.
Demands even_shares(const Candidate& candidate, std::int64_t bytes) {
  constexpr std::int64_t kBytesPerThread = 64;
  const LaunchPlan& launch = main_launch(candidate);
  const std::int64_t blocks = std::max<std::int64_t>(count(launch.grid), 1);
  int narrowest = 64;
  for (const TensorShape& tensor : candidate.plan.tensors) {
    if (tensor.role != TensorRole::out) narrowest = std::min(narrowest, dtype_bits(tensor.dtype));
  }
  const auto flops = candidate.problem->operation().flops.evaluate(candidate.scope);
  Demands demands;
  (narrowest <= 16 ? demands.mma_flops : demands.instructions) = flops ? *flops / blocks : 0;
  demands.in_flight_bytes =
      std::max<std::int64_t>(std::min(bytes / blocks, kBytesPerThread * count(launch.block)), 1);
  return demands;
}

std::int64_t written_bytes(const Candidate& candidate) {
  std::int64_t bytes = 0;
  for (const TensorShape& tensor : candidate.plan.tensors) {
    if (tensor.role == TensorRole::in) continue;
    bytes += bytes_of(tensor.written.value_or(tensor.elements()), tensor.dtype);
  }
  return bytes;
}

/// Combines the times of two overlapping phases with a soft maximum. If both are about equal, the
/// result is larger than either.
double together(double a_us, double b_us) {
  return std::pow(std::pow(a_us, kTogether) + std::pow(b_us, kTogether), 1 / kTogether);
}

/// A candidate's demands on a device, and the placement of its blocks.
class Prediction {
 public:
  Prediction(const Candidate& candidate, const DeviceProfile& profile)
      : candidate_(candidate), profile_(profile), rates_(profile.rates) {
    const auto bytes = candidate.problem->operation().bytes.evaluate(candidate.scope);
    const std::int64_t total = bytes ? *bytes : 0;
    written_ = static_cast<double>(std::min(written_bytes(candidate), total));
    read_ = std::max(static_cast<double>(total) - written_, 1.0);
    demands_ =
        candidate.kernel_template->cost.empty() ? even_shares(candidate, total) : candidate.demands;
    const LaunchPlan& launch = main_launch(candidate);
    blocks_ = static_cast<double>(count(launch.grid));
    tiles_ = demands_.tiles > 0 ? static_cast<double>(demands_.tiles) : blocks_;
    cluster_ = static_cast<double>(count(launch.cluster));
    sms_ = static_cast<double>(
        std::max<std::int64_t>(profile.sms_for_clusters(count(launch.cluster)), 1));
    fitting_ = static_cast<double>(resident_blocks(candidate, profile, demands_.registers));
    persistent_ = blocks_ < tiles_;
    active_ = std::min(tiles_, std::max(std::floor(sms_ / cluster_) * cluster_, cluster_));
    tiles_per_sm_ = std::ceil(tiles_ / active_);
    resident_ = persistent_ ? std::ceil(blocks_ / sms_) : std::min(fitting_, tiles_per_sm_);
  }

  /// Returns the time of all launches.
  double whole_us() const {
    const bool early = candidate_.plan.launches.front().programmatic;
    return (early ? early_us() : us(1)) + other_launches_us();
  }

 private:
  /// Returns the time of the main launch, if the memory takes `times` as long.
  double us(double times) const {
    return rates_.launch_us + us_of(of(demands_.once_clocks)) +
           together(power_limited_us(us_of(busiest_clocks())), times * memory_us());
  }

  /// Returns the time with a start before the kernel ahead has ended. Blocks then go to any
  /// multiprocessor that has room: neighbours no longer ask for the same lines at the same time,
  /// unless a cluster keeps them together or the L2 holds it all, and a grid that does not fill the
  /// room is not spread evenly.
  double early_us() const {
    const auto sms = static_cast<double>(profile_.sm_count);
    const double room = sms * fitting_;
    const bool shared = steps() * of(demands_.l2_bytes) > 1.5 * (read_ + written_);
    const bool apart = shared && !held_in_l2(read_) && (cluster_ == 1 || blocks_ > sms);
    const bool uneven = blocks_ > sms && blocks_ <= room;
    const bool crowded = demands_.stages > 1 && (fitting_ > 1 || cluster_ == 1) &&
                         blocks_ > sms * kCrowds && blocks_ <= room;
    return us(crowded ? 1 + kCrowded * (1 - blocks_ / room) : 1) *
               (apart || uneven ? kScattered : 1) -
           rates_.early_start_us;
  }

  /// Returns the time of the launches around the main one, one after another.
  double other_launches_us() const {
    const auto others = static_cast<double>(candidate_.plan.launches.size() - 1);
    if (others == 0) return 0;
    const double bytes = of(demands_.other_bytes);
    const double l2_rate =
        rates_.l2_bytes_per_clock * static_cast<double>(profile_.sm_count) * profile_.sm_clock_mhz;
    return others * rates_.further_launch_us +
           bytes / (held_in_l2(bytes) ? l2_rate : memory_rate(0));
  }

  static double of(std::int64_t demand) { return static_cast<double>(demand); }
  double us_of(double clocks) const { return clocks / profile_.sm_clock_mhz; }
  double steps() const { return tiles_ * of(demands_.steps); }
  bool held_in_l2(double bytes) const {
    return bytes <= kHeld * static_cast<double>(profile_.l2_bytes);
  }

  /// Returns bytes per us, if `share` of them are written.
  double memory_rate(double share) const {
    return (rates_.read_share - rates_.write_loss * share) * profile_.dram_gbps * 1e3;
  }

  /// Clocks of one step. The longest of them counts: the busiest unit of the multiprocessor, the L2
  /// among them; the step's chain of dependent work; and its share of the ring's turn.
  struct Step {
    double busy = 0;
    double l2 = 0;
    double chain = 0;
    double ring = 0;
  };
  Step step() const {
    const double sms = static_cast<double>(std::max<std::int64_t>(profile_.sm_count, 1));
    const double dense = profile_.dense_16bit_tflops * 1e6 / (sms * profile_.sm_clock_mhz);
    // Per clock the hardware does a power of two; the datasheet's rate is at another clock.
    const double tensor_rate = std::exp2(std::round(std::log2(std::max(dense, 1.0))));
    const double lanes = profile_.fp32_tflops * 1e6 / (2 * sms * profile_.sm_clock_mhz);
    Step step;
    const bool ahead = demands_.stages > 1;
    step.l2 = std::max(of(demands_.l2_bytes), ahead ? of(demands_.loaded_bytes) / kReceived : 0) /
              rates_.l2_bytes_per_clock;
    step.busy = std::max(
        {(of(demands_.wgmma_flops) + of(demands_.mma_flops) / rates_.mma_sync_share) / tensor_rate,
         of(demands_.smem_bytes) / kSmemBytesPerClock, step.l2,
         of(demands_.instructions) / std::max(lanes, 1.0),
         of(demands_.special_functions) / kSpecialFunctionsPerClock});
    // Blocks of one multiprocessor wait at the same time.
    step.chain = (of(demands_.step_clocks) + (ahead ? 0 : rates_.load_latency_clocks)) / resident_;
    if (ahead) {
      step.ring = (rates_.load_latency_clocks + step.l2) / of(demands_.stages - 1) / resident_;
    }
    return step;
  }

  /// Returns the clocks of one step of all tiles that a multiprocessor has at a time, over their
  /// number.
  double step_clocks() const {
    const Step parts = step();
    // Blocks that load for each other wait for the slowest load from memory.
    const bool waits = cluster_ >= 4 && demands_.stages > 1 && !held_in_l2(read_) &&
                       demands_.loaded_bytes > demands_.l2_bytes;
    return std::max({parts.busy, parts.chain, parts.ring}) + of(demands_.idle_clocks) / resident_ +
           (waits ? kSharedClocks : 0);
  }

  /// Returns the clocks of the multiprocessor that has the most tiles.
  double busiest_clocks() const {
    double clocks =
        tiles_per_sm_ * (of(demands_.steps) * step_clocks() + of(demands_.tile_clocks) / resident_);
    if (demands_.stages > 1) {
      if (cluster_ > 1) clocks += kMeetClocks;
      if (!persistent_) {
        clocks += (std::ceil(tiles_per_sm_ / resident_) - 1) * kRestartClocks / resident_;
      }
    }
    if (!persistent_) {
      clocks += (std::ceil(tiles_per_sm_ / resident_) - 1) * of(demands_.round_clocks);
    }
    return clocks;
  }

  /// Returns the bytes that pass the memory: inputs once for every wave of tiles, unless they stay
  /// in the L2.
  double traffic() const {
    double read = read_;
    if (demands_.wave_bytes > 0 && !held_in_l2(read_)) {
      read = std::max(read, tiles_ / active_ * of(demands_.wave_bytes));
    }
    return read + of(demands_.reread_bytes) + written_;
  }

  /// Returns the bytes from memory that a block has under way; 0 if they are enough. If the
  /// manifest does not say, and few blocks load the same, they are the share of the memory in what
  /// the ring holds, but for the stage that is computed and the one that is freed.
  double in_flight_bytes() const {
    if (demands_.in_flight_bytes > 0) return of(demands_.in_flight_bytes);
    if (demands_.stages < 2 || demands_.loaded_bytes == 0) return 0;
    if (steps() * of(demands_.l2_bytes) > kReused * read_) return 0;
    const double depth =
        std::floor(main_launch(candidate_).dynamic_smem / of(demands_.loaded_bytes));
    if (of(demands_.steps) <= depth) return 0;  // all of a tile is under way at once
    return kUnderWay * std::max(depth - 2, 1.0) * read_ / steps();
  }

  /// Returns how many times as long loads take as at the memory's rate, if too few are under way.
  double slowdown() const {
    if (in_flight_bytes() == 0) return 1;
    const double bytes = traffic();
    // The rate that the bytes under way allow, and the memory's, without a corner between them. A
    // block that loads nothing ahead has them under way for a part of its time, stores come on top,
    // and no multiprocessor gets more than the L2 sends it, including what others load too, nor
    // more than comes to it from memory.
    const double latency = rates_.load_latency_clocks;
    const double share = demands_.stages > 1 ? 1 : latency / (latency + of(demands_.step_clocks));
    const double running = std::min(tiles_, sms_ * (persistent_ ? resident_ : fitting_));
    const double most = std::min(running * in_flight_bytes(), bytes - written_);
    const double under_way = most * share / us_of(kQueueing * latency);
    const double loading = std::min(tiles_, sms_) * profile_.sm_clock_mhz;
    const double sent = loading * rates_.l2_bytes_per_clock /
                        std::max(steps() * of(demands_.l2_bytes) / read_, 1.0);
    const double rate = memory_rate(written_ / bytes) * (bytes - written_) / bytes;
    const double asked = std::min(under_way, sent) / rate;
    // The one with the most tiles gets their bytes no faster.
    const double loaded = of(demands_.steps) * of(demands_.l2_bytes);
    const double own = read_ / tiles_;
    const double busiest = tiles_per_sm_ * (loaded > 0 ? std::min(loaded, own) : own);
    const double from_memory = kFromMemory * (resident_ > 1 ? kBeside : 1);
    return std::max(std::pow(1 + std::pow(asked, -kSaturation), 1 / kSaturation),
                    rate * busiest / (from_memory * profile_.sm_clock_mhz * (bytes - written_)));
  }

  double memory_us() const {
    const double bytes = traffic();
    const double live = std::min(resident_, std::max(1.0, tiles_ / sms_));
    const double lost = kAlone / live + (demands_.stages > 1 ? kInStep * of(demands_.stages - 1)
                                                             : kClustered * std::log2(cluster_));
    return bytes / memory_rate(written_ / bytes) * slowdown() * (1 + 2 * written_ / bytes * lost);
  }

  /// The power limit lowers the clock f, and with it the energy by f squared. Work that takes s at
  /// full clock, and whose energy there takes r at the limit, takes s / f = r f^2. Multiprocessors
  /// without a tile let the others run faster. The tile that moves the fewest bytes for its
  /// products wins.
  double power_limited_us(double us) const {
    return flops() > 0 ? us * std::cbrt(std::max(power_limit_us() / us, 1.0)) : us;
  }
  double power_limit_us() const {
    const double moved = steps() * (of(demands_.loaded_bytes) + of(demands_.smem_bytes));
    const double energy =
        flops() + rates_.flops_per_moved_byte * moved + rates_.flops_per_dram_byte * traffic();
    return energy / (rates_.sustained_share * profile_.dense_16bit_tflops * 1e6);
  }
  double flops() const { return steps() * (of(demands_.wgmma_flops) + of(demands_.mma_flops)); }

  const Candidate& candidate_;
  const DeviceProfile& profile_;
  const DeviceRates& rates_;
  Demands demands_;
  double written_ = 0;  ///< bytes of the results
  double read_ = 0;     ///< bytes of the inputs, each once
  double blocks_ = 1;
  double tiles_ = 1;
  double cluster_ = 1;
  double sms_ = 1;       ///< those on which clusters find a place
  double active_ = 1;    ///< of these, the ones with a tile at the start
  double fitting_ = 1;   ///< blocks that fit a multiprocessor
  double resident_ = 1;  ///< blocks on a multiprocessor
  double tiles_per_sm_ = 1;
  bool persistent_ = false;  ///< blocks take several tiles
};

}  // namespace

double arithmetic_tflops(const BoundProblem& problem, const DeviceProfile& profile) {
  int narrowest = 64;
  for (const TensorShape& shape : problem.shapes()) {
    if (shape.role != TensorRole::out) narrowest = std::min(narrowest, dtype_bits(shape.dtype));
  }
  if (narrowest <= 8 && profile.sm_arch >= 89) return 2 * profile.dense_16bit_tflops;
  if (narrowest <= 16) return profile.dense_16bit_tflops;
  const auto tf32 = problem.scope().find("tf32");
  return tf32 && tf32 == problem.scope().find("tf32_allow") ? profile.dense_16bit_tflops / 2
                                                            : profile.fp32_tflops;
}

double roofline_us(const BoundProblem& problem, const DeviceProfile& profile) {
  const Operation& operation = problem.operation();
  const Scope& scope = problem.scope();
  const auto flops = operation.flops.evaluate(scope);
  const auto bytes = operation.bytes.evaluate(scope);
  const double tflops = arithmetic_tflops(problem, profile);
  const double arithmetic_us =
      flops && tflops > 0 ? static_cast<double>(flops.value()) / (tflops * 1e6) : 0;
  const double memory_us = bytes && profile.dram_gbps > 0
                               ? static_cast<double>(bytes.value()) / (profile.dram_gbps * 1e3)
                               : 0;
  const auto specials = operation.specials ? operation.specials->evaluate(scope) : 0;
  const double special_us = specials && profile.sm_clock_mhz > 0
                                ? static_cast<double>(specials.value()) /
                                      (kSpecialFunctionsPerClock *
                                       static_cast<double>(profile.sm_count) * profile.sm_clock_mhz)
                                : 0;
  return std::max({arithmetic_us, memory_us, special_us});
}

double predict_us(const Candidate& candidate, const DeviceProfile& profile) {
  return Prediction(candidate, profile).whole_us();
}

}  // namespace kernwright
