#include <algorithm>
#include <bit>
#include <cmath>

#include "tuner/cost/cost_models.h"

namespace kernwright::detail {
namespace {

// Constants measured on, or fitted to, an H200 (sm_90), in clocks and bytes per clock. Other
// architectures are scaled through their profile.
constexpr double kSmemBytesPerClock = 128;        ///< per SM
constexpr double kL2PortBytesPerClock = 64;       ///< per SM
constexpr double kL2BytesPerClockPerSm = 61;      ///< all SMs pulling at once
constexpr double kMergedPortBytesPerClock = 78;   ///< of tiles by TMA, whose neighbours' requests
constexpr double kMergedBytesPerClockPerSm = 76;  ///< for the same lines are merged
constexpr double kPowerShare =
    0.72;  ///< of the dense rate that the power limit leaves at the boost clock, but for moves
constexpr double kMemoryShare = 0.958;      ///< of the datasheet's memory rate
constexpr double kTileMemoryShare = 0.94;   ///< the same where both operands pass in tiles
constexpr double kMemoryStartUs = 1.7;      ///< until the memory runs at its rate
constexpr double kPrologueClocks = 600;     ///< launch, first loads
constexpr double kMeetClocks = 2000;        ///< until the blocks of a cluster are all there
constexpr double kTileStartClocks = 2400;   ///< the same for a further block on a running SM
constexpr double kLoadLatencyClocks = 900;  ///< of one stage of the ring, from L2 or memory
constexpr double kAlone = 0.5;              ///< of a last wave, with no other blocks beside it
constexpr double kLate = 1.0;             ///< of the reading, where all of it is asked for at once
constexpr double kLatencyUs = 1.0;        ///< from a load to its data, the memory under load
constexpr double kExchangeUs = 0.5;       ///< blocks of a cluster add up their sums
constexpr double kSentPerClock = 16;      ///< bytes of sums, from a block to the others
constexpr double kFinishUs = 1.2;         ///< a launch behind adds up the sums of slices
constexpr double kSliceUs = 0.04;         ///< and takes them one after the other
constexpr double kCopyStartUs = 2.0;      ///< a launch in front, until the next one runs
constexpr double kPromoteClocks = 60;     ///< until sums of a part are there to be added
constexpr double kActivatedPerClock = 8;  ///< elements per SM: 2 of 16 special functions each
constexpr double kLoneSlack = 1.05;       ///< of wgmma in persistent_wave's lone warpgroup
constexpr double kSharedBClocks = 15;     ///< of a stage, until the other block gave its place back
constexpr double kSharedAClocks = 40;     ///< the same where a's rows are shared
constexpr double kStoredPerClock = 10;    ///< elements at the end of a tile
constexpr double kOverlapped = 0.6;       ///< of a tile's end that shows all the same
constexpr double kTensorSlack = 1.15;   ///< one warpgroup does not keep the tensor cores busy alone
constexpr double kMmaClocks = 4;        ///< of an mma.sync of 16 rows by 8 and 32 bytes of k
constexpr double kSplitLines = 1.8;     ///< loads of rows that start between lines of the L2
constexpr double kSingleElements = 25;  ///< stages of mma.sync where no wider copy is aligned
constexpr double kTogether = 3;         ///< norm of the times of units that work side by side
constexpr double kHeld = 0.75;          ///< of the L2, what stays in it beside all else
constexpr double kScattered = 1.06;     ///< early blocks that no longer lie where they should
constexpr double kMovedEnergy = 10;     ///< of a byte to or in an SM, over that of an operation
constexpr double kMemoryEnergy = 43;    ///< of a byte from memory

/// Share of the tensor cores' rate that mma.sync reaches: all of it where it is the native form.
double mma_sync_share(int sm_arch) {
  if (sm_arch >= 100) return 0.35;
  return sm_arch >= 90 ? 0.62 : 0.95;
}

/// What the model reads of a candidate. Names that a template does not have keep these values.
struct Tile {
  double bm = 128, bn = 128, stages = 4, cm = 1, cn = 1, group = 8;
  double bk = 64;                                ///< in words of 16 bits, whatever the elements
  double consumers = 1;                          ///< warpgroups that multiply with wgmma
  double warps_m = 0, warps_n = 0, warps_k = 1;  ///< mma.sync templates alone
  double align = 8;                              ///< elements of the widest copy of both operands
  bool persistent = false;
  bool promoted = false;  ///< sums of each stage are added outside of the tensor cores
  bool overlap = false;   ///< a tile is stored while the next one is multiplied
  bool late = false;      ///< a tile is activated while the next one is multiplied
  bool pingpong = false;  ///< tiles end while another warpgroup multiplies the next one

