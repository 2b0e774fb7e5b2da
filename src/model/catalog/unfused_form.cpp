#include "model/catalog/unfused_form.h"

#include <algorithm>
#include <utility>

#include "support/names.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

/// Returns the value of a flag or a type variable in a normalised problem, as text.
std::string text_of(const BoundProblem& problem, std::string_view name) {
  const Operation& operation = problem.operation();
  if (find_named(operation.type_variables, name)) {
    return std::string(to_string(problem.dtype(name)));
  }
  for (const auto& [given, value] : problem.problem().flags()) {
    if (given == name) return value;
  }
  const Flag& flag = *find_named(operation.flags, name);
  return flag.values[static_cast<std::size_t>(flag.default_index)];
}

/// Makes the form of one problem from its steps.
class Former {
 public:
  Former(const Catalog& catalog, const BoundProblem& fused)
      : catalog_(catalog), fused_(fused), operation_(fused.operation()) {}

  Result<UnfusedForm> form() {
    if (fused_.takes_function()) {
      return Error{ErrorCode::not_found,
                   concat(fused_.text(), " has no unfused form: no other kernel takes a function")};
    }
    form_.tensors = fused_.shapes();
    form_.fused_tensors = form_.tensors.size();
    written_.resize(form_.fused_tensors);
    read_.resize(form_.fused_tensors);
    for (std::size_t i = 0; i < form_.fused_tensors; ++i) {
      written_[i] = form_.tensors[i].role == TensorRole::in;
    }
    for (std::size_t i = 0; i < operation_.unfused.size(); ++i) {
      const UnfusedStep& step = operation_.unfused[i];
      const Result<std::int64_t> there =
          step.when ? step.when->evaluate(fused_.scope()) : Result<std::int64_t>(1);
      Result<void> added = there ? Result<void>() : Result<void>(there.error());
      if (there && *there != 0) added = add(step);
      if (!added) {
        return wrong(
            concat(fused_.text(), ": step ", i, " of its unfused form: ", added.error().message));
      }
    }
    if (form_.kernels.size() < 2) {
      return Error{ErrorCode::not_found,
                   concat(fused_.text(), " has no unfused form: it is one kernel as it is")};
    }
    KW_TRY(check_whole());
    return std::move(form_);
  }

 private:
  static Error wrong(std::string_view what) {
    return {ErrorCode::invalid_argument, std::string(what)};
  }

  Result<Problem> problem_of(const ProblemPattern& pattern) const {
    std::string text;
    for (const ProblemPattern::Part& part : pattern.parts) {
      if (part.value) {
        KW_ASSIGN(const std::int64_t value, part.value->evaluate(fused_.scope()));
        text += concat(value);
      } else {
        text += part.is_name ? text_of(fused_, part.text) : part.text;
      }
    }
    return Problem::parse(text);
  }

