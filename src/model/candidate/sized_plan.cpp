#include "model/candidate/sized_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "model/candidate/plan_builder.h"
#include "model/operation/layout.h"
#include "support/try.h"

namespace kernwright {

/// Reads what follows the sizes from the expressions of an operation and a template, beside the
/// plan that was made of them.
class SizedPlan::Reader {
 public:
  Reader(SizedPlan& made, const Candidate& valid, const SizedValues& values,
         const DeviceProfile& profile)
      : made_(made),
        valid_(valid),
        values_(values),
        profile_(profile),
        plan_(made.form_->plan),
        of_problem_(valid.problem->scope().size()) {}

  void read_workspaces() {
    std::size_t place = 0;
    for (const WorkspaceSpec& spec : valid_.kernel_template->workspaces) {
      add_number(place, in_all(spec.bytes), 0, kMaxWorkspaceBytes);
      add_fixed(in_all(spec.zeroed), plan_.workspaces[place].zeroed);
      add_fixed(in_all(spec.kept_zero), plan_.workspaces[place].kept_zero);
      ++place;
    }
  }

  void read_tensors() {
    const Operation& operation = valid_.problem->operation();
    std::size_t place = made_.form_->tensors;
    tensors_.assign(plan_.tensors.size(), std::nullopt);
    for (const Tensor& spec : operation.tensors) {
      const std::size_t number = index_of(plan_.tensors, spec.name);
      if (spec.when) add_fixed(in_problem(*spec.when), number < plan_.tensors.size());
      if (number < plan_.tensors.size()) read_tensor(spec, number, place);
    }
    for (const Scalar& scalar : operation.scalars) {
      const std::size_t number = index_of(plan_.scalars, scalar.name);
      if (scalar.when) add_fixed(in_problem(*scalar.when), number < plan_.scalars.size());
      if (!scalar.default_formula) continue;
      for (std::size_t i = 0; i < values_.size(); ++i) {
        if (values_.depends(i) && scalar.default_formula->uses(valid_.scope.name(i))) give_up();
      }
    }
  }

  void read_maps() {
    std::size_t number = 0;
    for (const TensorMapSpec& spec : valid_.kernel_template->tensor_maps) {
      const std::size_t tensor = index_of(plan_.tensors, spec.tensor);
      if (tensor == plan_.tensors.size()) continue;
      const bool is_there =
          number < plan_.tensor_maps.size() && plan_.tensor_maps[number].name == spec.name;
      add_fixed(in_all(spec.when), is_there);
      if (!is_there) continue;
      read_map(spec, number++, tensor);
    }
  }

  void read_launches() {
    std::size_t number = 0;
    for (const LaunchSpec& spec : valid_.kernel_template->launches) {
      PlacedExpression when = in_all(spec.when);
      const bool is_there = value_of(when) != 0;
      add_fixed(std::move(when), is_there);
      if (is_there) read_launch(spec, number++);
    }
  }

  /// Moves all expressions to a row of what they read.
  void place_all() {
    std::vector<bool> is_read(values_.size());
    visit([&](PlacedExpression& one) { SizedRow::read(one, is_read); });
    made_.row_ = SizedRow(values_, std::move(is_read));
    visit([&](PlacedExpression& one) { one = made_.row_.placed(one); });
    if (!made_.row_.fits()) give_up();
  }

 private:
  template <typename Named>
  static std::size_t index_of(const std::vector<Named>& items, std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(items, name, &Named::name) - items.begin());
  }
  PlacedExpression in_problem(const Expression& one) const {
    return values_.fold(one, of_problem_);
  }
  PlacedExpression in_all(const Expression& one) const { return values_.fold(one, values_.size()); }
  /// Returns the value for the candidate's own sizes.
  std::int64_t value_of(const PlacedExpression& one) const {
    return one.evaluate(valid_.scope.values()).value_or(0);
  }
  void give_up() { made_.computes_ = false; }

