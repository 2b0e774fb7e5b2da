#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

/// One product d[m,n] = a[m,k] * b[n,k]^T, row-major, 16-bit in and out, accumulated in fp32, by
/// every algorithm that the library's heuristic returns for it, its first choice first.
class CublasLtMatmul {
 public:
  /// Asks for 32 algorithms. `dtype` is bf16 or fp16. Errors: `unavailable` where there is none.
  static Result<std::unique_ptr<const CublasLtMatmul>> make(std::shared_ptr<const CublasLt> library,
                                                            const MatmulSize& size, DType dtype,
                                                            std::int64_t workspace_bytes);
  virtual ~CublasLtMatmul() = default;

  virtual int algorithms() const = 0;

  /// Enqueues on `stream` (a CUstream), which may be capturing. `workspace` holds the bytes given
  /// to `make`. Pointers are aligned to 256 bytes.
  virtual Result<void> launch(void* stream, int algorithm, DevicePointer a, DevicePointer b,
                              DevicePointer d, DevicePointer workspace) const = 0;
};

}  // namespace kernwright
