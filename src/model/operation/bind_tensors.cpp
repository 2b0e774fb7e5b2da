#include "model/operation/bind_tensors.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "model/expression/equation.h"
#include "model/expression/recording.h"
#include "model/operation/bound_problem.h"
#include "model/operation/dtype_format.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {

/// The numbers that a problem and its results have, and how these follow from tensors.
struct BindingPattern::Steps {
  Recording recording = {};
  Problem problem = {};
  std::vector<std::size_t> dims = {};  ///< the places of its sizes
  std::vector<std::size_t> made = {};  ///< the places of the sizes of results
};

namespace {

using Sizes = std::vector<Number>;

template <typename Items>
bool holds(const Items& items, const std::string& name) {
  return std::find(items.begin(), items.end(), name) != items.end();
}

template <typename Entries>
const std::string* find_value(const Entries& entries, std::string_view name) {
  for (const auto& [key, value] : entries) {
    if (key == name) return &value;
  }
  return nullptr;
}

Number product_of(const Sizes& sizes) {
  Number product = 1;
  for (const Number& size : sizes) product = times(product, size);
  return product;
}

/// Returns the sizes but the last.
Sizes front_of(const Sizes& sizes) {
  return {sizes.begin(), sizes.end() - (sizes.empty() ? 0 : 1)};
}

std::string text_of(const Sizes& sizes) {
  std::string text;
  for (const Number& size : sizes) text += concat(text.empty() ? "" : ", ", size.value());
  return concat("[", text, "]");
}

Error refusal(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

/// An axis of a tensor.
struct Axis {
  Number size = 1;
  Number stride = 0;
};

/// A tensor of the operation, and what the caller has for it.
struct Place {
  const Tensor* tensor = nullptr;
  const GivenTensor* given = nullptr;  ///< null: nothing
  Sizes extent = {};                   ///< what is given
  Sizes strides = {};
  bool is_output = false;       ///< it is made if it is not given
  bool leads = false;           ///< its first extent may be any number of axes
  std::size_t left_out = 0;     ///< leading axes of size 1 that the caller has not
  std::size_t folded = 1;       ///< the number of the caller's axes in the first one
  std::vector<Axis> axes = {};  ///< of the operation
  Sizes lead = {};              ///< the sizes of the folded axes

  const std::string& argument() const {
    return given->argument.empty() ? tensor->name : given->argument;
  }
};

class Binder {
 public:
  Binder(const Operation& operation, std::span<const GivenTensor> tensors,
         std::span<const std::string> scalars, const Problem& options,
         BindingPattern::Steps* pattern = nullptr)
      : operation_(operation),
        given_(tensors),
        scalars_(scalars),
        options_(options),
        pattern_(pattern) {
    if (pattern_ != nullptr) names_.recording = &pattern_->recording;
  }

  Result<TensorBinding> bind() {
    KW_TRY(place_tensors());
    read_numbers();
    KW_TRY(settle_dtypes());
    KW_TRY(prepare_names());
    if (std::optional<TensorBinding> found = search(0)) return *std::move(found);
    if (refused_) return *std::move(refused_);
    return refusal(error_.empty() ? explain_flags() : error_);
  }

 private:
  // --- what is given

  Result<void> place_tensors() {
    for (const Tensor& tensor : operation_.tensors) {
      Place place{&tensor};
      place.is_output = tensor.role == TensorRole::out || holds(operation_.call.made, tensor.name);
      for (const GivenTensor& given : given_) {
        if (given.name == tensor.name) place.given = &given;
      }
      if (!place.given && !place.is_output && !tensor.when) {
        return refusal(concat(name_of(tensor.name), " is missing"));
      }
      places_.push_back(std::move(place));
    }
    for (const GivenTensor& given : given_) {
      const bool known = std::any_of(places_.begin(), places_.end(),
                                     [&](const Place& place) { return place.given == &given; });
      if (!known) {
        return refusal(
            concat(operation_.name, " has no tensor ", given.name, ", or it is given twice"));
      }
      if (given.strides.empty() || given.extent.size() == given.strides.size()) continue;
      return refusal(concat(given.name, " has ", given.extent.size(), " sizes and ",
                            given.strides.size(), " strides"));
    }
    return {};
  }

  /// Reads the sizes and strides, which are the inputs of a recording in the order of the tensors.
  void read_numbers() {
    const auto read = [&](const std::vector<std::int64_t>& values, Sizes& numbers) {
      for (const std::int64_t value : values) {
        numbers.push_back(pattern_ ? pattern_->recording.input(value) : value);
      }
    };
    for (const GivenTensor& given : given_) {
      const auto place = std::find_if(places_.begin(), places_.end(),
                                      [&](const Place& each) { return each.given == &given; });
      read(given.extent, place->extent);
      read(given.strides, place->strides);
    }
  }

  /// Returns the name by which callers know a tensor.
  std::string name_of(const std::string& name) const {
    const std::string* const other = find_value(operation_.call.names, name);
    return other ? *other : name;
  }

  static bool has_dtype(const Place& place) { return place.given && place.given->dtype; }

  Result<void> settle_dtypes() {
    for (const TypeVariable& variable : operation_.type_variables) {
      const bool by_output = std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
        return place.is_output && place.tensor->dtype_variable == variable.name;
      });
      const std::string* text = find_value(options_.flags(), variable.name);
      for (const Place& place : places_) {
        if (text != nullptr || !has_dtype(place) || place.tensor->dtype_variable != variable.name ||
            (by_output && !place.is_output && !variable.default_variable.empty())) {
          continue;
        }
        dtypes_.emplace_back(variable.name, std::string(to_string(*place.given->dtype)));
        text = &dtypes_.back().second;
      }
      if (text == nullptr && !variable.default_variable.empty()) {
        text = find_value(dtypes_, variable.default_variable);
      }
      // The tensor that has it may be one that the problem does not have, as x of a formula over y.
      for (const Place& place : places_) {
        if (text != nullptr || !has_dtype(place) || place.is_output) continue;
        if (place.tensor->dtype_variable.empty()) continue;
        dtypes_.emplace_back(variable.name, std::string(to_string(*place.given->dtype)));
        text = &dtypes_.back().second;
      }
      const bool is_open = std::any_of(given_.begin(), given_.end(),
                                       [](const GivenTensor& given) { return !given.dtype; });
      if (text == nullptr && is_open) {
        dtypes_.emplace_back(variable.name, to_string(variable.dtypes.front()));
        text = &dtypes_.back().second;
      }
      if (text == nullptr) {
        return refusal(concat(variable.name, " is not told by the tensors, and has to be given"));
      }
      const std::optional<DType> meant = dtype_meant(*text);
      if (!meant) return refusal(concat(variable.name, " is ", *text, ", which is no dtype"));
      const std::string settled(to_string(*meant));
      if (find_value(dtypes_, variable.name) == nullptr) {
        dtypes_.emplace_back(variable.name, settled);
      }
      const Place* first = nullptr;
      for (const Place& place : places_) {
        if (!has_dtype(place) || place.tensor->dtype_variable != variable.name) continue;
        const std::string_view own = to_string(*place.given->dtype);
        if (own != settled) {
          return refusal(
              first ? concat(place.argument(), " is ", own, ", and ", first->argument(), " is ",
                             settled, ": one dtype expected")
                    : concat(place.argument(), " is ", own, ", and ", settled, " expected"));
        }
        if (!first) first = &place;
      }
    }
    for (const Place& place : places_) {
      if (!has_dtype(place) || !place.tensor->dtype_variable.empty()) continue;
      if (*place.given->dtype == place.tensor->fixed_dtype) continue;
      return refusal(concat(place.argument(), " is ", to_string(*place.given->dtype), ", and ",
                            to_string(place.tensor->fixed_dtype), " expected"));
    }
    return {};
  }