  void add_number(std::size_t to, PlacedExpression expression, std::int64_t least,
                  std::int64_t most, std::int64_t multiple = 1) {
    if (expression.constant()) return;  // the form has it
    made_.numbers_.push_back({to, std::move(expression), least, most, multiple});
  }
  void add_fixed(PlacedExpression expression, std::int64_t value) {
    if (!expression.constant()) made_.fixed_.push_back({std::move(expression), value});
  }

  /// Reads the tensor with this number, whose numbers begin at `place`. Adds how many they are.
  void read_tensor(const Tensor& spec, std::size_t number, std::size_t& place) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const TensorShape& shape = plan_.tensors[number];
    if (spec.written) {
      PlacedExpression written = in_problem(*spec.written);
      if (shape.written) {
        add_number(place++, std::move(written), 1, kMost);
      } else {
        add_fixed(std::move(written), 0);
      }
    }
    SizedTensor sized{.extents = place,
                      .rank = shape.extent.size(),
                      .dtype = shape.dtype,
                      .has_gaps = !shape.pitches.empty(),
                      .pitches = {}};
    bool follows = false;
    for (const Expression& extent : spec.extent) {
      PlacedExpression one = in_problem(extent);
      follows = follows || !one.constant();
      add_number(place++, std::move(one), 1, kMost);
    }
    for (const Expression& pitch : spec.pitches) {
      follows = follows || !sized.pitches.emplace_back(in_problem(pitch)).constant();
    }
    place += shape.pitches.size();
    if (spec.values) {
      constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
      const auto add_value = [&](const Expression& one) {
        add_number(place++, in_problem(one), kLeast, kMost);
      };
      add_value(spec.values->least);
      add_value(spec.values->most);
      if (spec.values->rise) add_value(*spec.values->rise);
      if (spec.values->per) add_value(*spec.values->per);
    }
    if (spec.draw) {
      for (const TensorDraw::Number* end : {&spec.draw->from, &spec.draw->to}) {
        const auto* const one = std::get_if<Expression>(end);
        if (one != nullptr && !in_problem(*one).constant()) give_up();
      }
      if (spec.draw->kind == DrawKind::permutation && follows) give_up();
    }
    if (follows) {
      tensors_[number] = made_.tensors_.size();
      made_.tensors_.push_back(std::move(sized));
    } else {
      made_.fixed_bytes_ += static_cast<double>(shape.bytes());
    }
  }

  void read_map(const TensorMapSpec& spec, std::size_t number, std::size_t tensor) {
    add_fixed(in_all(spec.swizzle), plan_.tensor_maps[number].swizzle);
    add_fixed(in_all(spec.l2_promotion), plan_.tensor_maps[number].l2_promotion);
    const std::vector<std::uint32_t>& box = plan_.tensor_maps[number].box;
    for (std::size_t i = 0; i < spec.box.size(); ++i) {
      add_fixed(in_all(spec.box[i]), box[box.size() - 1 - i]);
    }
    std::int64_t copied = 0;
    if (!spec.copy.empty()) {
      const std::size_t workspace = index_of(plan_.workspaces, spec.copy);
      made_.emptied_.push_back(workspace);
      const std::optional<std::int64_t> pitch = in_all(spec.pitch).constant();
      const bool is_copied = plan_.tensor_maps[number].workspace != TensorMapPlan::kInTensor;
      if (is_copied && !pitch) give_up();
      if (is_copied) copied = pitch.value_or(0);
    }
    for (const Expression& dim : spec.view) {
      if (!in_all(dim).constant() || tensors_[tensor]) give_up();
    }
    if (!tensors_[tensor]) return;
    made_.maps_.push_back({.to = made_.form_->maps[number],
                           .tensor = made_.tensors_[*tensors_[tensor]],
                           .workspace = plan_.tensor_maps[number].workspace,
                           .copied = copied});
  }

  void read_launch(const LaunchSpec& spec, std::size_t number) {
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const LaunchPlan& launch = plan_.launches[number];
    std::size_t place = made_.form_->launches[number];
    for (std::size_t i = 0; i < spec.grid.size(); ++i) {
      add_number(place + i, in_all(spec.grid[i]), 1, kMaxGrid[i], launch.cluster[i]);
    }
    if (launch.cooperative) {
      made_.resident_.push_back({place, profile_.sm_count * profile_.max_blocks_per_sm});
    }
    add_number(place + PlanForm::kDynamicSmem, in_all(spec.dynamic_smem), 0,
               profile_.smem_per_block_optin);
    place += PlanForm::kArguments;
    for (std::size_t i = 0; i < spec.block.size(); ++i) {
      add_fixed(in_all(spec.block[i]), launch.block[i]);
    }
    for (std::size_t i = 0; i < spec.cluster.size(); ++i) {
      add_fixed(in_all(spec.cluster[i]), launch.cluster[i]);
    }
    add_fixed(in_all(spec.cooperative), launch.cooperative);
    add_fixed(in_all(spec.programmatic), launch.programmatic);
    PlacedExpression waits = in_all(spec.waits);
    const std::int64_t waits_now = value_of(waits);
    add_fixed(std::move(waits), waits_now);
    for (std::size_t i = 0; i < spec.arguments.size(); ++i) {
      const ArgumentSpec& argument = spec.arguments[i];
      if (!carries_value(launch.arguments[i])) continue;
      if (argument.kind != ArgumentKind::scalar) {  // a scalar's default is in the form
        const bool is_wide = argument.kind == ArgumentKind::int64;
        add_number(place, in_all(argument.expression),
                   is_wide ? kLeast : std::numeric_limits<std::int32_t>::min(),
                   is_wide ? kMost : std::numeric_limits<std::int32_t>::max());
      }
      ++place;
    }
  }

  template <typename Visit>
  void visit(const Visit& visit) {
    for (Fixed& one : made_.fixed_) visit(one.expression);
    for (Number& one : made_.numbers_) visit(one.expression);
    for (SizedTensor& tensor : made_.tensors_) std::ranges::for_each(tensor.pitches, visit);
  }

  SizedPlan& made_;
  const Candidate& valid_;
  const SizedValues& values_;
  const DeviceProfile& profile_;
  const ExecutionPlan& plan_;
  std::size_t of_problem_;
  std::vector<std::optional<std::size_t>> tensors_;  ///< the sized one of each of the plan's
};

