#include "model/operation/operation.h"

#include <algorithm>
#include <cmath>

#include "model/operation/dtype_format.h"
#include "model/operation/ranged_problem.h"
#include "support/spelling.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

template <typename Entries>
auto find_entry(const Entries& entries, std::string_view name) {
  return std::find_if(entries.begin(), entries.end(),
                      [&](const auto& entry) { return entry.first == name; });
}

Result<double> evaluate(const TensorDraw::Number& number, const Scope& values) {
  if (const auto* const known = std::get_if<double>(&number)) return *known;
  KW_ASSIGN(const std::int64_t value, std::get<Expression>(number).evaluate(values));
  return static_cast<double>(value);
}

/// Evaluates the draw of a tensor with the extents and dtype of `shape`.
Result<Draw> evaluate(const TensorDraw& draw, const TensorShape& shape, const Scope& values) {
  const auto failed = [&](const auto&... what) {
    return Error{ErrorCode::invalid_argument, concat("draw ", to_string(draw.kind), ": ", what...)};
  };
  const Result<double> from = evaluate(draw.from, values);
  if (!from) return failed(from.error().message);
  const Result<double> to = evaluate(draw.to, values);
  if (!to) return failed(to.error().message);
  const std::optional<IntegerRange> range = integer_range(shape.dtype);
  double lowest = 0;
  double highest = 0;
  switch (draw.kind) {
    case DrawKind::permutation:
    case DrawKind::offsets:
      if (!range) return failed("needs integers, not ", to_string(shape.dtype));
      highest = draw.kind == DrawKind::offsets ? *to : static_cast<double>(shape.columns() - 1);
      if (highest < 0) return failed("rises from 0, not to ", highest);
      break;
    case DrawKind::uniform:
      if (!(*from <= *to)) return failed("from ", *from, " is above to ", *to);
      lowest = *from;
      highest = *to;
      break;
    case DrawKind::constant:
      lowest = highest = *from;
      break;
    default:
      break;
  }
  if (!range) return Draw{draw.kind, *from, *to};
  for (const double end : {lowest, highest}) {
    if (end < static_cast<double>(range->lowest) || end > static_cast<double>(range->highest)) {
      return failed("reaches ", end, ", ", to_string(shape.dtype), " is drawn from ", range->lowest,
                    " to ", range->highest);
    }
    if (end != std::floor(end)) return failed(end, " is no ", to_string(shape.dtype));
  }
  return Draw{draw.kind, *from, *to};
}

Result<ValueRange<std::int64_t>> evaluate(const ValueRange<Expression>& range,
                                          const Scope& values) {
  ValueRange<std::int64_t> found{.least = 0, .most = 0};
  KW_ASSIGN(found.least, range.least.evaluate(values));
  KW_ASSIGN(found.most, range.most.evaluate(values));
  if (range.rise) {
    KW_ASSIGN(found.rise, range.rise->evaluate(values));
  }
  found.falls = range.falls;
  found.counted_by = range.counted_by;
  found.rows = range.rows;
  if (range.per) {
    KW_ASSIGN(found.per, range.per->evaluate(values));
  }
  return found;
}

