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
#include "model/operation/layout.h"
#include "model/operation/unfused.h"
#include "model/operation/user_function.h"
#include <kernwright/problem.h>
#include <kernwright/result.h>

namespace kernwright {

/// Says whether another size may answer for a size that was never tuned (see the cache's lookup).
enum class DimMatch { exact, bucket };

/// A dim of an operation. With `bucket` the nearest tuned size of the same interval may answer for
/// a size, if their ratio is at most `distance`. `edges` are the largest sizes of all intervals but
/// the last. A problem may leave out a dim that has a `default_size`, an expression over flags,
/// dtypes and the dims before it.
struct Dim {
  std::string name;
  DimMatch match = DimMatch::exact;
  std::vector<std::int64_t> edges = {};
  double distance = 1;
  std::optional<Expression> default_size = {};

  /// Returns the number of the interval of `size`.
  std::size_t interval(std::int64_t size) const;
};

/// A type variable and the dtypes that it may have. If a problem leaves it out, it has the dtype of
/// `default_variable`, which comes before it. If that is empty, it must be given.
struct TypeVariable {
  std::string name;
  std::vector<DType> dtypes;
  std::string default_variable;
};

/// A flag of an operation. It is a choice among `values`. If it has `variables`, it is a formula
/// over these, which every problem must give. If it has a `declaration`, its only value is "none",
/// and a problem may give a function in place of it.
struct Flag {
  std::string name;
  std::vector<std::string> values;  ///< identifiers; empty for a formula
  std::int64_t default_index = 0;   ///< for a choice
  std::vector<std::string> variables;
  std::string declaration;  ///< of the function that a file defines, "float f(float x)"

  bool is_formula() const { return !variables.empty(); }
  bool is_function() const { return !declaration.empty(); }
  /// Returns the name by which kernels include the source of the function.
  std::string header() const { return name + ".cu"; }
};

enum class TensorRole { in, out, inout };

/// The draw of one tensor, whose numbers may depend on the problem.
struct TensorDraw {
  using Number = std::variant<double, Expression>;

  DrawKind kind = DrawKind::normal;
  Number from = 0.0;
  Number to = 0.0;
};

/// The values that the elements of an integer tensor may have, if kernels take them for sizes or
/// places.
template <typename Number>
struct ValueRange {
  Number least;
  Number most;
  /// For offsets, which begin at `least`, end at `most` and never fall: the largest step.
  std::optional<Number> rise = {};
  bool falls = true;  ///< false for ends of segments: none is below the one before
  /// For a table: the tensor whose element for a row is how much of the row counts; an element
  /// of the table has `per` of it. Without `per`, its last element is how many elements count. If
  /// it is empty, all of them count.
  std::string counted_by = {};
  std::optional<Number> per = {};
  /// The tensor whose elements name the rows that `counted_by` has elements for; other rows do not
  /// count. Empty, or not there: it has them for all rows in order.
  std::string rows = {};
};

/// A row-major tensor, whose entries need not be contiguous in any dim. Its dtype comes from type
/// variable `dtype_variable`, or is `fixed_dtype` if that is empty.
struct Tensor {
  std::string name;
  TensorRole role = TensorRole::in;
  std::string dtype_variable;
  DType fixed_dtype = DType::fp32;
  std::vector<Expression> extent;   ///< outermost first
  std::vector<Expression> pitches;  ///< elements from entry to entry, of all dims but the last;
                                    ///< none if the tensor is contiguous
  std::int64_t alignment = 16;      ///< bytes, of the caller's pointer; an element's if more
  std::optional<Expression> when;   ///< if it is 0, the problem does not have it
  bool hint = false;                ///< an input that changes no result: kernels need not take it
  /// Elements of an inout tensor that a launch writes; none: all. If it is 0, the tensor of the
  /// problem is an input.
  std::optional<Expression> written;
  bool warm = false;                             ///< an input that l2=mixed finds in the L2
  std::optional<TensorDraw> draw;                ///< of an input; none: as the operation says
  std::optional<ValueRange<Expression>> values;  ///< of an integer input; none: any
  bool exact = true;                             ///< an output that is exact on exact inputs
  bool infinite = false;                         ///< an output that may be infinite
  std::string intermediate;  ///< the type variable that the terms of the output may be
                             ///< rounded to; empty: they are not rounded
  std::string in_place;      ///< the input whose memory the output may be; empty: none
};

struct Scalar {
  std::string name;
  DType dtype = DType::fp32;
  double default_value = 0;
  double checked_value = 0;                     ///< the value in checks and timing
  std::optional<Formula> default_formula = {};  ///< over the problem's names; for `default_value`
  std::optional<Expression>
      when;  ///< if it is 0, the problem does not have it: kernels get the default