  bool mma_sync() const { return warps_m > 0; }
};

Tile read_tile(const Scope& scope) {
  Tile tile;
  const auto read = [&](const char* name, double& value) {
    if (const auto found = scope.find(name)) value = static_cast<double>(*found);
  };
  read("BM", tile.bm);
  read("BN", tile.bn);
  read("BK", tile.bk);
  read("STAGES", tile.stages);
  read("CM", tile.cm);
  read("CN", tile.cn);
  read("GROUP", tile.group);
  read("WARPS_M", tile.warps_m);
  read("WARPS_N", tile.warps_n);
  read("WARPS_K", tile.warps_k);
  double align_b = tile.align;
  read("ALIGN_A", tile.align);
  read("ALIGN_B", align_b);
  tile.align = std::min(tile.align, align_b);
  read("CONSUMERS", tile.consumers);
  double persistent = 0, promoted = 0, overlap = 0, late = 0, pingpong = 0;
  read("PERSISTENT", persistent);
  read("PROMOTED", promoted);
  read("OVERLAP", overlap);
  read("LATE", late);
  read("PINGPONG", pingpong);
  tile.persistent = persistent != 0;
  tile.promoted = promoted != 0;
  tile.overlap = overlap != 0;
  tile.late = late != 0;
  tile.pingpong = pingpong != 0;
  return tile;
}

/// What work takes that occupies several units: none runs at its rate where another is nearly as
/// busy.
template <typename... Us>
double together(Us... us) {
  return std::pow((std::pow(us, kTogether) + ...), 1 / kTogether);
}

/// Clocks that one k-stage of one tile keeps the busiest unit of an SM, where `resident` blocks
/// share it and the L2 gives `l2_rate` bytes per clock.
double stage_clocks(const Tile& t, double element, double tensor_rate, double l2_rate,
                    double resident, bool whole_lines) {
  const bool lone = !t.mma_sync() && t.bm == 64 && !t.pingpong && resident < 2;
  const double row_bytes = t.bk * 2;
  const double flops = 2 * t.bm * t.bn * row_bytes / element;
  const double stage_bytes = (t.bm + t.bn) * row_bytes;
  double tensor = flops / tensor_rate;
  double smem = stage_bytes / kSmemBytesPerClock;
  double overhead = 20;
  if (t.mma_sync()) {
    // Every warp reads its own rows and columns of the stage through ldmatrix.
    smem += (t.bm * t.warps_n + t.bn * t.warps_m) * row_bytes / kSmemBytesPerClock;
    overhead = 80 / resident;  // a barrier of the block, and the addresses of its copies
  } else {
    // wgmma reads b once per 64 rows of a.
    tensor *= lone ? kLoneSlack : 1.03;
    smem = std::max(smem, row_bytes / 32 * (t.bm / 64) * (16 + t.bn / 4));
    if (t.promoted) {  // a warpgroup adds one register a clock while the others multiply
      const double blocks = t.bm / 64 / t.consumers;
      tensor = std::max(tensor, tensor / t.consumers + blocks * (kPromoteClocks + t.bn / 2));
    }
  }
  const double l2 =
      (t.bm / t.cn + t.bn / t.cm) * row_bytes / l2_rate * (whole_lines ? 1 : kSplitLines);
  // A short ring waits for its loads; blocks on the same SM wait at the same time.
  const double wait = (kLoadLatencyClocks + l2) / (std::max(t.stages - 1, 1.0) * resident);
  // Multicast saves L2 reads and costs the blocks of a cluster waiting for each other, where no
  // second wgmma of the stage is there to go on with.
  const bool single = !t.mma_sync() && t.bm <= 64 * t.consumers;
  if (single) overhead += kSharedBClocks * (t.cm - 1) + kSharedAClocks * (t.cn - 1);
  const double clocks = std::max({tensor, smem, l2, wait}) + overhead;
  return t.align == 1 ? kSingleElements * clocks : clocks;
}

/// Whether rows start at lines of the L2; those of copies, which tensor maps then address, do.
bool whole_lines(const Candidate& candidate) {
  const auto& maps = candidate.plan.tensor_maps;
  const auto is_whole = [&](const char* pitch) {
    const Scope& scope = candidate.scope;
    return scope.find(pitch).value_or(1) * scope.find("dtype_bytes").value_or(2) % 128 == 0;
  };
  return (is_whole("lda") && is_whole("ldb")) ||
         std::any_of(maps.begin(), maps.end(), [](const TensorMapPlan& map) {
           return map.workspace != TensorMapPlan::kInTensor;
         });
}

/// What launches in front take that copy tensors for the tensor maps of the product.
double copies_us(const Candidate& candidate, const DeviceProfile& profile) {
  double bytes = 0;
  for (const TensorMapPlan& map : candidate.plan.tensor_maps) {
    if (map.workspace == TensorMapPlan::kInTensor) continue;
    bytes += static_cast<double>(candidate.plan.workspaces[map.workspace].bytes);
  }
  return bytes > 0 ? kCopyStartUs + 2 * bytes / (kMemoryShare * profile.dram_gbps * 1e3) : 0;
}

/// What blocks lose that start before the kernel ahead has ended, since they go where there is
/// room: neighbours no longer ask for the same lines at the same time, unless a cluster keeps them
/// together or the L2 holds both operands, and several blocks of a multiprocessor are not spread
/// evenly.
double scattering(const Candidate& candidate, const DeviceProfile& profile) {
  if (!candidate.plan.launches.front().programmatic) return 1;
  const Scope& scope = candidate.scope;
  const auto value = [&](const char* name) {
    return static_cast<double>(scope.find(name).value_or(1));
  };
  const double operands = value("batch") * (value("m") + value("n") * value("STACK")) * value("k") *
                          value("dtype_bytes");
  const double cluster = value("CM") * value("CN") * value("SPLIT");
  const auto resident = scope.find("BLOCKS");  // several of them, where a template counts them
  const double blocks = resident ? static_cast<double>(*resident) : value("TILES") * cluster;
  const bool crowded = blocks > static_cast<double>(profile.sm_count);
  const bool apart =
      operands > kHeld * static_cast<double>(profile.l2_bytes) && (cluster == 1 || crowded);
  const bool uneven = resident && crowded;
  return apart || uneven ? kScattered : 1;
}

/// What a kernel takes that reads an operand of many rows once for the few rows of the other, with
/// `in_flight` bytes of it under way per block: the start of the memory, and the operand over the
/// rate that its blocks keep up together.
double predict_one_pass_us(const Candidate& candidate, const DeviceProfile& profile,
                           double in_flight) {
  const Scope& scope = candidate.scope;
  const auto value = [&](const char* name, double missing) {
    const auto found = scope.find(name);
    return found ? static_cast<double>(*found) : missing;
  };
  const double m = value("FEW", value("m", 1)), n = value("MANY", value("n", 1)), k = value("k", 1);
  const double element = value("dtype_bytes", 2);
  const double split = value("SPLIT", 1), slices = value("SLICES", 1);
  const double stack = value("STACK", 1);  // matrices of n rows
  const double batch = value("batch", 1);
  const double bm = value("BM", 8), bn = value("BN", 64);
  const double cm = value("CM", 1);
  const bool wgmma = scope.find("STAGES").has_value();  // through a ring, else mma.sync
  const double tiles_m = std::ceil(m / bm / cm) * cm, tiles_n = std::ceil(n / bn);
  const double blocks = batch * tiles_m * tiles_n * split * slices;
  const auto sms = static_cast<double>(
      std::max<std::int64_t>(profile.sms_for_clusters(static_cast<std::int64_t>(split)), 1));
  const auto registers = scope.find("REGISTERS").value_or(0);
  const auto resident = static_cast<double>(resident_blocks(candidate, profile, registers));

  const double bytes = batch * ((m * k + stack * n * k) * element + m * n * value("out_bytes", 2));
  const double memory_rate = kMemoryShare * profile.dram_gbps * 1e3;
  const double clock_mhz = profile.sm_clock_mhz;
  // The rate that the bytes in flight allow, and the memory's, without a corner between them. Tiles
  // along m ask for the same bytes at the same time. Without a ring a warp's loads run out before
  // it asks for the next. Of a large part of all that is asked for at once the last comes late.
  const double kept = wgmma ? 1 : 0.5;
  const auto slowdown = [&](double running) {
    const double flying = running * in_flight / tiles_m;
    const double ask = kept * flying / kLatencyUs / memory_rate;
    return std::pow(1 + std::pow(ask, -4), 0.25) +
           kLate * std::pow(std::min(flying / bytes, 1.0), 3);
  };
  // Blocks left over for a last wave have less in flight, the earlier ones of them not alone.
  const double places = sms * resident;
  const double waves = std::ceil(blocks / places);
  const double last = blocks - (waves - 1) * places;
  const double steady = slowdown(std::min(blocks, places));
  const double tail = kAlone * last / blocks * (slowdown(last) - steady);
  const double reading_us = bytes / memory_rate * (steady + tail);
  const double restart_us = (waves - 1) * kTileStartClocks / resident / profile.sm_clock_mhz;

  const double active = std::min(blocks, sms);
  const double busiest = std::ceil(blocks / sms) * active / blocks;
  const double l2_rate = kL2BytesPerClockPerSm * active * clock_mhz;
  const double l2_us = batch * (tiles_m / cm * n * stack + tiles_n * m) * k * element / l2_rate *
                       (whole_lines(candidate) ? 1 : kSplitLines);
  // A wgmma of 64 rows by bm and 32 bytes of k takes bm / 2 clocks, its operands 16 + bm / 4, and
  // what was loaded for it passes the shared memory once more.
  const double products = batch * tiles_m * std::ceil(tiles_n * bn / (wgmma ? 64 : 8)) * stack *
                          std::ceil(k * element / 32);
  const double smem = 16 + bm / 4 + 16 * (1 + bm / bn);
  const double product = wgmma ? std::max(bm / 2 * kTensorSlack, smem) : kMmaClocks;
  const double tensor_us = products * product / (active * clock_mhz);
  const double sent = bm * bn * stack * 4 * (split - 1) / split;
  const double exchange_us =
      split > 1 ? kExchangeUs * (1 + split / 16) + sent / kSentPerClock / profile.sm_clock_mhz : 0;
  const double left = slices * batch * tiles_m * bm * tiles_n * bn * stack * 4;
  const double finish_us = slices > 1 ? kFinishUs + kSliceUs * slices + 2 * left / l2_rate : 0;
  // A short ring waits for its loads; blocks on the same SM wait at the same time. Without a ring
  // the warps, which share k, wait for every batch.
  const double depth = value("BATCH_K", value("BK", 64) * 2 / element) * value("WARPS", 1);
  const double steps = std::ceil(k / depth / (split * slices));
  const double per_sm = std::max(blocks / sms, 1.0);
  const double latency_us = kLoadLatencyClocks / clock_mhz;
  const double wait_us = (per_sm * steps * latency_us + l2_us) /
                         (std::max(value("STAGES", 2) - 1, 1.0) * std::min(resident, per_sm));
  return kMemoryStartUs +
         together(reading_us, std::max(l2_us * busiest, wait_us), tensor_us * busiest) +
         restart_us + exchange_us + finish_us;
}

/// What a kernel of tiles takes: clocks of a tile's steps and end, times the tiles of an SM,
/// against the memory and the power limit.
double predict_tiles_us(const Candidate& candidate, const DeviceProfile& profile) {
  const Scope& scope = candidate.scope;
  const auto dim = [&](const char* name) {
    return static_cast<double>(scope.find(name).value_or(1));
  };
  const double m = dim("m");
  const double stack = static_cast<double>(scope.find("STACK").value_or(1));
  const double n = dim("n") * stack;  // rows of b
  const double k = dim("k");
  const double batch = dim("batch");
  const double element = static_cast<double>(scope.find("dtype_bytes").value_or(2));
  const Tile t = read_tile(scope);
  const auto sms = static_cast<double>(std::max<std::int64_t>(profile.sm_count, 1));
  const double clock_mhz = profile.sm_clock_mhz;

  // Per SM and clock the hardware does a power of two; the datasheet's rate is at another clock.
  const double dense = profile.dense_16bit_tflops * 1e6 / (sms * profile.sm_clock_mhz);
  double tensor_rate = std::exp2(std::round(std::log2(std::max(dense, 1.0))));
  // That of other types; mma.sync gets fp8 widened.
  const double narrow = t.mma_sync() ? std::min(1.0, 2 / element) : 2 / element;
  tensor_rate *= t.mma_sync() ? mma_sync_share(profile.sm_arch) * narrow : narrow;

  const double tiles_m = std::ceil(std::ceil(m / t.bm) / t.cm) * t.cm;
  const double tiles_n = std::ceil(std::ceil(n / t.bn) / t.cn) * t.cn;
  const double tiles = batch * tiles_m * tiles_n;
  const double cluster = t.cm * t.cn;
  const double slots = std::max(std::floor(sms / cluster) * cluster, cluster);
  const double active = std::min(tiles, slots);
  const double per_sm = std::ceil(tiles / active);
  const auto fitting = static_cast<double>(resident_blocks(candidate, profile, 0));
  const double resident = t.persistent ? 1 : std::min(fitting, per_sm);

  const double steps = std::ceil(k * element / (t.bk * 2));
  const bool whole = whole_lines(candidate);
  const bool merged = !t.mma_sync() && whole && tiles_m > 1;
  const double l2_rate =
      std::min(merged ? kMergedPortBytesPerClock : kL2PortBytesPerClock,
               (merged ? kMergedBytesPerClockPerSm : kL2BytesPerClockPerSm) * sms / active);
  const double stage = stage_clocks(t, element, tensor_rate, l2_rate, resident, whole);

  double epilogue = 600 + t.bm * t.bn / kStoredPerClock;
  if (t.warps_k > 1) epilogue += 300 + (t.warps_k - 1) * t.bm * t.bn * 8 / kSmemBytesPerClock;
  const bool activated = scope.find("activation") != scope.find("activation_none");
  const double activation = activated ? t.bm * t.bn / stack / kActivatedPerClock : 0;
  const double body = steps * stage;
  double clocks = kPrologueClocks + (cluster > 1 ? kMeetClocks : 0);
  if (t.pingpong) {
    clocks += per_sm * body + epilogue + activation;
  } else if (t.persistent) {
    clocks += per_sm * (body + (t.overlap ? kOverlapped : 1) * epilogue);
    clocks += (t.late ? 1 : per_sm) * activation;
  } else {
    // Start and end of a block hide behind the others on its SM.
    clocks += per_sm * body + (per_sm / resident) * (epilogue + activation) +
              (std::ceil(per_sm / resident) - 1) * kTileStartClocks / resident;
  }
  const double sm_us = clocks / clock_mhz;

  // Inputs are read again by every wave of tiles, unless they stay in the L2.
  const double inputs = batch * (m * k + n * k) * element;
  double traffic = inputs;
  if (inputs > 0.5 * static_cast<double>(profile.l2_bytes)) {
    const double rows = std::min(t.group, tiles_m);
    const double wave = (rows * t.bm + std::ceil(active / rows) * t.bn) * k * element;
    traffic = std::max(inputs, tiles / active * wave);
  }
  traffic += batch * m * dim("n") * static_cast<double>(scope.find("out_bytes").value_or(2));
  const double memory_us = traffic / (kTileMemoryShare * profile.dram_gbps * 1e3);

  // At the power limit the tile wins that moves the fewest bytes for what it multiplies: to an SM
  // and, of b once per 64 rows of a, to the tensor cores.
  const double flops = batch * 2 * m * n * k;
  const double moved = 1 / t.bm + 1 / t.bn + 1 / std::min(t.bm, 64.0) + 1 / t.bn;
  const double energy = 1 + kMovedEnergy * moved + kMemoryEnergy * traffic * narrow / flops;
  const double roof_us = flops * energy / (kPowerShare * narrow * profile.dense_16bit_tflops * 1e6);
  // The power limit lowers the clock f, and with it the energy by f squared: what takes s at full
  // clock and r with the energy it takes there takes s / f = r f^2. Multiprocessors without a tile
  // let the others run faster.
  const double limited_us = sm_us * std::cbrt(std::max(roof_us / sm_us, 1.0));
  return kMemoryStartUs + together(limited_us, memory_us);
}

}  // namespace

double predict_matmul_us(const Candidate& candidate, const DeviceProfile& profile) {
  const auto in_flight = candidate.scope.find("IN_FLIGHT_BYTES");
  const double us = in_flight
                        ? predict_one_pass_us(candidate, profile, static_cast<double>(*in_flight))
                        : predict_tiles_us(candidate, profile);
  return us * scattering(candidate, profile) + copies_us(candidate, profile);
}

}  // namespace kernwright::detail