  // --- flags

  Result<void> prepare_names() {
    Problem::Flags flags = dtypes_;
    for (const Flag& flag : operation_.flags) {
      const std::string* const given = find_value(options_.flags(), flag.name);
      const auto digits = std::find_if(options_.dims().begin(), options_.dims().end(),
                                       [&](const auto& dim) { return dim.first == flag.name; });
      if (given) {
        flags.emplace_back(flag.name, *given);
      } else if (digits != options_.dims().end()) {
        flags.emplace_back(flag.name, std::to_string(digits->second));
      } else if (flag.is_formula()) {
        return refusal(concat(flag.name, " is missing"));
      }
      if (flag.is_formula()) {
        const Result<Formula> formula = Formula::parse(flags.back().second, flag.variables);
        if (!formula) return refusal(concat(flag.name, ": ", formula.error().message));
        flags.back().second = formula->text();
      }
    }
    const Scope known = operation_.flag_scope(Problem::make(operation_.name, {}, flags));
    for (std::size_t i = 0; i < known.size(); ++i) names_.values[known.name(i)] = known.values()[i];
    for (const NamedValue& value : operation_.derived) {
      names_.derived.emplace(value.name, value.expression);
    }
    const std::set<std::string> used = names_in_use();
    for (const Flag& flag : operation_.flags) {
      if (find_value(flags, flag.name) || flag.is_function() || !used.contains(flag.name)) continue;
      open_.push_back(&flag);
      names_.values.erase(flag.name);
    }
    flags_ = std::move(flags);
    return {};
  }