  /// Returns the default for a problem with these values.
  double default_in(const Scope& values) const;
};

/// The bound for errors of a correct kernel: |x - r| <= c * sqrt(reduction) * u_acc * magnitude +
/// u_out * |r|, with the unit of rounding of `accumulate` as u_acc.
struct Tolerance {
  std::optional<Expression> reduction;  ///< terms summed for each output; none: 1
  DType accumulate = DType::fp32;
};

/// A value that the expressions of an operation and of its templates may name.
struct NamedValue {
  std::string name;
  Expression expression;
};

/// Kernels in a source of the operation that draw the inputs of a set. All have the launch
/// `launch`, and the scalar `kSeed` besides the scalars of the operation.
struct InputKernels {
  static constexpr std::string_view kSeed = "seed";
  static constexpr DType kSeedDtype = DType::int64;

  std::string timing;  ///< the name of the kernel
  std::string exact;   ///< empty: there is no exact set
  std::string count;   ///< empty: there is no count set
  std::string nan;  ///< empty: the NaN set is drawn by `timing`, with NaN in places of any meaning
  LaunchSpec launch;  ///< without the kernel
  std::string source_file;
  std::string source;
  std::vector<DeviceHeader> headers;  ///< files beside it, which it may include
};

/// How callers pass the tensors of an operation, so far as it does not follow from the tensors.
struct CallForm {
  /// An extent in place of any number of leading axes, such as "rows"; empty: none.
  std::string leading;
  /// Tensors that callers pass with two axes swapped, counted from the last, under a condition.
  struct Swapped {
    Expression when;
    std::vector<std::string> tensors;
    std::pair<std::size_t, std::size_t> axes;
  };
  std::optional<Swapped> swapped;
  /// Tensors whose entries callers may share along axes but the last: a size or a stride of such an
  /// axis tells that the extent is 1, as does a leading axis that is left out.
  std::vector<std::string> broadcast;
  /// The value of a flag that is tried first, if it is not the default.
  std::vector<std::pair<std::string, std::string>> first;
  /// Dims that no tensor tells, over other values and the sizes of tensors, `<tensor>_<axis>`.
  std::vector<NamedValue> dims;
  /// Dims that callers may say.
  std::vector<std::string> options;
  /// The callers' names of tensors and scalars, and of flags, if they have others.
  std::vector<std::pair<std::string, std::string>> names;
  std::vector<std::pair<std::string, std::string>> flags;
  /// Tensors of role inout that are made if they are not given.
  std::vector<std::string> made;
};

/// A tensor of one problem, with its sizes.
struct TensorShape {
  std::string name;
  TensorRole role = TensorRole::in;
  std::optional<std::int64_t> written;  ///< elements of an inout that a launch writes; none: all
  DType dtype = DType::fp32;
  std::vector<std::int64_t> extent;
  std::int64_t alignment = 16;
  bool warm = false;                  ///< an input that l2=mixed finds in the L2
  std::vector<std::int64_t> pitches;  ///< of all dims but the last; none if it is contiguous
  Draw draw;                          ///< of an input
  bool always = false;    ///< the draw holds for exact tests too, because values have a meaning
  bool exact = true;      ///< an output that is exact on exact inputs
  bool infinite = false;  ///< an output that may be infinite
  std::optional<DType> intermediate;  ///< the terms of an output may be rounded to it
  std::string in_place;               ///< the input whose memory an output may be; empty: none
  std::optional<ValueRange<std::int64_t>> values;  ///< of an integer input; none: any

  std::int64_t columns() const { return extent.back(); }
  /// Returns the elements from one entry of dim `dim` to the next.
  std::int64_t pitch(std::size_t dim) const;
  /// Returns the elements from row to row; for a tensor of one dim, the elements of a row.
  std::int64_t row_pitch() const {
    return extent.size() < 2 ? columns() : pitch(extent.size() - 2);
  }
  std::int64_t elements() const;
  Layout layout() const { return Layout::of(extent, pitches).value(); }
  /// Bytes from the first element to the last, with the gaps between entries.
  std::int64_t bytes() const { return bytes_of(layout().span(), dtype); }
};

/// Returns the bytes of all tensors together.
double total_bytes(const std::vector<TensorShape>& tensors);

/// Awkward problems of an operation, which tests, faults and sanitizers take: one text of each
/// list, in all ways.
struct OperationCase {
  std::string operation;
  std::string why;  ///< they are awkward
  std::vector<std::vector<std::string>> lists;