  Result<void> add(const UnfusedStep& step) {
    KW_ASSIGN(const Problem asked, problem_of(step.problem));
    KW_ASSIGN(const Operation* operation, catalog_.operation(asked.operation()));
    KW_ASSIGN(BoundProblem bound, BoundProblem::bind(*operation, asked));
    UnfusedKernel kernel{.problem = std::move(bound), .tensors = {}, .scalars = {}};
    for (const auto& [name, from] : step.tensors) {
      if (find_named(operation->tensors, name)) continue;
      return wrong(concat(operation->name, " has no tensor ", name));
    }
    const std::vector<TensorShape>& shapes = kernel.problem.shapes();
    // Tensors that the step reads come first, because those that it writes exist only after it.
    kernel.tensors.resize(shapes.size());
    for (const bool writes : {false, true}) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        if ((shapes[i].role != TensorRole::in) != writes) continue;
        const Result<std::size_t> place = connect(shapes[i], step);
        if (!place) {
          return wrong(concat(kernel.problem.text(), ": tensor ", shapes[i].name, ": ",
                              place.error().message));
        }
        kernel.tensors[i] = *place;
      }
    }
    KW_TRY(wire_scalars(step, kernel));
    form_.kernels.push_back(std::move(kernel));
    return {};
  }

  /// Returns the index of the form's tensor for the step's tensor `shape`; adds it if it is new.
  Result<std::size_t> connect(const TensorShape& shape, const UnfusedStep& step) {
    const auto wire = std::ranges::find_if(
        step.tensors, [&](const auto& entry) { return entry.first == shape.name; });
    if (wire == step.tensors.end()) return wrong("the step does not say what it is");
    const std::vector<std::string>& names = wire->second;
    std::size_t place = kNone;
    for (std::size_t i = 0; i < names.size() && place == kNone; ++i) place = find(names[i]);
    const bool in_place = shape.role == TensorRole::inout;
    if (in_place && (place == kNone || form_.tensors[place].role != TensorRole::inout)) {
      return wrong("it is changed in place, unlike the problem's own");
    }
    const bool writes = shape.role != TensorRole::in;
    if (place == kNone) {
      if (!writes) return wrong(concat("there is no ", detail::join(names), " yet"));
      if (find_named(operation_.tensors, names.front())) {
        return wrong(concat("the problem has no ", names.front()));
      }
      place = form_.tensors.size();
      form_.tensors.push_back(shape);
      form_.tensors.back().name = names.front();
      written_.push_back(false);
      read_.push_back(false);
    }
    const TensorShape& given = form_.tensors[place];
    if (writes && written_[place]) return wrong(concat(given.name, " is there already"));
    if (!writes && !written_[place]) return wrong(concat(given.name, " is not written yet"));
    if (given.dtype != shape.dtype || given.elements() != shape.elements()) {
      return wrong(concat(shape.elements(), " elements of ", to_string(shape.dtype), ", but ",
                          given.name, " has ", given.elements(), " of ", to_string(given.dtype)));
    }
    if (given.layout() != shape.layout() &&
        !(given.layout().contiguous() && shape.layout().contiguous())) {
      return wrong(concat("rows of ", shape.columns(), " elements, ", shape.row_pitch(),
                          " apart, but those of ", given.name, " are of ", given.columns(), ", ",
                          given.row_pitch(), " apart"));
    }
    if (shape.alignment > given.alignment) {
      return wrong(concat("is aligned to ", shape.alignment, " bytes, but ", given.name, " to ",
                          given.alignment));
    }
    (writes ? written_ : read_)[place] = true;
    return place;
  }

  std::size_t find(std::string_view name) const {
    const TensorShape* found = find_named(form_.tensors, name);
    return found ? static_cast<std::size_t>(found - form_.tensors.data()) : kNone;
  }

  Result<void> wire_scalars(const UnfusedStep& step, UnfusedKernel& kernel) const {
    KW_ASSIGN(const std::vector<Scalar> own, fused_.scalars());
    KW_ASSIGN(const std::vector<Scalar> taken, kernel.problem.scalars());
    for (const Scalar& scalar : taken) kernel.scalars.push_back(scalar.default_value);
    for (const auto& [name, from] : step.scalars) {
      const Scalar* const value = find_named(own, from);
      const Scalar* const target = find_named(taken, name);
      if (!find_named(kernel.problem.operation().scalars, name)) {
        return wrong(concat(kernel.problem.operation().name, " has no scalar ", name));
      }
      if (!value != !target) {
        return wrong(concat(target ? fused_.text() : kernel.problem.text(), " takes no scalar ",
                            target ? from : name));
      }
      if (target) {
        kernel.scalars[static_cast<std::size_t>(target - taken.data())] = value->checked_value;
      }
    }
    return {};
  }

  Result<void> check_whole() const {
    for (std::size_t i = 0; i < form_.tensors.size(); ++i) {
      const TensorShape& tensor = form_.tensors[i];
      const bool is_result = i < form_.fused_tensors && tensor.role != TensorRole::in;
      if (is_result ? written_[i] : read_[i]) continue;
      return wrong(concat(fused_.text(), ": its unfused form never ",
                          is_result ? "writes " : "reads ", tensor.name));
    }
    return {};
  }

  const Catalog& catalog_;
  const BoundProblem& fused_;
  const Operation& operation_;  ///< of `fused_`
  UnfusedForm form_;
  std::vector<bool> written_;  ///< by tensor of the form
  std::vector<bool> read_;
};

}  // namespace

Result<UnfusedForm> unfused_form(const Catalog& catalog, const BoundProblem& problem) {
  return Former(catalog, problem).form();
}

}  // namespace kernwright
