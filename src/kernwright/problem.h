#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kernwright/dtype.h>
#include <kernwright/export.h>
#include <kernwright/result.h>

namespace kernwright {

/// An operation at one shape: dims, dtypes and flags by name. A plain value: whether the operation
/// exists and accepts these values is checked when a service (or `Operation::normalize`) sees it.
class KERNWRIGHT_API Problem {
 public:
  using Dims = std::vector<std::pair<std::string, std::int64_t>>;
  using Flags = std::vector<std::pair<std::string, std::string>>;

  /// `dims` in elements; `flags` holds dtypes (`{"dtype", "bf16"}`) and flags alike.
  static Problem make(std::string operation, Dims dims, Flags flags = {});

  /// Reads the command-line form, `matmul m=4096 n=6144 k=4096 dtype=bf16`. A value that is all
  /// digits is a dim. Errors: `invalid_argument` naming the word that is not `name=value`.
  static Result<Problem> parse(std::string_view text);

  const std::string& operation() const { return operation_; }
  const Dims& dims() const { return dims_; }
  const Flags& flags() const { return flags_; }

  /// A copy with the flag or dtype `name` set to `value`.
  Problem with(std::string name, std::string value) const;

  /// Command-line form in the order given. The canonical text is that of a normalised problem.
  std::string text() const;

  friend bool operator==(const Problem& a, const Problem& b) {
    return a.operation_ == b.operation_ && a.dims_ == b.dims_ && a.flags_ == b.flags_;
  }

 private:
  std::string operation_;
  Dims dims_;
  Flags flags_;
};

/// Sizes of a matrix product D[m,n] = A[m,k] * B[n,k]^T.
struct MatmulSize {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// `matmul` with 16-bit inputs and output, fp32 accumulation.
KERNWRIGHT_API Problem matmul(MatmulSize size, DType dtype);

/// `rmsnorm` over the last dim of [rows, columns], with a weight of [columns].
KERNWRIGHT_API Problem rmsnorm(std::int64_t rows, std::int64_t columns, DType dtype);

/// `vector_add` of n elements.
KERNWRIGHT_API Problem vector_add(std::int64_t n, DType dtype);

}  // namespace kernwright
