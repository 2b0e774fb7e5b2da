#pragma once

#include <string>
#include <string_view>

#include "cache/records/family_record.h"
#include "cache/records/record.h"
#include "compile/compile_request.h"
#include "support/hash.h"
#include "support/text.h"

namespace kernwright {

/// The key of a matmul with `m` rows.
inline RecordKey sample_key(int m) {
  return {concat("matmul m=", m, " n=6144 k=4096 dtype=bf16"), "sm_90", "h200", {}};
}

/// A record with every field set, to values that text does not keep by itself.
inline TuningRecord sample_record(int m) {
  TuningRecord record;
  record.key = sample_key(m);
  record.environment = {"template-1", "nvrtc 13.0 abcd", "580.65.06", "0.1.0"};
  record.winner = {
      {"matmul/persistent_wave", Configuration({{"STAGES", 4}, {"BM", 128}, {"GROUP", -8}})},
      digest_of("winner").hex(),
      {{255.1, 0.1 + 0.2, 1.0 / 3, 5e-324, 1.7976931348623157e308, 250.0}},
      247.25,
      {.resources = {168, 0, 4, 16, 1024, 3}}};
  record.winner.measurement.sm_mhz = {1755, 1980.5, 0, 1, 2, 3};
  record.winner.traits.smem_bytes = 199680;
  record.winner.traits.workspace_bytes = 1 << 20;
  record.winner.launch_gap_us = 1.0 / 7;
  record.winner.traits.is_incumbent = true;
  record.winner.tied = true;
  record.winner.traits.deterministic = false;
  record.winner.traits.warned = true;
  record.winner.in_blocks = true;
  record.runners_up = {{{"matmul/tiled", Configuration({{"BM", 64}})},
                        digest_of("second").hex(),
                        {{261.5, 262.5}},
                        300.5,
                        {}},
                       {{"matmul/tiled", Configuration()}, "", {}, 0, {}}};
  record.runners_up.front().slowdown = {0.012, 0.0045, 0.1 + 0.2};
  record.runners_up.front().traits.is_default = true;
  record.baseline = record.runners_up.front();
  record.runners_up.back().traits.is_predicted = true;
  record.check = {0.125, 2, 25165824, "d[3,17]: 0.5 != 0.25", true, true, true, 50, false, true};
  record.trust = Trust::b;
  record.audit.rows = {{"power_cap", Trust::b, "600 W, 700 W by default"}, {"mig", Trust::a, ""}};
  record.verdict = Verdict::tie;
  record.rounds = {{100.5, 101}, {33.25, 1.0 / 3}, {1, 7}, 3};
  record.launch_paths = {{{KernelPath::stream, 3.25, 1.0 / 3}, {KernelPath::graph, 1.5, 5.125}},
                         KernelPath::graph};
  record.search = {"portfolio", 0xffffffffffffffff, 3, 80, 2, 24, 5, "budget", 0.02};
  record.settle_ms = 412.5;
  record.idle_seconds = 1.25;
  record.longest_idle_ms = 17.5;
  record.candidates = 412;
  record.measured = 96;
  record.device_name = "NVIDIA H200 \"\xc3\xa9\"";
  record.device_uuid = "GPU-1";
  record.roofline_us = 208.4;
  record.wall_seconds = 61.5;
  record.created = "2026-11-20T10:11:12Z";
  CounterSet counted;
  counted.choice = record.winner.choice;
  counted.version = "13.0";
  counted.passes = 4;
  counted.kernels = {{"persistent_wave",
                      {132, 1, 1},
                      {judged(kTimeCounter, 251'500), judged(kDramShareCounter, 12.5),
                       judged(kTensorShareCounter, 90.25), judged(kIssueCounter, 20.5),
                       judged(kL2HitCounter, 103.9)}}};
  record.counters = {counted};
  return record;
}

/// A family of matmuls of 1 to `last` rows, with every field set.
inline FamilyRecord sample_family(int last) {
  FamilyRecord family;
  family.head.key = sample_key(1);
  family.head.key.problem = concat("matmul m=1..", last, " n=6144 k=4096 dtype=bf16");
  family.head.environment = {"", "nvrtc 13.0 abcd", "580.65.06", "0.1.0"};
  family.head.trust = Trust::b;
  family.head.kernels = {
      {{"matmul/persistent_wave", Configuration({{"STAGES", 4}, {"GROUP", -8}})},
       "template-1",
       digest_of("winner").hex()},
      {{"matmul/tiled", Configuration({{"BM", 64}})}, "template-2", digest_of("second").hex()}};
  // The second kernel up to 64 rows, then the first.
  family.head.table = {{0, -1, -1}, {64, 0, 0}, {2, 0, 1}, {1, 0, 0, 1}};
  family.head.regret = {7, 1.0 / 3, 0.1 + 0.2, 5e-324};
  family.head.created = "2026-11-20T10:11:12Z";
  family.tried = {family.head.kernels[0].choice,
                  family.head.kernels[1].choice,
                  {"matmul/tiled", Configuration({{"BM", 128}})}};
  family.matrix = {{{1}, {12.5, 1.0 / 3, 0}, 0.1 + 0.2}, {{8192}, {255.1, 312, 301}, 0.001}};
  family.validation = {{{17}, {0, 0.75, 0.875}, 1.7976931348623157e308}};
  family.random_seed = 0xffffffffffffffff;
  family.audit.rows = {{"power_cap", Trust::b, "600 W, 700 W by default"}, {"mig", Trust::a, ""}};
  family.device_name = "NVIDIA H200 \"\xc3\xa9\"";
  family.device_uuid = "GPU-2";
  family.wall_seconds = 301.5;
  return family;
}

/// A kernel with every field set; its bits hold zeros and newlines.
inline CompiledKernel sample_kernel(std::string_view name) {
  CompiledKernel kernel;
  kernel.bits = concat(std::string("\x7f"
                                   "ELF\0\n\xff\n",
                                   8),
                       name, '\n');
  kernel.target = "sm_90a";
  kernel.entries = {{"main_loop", {168, 0, 4, 16, 1024, 3}}, {"reduce", {}}};
  kernel.warnings = {"wgmma serialised in \"main_loop\""};
  kernel.log = "line 1\nline 2\n";
  kernel.seconds = 0.1 + 0.2;
  return kernel;
}

}  // namespace kernwright