  /// Returns the names that the layout depends on, and the presence of what is given or must be.
  std::set<std::string> names_in_use() const {
    std::set<std::string> names;
    const std::function<void(const Expression&)> add = [&](const Expression& expression) {
      for (const std::string& name : expression.names()) {
        if (!names.insert(name).second) continue;
        const auto derived = names_.derived.find(name);
        if (derived != names_.derived.end()) add(derived->second);
      }
    };
    for (const Place& place : places_) {
      if (place.tensor->when && (place.given || !place.is_output)) add(*place.tensor->when);
    }
    for (const Scalar& scalar : operation_.scalars) {
      if (scalar.when && holds(scalars_, scalar.name)) add(*scalar.when);
    }
    if (operation_.call.swapped) add(operation_.call.swapped->when);
    return names;
  }

  /// Tries the values of the open flags from `index` on, and returns the first problem that fits.
  std::optional<TensorBinding> search(std::size_t index) {
    if (index == open_.size()) {
      Result<TensorBinding> found = solve();
      if (found && found->refusal.empty()) return *std::move(found);
      if (found) {
        if (!refused_) refused_ = *std::move(found);
        return std::nullopt;
      }
      if (error_.empty() || stage_ > error_stage_) {
        error_ = found.error().message;
        error_stage_ = stage_;
      }
      return std::nullopt;
    }
    const Flag& flag = *open_[index];
    std::vector<std::int64_t> values{flag.default_index};
    for (std::size_t i = 0; i < flag.values.size(); ++i) {
      const std::string* const first = find_value(operation_.call.first, flag.name);
      const auto value = static_cast<std::int64_t>(i);
      if (value == flag.default_index) continue;
      values.insert(first && *first == flag.values[i] ? values.begin() : values.end(), value);
    }
    for (const std::int64_t value : values) {
      names_.values[flag.name] = value;
      if (!is_contradicted()) {
        if (std::optional<TensorBinding> found = search(index + 1)) return found;
      }
    }
    names_.values.erase(flag.name);
    return std::nullopt;
  }

  std::optional<Number> value_of(const Expression& expression) const {
    return PartialExpression(expression, names_).value();
  }

  /// Returns whether the flags that are known rule out what is given.
  bool is_contradicted() const {
    return std::any_of(places_.begin(), places_.end(),
                       [&](const Place& place) { return is_contradicted(place); }) ||
           std::any_of(
               operation_.scalars.begin(), operation_.scalars.end(), [&](const Scalar& scalar) {
                 return scalar.when && holds(scalars_, scalar.name) && value_of(*scalar.when) == 0;
               });
  }
  bool is_contradicted(const Place& place) const {
    if (!place.tensor->when) return false;
    const std::optional<Number> present = value_of(*place.tensor->when);
    if (!present) return false;
    return *present != 0 ? !place.given && !place.is_output && !completes_ : place.given != nullptr;
  }

  /// Returns why no values of the flags have exactly the tensors that are given: those that would
  /// complete them, or one that is too many.
  std::string explain_flags() {
    completes_ = true;
    if (std::string missing = missing_tensors(0); !missing.empty()) return missing;
    for (Place& place : places_) {
      if (!place.given || !place.tensor->when) continue;
      const GivenTensor* const given = std::exchange(place.given, nullptr);
      const bool is_too_much = !missing_tensors(0).empty();
      place.given = given;
      if (is_too_much) {
        return concat(place.argument(), " is given, and only a problem with ",
                      place.tensor->when->text(), " has it");
      }
    }
    return concat("no problem of ", operation_.name,
                  " has these arguments together; see kernwright ", "operations ", operation_.name);
  }

  /// Returns the tensors that are missing under the first values of the open flags from `index` on
  /// that have all that are given; empty if no values have these.
  std::string missing_tensors(std::size_t index) {
    std::string missing;
    if (index == open_.size()) {
      for (const Place& place : places_) {
        if (place.given || place.is_output || !place.tensor->when) continue;
        if (value_of(*place.tensor->when).value_or(0) == 0) continue;
        missing += concat(missing.empty() ? "" : ", ", name_of(place.tensor->name));
      }
      return concat(missing, " is missing");
    }
    const Flag& flag = *open_[index];
    for (std::size_t i = 0; i < flag.values.size() && missing.empty(); ++i) {
      names_.values[flag.name] = static_cast<std::int64_t>(i);
      if (!is_contradicted()) missing = missing_tensors(index + 1);
    }
    names_.values.erase(flag.name);
    return missing;
  }

