#pragma once

#include <gtest/gtest.h>
#include <string>
#include <string_view>

#include "model/candidate/device_profile.h"
#include "model/candidate/kernel_template.h"
#include "model/catalog/manifest.h"
#include "model/catalog/operation_reader.h"
#include "model/operation/operation.h"
#include "tests/results.h"

namespace kernwright {

/// An operation with one of everything: d[m, n] = a[m, n] * w[n] + alpha, w left out by a flag.
inline constexpr std::string_view kScaleOperation = R"json({
  "operation": "scale",
  "description": "d[m,n] = a[m,n] * w[n] + alpha",
  "dims": {"m": {"bind": "bucket"}, "n": {"bind": "exact"}},
  "dtypes": {"dtype": ["bf16", "fp32"]},
  "flags": {"weight": {"values": ["none", "scale"], "default": "scale"}},
  "tensors": [
    {"name": "a", "role": "in", "dtype": "dtype", "extent": ["m", "n"]},
    {"name": "w", "role": "in", "dtype": "fp32", "extent": ["n"], "alignment": 32, "when": "weight == weight_scale"},
    {"name": "d", "role": "out", "dtype": "dtype", "extent": ["m", "n"]}
  ],
  "scalars": [{"name": "alpha", "dtype": "fp32", "default": 0.5}],
  "inputs": {"timing": "normal", "exact": "small_integers"},
  "tolerance": {"reduction": "2", "accumulate": "fp32"},
  "flops": "2 * m * n",
  "bytes": "2 * m * n * dtype_bytes",
  "example": {"m": 64, "n": 256, "dtype": "bf16"},
  "reference": {
    "kernel": "scale_reference",
    "grid": ["ceil_div(n, 256)", "m"], "block": ["256"],
    "arguments": [{"tensor": "a"}, {"tensor": "w"}, {"reference": "d"}, {"magnitude": "d"}, {"int64": "n"}, {"scalar": "alpha"}]
}
})json";

/// A template of it with one of everything.
inline constexpr std::string_view kScaleManifest = R"json({
  "operation": "scale",
  "description": "boxes of rows",
  "source": "kernel.cu",
  "arch": {"min": 90, "max": 90, "specific": true},
  "when": ["n % 8 == 0"],
  "dims": {"m": "runtime", "n": "constant"},
  "parameters": {
    "ROWS": [1, 8, 64],
    "STAGES": {"values": [2, 4], "bind": "compile"},
    "GROUP": {"values": [1, 4], "bind": "runtime"}
  },
  "default": {"ROWS": 8, "STAGES": 2, "GROUP": 4},
  "derived": {
    "SMEM_BYTES": "STAGES * ROWS * n * dtype_bytes",
    "tiles": "ceil_div(m, ROWS)"
  },
  "rules": [
    {"rule": "SMEM_BYTES <= smem_per_block_optin", "why": "the ring must fit"},
    {"rule": "ROWS * STAGES <= 128", "why": "no more rows in flight"}
  ],
  "spill_bytes": 8,
  "tensor_maps": {
    "map_a": {"tensor": "a", "box": ["ROWS", "64"], "swizzle": "128", "l2_promotion": "dtype_bytes == 2 ? 128 : 256"},
    "map_w": {"tensor": "w", "box": ["64"], "swizzle": "none"}
  },
  "workspace": {"counters": {"bytes": "GROUP * 4", "zeroed": "1"}},
  "launches": [
    {
      "kernel": "scale_boxes",
      "grid": ["min(tiles, sm_count)"], "block": ["128"], "cluster": ["1"],
      "dynamic_smem": "SMEM_BYTES",
      "arguments": [{"tensor_map": "map_a"}, {"tensor_map": "map_w"}, {"tensor": "w"}, {"tensor": "d"},
                    {"int32": "m"}, {"int64": "m * n", "name": "elements"}, {"scalar": "alpha"}, {"workspace": "counters"}]
    },
    {"kernel": "scale_tail", "grid": ["1"], "block": ["32"], "when": "m % ROWS != 0", "arguments": [{"int32": "GROUP"}]}
  ]
})json";

/// Its derived value `tiles`, as it is there and bound at compile time.
inline constexpr std::string_view kTiles = R"json("tiles": "ceil_div(m, ROWS)")json";
inline constexpr std::string_view kBoundTiles =
    R"json("tiles": {"value": "ceil_div(m, ROWS)", "bind": "compile"})json";

/// `text` with the first `from`, which must be there, replaced.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string changed(text);
  const std::size_t at = changed.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) changed.replace(at, from.size(), to);
  return changed;
}

inline Operation scale_operation() {
  return must(parse_operation(kScaleOperation, "scale/operation.json", "// reference"));
}

inline KernelTemplate scale_template(const Operation& operation,
                                     std::string_view manifest = kScaleManifest) {
  KernelTemplate made =
      must(parse_manifest(manifest, "scale/boxes/manifest.json", "scale/boxes", operation));
  made.source = "// kernel";
  return made;
}

inline Problem scale_problem(std::int64_t m, std::int64_t n, std::string dtype = "bf16") {
  return Problem::make("scale", {{"m", m}, {"n", n}}, {{"dtype", std::move(dtype)}});
}

inline DeviceProfile h200() { return find_profile("h200").value(); }

/// A text of a sample, what takes its place, and how that is refused.
struct Refused {
  const char* from;
  const char* to;
  const char* message;
};

}  // namespace kernwright
