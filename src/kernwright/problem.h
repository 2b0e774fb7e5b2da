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

/// An operation at one shape: dims, dtypes and flags by name. It is a plain value. A service (or
/// `Operation::normalize`) checks whether the operation exists and accepts these values.
class KERNWRIGHT_API Problem {
 public:
  using Dims = std::vector<std::pair<std::string, std::int64_t>>;
  using Flags = std::vector<std::pair<std::string, std::string>>;

  /// `dims` are in elements. `flags` holds dtypes, `{"dtype", "bf16"}`, and flags alike.
  static Problem make(std::string operation, Dims dims, Flags flags = {});

  /// Reads the command-line form, `matmul m=4096 n=6144 k=4096 dtype=bf16`. A value of digits alone
  /// is a dim. Errors: `invalid_argument`, which names the word that is not `name=value`.
  static Result<Problem> parse(std::string_view text);

  const std::string& operation() const { return operation_; }
  const Dims& dims() const { return dims_; }
  const Flags& flags() const { return flags_; }

  /// Returns a copy with the flag or dtype `name` set to `value`.
  Problem with(std::string name, std::string value) const;

  /// Returns the command-line form, in the order in which the values were given. The text of a
  /// normalised problem is its canonical text.
  std::string text() const;

  friend bool operator==(const Problem& a, const Problem& b) {
    return a.operation_ == b.operation_ && a.dims_ == b.dims_ && a.flags_ == b.flags_;
  }

 private:
  std::string operation_;
  Dims dims_;
  Flags flags_;
};

/// The sizes of a matrix product D[m,n] = A[m,k] * B[n,k]^T.
struct MatmulSize {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// Returns `matmul` with inputs and output of `dtype`, accumulated in fp32.
KERNWRIGHT_API Problem matmul(MatmulSize size, DType dtype);

/// Returns `rmsnorm` over the last dim of [rows, columns], with a weight of [columns].
KERNWRIGHT_API Problem rmsnorm(std::int64_t rows, std::int64_t columns, DType dtype);

/// Returns `vector_add` of n elements.
KERNWRIGHT_API Problem vector_add(std::int64_t n, DType dtype);

}  // namespace kernwright