/// Sets the pitches of `shape`, whose extents are known, to the pitches of `tensor`; to none if
/// there is no gap.
Result<void> place_entries(const Tensor& tensor, const Scope& values, TensorShape& shape) {
  const auto failed = [](const auto&... what) {
    return Error{ErrorCode::invalid_argument, concat(what...)};
  };
  std::int64_t entry = shape.columns();  // elements from the first to the last of one
  bool apart = false;
  std::vector<std::int64_t> pitches(tensor.pitches.size());
  for (std::size_t i = pitches.size(); i-- > 0;) {
    const std::string& text = tensor.pitches[i].text();
    KW_ASSIGN(const std::int64_t pitch, tensor.pitches[i].evaluate(values));
    if (pitch < entry) {
      const bool is_row = i + 1 == pitches.size();
      return failed("pitch \"", text, "\" is ", pitch, " < ", entry, ", the elements of ",
                    is_row ? "a row" : concat("an entry of \"", tensor.extent[i].text(), "\""));
    }
    std::int64_t bytes = 0;
    const std::int64_t size = bytes_of(1, shape.dtype);
    if (__builtin_mul_overflow(shape.extent[i] * size, pitch, &bytes)) {
      return failed(shape.extent[i] * size, " * ", pitch, " bytes overflow 64 bits");
    }
    pitches[i] = pitch;
    apart = apart || pitch != shape.pitch(i);
    entry += (shape.extent[i] - 1) * pitch;
  }
  if (!apart) return {};
  if (!Layout::of(shape.extent, pitches)) {
    return failed("there are gaps between the entries of more than ", Layout::kMaxLevels, " dims");
  }
  shape.pitches = std::move(pitches);
  return {};
}

template <typename Named>
std::string names_of(const std::vector<Named>& items) {
  std::string text;
  for (const Named& item : items) text += concat(text.empty() ? "" : ", ", item.name);
  return text.empty() ? "none" : text;
}

std::string names_of(const std::vector<DType>& dtypes) {
  std::string text;
  for (const DType dtype : dtypes) text += concat(text.empty() ? "" : ", ", to_string(dtype));
  return text;
}

std::string names_of(const std::vector<std::shared_ptr<const UserFunction>>& functions) {
  std::string text;
  for (const auto& function : functions) text += concat(text.empty() ? "" : ", ", function->name);
  return text.empty() ? "none" : text;
}

std::string names_of(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += concat(text.empty() ? "" : ", ", value);
  return text;
}

/// Returns the index of the value of `flag` in a normalised problem. For a function it is the
/// number of values.
std::int64_t flag_index(const Flag& flag, const Problem& normalized) {
  const auto given = find_entry(normalized.flags(), flag.name);
  if (given == normalized.flags().end()) return flag.default_index;
  return std::find(flag.values.begin(), flag.values.end(), given->second) - flag.values.begin();
}

/// Calls `visit` with every name of a problem except its dims, and with its value. Constants come
/// first, because expressions use them less and a scope is searched from the back. If `normalized`
/// is null all values are 0.
template <typename Visit>
void visit_names(const Operation& operation, const Problem* normalized, const Visit& visit) {
  for (const TypeVariable& variable : operation.type_variables) {
    for (const DType dtype : variable.dtypes) {
      std::string name = variable.name + '_';
      name += to_string(dtype);
      visit(std::move(name), static_cast<std::int64_t>(dtype));
    }
  }
  for (const Flag& flag : operation.flags) {
    for (std::size_t i = 0; i < flag.values.size(); ++i) {
      visit(flag.name + '_' + flag.values[i], static_cast<std::int64_t>(i));
    }
  }
  for (const Flag& flag : operation.flags) {
    if (flag.is_formula()) {
      std::optional<Formula> formula;
      if (normalized) formula = operation.formula(*normalized, flag);
      for (const std::string& variable : flag.variables) {
        visit(flag.name + '_' + variable, formula && formula->uses(variable) ? 1 : 0);
      }
    } else {
      visit(std::string(flag.name), normalized ? flag_index(flag, *normalized) : 0);
    }
  }
  for (const TypeVariable& variable : operation.type_variables) {
    const DType dtype = normalized ? operation.dtype(*normalized, variable.name) : DType::bf16;
    visit(std::string(variable.name), static_cast<std::int64_t>(dtype));
    visit(variable.name + "_bytes", bytes_of(1, dtype));
  }
}

/// Implements `Operation::normalize`, and remembers the first error.
class Normalizer {
 public:
  Normalizer(const Operation& operation, const Problem& problem)
      : operation_(operation), problem_(problem) {}