  /// Returns the texts of all problems.
  std::vector<std::string> all() const;
  /// Returns as many of them as the longest list has texts; each text is in one.
  std::vector<std::string> few() const;

 private:
  std::string problem(std::size_t index, bool in_all_ways) const;
};

/// The contract of a computation, as read from operation.json. Immutable; any thread may call any
/// method.
struct Operation {
  std::string name;
  std::string description;
  std::vector<Dim> dims;
  std::vector<TypeVariable> type_variables;
  std::vector<Flag> flags;
  std::vector<NamedValue> derived;  ///< each over dims, dtypes, flags and those before it
  std::vector<Rule> requirements;   ///< that every problem must obey
  std::vector<Tensor> tensors;
  std::vector<Scalar> scalars;
  DrawKind timing_inputs = DrawKind::normal;
  /// The draw with which every order of summation computes the same bits; none if the result is not
  /// a sum of products.
  std::optional<DrawKind> exact_inputs;
  std::optional<Expression> exact_when;       ///< the problems for which that is true; none: all
  std::optional<InputKernels> input_kernels;  ///< they draw all inputs, instead of the above
  Tolerance tolerance;
  Expression flops;
  Expression bytes;                    ///< the fewest bytes that memory must move
  std::optional<Expression> specials;  ///< exponentials, logarithms, tangents; none: 0
  Problem example;                     ///< one real shape, for `make tune` and tests
  std::vector<OperationCase> cases;
  std::vector<UnfusedStep> unfused;  ///< the same as separate kernels, if any
  LaunchSpec reference;
  std::string reference_source;
  std::vector<DeviceHeader> reference_headers;  ///< files beside it, which it may include
  std::string folder;                           ///< for messages
  /// The functions that users gave for a flag, with different names.
  std::vector<std::shared_ptr<const UserFunction>> functions;
  CallForm call;

  /// Returns the normalised problem: dims, dtypes and flags in declared order without those that
  /// have their default, formulas in normal form, and functions by their digest. Its `text()` is
  /// the canonical text. Errors: `invalid_argument` with the operation, the field, the given value
  /// and the allowed ones.
  Result<Problem> normalize(const Problem& problem) const;
  /// Does the same, and fills the `scope` of the result.
  Result<Problem> normalize(const Problem& problem, Scope& values) const;

  /// Returns the sizes of all dims of a normalised problem, in declared order. If the problem is
  /// not normalised, missing dims are 0.
  std::vector<std::int64_t> sizes(const Problem& normalized) const;

  /// Returns the names of a normalised problem in the expression language: dims, flags, dtypes, the
  /// constants of their values, `<type variable>_bytes`, `<flag>_<variable>`, which is 1 if a
  /// formula uses the variable, and the derived values.
  Scope scope(const Problem& normalized) const;

  /// Returns the names of dtypes and flags alone, with their constants.
  Scope flag_scope(const Problem& given) const;
  /// Returns what `scope` returns, from what `flag_scope` returned.
  Scope add_sizes(Scope values, const Problem& normalized) const;

  /// Returns the names that `scope` has, in its order.
  std::vector<std::string> value_names() const;

  /// Returns the formula of a formula flag in a normalised problem.
  Formula formula(const Problem& normalized, const Flag& flag) const;

  /// Returns whether a normalised problem has a function.
  bool takes_function(const Problem& normalized) const;

  /// Returns the function of flag `flag` in a normalised problem. Null if there is none, or its
  /// file was not given.
  const UserFunction* function(const Problem& normalized, const Flag& flag) const;

  /// Returns the dtype of type variable `name` in a normalised problem.
  DType dtype(const Problem& normalized, std::string_view name) const;

  /// Returns the tensors of a normalised problem, in declared order. Errors: an extent that
  /// overflows or is not positive; a draw outside of the range of the tensor's dtype.
  Result<std::vector<TensorShape>> tensor_shapes(const Problem& normalized) const {
    return tensor_shapes(scope(normalized));
  }
  /// Does the same for a problem with this scope.
  Result<std::vector<TensorShape>> tensor_shapes(const Scope& values) const;

  /// Returns the scalars of a problem with this scope, with their defaults, in declared order.
  /// Errors: a condition that overflows.
  Result<std::vector<Scalar>> present_scalars(const Scope& values) const;
};

}  // namespace kernwright