SizedPlan::SizedPlan(const Candidate& valid, std::span<const std::string> free,
                     const DeviceProfile& profile)
    : kernel_template_(*valid.kernel_template),
      problem_(valid.problem),
      configuration_(valid.configuration),
      free_(free.begin(), free.end()),
      form_(std::make_shared<const PlanForm>(valid.plan)) {
  const SizedValues values(valid, free);
  Reader reader(*this, valid, values, profile);
  reader.read_workspaces();
  reader.read_tensors();
  reader.read_maps();
  reader.read_launches();
  reader.place_all();
}

Problem SizedPlan::problem(std::span<const std::int64_t> sizes) const {
  const Problem& like = problem_->problem();
  Problem::Dims dims = like.dims();
  for (std::size_t i = 0; i < free_.size(); ++i) {
    for (auto& [name, size] : dims) {
      if (name == free_[i]) size = sizes[i];
    }
  }
  return Problem::make(like.operation(), std::move(dims), like.flags());
}

Result<Candidate> SizedPlan::candidate(std::span<const std::int64_t> sizes,
                                       const DeviceProfile& profile) const {
  KW_ASSIGN(const BoundProblem problem, problem_->resized(this->problem(sizes).dims()));
  return make_candidate(kernel_template_, problem, configuration_, profile);
}

Result<std::shared_ptr<const CompactPlan>> SizedPlan::at(std::span<const std::int64_t> sizes,
                                                         const DeviceProfile& profile) const {
  std::vector<std::int64_t> numbers;
  double bytes = 0;
  if (computes_ && compute(sizes, numbers, bytes)) {
    return std::make_shared<const CompactPlan>(form_, std::move(numbers), bytes);
  }
  KW_ASSIGN(Candidate made, candidate(sizes, profile));
  return std::make_shared<const CompactPlan>(std::move(made.plan));
}