  Result<Problem> normalize() {
    if (problem_.operation() != operation_.name) {
      fail(concat("asked for \"", problem_.operation(), "\""));
    }
    check_names();
    Problem::Dims dims;
    for (const Dim& dim : operation_.dims) {
      if (const std::int64_t size = dim_of(dim); size != 0) dims.emplace_back(dim.name, size);
    }
    Problem::Flags flags;
    for (const TypeVariable& variable : operation_.type_variables) {
      std::string dtype = dtype_of(variable);
      if (dtype != default_of(variable)) flags.emplace_back(variable.name, std::move(dtype));
    }
    for (const Flag& flag : operation_.flags) {
      std::string value = flag_of(flag);
      if (flag.is_formula() || value != flag.values[static_cast<std::size_t>(flag.default_index)]) {
        flags.emplace_back(flag.name, std::move(value));
      }
    }
    if (error_.empty()) leave_defaults_out(dims, flags);
    if (!error_.empty()) return Error{ErrorCode::invalid_argument, std::move(error_)};
    return Problem::make(operation_.name, std::move(dims), std::move(flags));
  }

 private:
  void fail(std::string_view what) {
    if (error_.empty()) error_ = concat(operation_.name, ": ", what);
  }

  /// Does the same for something that the operation does not take; the message names the command
  /// that lists what it takes.
  void refuse(std::string_view what) {
    fail(concat(what, "; see kernwright operations ", operation_.name));
  }

  void check_names() {
    for (std::size_t i = 0; i < problem_.dims().size(); ++i) {
      const auto& [name, size] = problem_.dims()[i];
      const auto named = [&](const auto& item) { return item.name == name; };
      // In the text of a problem a formula of digits alone looks like a dim.
      const bool known =
          std::any_of(operation_.dims.begin(), operation_.dims.end(), named) ||
          std::any_of(operation_.flags.begin(), operation_.flags.end(),
                      [&](const Flag& flag) { return flag.is_formula() && named(flag); });
      if (!known) {
        refuse(concat("no dim ", name, "=", size, did_you_mean(name, names_in(operation_.dims)),
                      ", dims are ", names_of(operation_.dims)));
      }
      if (find_entry(problem_.dims(), name) - problem_.dims().begin() !=
          static_cast<std::ptrdiff_t>(i)) {
        fail(concat("dim ", name, " is given twice"));
      }
    }
    for (std::size_t i = 0; i < problem_.flags().size(); ++i) {
      const auto& [name, value] = problem_.flags()[i];
      const auto named = [&](const auto& item) { return item.name == name; };
      if (std::any_of(operation_.dims.begin(), operation_.dims.end(), named)) {
        fail(concat(
            "dim ", name, "=", value,
            is_range(value) ? " is a range, and this takes one size" : " is no positive integer"));
      } else if (std::none_of(operation_.flags.begin(), operation_.flags.end(), named) &&
                 std::none_of(operation_.type_variables.begin(), operation_.type_variables.end(),
                              named)) {
        std::vector<std::string> known = names_in(operation_.type_variables);
        for (const Flag& flag : operation_.flags) known.push_back(flag.name);
        refuse(concat("no flag or dtype ", name, "=", value, did_you_mean(name, known),
                      ", dtypes are ", names_of(operation_.type_variables), ", flags are ",
                      names_of(operation_.flags)));
      }
      if (find_entry(problem_.flags(), name) - problem_.flags().begin() !=
          static_cast<std::ptrdiff_t>(i)) {
        fail(concat("flag ", name, " is given twice"));
      }
    }
  }

  /// Returns the size of a dim; 0 if it is left out.
  std::int64_t dim_of(const Dim& dim) {
    const auto given = find_entry(problem_.dims(), dim.name);
    if (given == problem_.dims().end()) {
      if (!dim.default_size) {
        refuse(concat("dim ", dim.name, " is missing, dims are ", names_of(operation_.dims)));
      }
      return 0;
    }
    if (given->second < 1) fail(concat("dim ", dim.name, "=", given->second, " is less than 1"));
    return given->second;
  }

