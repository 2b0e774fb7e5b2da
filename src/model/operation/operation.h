#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/expression/expression.h"
#include "model/expression/formula.h"
#include "model/expression/rule.h"
#include "model/files/device_header.h"
#include "model/operation/draw.h"
#include "model/operation/launch_spec.h"
#include "model/operation/unfused.h"
#include "model/operation/user_function.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// How values of a dim that were never tuned may be answered (see the cache's lookup).
enum class DimMatch { exact, bucket };

/// A dim matched by bucket is answered by the nearest tuned size of the same family whose ratio to
/// it is at most `distance`. `edges` are the largest sizes of all families but the last. A dim with
/// a `default_size`, over flags, dtypes and the dims before it, may be left out of a problem.
struct Dim {
  std::string name;
  DimMatch match = DimMatch::exact;
  std::vector<std::int64_t> edges = {};
  double distance = 1;
  std::optional<Expression> default_size = {};

  /// The ordinal of the family that `size` belongs to.
  std::size_t family(std::int64_t size) const;
};

/// A type variable and the dtypes it may take. Left out of a problem, it takes that of
/// `default_variable`, which stands before it; where that is empty it has to be given.
struct TypeVariable {
  std::string name;
  std::vector<DType> dtypes;
  std::string default_variable;
};

/// A choice among `values`, or, where `variables` are given, a formula over these that every
/// problem has to bring along. Where there is a `declaration` the one value is "none", and a
/// problem may bring a function along in its place.
struct Flag {
  std::string name;
  std::vector<std::string> values;  ///< identifiers; none of a formula
  std::int64_t default_index = 0;   ///< of a choice
  std::vector<std::string> variables;
  std::string declaration;  ///< "float f(float x)": of the function that a file has to define

  bool is_formula() const { return !variables.empty(); }
  bool is_function() const { return !declaration.empty(); }
  /// The name under which kernels include the source of its function.
  std::string header() const { return name + ".cu"; }
};

enum class TensorRole { in, out, inout };

/// A draw of a tensor's own, whose numbers may depend on the problem.
struct TensorDraw {
  using Number = std::variant<double, Expression>;

  DrawKind kind = DrawKind::normal;
  Number from = 0.0;
  Number to = 0.0;
};

/// A row-major tensor, whose rows, the innermost extent, may lie apart. Its dtype is that of type
/// variable `dtype_variable`, or `fixed_dtype` where that is empty.
struct Tensor {
  std::string name;
  TensorRole role = TensorRole::in;
  std::string dtype_variable;
  DType fixed_dtype = DType::fp32;
  std::vector<Expression> extent;   ///< outermost first
  std::optional<Expression> pitch;  ///< elements from row to row; none: they are contiguous
  std::int64_t alignment = 16;      ///< bytes the caller's pointer is promised to be aligned to
  std::optional<Expression> when;   ///< absent from the launch where false
  bool warm = false;                ///< an input that l2=mixed finds in the L2
  std::optional<TensorDraw> draw;   ///< of an input; none: as the operation's inputs are
};

struct Scalar {
  std::string name;
  DType dtype = DType::fp32;
  double default_value = 0;
  double checked_value = 0;        ///< what checks and timing pass
  std::optional<Expression> when;  ///< absent from the launch where false: kernels get the default
};

/// How the checker bounds the error of a correct kernel: |x - r| <= c * sqrt(reduction) * u_acc *
/// magnitude + u_out * |r|, with u_acc by `accumulate`.
struct Tolerance {
  std::optional<Expression> reduction;  ///< terms summed per output; none means 1
  DType accumulate = DType::fp32;
};

/// A tensor of one problem with its sizes known.
struct TensorShape {
  std::string name;
  TensorRole role = TensorRole::in;
  DType dtype = DType::fp32;
  std::vector<std::int64_t> extent;
  std::int64_t alignment = 16;
  bool warm = false;       ///< an input that l2=mixed finds in the L2
  std::int64_t pitch = 0;  ///< elements from row to row; 0 where they are contiguous
  Draw draw;               ///< of an input
  bool always = false;     ///< drawn so for exact tests too, because its values have a meaning

  std::int64_t columns() const { return extent.back(); }
  std::int64_t row_pitch() const { return pitch == 0 ? columns() : pitch; }
  std::int64_t elements() const;
  /// From the first element to the last: what lies between rows counts.
  std::int64_t bytes() const;
};

/// The contract of a computation, read from operation.json. Immutable; every method may be called
/// from any thread.
struct Operation {
  std::string name;
  std::string description;
  std::vector<Dim> dims;
  std::vector<TypeVariable> type_variables;
  std::vector<Flag> flags;
  std::vector<Rule> requirements;  ///< that every problem keeps
  std::vector<Tensor> tensors;
  std::vector<Scalar> scalars;
  DrawKind timing_inputs = DrawKind::normal;
  /// What makes every order of summation give the same bits; none where the result is no sum of
  /// products.
  std::optional<DrawKind> exact_inputs;
  std::optional<Expression> exact_when;  ///< of which problems that is true; none means all
  Tolerance tolerance;
  Expression flops;
  Expression bytes;                  ///< the fewest bytes device memory must move
  Problem example;                   ///< one real shape, for `make tune` and tests
  std::vector<UnfusedStep> unfused;  ///< the same as separate kernels; empty: it is one as it is
  LaunchSpec reference;
  std::string reference_source;
  std::vector<DeviceHeader> reference_headers;  ///< files beside it, which it may include
  std::string folder;                           ///< for messages
  /// That users gave, where a flag takes functions; no two have one name.
  std::vector<std::shared_ptr<const UserFunction>> functions;

  /// The problem with dims, dtypes and flags in declared order, defaults left out, formulas in
  /// normal form and functions by their digest: its `text()` is the canonical text. Errors:
  /// `invalid_argument` naming the operation, the field, the value given and those allowed.
  Result<Problem> normalize(const Problem& problem) const;

  /// The size of every dim of a normalised problem, in declared order. Of one that is not normal
  /// what it lacks is 0.
  std::vector<std::int64_t> sizes(const Problem& normalized) const;

  /// The names of a normalised problem in the expression language: dims, flags, dtypes, their
  /// value constants, `<type variable>_bytes`, and for formulas `<flag>_<variable>`, 1 where it is
  /// used.
  Scope scope(const Problem& normalized) const;

  /// The names that `scope` gives, in its order.
  std::vector<std::string> value_names() const;

  /// The formula of a flag that is one, in a normalised problem.
  Formula formula(const Problem& normalized, const Flag& flag) const;

  /// Whether a normalised problem brings a function along.
  bool takes_function(const Problem& normalized) const;

  /// The function that a normalised problem names by flag `flag`; null where it names none, or one
  /// that was not given.
  const UserFunction* function(const Problem& normalized, const Flag& flag) const;

  /// The dtype of type variable `name` in a normalised problem.
  DType dtype(const Problem& normalized, std::string_view name) const;

  /// The tensors present in a normalised problem, in declared order. Errors: an extent that
  /// overflows or is not positive; a draw that the tensor's dtype does not hold.
  Result<std::vector<TensorShape>> tensor_shapes(const Problem& normalized) const;

  /// The scalars that a normalised problem takes, in declared order. Errors: a condition that
  /// overflows.
  Result<std::vector<Scalar>> present_scalars(const Problem& normalized) const;
};

}  // namespace kernwright
