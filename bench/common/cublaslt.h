#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// cuBLASLt (libcublasLt.so.13 or .12, by dlopen) as a peer to measure against. Declares of its ABI
/// just what a matrix product needs.
class CublasLt {
 public:
  /// A context must be current, here and for all that is made with it. Errors: `unavailable` with
  /// what each attempt to load said, or the library's status.
  static Result<std::shared_ptr<const CublasLt>> open();
  virtual ~CublasLt() = default;

  /// As the library counts it, 130100 for 13.1.
  virtual std::size_t version() const = 0;
};

/// The dtypes of a product's operands and accumulator: bf16, fp16, fp8_e4m3 or fp32; a result of 16
/// bits or fp32.
struct CublasLtTypes {
  DType operands = DType::bf16;
  DType result = DType::bf16;
  bool fast = false;  ///< sums of fp8 products may stay in the tensor cores
  bool tf32 = false;  ///< fp32 operands may be rounded to tf32
  /// fp8 operands whose blocks have scales in fp32: [ceil(k / 128), m] of a, and [ceil(n / 128),
  /// ceil(k / 128)] of b, with rows as many apart, rounded up to a multiple of 4
  bool block_scales = false;
};

/// Addresses of the operands' scales, if they have some.
struct CublasLtScales {
  DevicePointer a = 0, b = 0;
};

/// One product d[m,n] = a[m,k] * b[n,k]^T, row-major, accumulated in fp32, by every algorithm that
/// the library's heuristic returns for it, its first choice first.
class CublasLtMatmul {
 public:
  /// Asks for 32 algorithms. Errors: `unavailable` if there is none.
  static Result<std::unique_ptr<const CublasLtMatmul>> make(std::shared_ptr<const CublasLt> library,
                                                            const MatmulSize& size,
                                                            const CublasLtTypes& types,
                                                            std::int64_t workspace_bytes);
  virtual ~CublasLtMatmul() = default;

  virtual int algorithms() const = 0;

  /// Returns the library's description of an algorithm, in the numbers of its own enumerations:
  /// "id=66 tile=411 stages=35 cluster=3 split_k=1 reduction=0 swizzle=0 custom=2".
  virtual Result<std::string> describe(int algorithm) const = 0;

  /// Enqueues on `stream` (a CUstream), which may be capturing. `workspace` holds the bytes given
  /// to `make`. Pointers are aligned to 256 bytes.
  virtual Result<void> launch(void* stream, int algorithm, DevicePointer a, DevicePointer b,
                              DevicePointer d, DevicePointer workspace,
                              const CublasLtScales& scales = {}) const = 0;
};

}  // namespace kernwright