  /// Removes the dims that have their default size.
  void leave_defaults_out(Problem::Dims& dims, const Problem::Flags& flags) {
    Scope values = operation_.flag_scope(Problem::make(operation_.name, {}, flags));
    for (const Dim& dim : operation_.dims) {
      const auto given = find_entry(dims, dim.name);
      std::int64_t size = given == dims.end() ? 0 : given->second;
      if (dim.default_size) {
        const Result<std::int64_t> usual = dim.default_size->evaluate(values);
        if (!usual) return fail(concat("dim ", dim.name, ": ", usual.error().message));
        if (given == dims.end()) {
          size = *usual;
          if (size < 1) return fail(concat("dim ", dim.name, "=", size, " is less than 1"));
        } else if (size == *usual) {
          dims.erase(given);
        }
      }
      values.set(dim.name, size);
    }
  }

  std::string dtype_of(const TypeVariable& variable) {
    const auto given = find_entry(problem_.flags(), variable.name);
    if (given == problem_.flags().end()) {
      if (!variable.default_variable.empty()) return default_of(variable);
      refuse(concat(variable.name, " is missing, it may be ", names_of(variable.dtypes)));
      return {};
    }
    const std::optional<DType> dtype = dtype_meant(given->second);
    if (dtype && std::find(variable.dtypes.begin(), variable.dtypes.end(), *dtype) !=
                     variable.dtypes.end()) {
      return std::string(to_string(*dtype));
    }
    std::vector<std::string> known;
    for (const DType each : variable.dtypes) known.emplace_back(to_string(each));
    refuse(concat(variable.name, "=", given->second, did_you_mean(given->second, known),
                  " is not one of ", names_of(variable.dtypes)));
    return given->second;
  }

  /// Returns the default dtype of `variable`; empty if it must be given.
  std::string default_of(const TypeVariable& variable) {
    for (const TypeVariable& other : operation_.type_variables) {
      if (other.name == variable.default_variable) return dtype_of(other);
    }
    return {};
  }

  std::string flag_of(const Flag& flag) {
    const auto given = find_entry(problem_.flags(), flag.name);
    if (flag.is_formula()) {
      if (given != problem_.flags().end()) return formula_of(flag, given->second);
      const auto digits = find_entry(problem_.dims(), flag.name);
      if (digits != problem_.dims().end()) return formula_of(flag, std::to_string(digits->second));
      refuse(concat(flag.name, " is missing, it is a formula over ", names_of(flag.variables)));
      return {};
    }
    if (given == problem_.flags().end()) {
      return flag.values[static_cast<std::size_t>(flag.default_index)];
    }
    if (std::find(flag.values.begin(), flag.values.end(), given->second) == flag.values.end()) {
      if (flag.is_function()) return function_of(flag, given->second);
      refuse(concat(flag.name, "=", given->second, did_you_mean(given->second, flag.values),
                    " is not one of ", names_of(flag.values)));
    }
    return given->second;
  }

  /// Returns the digest of the function. A digest may also be given without a file, because a
  /// kernel that is compiled already needs no source.
  std::string function_of(const Flag& flag, const std::string& given) {
    for (const auto& function : operation_.functions) {
      if (function->name == given) return function->digest;
    }
    if (!UserFunction::is_digest(given)) {
      fail(concat(flag.name, "=", given, " is no function that was given, those are ",
                  names_of(operation_.functions)));
    }
    return given;
  }

  std::string formula_of(const Flag& flag, std::string_view text) {
    const Result<Formula> formula = Formula::parse(text, flag.variables);
    if (formula) return formula->text();
    fail(concat(flag.name, ": ", formula.error().message));
    return {};
  }

  const Operation& operation_;
  const Problem& problem_;
  std::string error_;
};

}  // namespace

std::string OperationCase::problem(std::size_t index, bool in_all_ways) const {
  std::string text;
  for (std::size_t i = lists.size(); i-- > 0;) {  // the last list changes fastest
    const std::string& part = lists[i][index % lists[i].size()];
    if (in_all_ways) index /= lists[i].size();
    if (!part.empty()) text = concat(" ", part, text);
  }
  return concat(operation, text);
}