  // --- layouts

  bool is_swapped(const Tensor& tensor) const {
    const std::optional<CallForm::Swapped>& swapped = operation_.call.swapped;
    return swapped && holds(swapped->tensors, tensor.name) &&
           value_of(swapped->when).value_or(0) != 0;
  }
  /// Exchanges the two axes, counted from the last, that callers of the tensor exchange.
  template <typename Item>
  void swap_axes(std::vector<Item>& axes) const {
    const auto [a, b] = operation_.call.swapped->axes;
    if (axes.size() >= std::max(a, b)) std::swap(axes[axes.size() - a], axes[axes.size() - b]);
  }

  /// Brings the caller's axes into the operation's order and number.
  Result<void> lay(Place& place) {
    const GivenTensor& given = *place.given;
    const Tensor& tensor = *place.tensor;
    std::vector<Axis> axes(place.extent.size());
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::size_t from = given.order.empty() ? i : given.order[i];
      axes[i] = {place.extent[from], place.strides.empty() ? 0 : place.strides[from]};
    }
    const bool broadcasts = holds(operation_.call.broadcast, tensor.name);
    for (std::size_t i = 0; broadcasts && !place.strides.empty() && i + 1 < axes.size(); ++i) {
      if (axes[i].size > 1 && axes[i].stride == 0) axes[i].size = 1;
    }
    if (is_swapped(tensor)) swap_axes(axes);
    Number stride = 1;  // of a tensor without gaps, if strides are not compared
    for (std::size_t i = given.strides.empty() ? axes.size() : 0; i-- > 0;) {
      axes[i].stride = stride;
      stride = times(stride, axes[i].size);
    }
    const std::size_t wanted = tensor.extent.size();
    place.leads = !operation_.call.leading.empty() &&
                  PartialExpression(tensor.extent[0], names_).text() == operation_.call.leading;
    std::size_t ones = 0;  // leading axes that have size 1, whatever the problem
    while (ones < wanted && value_of(tensor.extent[ones]) == 1) ++ones;
    place.folded = 1;
    place.left_out = 0;
    if (axes.size() < wanted && !place.leads) place.left_out = wanted - axes.size();
    if (place.left_out > 0 && !broadcasts) leaves_ones_out_ = true;
    if (axes.size() == wanted && ones > 0) keeps_ones_ = true;
    if (place.leads || (axes.size() > wanted && !given.order.empty())) {
      place.folded = axes.size() + 1 - wanted;  // wraps to a huge number if there are too few
    }
    if (broadcasts) ones = wanted - 1;
    if (place.left_out > ones || (place.left_out == 0 && place.folded > axes.size()) ||
        axes.size() + place.left_out + 1 != wanted + place.folded) {
      return refusal(concat(place.argument(), " has ", given.extent.size(), " dimensions, and ",
                            wanted - (place.leads ? 1 : 0), place.leads ? " or more" : "",
                            " expected"));
    }
    place.axes.assign(place.left_out, {1, 0});
    place.lead.clear();
    if (place.left_out == 0) {
      KW_ASSIGN(const Axis first, fold(place, axes));
      place.axes.push_back(first);
    }
    const std::size_t rest = place.left_out == 0 ? place.folded : 0;
    place.axes.insert(place.axes.end(), axes.begin() + static_cast<std::ptrdiff_t>(rest),
                      axes.end());
    const Axis& last = place.axes.back();
    if (last.size > 1 && last.stride != 1 && elements(place) > 0) {
      if (given.order.empty() && !is_swapped(tensor)) {
        return refusal(concat(place.argument(), " has a last stride of ", last.stride.value(),
                              ", and 1 expected: its rows are not contiguous"));
      }
      return stride_error(place);
    }
    return {};
  }

  /// Refuses a tensor whose axes the caller has in another order, with the strides that it has
  /// without gaps.
  Error stride_error(const Place& place) const {
    const GivenTensor& given = *place.given;
    std::vector<std::size_t> axes = given.order;  // the caller's, in the operation's order
    for (std::size_t i = axes.size(); i < given.extent.size(); ++i) axes.push_back(i);
    if (is_swapped(*place.tensor)) swap_axes(axes);
    Sizes strides(axes.size());
    Number stride = 1;
    for (std::size_t i = axes.size(); i-- > 0;) {
      strides[axes[i]] = stride;
      stride = times(stride, place.extent[axes[i]]);
    }
    return refusal(concat(place.argument(), " has the strides ", text_of(place.strides), ", and ",
                          text_of(strides), " expected"));
  }

  static Number elements(const Place& place) { return product_of(place.extent); }

  /// Returns the first `folded` axes as one. Errors: they are not equally far apart.
  Result<Axis> fold(Place& place, const std::vector<Axis>& axes) const {
    Axis whole{1, 0};
    bool apart = false;
    for (std::size_t i = place.folded; i-- > 0;) {
      place.lead.insert(place.lead.begin(), axes[i].size);
      if (axes[i].size != 1 && whole.size != 1) {
        apart = apart || axes[i].stride != times(whole.stride, whole.size);
      } else if (axes[i].size != 1) {
        whole.stride = axes[i].stride;
      }
      whole.size = times(whole.size, axes[i].size);
    }
    if (!apart || elements(place) == 0) return whole;
    if (!place.given->order.empty()) return stride_error(place);
    return refusal(concat(place.argument(), " has the strides ", text_of(place.strides),
                          " and the shape ", text_of(place.extent),
                          ": its rows are not equally far apart"));
  }

  /// Converts sizes or strides from the operation's axes to the caller's.
  Sizes as_called(const Place& place, const Sizes& own, bool are_strides) const {
    const std::size_t begin = place.left_out > 0 ? place.left_out : 1;
    Sizes called(own.begin() + static_cast<std::ptrdiff_t>(begin), own.end());
    if (place.left_out == 0) {
      Sizes lead = place.leads ? lead_ : place.lead;
      const bool is_apart = !place.leads && lead.size() > 1;
      const bool is_paired = is_apart && lead_.size() > 1;
      if (!are_strides &&
          (product_of(lead) != own[0] || (is_paired && front_of(lead) != front_of(lead_)))) {
        // The axes before the last one count what the product counts first.
        const auto left = PartialExpression(place.tensor->extent[0], names_).left_factor();
        const Number count = left ? value_of(*left).value_or(0) : 0;
        lead.clear();
        if (is_apart && count > 0) lead = {count};
        if (is_paired && count == product_of(front_of(lead_))) lead = front_of(lead_);
        lead.push_back(divide(own[0], product_of(lead)).value_or(0));
      }
      if (are_strides) {
        Number stride = own[0];
        for (std::size_t i = lead.size(); i-- > 0;) {
          const Number size = lead[i];
          lead[i] = stride;
          stride = times(stride, size);
        }
      }
      called.insert(called.begin(), lead.begin(), lead.end());
    }
    if (is_swapped(*place.tensor)) swap_axes(called);
    if (!place.given || place.given->order.empty()) return called;
    Sizes ordered(called.size());
    for (std::size_t i = 0; i < called.size() && i < place.given->order.size(); ++i) {
      const std::size_t at = place.given->order[i];
      if (at < ordered.size()) ordered[at] = called[i];
    }
    return ordered;
  }

  // --- equations

  Result<TensorBinding> solve() {
    for (const Dim& dim : operation_.dims) names_.values.erase(dim.name);
    keeps_ones_ = leaves_ones_out_ = false;
    stage_ = 0;
    for (Place& place : places_) {
      if (!place.given) continue;
      KW_TRY(lay(place));
      // The names of sizes that a call's dims may have.
      for (std::size_t i = 0; !operation_.call.dims.empty() && i < place.axes.size(); ++i) {
        names_.values[place.tensor->name + "_" + std::to_string(i)] = place.axes[i].size;
      }
    }
    stage_ = 1;
    const Place* const leader = find_leader();
    lead_ = leader ? leader->lead : Sizes();
    for (const auto& [name, size] : options_.dims()) {
      if (!find_value(flags_, name)) names_.values[name] = size;
    }
    do {
      KW_TRY(solve_tensors());
    } while (settle_one_dim());
    KW_TRY(check_leads());
    KW_TRY(check_tensors());
    stage_ = 2;
    for (const Dim& dim : operation_.dims) {
      if (names_.values.contains(dim.name)) continue;
      return refusal(concat(dim.name, " is not told by the tensors, and has to be given"));
    }
    return finish();
  }

  /// Solves what can be solved: all extents, and then pitches.
  Result<void> solve_tensors() {
    for (const bool strides : {false, true}) {
      for (bool changed = true; changed;) {
        changed = false;
        for (const Place& place : places_) {
          if (!place.given || (strides && elements(place) == 0)) continue;
          KW_ASSIGN(const bool solved, strides ? solve_strides(place) : solve_extents(place));
          changed = changed || solved;
        }
      }
    }
    return {};
  }

  /// Returns whether a name became known.
  Result<bool> solve_extents(const Place& place) {
    bool solved = false;
    for (std::size_t i = 0; i < place.axes.size(); ++i) {
      const Expression& extent = place.tensor->extent[i];
      if (i == 0 && !place.leads && place.lead.size() > 1) {
        const std::optional<Expression> left = PartialExpression(extent, names_).left_factor();
        const Number count = product_of(front_of(place.lead));
        if (left) solved = set(PartialExpression(*left, names_).solve(count)) || solved;
      }
      const Solution solution = PartialExpression(extent, names_).solve(place.axes[i].size);
      if (solution.divisor != 1) {
        const bool is_product = i == 0 && place.lead.size() > 1;
        return refusal(concat(
            place.argument(), " has the shape ", text_of(place.extent), ", and ",
            solution.divisor == 2 ? "an even number" : concat("a multiple of ", solution.divisor),
            " expected in place of ",
            (is_product ? place.lead.back() : place.axes[i].size).value()));
      }
      solved = set(solution) || solved;
    }
    return solved;
  }
  Result<bool> solve_strides(const Place& place) {
    bool solved = false;
    for (std::size_t i = place.tensor->pitches.size(); i-- > 0;) {
      if (place.axes[i].size == 1) continue;
      const Expression& pitch = place.tensor->pitches[i];
      solved = set(PartialExpression(pitch, names_).solve(place.axes[i].stride)) || solved;
    }
    return solved;
  }
  bool set(const Solution& solution) {
    if (solution.name.empty() || solution.divisor != 1 || solution.value < 0) return false;
    names_.values[solution.name] = solution.value;
    return true;
  }

  /// Gives the first unknown dim that has a usual size this size. Returns whether there is one.
  bool settle_one_dim() {
    for (const Dim& dim : operation_.dims) {
      if (names_.values.contains(dim.name)) continue;
      std::optional<Number> size;
      for (const NamedValue& value : operation_.call.dims) {
        if (value.name == dim.name) size = value_of(value.expression);
      }
      if (!size && dim.default_size) size = value_of(*dim.default_size);
      if (!size) continue;
      names_.values[dim.name] = *size;
      return true;
    }
    return false;
  }

  /// Checks that the leading axes of all tensors are alike.
  Result<void> check_leads() const {
    for (const Place& place : places_) {
      if (!place.given || !place.leads || place.lead == lead_) continue;
      const bool merged = !place.is_output && place.lead.size() == 1 &&
                          place.tensor->extent.size() > 1 && place.lead[0] == product_of(lead_);
      if (!merged) return shape_error(place);
    }
    const Place* const leader = find_leader();
    if (!leader) return {};
    const auto left = PartialExpression(leader->tensor->extent[0], names_).left_factor();
    const auto count = left ? value_of(*left) : std::nullopt;
    if (!count || *count == 1) return {};
    if (lead_.size() < 2 || product_of(front_of(lead_)) != *count) {
      return refusal(concat(leader->argument(), " has the shape ", text_of(leader->extent),
                            ", and ", count->value(),
                            " expected in place of the first size: ", left->text()));
    }
    // The same count in other sizes would pair other matrices.
    for (const Place& place : places_) {
      if (!place.given || place.leads || place.lead.size() < 2) continue;
      if (front_of(place.lead) != front_of(lead_)) return shape_error(place);
    }
    return {};
  }

  const Place* find_leader() const {
    for (const Place& place : places_) {
      if (place.given && place.leads) return &place;
    }
    return nullptr;
  }

  Error shape_error(const Place& place) const {
    Sizes wanted;
    for (const Expression& extent : place.tensor->extent) {
      const std::optional<Number> size = value_of(extent);
      if (!size) break;
      wanted.push_back(*size);
    }
    const bool known = wanted.size() == place.tensor->extent.size();
    return refusal(concat(place.argument(), " has the shape ", text_of(place.extent), ", and ",
                          known ? text_of(as_called(place, wanted, false)) : "another",
                          " expected"));
  }

  /// Checks that all equations hold.
  Result<void> check_tensors() const {
    for (const Place& place : places_) {
      if (!place.given) continue;
      const std::vector<Axis>& axes = place.axes;
      for (std::size_t i = 0; i < axes.size(); ++i) {
        const std::optional<Number> size = value_of(place.tensor->extent[i]);
        if (size && *size != axes[i].size) return shape_error(place);
        if (i > 0 || place.leads || place.lead.size() < 2) continue;
        const auto left = PartialExpression(place.tensor->extent[0], names_).left_factor();
        const Number count = product_of(front_of(place.lead));
        if (left && value_of(*left).value_or(count) != count) return shape_error(place);
      }
      if (elements(place) == 0) continue;
      Sizes strides(axes.size(), 1);
      bool right = true;
      bool known = true;
      for (std::size_t i = axes.size() - 1; i-- > 0;) {
        std::optional<Number> stride = times(strides[i + 1], axes[i + 1].size);
        if (!place.tensor->pitches.empty()) stride = value_of(place.tensor->pitches[i]);
        known = known && stride.has_value();
        strides[i] = stride.value_or(axes[i].stride);
        right = right && (axes[i].size == 1 || strides[i] == axes[i].stride);
      }
      if (right) continue;
      return refusal(
          concat(place.argument(), " has the strides ", text_of(place.strides), ", and ",
                 known ? text_of(as_called(place, strides, true)) : "others", " expected",
                 place.tensor->pitches.empty() ? ": this operation takes it without gaps" : ""));
    }
    return {};
  }

  // --- the result

  Result<TensorBinding> finish() {
    TensorBinding binding;
    const bool makes = std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
      return place.is_output && (!place.tensor->when || value_of(*place.tensor->when) != 0);
    });
    // Nothing is computed if no result has elements, or nothing is written to what is there.
    bool is_empty = makes || std::any_of(places_.begin(), places_.end(), [](const Place& place) {
                      return place.given && elements(place) == 0;
                    });
    for (Place& place : places_) {
      const Tensor& tensor = *place.tensor;
      if (!place.is_output || (tensor.when && value_of(*tensor.when) == 0)) continue;
      if (place.given) {
        is_empty = is_empty && elements(place) == 0;
        continue;
      }
      Sizes extent;
      for (const Expression& each : tensor.extent) extent.push_back(value_of(each).value_or(0));
      is_empty = is_empty && product_of(extent) == 0;
      place.leads = !operation_.call.leading.empty() &&
                    PartialExpression(tensor.extent[0], names_).text() == operation_.call.leading;
      place.left_out = 0;
      place.lead = {extent[0]};
      const bool has_no_more = tensor.extent.size() == 1;
      const bool leaves = (leaves_ones_out_ || has_no_more) && !keeps_ones_ && !place.leads;
      if (leaves && is_literal_one(tensor.extent[0])) place.left_out = 1;
      MadeTensor made{tensor.name, dtype_of(tensor), {}, {}};
      extent = as_called(place, extent, false);
      if (is_swapped(tensor)) {
        swap_axes(extent);  // as it is made, and then swapped
        const auto [a, b] = operation_.call.swapped->axes;
        made.swapped = {extent.size() - a, extent.size() - b};
      }
      for (const Number& size : extent) {
        made.extent.push_back(size.value());
        if (pattern_) pattern_->made.push_back(pattern_->recording.place(size));
      }
      binding.made.push_back(std::move(made));
    }
    if (is_empty) return binding;
    Problem::Dims dims;
    for (const Dim& dim : operation_.dims) {
      dims.emplace_back(dim.name, names_.values.at(dim.name).value());
    }
    Problem::Flags flags = flags_;
    for (const Flag* flag : open_) {
      flags.emplace_back(
          flag->name, flag->values[static_cast<std::size_t>(names_.values.at(flag->name).value())]);
    }
    for (const auto& [name, value] : options_.flags()) {
      if (!find_value(flags, name)) flags.emplace_back(name, value);  // refused by name
    }
    binding.problem = Problem::make(operation_.name, std::move(dims), std::move(flags));
    const Result<BoundProblem> is_bound = BoundProblem::bind(operation_, *binding.problem);
    if (!is_bound) {
      binding.refusal = is_bound.error().message;
      if (pattern_) pattern_->recording.give_up();  // rules are not recorded
      return binding;
    }
    const BoundProblem& bound = *is_bound;
    for (const TensorShape& shape : bound.shapes()) {
      for (const Place& place : places_) {
        if (place.tensor->name == shape.name && place.tensor->role == TensorRole::inout &&
            shape.role == TensorRole::in) {
          binding.unwritten.push_back(shape.name);
        }
      }
    }
    KW_ASSIGN(const std::vector<Scalar> scalars, bound.scalars());
    for (const Scalar& scalar : scalars) binding.scalars.push_back(scalar.name);
    binding.problem = bound.problem();
    if (pattern_) record_problem(bound);
    return binding;
  }

  /// Records which dims the normalised problem has, and which tensors and scalars. Its rules are
  /// left to the search for its kernel.
  void record_problem(const BoundProblem& bound) {
    Recording& recording = pattern_->recording;
    pattern_->problem = bound.problem();
    for (const Dim& dim : operation_.dims) {
      const Number& size = names_.values.at(dim.name);
      const bool is_usual = dim.default_size && value_of(*dim.default_size) == size;
      const bool is_left_out = std::ranges::find(bound.problem().dims(), dim.name,
                                                 &std::pair<std::string, std::int64_t>::first) ==
                               bound.problem().dims().end();
      if (is_usual != is_left_out || size < 1) recording.give_up();
      if (!is_left_out) pattern_->dims.push_back(recording.place(size));
    }
    const auto decides = [&](const std::optional<Expression>& condition) {
      const std::optional<Number> value = condition ? value_of(*condition) : Number(1);
      if (!value) recording.give_up();
      return value != 0;
    };
    for (const Tensor& tensor : operation_.tensors) {
      if (decides(tensor.when)) static_cast<void>(decides(tensor.written));
    }
    for (const Scalar& scalar : operation_.scalars) static_cast<void>(decides(scalar.when));
  }

  /// Returns whether an extent is 1 by the flags, and not because a dim is.
  bool is_literal_one(const Expression& extent) const {
    return PartialExpression(extent, names_).text() == "1" || only_by_flags(extent) == 1;
  }
  std::optional<Number> only_by_flags(const Expression& extent) const {
    PartialScope flags = names_;
    for (const Dim& dim : operation_.dims) flags.values.erase(dim.name);
    return PartialExpression(extent, flags).value();
  }

  DType dtype_of(const Tensor& tensor) const {
    if (tensor.dtype_variable.empty()) return tensor.fixed_dtype;
    return parse_dtype(*find_value(dtypes_, tensor.dtype_variable)).value();
  }

  const Operation& operation_;
  std::span<const GivenTensor> given_;
  std::span<const std::string> scalars_;
  const Problem& options_;
  BindingPattern::Steps* const pattern_;  ///< null: nothing is recorded
  std::vector<Place> places_;
  Problem::Flags dtypes_;
  Problem::Flags flags_;           ///< dtypes, and flags that are not open
  std::vector<const Flag*> open_;  ///< flags that follow from the tensors
  PartialScope names_;
  Sizes lead_;                    ///< the leading axes of the tensors that have some
  bool keeps_ones_ = false;       ///< the caller passes leading axes that always have size 1
  bool leaves_ones_out_ = false;  ///< the caller does not, of a tensor that has some
  bool completes_ = false;        ///< tensors that are missing contradict nothing
  int stage_ = 0;                 ///< how far the present flags came
  std::string error_;             ///< of the flags that came farthest, the first of them
  int error_stage_ = 0;
  std::optional<TensorBinding> refused_;  ///< the first whose equations hold, and not its rules
};

}  // namespace