bool SizedPlan::compute(std::span<const std::int64_t> sizes, std::vector<std::int64_t>& numbers,
                        double& bytes) const {
  SizedRow::Row row;
  if (!row_.fill(sizes, row)) return false;
  for (const Fixed& fixed : fixed_) {
    if (fixed.expression.evaluate(row) != fixed.value) return false;
  }
  numbers = form_->numbers;
  for (const Number& number : numbers_) {
    const std::optional<std::int64_t> value = number.expression.evaluate(row);
    if (!value || *value < number.least || *value > number.most || *value % number.multiple != 0) {
      return false;
    }
    numbers[number.to] = *value;
  }
  for (const std::size_t workspace : emptied_) {
    if ((numbers[workspace] == 0) != (form_->numbers[workspace] == 0)) return false;
  }
  bytes = fixed_bytes_;
  for (const SizedTensor& tensor : tensors_) {
    if (!place(tensor, row, numbers, bytes)) return false;
  }
  for (const SizedMap& map : maps_) {
    if (!place(map, numbers)) return false;
  }
  return std::ranges::all_of(resident_, [&](const Resident& launch) {
    const std::int64_t* const grid = numbers.data() + launch.grid;
    return grid[0] * grid[1] * grid[2] <= launch.most;
  });
}

bool SizedPlan::place(const SizedTensor& tensor, const SizedRow::Row& row,
                      std::span<std::int64_t> numbers, double& bytes) {
  const std::int64_t element = bytes_of(1, tensor.dtype);
  const std::span<std::int64_t> extents = numbers.subspan(tensor.extents, tensor.rank);
  std::int64_t size = element;
  for (const std::int64_t extent : extents) {
    if (__builtin_mul_overflow(size, extent, &size)) return false;
  }
  std::int64_t inner = extents.back();  // elements of an entry without gaps
  std::int64_t entry = inner;           // from its first to its last, with gaps
  bool has_gaps = false;
  for (std::size_t i = tensor.rank - 1; i-- > 0;) {
    std::int64_t pitch = inner;
    if (!tensor.pitches.empty()) {
      const std::optional<std::int64_t> value = tensor.pitches[i].evaluate(row);
      if (!value || *value < entry || __builtin_mul_overflow(extents[i] * element, *value, &size)) {
        return false;
      }
      pitch = *value;
    }
    has_gaps = has_gaps || pitch != inner;
    if (tensor.has_gaps) numbers[tensor.extents + tensor.rank + i] = pitch;
    entry += (extents[i] - 1) * pitch;
    inner *= extents[i];
  }
  bytes += static_cast<double>(bytes_of(entry, tensor.dtype));
  return has_gaps == tensor.has_gaps && (!has_gaps || tensor.rank - 1 <= Layout::kMaxLevels);
}

bool SizedPlan::place(const SizedMap& map, std::span<std::int64_t> numbers) {
  const SizedTensor& tensor = map.tensor;
  const std::size_t rank = tensor.rank;
  const std::span<const std::int64_t> extents = numbers.subspan(tensor.extents, rank);
  std::int64_t rows = 1;
  std::int64_t inner = extents.back();  // elements of an entry of the tensor
  for (std::size_t i = rank; i-- > 0;) {
    if (extents[i] > kMaxMapExtent) return false;
    const std::size_t from_inside = rank - 1 - i;
    numbers[map.to + from_inside] = extents[i];
    if (i == 0) break;
    const std::int64_t pitch = map.copied != 0   ? rows * map.copied
                               : tensor.has_gaps ? numbers[tensor.extents + rank + i - 1]
                                                 : inner;
    const std::int64_t stride = bytes_of(pitch, tensor.dtype);
    if (stride % kMapAlignment != 0 || stride >= kMapStrideEnd) return false;
    numbers[map.to + rank + from_inside] = stride;
    rows *= extents[i - 1];
    inner *= extents[i - 1];
  }
  return map.copied == 0 || (map.copied >= extents.back() &&
                             bytes_of(rows * map.copied, tensor.dtype) <= numbers[map.workspace]);
}

}  // namespace kernwright