std::vector<std::string> OperationCase::all() const {
  std::size_t count = 1;
  for (const auto& list : lists) count *= list.size();
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(problem(i, true));
  return texts;
}

std::vector<std::string> OperationCase::few() const {
  std::size_t count = 1;
  for (const auto& list : lists) count = std::max(count, list.size());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) texts.push_back(problem(i, false));
  return texts;
}

std::size_t Dim::interval(std::int64_t size) const {
  return static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), size) -
                                  edges.begin());
}

std::int64_t TensorShape::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : extent) count *= size;
  return count;
}

std::int64_t TensorShape::pitch(std::size_t dim) const {
  if (dim < pitches.size()) return pitches[dim];
  std::int64_t elements = 1;
  for (std::size_t i = dim + 1; i < extent.size(); ++i) elements *= extent[i];
  return elements;
}

double total_bytes(const std::vector<TensorShape>& tensors) {
  double bytes = 0;
  for (const TensorShape& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

double Scalar::default_in(const Scope& values) const {
  if (!default_formula) return default_value;
  return default_formula->evaluate(
      [&](std::string_view named) { return static_cast<double>(values.find(named).value_or(0)); });
}

Result<Problem> Operation::normalize(const Problem& problem) const {
  Scope values;
  return normalize(problem, values);
}

Result<Problem> Operation::normalize(const Problem& problem, Scope& values) const {
  Result<Problem> normalized = Normalizer(*this, problem).normalize();
  if (!normalized) return normalized;
  values = scope(*normalized);
  for (const Rule& requirement : requirements) {
    const std::string failure = requirement.failure(values);
    if (!failure.empty()) {
      return Error{ErrorCode::invalid_argument, concat(name, ": ", failure)};
    }
  }
  return normalized;
}

Scope Operation::flag_scope(const Problem& given) const {
  Scope values;
  visit_names(*this, &given,
              [&](const std::string& key, std::int64_t value) { values.set(key, value); });
  return values;
}

Scope Operation::scope(const Problem& normalized) const {
  return add_sizes(flag_scope(normalized), normalized);
}

Scope Operation::add_sizes(Scope values, const Problem& normalized) const {
  for (const Dim& dim : dims) {
    const auto given = find_entry(normalized.dims(), dim.name);
    std::int64_t size = given == normalized.dims().end() ? 0 : given->second;
    if (size == 0 && dim.default_size) {
      const Result<std::int64_t> usual = dim.default_size->evaluate(values);
      size = usual ? *usual : 0;
    }
    values.set(dim.name, size);
  }
  for (const NamedValue& value : derived) {
    const Result<std::int64_t> known = value.expression.evaluate(values);
    values.set(value.name, known ? *known : 0);
  }
  return values;
}

std::vector<std::int64_t> Operation::sizes(const Problem& normalized) const {
  const Scope values = scope(normalized);
  std::vector<std::int64_t> sizes;
  sizes.reserve(dims.size());
  for (const Dim& dim : dims) sizes.push_back(*values.find(dim.name));
  return sizes;
}

std::vector<std::string> Operation::value_names() const {
  std::vector<std::string> names;
  visit_names(*this, nullptr,
              [&](std::string key, std::int64_t) { names.push_back(std::move(key)); });
  for (const Dim& dim : dims) names.push_back(dim.name);
  for (const NamedValue& value : derived) names.push_back(value.name);
  return names;
}

Formula Operation::formula(const Problem& normalized, const Flag& flag) const {
  return Formula::parse(find_entry(normalized.flags(), flag.name)->second, flag.variables).value();
}

bool Operation::takes_function(const Problem& normalized) const {
  return std::any_of(flags.begin(), flags.end(), [&](const Flag& flag) {
    return flag.is_function() && flag_index(flag, normalized) != flag.default_index;
  });
}

const UserFunction* Operation::function(const Problem& normalized, const Flag& flag) const {
  const auto named = find_entry(normalized.flags(), flag.name);
  for (const auto& known : functions) {
    if (named != normalized.flags().end() && known->digest == named->second) return known.get();
  }
  return nullptr;
}

DType Operation::dtype(const Problem& normalized, std::string_view variable) const {
  const auto given = find_entry(normalized.flags(), variable);
  if (given != normalized.flags().end()) return parse_dtype(given->second).value();
  const auto declared =
      std::find_if(type_variables.begin(), type_variables.end(),
                   [&](const TypeVariable& known) { return known.name == variable; });
  return dtype(normalized, declared->default_variable);
}

Result<std::vector<TensorShape>> Operation::tensor_shapes(const Scope& values) const {
  const auto dtype_of = [&](const std::string& variable) {
    return static_cast<DType>(*values.find(variable));
  };
  std::vector<TensorShape> shapes;
  shapes.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    const auto failed = [&](std::string_view what) {
      return Error{ErrorCode::invalid_argument, concat(name, ": tensor ", tensor.name, ": ", what)};
    };
    if (tensor.when) {
      const Result<std::int64_t> present = tensor.when->evaluate(values);
      if (!present) return failed(present.error().message);
      if (*present == 0) continue;
    }
    TensorShape shape;
    shape.name = tensor.name;
    shape.role = tensor.role;
    if (tensor.written) {
      const Result<std::int64_t> written = tensor.written->evaluate(values);
      if (!written) return failed(written.error().message);
      if (*written == 0) shape.role = TensorRole::in;
      if (*written != 0) shape.written = *written;
    }
    shape.dtype =
        tensor.dtype_variable.empty() ? tensor.fixed_dtype : dtype_of(tensor.dtype_variable);
    shape.warm = tensor.warm;
    std::int64_t size_bytes = bytes_of(1, shape.dtype);
    shape.alignment = std::max(tensor.alignment, size_bytes);
    shape.extent.reserve(tensor.extent.size());
    for (const Expression& extent : tensor.extent) {
      const Result<std::int64_t> size = extent.evaluate(values);
      if (!size) return failed(size.error().message);
      if (*size < 1) return failed(concat("extent \"", extent.text(), "\" is ", *size, " < 1"));
      std::int64_t product = 0;
      if (__builtin_mul_overflow(size_bytes, *size, &product)) {
        return failed(concat(size_bytes, " * ", *size, " bytes overflow 64 bits"));
      }
      size_bytes = product;
      shape.extent.push_back(*size);
    }
    const Result<void> placed = place_entries(tensor, values, shape);
    if (!placed) return failed(placed.error().message);
    shape.exact = tensor.exact;
    shape.infinite = tensor.infinite;
    shape.in_place = tensor.in_place;
    if (!tensor.intermediate.empty()) shape.intermediate = dtype_of(tensor.intermediate);
    if (tensor.values) {
      Result<ValueRange<std::int64_t>> range = evaluate(*tensor.values, values);
      if (!range) return failed(range.error().message);
      shape.values = *std::move(range);
    }
    shape.draw.kind = input_kernels ? DrawKind::kernel : timing_inputs;
    if (tensor.draw) {
      const Result<Draw> draw = evaluate(*tensor.draw, shape, values);
      if (!draw) return failed(draw.error().message);
      shape.draw = *draw;
      shape.always = draw->kind != DrawKind::normal;
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

Result<std::vector<Scalar>> Operation::present_scalars(const Scope& values) const {
  std::vector<Scalar> present;
  for (const Scalar& scalar : scalars) {
    const Result<std::int64_t> holds =
        scalar.when ? scalar.when->evaluate(values) : Result<std::int64_t>(1);
    if (!holds) {
      return Error{ErrorCode::invalid_argument,
                   concat(name, ": scalar ", scalar.name, ": ", holds.error().message)};
    }
    if (*holds == 0) continue;
    present.push_back(scalar);
    present.back().default_value = scalar.default_in(values);
  }
  return present;
}

}  // namespace kernwright
