#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <string_view>

#include "support/files.h"

namespace kernwright {

/// d = a + b + c, which is two of vector_add.
inline constexpr std::string_view kSumOfThree = R"json({
  "operation": "sum_of_three", "description": "d[n] = a[n] + b[n] + c[n]",
  "dims": {"n": {"bind": "exact"}},
  "dtypes": {"dtype": ["fp32"]},
  "tensors": [
    {"name": "a", "role": "in", "dtype": "dtype", "extent": ["n"], "l2": "warm"},
    {"name": "b", "role": "in", "dtype": "dtype", "extent": ["n"]},
    {"name": "c", "role": "in", "dtype": "dtype", "extent": ["n"]},
    {"name": "d", "role": "out", "dtype": "dtype", "extent": ["n"]}
  ],
  "inputs": {"timing": "normal", "exact": "none"},
  "tolerance": {"accumulate": "fp32"},
  "flops": "2 * n", "bytes": "4 * n * dtype_bytes",
  "unfused": [
    {"problem": "vector_add n={n} dtype={dtype}", "tensors": {"a": "a", "b": "b", "c": "two"}},
    {"problem": "vector_add n={n} dtype={dtype}", "tensors": {"a": "two", "b": "c", "c": "d"}}
  ],
  "example": {"n": 64, "dtype": "fp32"},
  "reference": {
    "kernel": "sum_reference", "grid": ["1"], "block": ["32"],
    "arguments": [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "c"}, {"reference": "d"}, {"magnitude": "d"}]
  }
})json";

inline constexpr std::string_view kSumOfThreeManifest = R"json({
  "operation": "sum_of_three", "description": "test", "source": "kernel.cu", "arch": {"min": 80},
  "dims": {"n": "runtime"}, "parameters": {"A": [1]}, "default": {"A": 1},
  "workspace": {"scratch": {"bytes": "1024", "zeroed": "0"}},
  "launches": [{"kernel": "sum", "grid": ["1"], "block": ["32"],
    "arguments": [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "c"}, {"tensor": "d"}, {"workspace": "scratch"}]}]
})json";

/// Writes it into a folder of templates.
inline void write_sum_of_three(const std::filesystem::path& folder) {
  const auto write = [&](std::string_view name, std::string_view text) {
    ASSERT_TRUE(publish_file(folder / "sum_of_three" / name, text));
  };
  write("operation.json", kSumOfThree);
  write("reference.cu", "reference");
  write("plain/manifest.json", kSumOfThreeManifest);
  write("plain/kernel.cu", "kernel");
}

}  // namespace kernwright