Result<TensorBinding> bind_tensors(const Operation& operation, std::span<const GivenTensor> tensors,
                                   std::span<const std::string> scalars, const Problem& options) {
  return Binder(operation, tensors, scalars, options).bind();
}

Result<std::optional<BindingPattern>> find_pattern(const Operation& operation,
                                                   std::span<const GivenTensor> tensors,
                                                   std::span<const std::string> scalars,
                                                   const Problem& options) {
  const auto steps = std::make_shared<BindingPattern::Steps>();
  KW_ASSIGN(const TensorBinding binding,
            Binder(operation, tensors, scalars, options, steps.get()).bind());
  const bool is_found = binding.problem && binding.refusal.empty() && steps->recording.is_whole();
  return is_found ? std::optional(BindingPattern(steps)) : std::nullopt;
}

std::optional<Problem> BindingPattern::problem(const std::int64_t* numbers, std::size_t count,
                                               std::vector<std::int64_t>& made) const {
  Recording::Row row;
  if (!steps_->recording.repeat({numbers, count}, row)) return std::nullopt;
  Problem::Dims dims = steps_->problem.dims();
  for (std::size_t i = 0; i < dims.size(); ++i) dims[i].second = row[steps_->dims[i]];
  made.clear();
  for (const std::size_t place : steps_->made) made.push_back(row[place]);
  return Problem::make(steps_->problem.operation(), std::move(dims), steps_->problem.flags());
}

}  // namespace kernwright
