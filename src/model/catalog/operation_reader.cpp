#include "model/catalog/operation_reader.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "model/candidate/device_profile.h"
#include "model/catalog/launch_reader.h"
#include "model/expression/json_reader.h"
#include "support/try.h"

namespace kernwright {
namespace {

using detail::Diagnostics;
using detail::JsonReader;

DType read_dtype(const JsonReader& json) {
  const std::string name = json.string();
  const std::optional<DType> dtype = parse_dtype(name);
  if (json.present() && !dtype) {
    std::string known;
    for (const DType one : kDTypes) known += concat(known.empty() ? "" : ", ", to_string(one));
    json.fail(concat("unknown dtype \"", name, "\", known are ", known));
  }
  return dtype.value_or(DType::fp32);
}

template <typename Enum>
Enum read_enum(const JsonReader& json,
               std::initializer_list<std::pair<std::string_view, Enum>> rows) {
  const std::string text = json.string();
  std::string known;
  for (const auto& [name, value] : rows) {
    if (name == text) return value;
    known += concat(known.empty() ? "" : ", ", name);
  }
  if (json.present()) json.fail(concat("\"", text, "\" is not one of ", known));
  return rows.begin()->second;
}

/// Refuses a name that is already in the list.
template <typename Named>
void expect_new(const JsonReader& json, const std::vector<Named>& others, const std::string& name) {
  for (const Named& other : others) {
    if (other.name == name) json.fail(concat("\"", name, "\" is named twice"));
  }
}

class OperationReader {
 public:
  OperationReader(const JsonReader& json, bool bind_cases) : json_(json), bind_cases_(bind_cases) {}

  Operation read() {
    json_.expect_keys({"operation", "description", "dims", "dtypes", "flags", "derived", "requires",
                       "tensors", "scalars", "inputs", "tolerance", "flops", "bytes", "specials",
                       "unfused", "call", "example", "cases", "reference"});
    operation_.name = json_.required("operation").value_name();
    operation_.description = json_.required("description").string();
    read_dims(json_.required("dims"));
    read_dtypes(json_.optional("dtypes"));
    read_flags(json_.optional("flags"));
    names_ = operation_.value_names();
    check_names();
    read_default_sizes(json_.required("dims"));
    read_derived(json_.optional("derived"));
    operation_.requirements = detail::read_rules(json_.optional("requires"), names_);
    for (const JsonReader& tensor : json_.required("tensors").elements()) read_tensor(tensor);
    for (const JsonReader& scalar : json_.optional("scalars").elements()) read_scalar(scalar);
    read_inputs(json_.required("inputs"));
    read_tolerance(json_.required("tolerance"));
    operation_.flops = json_.required("flops").expression(names_);
    operation_.bytes = json_.required("bytes").expression(names_);
    if (const JsonReader specials = json_.optional("specials"); specials.present()) {
      operation_.specials = specials.expression(names_);
    }
    operation_.unfused = detail::read_unfused(json_.optional("unfused"), operation_, names_);
    read_call(json_.optional("call"));
    read_reference(json_.required("reference"));
    if (json_.diagnostics().ok()) read_example(json_.required("example"));
    if (json_.diagnostics().ok()) read_cases(json_.optional("cases"));
    return std::move(operation_);
  }

 private:
  void read_dims(const JsonReader& json) {
    for (const auto& [name, dim] : json.members()) {
      dim.expect_keys({"bind", "edges", "distance", "default"});
      expect_name(dim, name);
      const DimMatch match = read_enum<DimMatch>(
          dim.required("bind"), {{"exact", DimMatch::exact}, {"bucket", DimMatch::bucket}});
      operation_.dims.push_back({.name = name, .match = match});
      read_families(dim, operation_.dims.back());
    }
    if (operation_.dims.empty()) json.fail("an operation has at least one dim");
  }

  /// Reads the default sizes of dims. They may use the dims before their own; the dims come last
  /// among the names.
  void read_default_sizes(const JsonReader& json) {
    std::size_t known = names_.size() - operation_.dims.size();
    std::size_t i = 0;
    for (const auto& [name, entry] : json.members()) {
      const JsonReader size = entry.optional("default");
      Dim& dim = operation_.dims[i++];
      if (size.present()) dim.default_size = size.expression(std::span(names_).first(known));
      ++known;
    }
  }

  void read_derived(const JsonReader& json) {
    if (!json.present()) return;
    for (const auto& [name, entry] : json.members()) {
      expect_name(entry, name);
      operation_.derived.push_back({name, entry.expression(names_)});
      names_.push_back(name);
      check_names();
    }
  }

  static void read_families(const JsonReader& json, Dim& dim) {
    const JsonReader edges = json.optional("edges");
    const JsonReader distance = json.optional("distance");
    if (dim.match == DimMatch::exact && (edges.present() || distance.present())) {
      json.fail("edges and distance belong to a dim that is bound by bucket");
    }
    if (edges.present()) {
      for (const JsonReader& edge : edges.elements()) {
        const std::int64_t size = edge.integer();
        if (size <= (dim.edges.empty() ? 0 : dim.edges.back())) {
          edge.fail(concat("edge ", size, " is not above the one before it"));
        }
        dim.edges.push_back(size);
      }
    }
    if (!distance.present()) return;
    dim.distance = distance.number();
    if (!(dim.distance >= 1)) {
      distance.fail(concat("distance ", dim.distance, " is below 1, the ratio of equal sizes"));
    }
  }

  void read_dtypes(const JsonReader& json) {
    if (!json.present()) return;
    for (const auto& [name, entry] : json.members()) {
      expect_name(entry, name);
      TypeVariable variable{name, {}, {}};
      if (entry.is_object()) entry.expect_keys({"values", "default"});
      const JsonReader dtypes = entry.is_object() ? entry.required("values") : entry;
      for (const JsonReader& element : dtypes.elements()) {
        const DType dtype = read_dtype(element);
        if (std::find(variable.dtypes.begin(), variable.dtypes.end(), dtype) !=
            variable.dtypes.end()) {
          element.fail(concat("dtype ", to_string(dtype), " is listed twice"));
        }
        variable.dtypes.push_back(dtype);
      }
      if (variable.dtypes.empty()) dtypes.fail("at least one dtype is needed");
      if (entry.is_object()) read_default_variable(entry.required("default"), variable);
      operation_.type_variables.push_back(std::move(variable));
    }
  }

  /// Reads the earlier variable whose dtype `variable` has by default; `variable` must accept all
  /// of its dtypes.
  void read_default_variable(const JsonReader& json, TypeVariable& variable) const {
    variable.default_variable = json.string();
    for (const TypeVariable& earlier : operation_.type_variables) {
      if (earlier.name != variable.default_variable) continue;
      for (const DType dtype : earlier.dtypes) {
        if (std::find(variable.dtypes.begin(), variable.dtypes.end(), dtype) ==
            variable.dtypes.end()) {
          json.fail(
              concat(earlier.name, " may be ", to_string(dtype), ", ", variable.name, " may not"));
        }
      }
      return;
    }
    json.fail(
        concat("\"", variable.default_variable, "\" is no type variable before ", variable.name));
  }

  void read_flags(const JsonReader& json) {
    if (!json.present()) return;
    for (const auto& [name, entry] : json.members()) {
      entry.expect_keys({"values", "default", "formula", "function"});
      expect_name(entry, name);
      Flag flag{name, {}, 0, {}, {}};
      if (const JsonReader function = entry.optional("function"); function.present()) {
        flag.declaration = function.string();
        flag.values.emplace_back("none");
        if (entry.members().size() > 1) entry.fail("a function has no further fields");
        operation_.flags.push_back(std::move(flag));
        continue;
      }
      if (const JsonReader variables = entry.optional("formula"); variables.present()) {
        read_variables(variables, flag);
        if (entry.optional("values").present() || entry.optional("default").present()) {
          entry.fail("a formula has neither values nor a default");
        }
        operation_.flags.push_back(std::move(flag));
        continue;
      }
      for (const JsonReader& element : entry.required("values").elements()) {
        std::string value = element.string();
        if (!is_identifier(value)) element.fail(concat("\"", value, "\" is no identifier"));
        flag.values.push_back(std::move(value));
      }
      const JsonReader chosen = entry.required("default");
      const std::string value = chosen.string();
      const auto found = std::find(flag.values.begin(), flag.values.end(), value);
      if (found == flag.values.end()) {
        chosen.fail(concat("\"", value, "\" is not one of ", detail::join(flag.values)));
      }
      flag.default_index = found - flag.values.begin();
      operation_.flags.push_back(std::move(flag));
    }
  }

  static void read_variables(const JsonReader& json, Flag& flag) {
    for (const JsonReader& element : json.elements()) {
      flag.variables.push_back(element.value_name());
      if (Formula::is_function(flag.variables.back())) {
        element.fail(concat("\"", flag.variables.back(), "\" is a function of formulas"));
      }
    }
    if (flag.variables.empty()) json.fail("a formula has at least one variable");
  }

  static void expect_name(const JsonReader& json, const std::string& name) {
    if (!is_value_name(name)) {
      json.fail(concat("\"", name, "\" cannot be a name: an identifier that C++ does not reserve"));
    }
  }

  /// Checks that every name for expressions and the generated header has one meaning.
  void check_names() const {
    std::vector<std::string> all = names_;
    for (const TypeVariable& variable : operation_.type_variables) {
      all.push_back(variable.name + "_t");
    }
    for (const std::string_view name : device_field_names()) all.emplace_back(name);
    std::sort(all.begin(), all.end());
    const auto twice = std::adjacent_find(all.begin(), all.end());
    if (twice != all.end()) {
      json_.fail(concat("\"", *twice,
                        "\" would name two things: of dims, dtypes, flags, their "
                        "constants, derived values and the device's fields"));
    }
  }

  void read_tensor(const JsonReader& json) {
    json.expect_keys({"name", "role", "dtype", "extent", "pitches", "alignment", "when", "hint",
                      "written", "l2", "draw", "values", "exact", "infinite", "intermediate",
                      "in_place"});
    Tensor tensor;
    tensor.name = json.required("name").value_name();
    expect_new(json, operation_.tensors, tensor.name);
    tensor.role = read_enum<TensorRole>(
        json.required("role"),
        {{"in", TensorRole::in}, {"out", TensorRole::out}, {"inout", TensorRole::inout}});
    const JsonReader dtype = json.required("dtype");
    const std::string variable = dtype.string();
    if (is_type_variable(variable)) {
      tensor.dtype_variable = variable;
    } else {
      tensor.fixed_dtype = read_dtype(dtype);
    }
    tensor.extent = json.required("extent").expressions(names_);
    if (tensor.extent.empty()) json.fail("a tensor has at least one extent");
    if (const JsonReader pitches = json.optional("pitches"); pitches.present()) {
      tensor.pitches = pitches.expressions(names_);
      if (tensor.pitches.size() + 1 != tensor.extent.size()) {
        pitches.fail(concat(tensor.pitches.size(), " pitches of ", tensor.extent.size(),
                            " extents; each but the last has one"));
      }
    }
    if (const JsonReader alignment = json.optional("alignment"); alignment.present()) {
      tensor.alignment = alignment.integer();
      if (tensor.alignment < 1 || (tensor.alignment & (tensor.alignment - 1)) != 0) {
        alignment.fail(concat(tensor.alignment, " is no power of two"));
      }
    }
    if (const JsonReader when = json.optional("when"); when.present()) {
      tensor.when = when.expression(names_);
    }
    if (const JsonReader hint = json.optional("hint"); hint.present()) {
      tensor.hint = hint.boolean();
      if (tensor.role != TensorRole::in) hint.fail("only a tensor of role \"in\" may be one");
    }
    if (const JsonReader written = json.optional("written"); written.present()) {
      tensor.written = written.expression(names_);
      if (tensor.role != TensorRole::inout) written.fail("only of a tensor of role \"inout\"");
    }
    if (const JsonReader l2 = json.optional("l2"); l2.present()) {
      tensor.warm = read_enum<bool>(l2, {{"warm", true}});
      if (tensor.role != TensorRole::in) l2.fail("only a tensor of role \"in\" may be warm");
    }
    if (const JsonReader draw = json.optional("draw"); draw.present()) {
      if (tensor.role == TensorRole::out) draw.fail("an output is not drawn");
      tensor.draw = read_draw(draw);
    }
    if (const JsonReader values = json.optional("values"); values.present()) {
      const bool is_integer =
          tensor.dtype_variable.empty() &&
          (tensor.fixed_dtype == DType::int32 || tensor.fixed_dtype == DType::int64);
      if (tensor.role != TensorRole::in || !is_integer) {
        values.fail("only an input of int32 or int64 has them");
      }
      tensor.values = read_values(values);
    }
    read_comparison(json, tensor);
    read_in_place(json, tensor);
    operation_.tensors.push_back(std::move(tensor));
  }

  std::string earlier_tensor(const JsonReader& json) const {
    std::string name = json.string();
    if (std::none_of(operation_.tensors.begin(), operation_.tensors.end(),
                     [&](const Tensor& known) { return known.name == name; })) {
      json.fail(concat("no tensor \"", name, "\" before this one"));
    }
    return name;
  }

  ValueRange<Expression> read_values(const JsonReader& json) const {
    json.expect_keys({"from", "to", "rise", "falls", "counted_by"});
    ValueRange<Expression> range{.least = json.required("from").expression(names_),
                                 .most = json.required("to").expression(names_)};
    if (const JsonReader rise = json.optional("rise"); rise.present()) {
      range.rise = rise.expression(names_);
    }
    if (const JsonReader falls = json.optional("falls"); falls.present()) {
      range.falls = falls.boolean();
    }
    if (const JsonReader counted_by = json.optional("counted_by"); counted_by.present()) {
      counted_by.expect_keys({"tensor", "per", "rows"});
      range.counted_by = earlier_tensor(counted_by.required("tensor"));
      if (const JsonReader per = counted_by.optional("per"); per.present()) {
        range.per = per.expression(names_);
      }
      if (const JsonReader rows = counted_by.optional("rows"); rows.present()) {
        range.rows = earlier_tensor(rows);
      }
    }
    return range;
  }

  bool is_type_variable(std::string_view name) const {
    return std::any_of(operation_.type_variables.begin(), operation_.type_variables.end(),
                       [&](const TypeVariable& known) { return known.name == name; });
  }

  /// Reads how an output is compared with the reference.
  void read_comparison(const JsonReader& json, Tensor& tensor) const {
    for (const std::string_view field : {"exact", "infinite", "intermediate"}) {
      const JsonReader given = json.optional(field);
      if (given.present() && tensor.role == TensorRole::in) given.fail("an input is not compared");
    }
    if (const JsonReader exact = json.optional("exact"); exact.present()) {
      tensor.exact = read_enum<bool>(exact, {{"none", false}});
    }
    if (const JsonReader infinite = json.optional("infinite"); infinite.present()) {
      tensor.infinite = read_enum<bool>(infinite, {{"equal", true}});
    }
    if (const JsonReader intermediate = json.optional("intermediate"); intermediate.present()) {
      tensor.intermediate = intermediate.string();
      if (!is_type_variable(tensor.intermediate)) {
        intermediate.fail(concat("no type variable \"", tensor.intermediate, "\""));
      }
    }
  }

  /// Reads whose memory an output may be.
  void read_in_place(const JsonReader& json, Tensor& tensor) const {
    const JsonReader in_place = json.optional("in_place");
    if (!in_place.present()) return;
    if (tensor.role != TensorRole::out) in_place.fail("only an output lies in an input's memory");
    tensor.in_place = in_place.string();
    const auto input = std::find_if(
        operation_.tensors.begin(), operation_.tensors.end(), [&](const Tensor& known) {
          return known.name == tensor.in_place && known.role == TensorRole::in;
        });
    if (input == operation_.tensors.end()) {
      in_place.fail(concat("no input \"", tensor.in_place, "\" before this one"));
      return;
    }
    const auto same_text = [](const Expression& a, const Expression& b) {
      return a.text() == b.text();
    };
    const bool alike = input->dtype_variable == tensor.dtype_variable &&
                       input->fixed_dtype == tensor.fixed_dtype &&
                       std::equal(input->extent.begin(), input->extent.end(), tensor.extent.begin(),
                                  tensor.extent.end(), same_text) &&
                       std::equal(input->pitches.begin(), input->pitches.end(),
                                  tensor.pitches.begin(), tensor.pitches.end(), same_text);
    if (!alike) in_place.fail(concat("\"", tensor.in_place, "\" has another dtype or layout"));
  }

  /// Reads a draw: its name, or an object with its numbers.
  TensorDraw read_draw(const JsonReader& json) const {
    constexpr std::string_view kKnown =
        "\"normal\", \"small_integers\", \"permutation\", {\"uniform\": {\"from\": ..., \"to\": "
        "...}}, "
        "{\"offsets\": {\"to\": ...}}, {\"constant\": ...}";
    if (!json.is_object()) {
      for (const DrawKind kind :
           {DrawKind::normal, DrawKind::small_integers, DrawKind::permutation}) {
        if (json.is(to_string(kind))) return {kind, {}, {}};
      }
      json.fail(concat("no known draw, which are ", kKnown));
      return {};
    }
    const auto members = json.members();
    if (members.size() == 1) {
      const auto& [name, numbers] = members.front();
      if (name == to_string(DrawKind::constant)) {
        return {DrawKind::constant, read_number(numbers), {}};
      }
      if (name == to_string(DrawKind::uniform)) {
        numbers.expect_keys({"from", "to"});
        return {DrawKind::uniform, read_number(numbers.required("from")),
                read_number(numbers.required("to"))};
      }
      if (name == to_string(DrawKind::offsets)) {
        numbers.expect_keys({"to"});
        return {DrawKind::offsets, {}, read_number(numbers.required("to"))};
      }
    }
    json.fail(concat("no known draw, which are ", kKnown));
    return {};
  }

  TensorDraw::Number read_number(const JsonReader& json) const {
    if (json.is_string()) return json.expression(names_);
    return json.number();
  }

  void read_scalar(const JsonReader& json) {
    json.expect_keys({"name", "dtype", "default", "check", "when"});
    Scalar scalar;
    scalar.name = json.required("name").value_name();
    expect_new(json, operation_.scalars, scalar.name);
    expect_new(json, operation_.tensors, scalar.name);
    scalar.dtype = read_enum<DType>(json.required("dtype"), {{"fp32", DType::fp32},
                                                             {"fp64", DType::fp64},
                                                             {"int32", DType::int32},
                                                             {"int64", DType::int64}});
    const JsonReader usual = json.required("default");
    const JsonReader check = json.optional("check");
    if (usual.is_string()) {
      // Checks of the default alone would not find a kernel that computes it by itself.
      const Result<Formula> formula = Formula::parse(usual.string(), names_);
      if (!formula) usual.fail(formula.error().message);
      if (formula) scalar.default_formula = *formula;
      scalar.checked_value = json.required("check").number();
    } else {
      scalar.default_value = usual.number();
      scalar.checked_value = check.present() ? check.number() : scalar.default_value;
    }
    if (const JsonReader when = json.optional("when"); when.present()) {
      scalar.when = when.expression(names_);
    }
    operation_.scalars.push_back(std::move(scalar));
  }

  void read_inputs(const JsonReader& json) {
    if (json.optional("draw").present()) {
      read_input_kernels(json);
      return;
    }
    json.expect_keys({"timing", "exact", "exact_when"});
    operation_.timing_inputs = read_enum<DrawKind>(
        json.required("timing"),
        {{"normal", DrawKind::normal}, {"small_integers", DrawKind::small_integers}});
    operation_.exact_inputs = read_enum<std::optional<DrawKind>>(
        json.required("exact"),
        {{"small_integers", DrawKind::small_integers}, {"none", std::nullopt}});
    read_exact_when(json.optional("exact_when"), operation_.exact_inputs.has_value());
  }

  /// Reads the input kernels. `json` names a file with a kernel for each set, which fills every
  /// input.
  void read_input_kernels(const JsonReader& json) {
    json.expect_keys(
        {"draw", "timing", "exact", "exact_when", "count", "nan", "grid", "block", "arguments"});
    InputKernels kernels;
    kernels.source_file = json.required("draw").string();
    if (kernels.source_file.empty() || kernels.source_file.find('/') != std::string::npos) {
      json.required("draw").fail(
          concat("\"", kernels.source_file, "\" is no file beside operation.json"));
    }
    kernels.timing = json.required("timing").value_name();
    const JsonReader exact = json.required("exact");
    if (!exact.is("none")) kernels.exact = exact.value_name();
    if (const JsonReader count = json.optional("count"); count.present()) {
      kernels.count = count.value_name();
    }
    if (const JsonReader nan = json.optional("nan"); nan.present()) {
      kernels.nan = nan.value_name();
    }
    detail::ArgumentNames arguments;
    for (const Tensor& tensor : operation_.tensors) {
      if (tensor.role != TensorRole::out) arguments.tensors.push_back(tensor.name);
      if (!tensor.draw) continue;
      json.fail(concat("tensor \"", tensor.name, "\" is drawn by ", kernels.source_file,
                       " and has a draw of its own, ", to_string(tensor.draw->kind)));
    }
    arguments.scalars.emplace_back(InputKernels::kSeed);
    for (const Scalar& scalar : operation_.scalars) {
      if (scalar.name == InputKernels::kSeed) {
        json.fail(concat("\"", scalar.name, "\" is a scalar of the operation and of a set"));
      }
      arguments.scalars.push_back(scalar.name);
    }
    kernels.launch = detail::read_geometry(json, names_, arguments);
    read_exact_when(json.optional("exact_when"), !kernels.exact.empty());
    operation_.input_kernels = std::move(kernels);
  }

  void read_exact_when(const JsonReader& json, bool exact) {
    if (!json.present()) return;
    operation_.exact_when = json.expression(names_);
    if (!exact) json.fail("there are no exact inputs");
  }

  void read_tolerance(const JsonReader& json) {
    json.expect_keys({"reduction", "accumulate"});
    if (const JsonReader reduction = json.optional("reduction"); reduction.present()) {
      operation_.tolerance.reduction = reduction.expression(names_);
    }
    operation_.tolerance.accumulate = read_dtype(json.required("accumulate"));
  }

  void read_reference(const JsonReader& json) {
    json.expect_keys({"kernel", "grid", "block", "arguments"});
    detail::ArgumentNames arguments;
    for (const Tensor& tensor : operation_.tensors) {
      if (tensor.role != TensorRole::out) arguments.tensors.push_back(tensor.name);
      if (tensor.role != TensorRole::in) arguments.references.push_back(tensor.name);
    }
    if (arguments.references.empty()) {
      json_.fail("no tensor is an output: role \"out\" or \"inout\"");
    }
    for (const Scalar& scalar : operation_.scalars) arguments.scalars.push_back(scalar.name);
    operation_.reference = detail::read_launch(json, names_, arguments);
  }

  /// Reads what callers do otherwise than the tensors say.
  void read_call(const JsonReader& json) {
    if (!json.present()) return;
    json.expect_keys(
        {"leading", "swapped", "broadcast", "first", "dims", "options", "names", "flags", "made"});
    CallForm& call = operation_.call;
    const auto named = [](const auto& items, const std::string& name) {
      return std::any_of(items.begin(), items.end(),
                         [&](const auto& item) { return item.name == name; });
    };
    const auto read_names = [&](const JsonReader& list, const auto& items) {
      std::vector<std::string> names;
      for (const JsonReader& element : list.elements()) {
        names.push_back(element.string());
        if (!named(items, names.back())) element.fail(concat("no \"", names.back(), "\""));
      }
      return names;
    };
    if (const JsonReader leading = json.optional("leading"); leading.present()) {
      call.leading = leading.expression(names_).text();
    }
    if (const JsonReader swapped = json.optional("swapped"); swapped.present()) {
      swapped.expect_keys({"when", "tensors", "axes"});
      const std::vector<JsonReader> axes = swapped.required("axes").elements();
      if (axes.size() != 2) swapped.fail("two axes are swapped, counted from the last: [-3, -2]");
      const auto axis = [&](std::size_t i) {
        const std::int64_t at = i < axes.size() ? axes[i].integer() : -1;
        if (at >= 0) axes[i].fail("an axis counts from the last, which is -1");
        return static_cast<std::size_t>(-at);
      };
      call.swapped = {swapped.required("when").expression(names_),
                      read_names(swapped.required("tensors"), operation_.tensors),
                      {axis(0), axis(1)}};
    }
    call.broadcast = read_names(json.optional("broadcast"), operation_.tensors);
    const auto read_pairs = [](const JsonReader& object, const auto& check) {
      std::vector<std::pair<std::string, std::string>> pairs;
      if (!object.present()) return pairs;
      for (const auto& [name, value] : object.members()) {
        if (!check(name)) value.fail(concat("no \"", name, "\""));
        pairs.emplace_back(name, value.string());
      }
      return pairs;
    };
    call.first = read_pairs(json.optional("first"),
                            [&](const std::string& name) { return named(operation_.flags, name); });
    call.names = read_pairs(json.optional("names"), [&](const std::string& name) {
      return named(operation_.tensors, name) || named(operation_.scalars, name);
    });
    call.flags = read_pairs(json.optional("flags"),
                            [&](const std::string& name) { return named(operation_.flags, name); });
    call.options = read_names(json.optional("options"), operation_.dims);
    call.made = read_names(json.optional("made"), operation_.tensors);
    if (const JsonReader dims = json.optional("dims"); dims.present()) {
      std::vector<std::string> names = names_;
      for (const Tensor& tensor : operation_.tensors) {
        for (std::size_t i = 0; i < tensor.extent.size(); ++i) {
          names.push_back(concat(tensor.name, "_", i));
        }
      }
      for (const auto& [name, value] : dims.members()) {
        if (!named(operation_.dims, name)) value.fail(concat("no dim \"", name, "\""));
        call.dims.push_back({name, value.expression(names)});
      }
    }
  }

  void read_example(const JsonReader& json) {
    Problem::Dims dims;
    Problem::Flags flags;
    for (const auto& [name, value] : json.members()) {
      const bool is_dim =
          std::any_of(operation_.dims.begin(), operation_.dims.end(),
                      [&, &wanted = name](const Dim& dim) { return dim.name == wanted; });
      if (is_dim) {
        dims.emplace_back(name, value.integer());
      } else {
        flags.emplace_back(name, value.string());
      }
    }
    Result<Problem> example =
        accept(Problem::make(operation_.name, std::move(dims), std::move(flags)));
    if (!example) {
      json.fail(example.error().message);
    } else {
      operation_.example = *std::move(example);
    }
  }

  /// Returns the normalised problem if the operation computes it.
  Result<Problem> accept(const Problem& problem) const {
    KW_ASSIGN(Problem normalized, operation_.normalize(problem));
    KW_TRY(operation_.tensor_shapes(normalized));
    return normalized;
  }

  /// Reads the cases. Each text of a list is bound in one problem only, since a case may have
  /// hundreds of problems.
  void read_cases(const JsonReader& json) {
    if (!json.present()) return;
    for (const JsonReader& entry : json.elements()) {
      entry.expect_keys({"why", "problems"});
      OperationCase one{operation_.name, entry.required("why").string(), {}};
      if (one.why.empty()) entry.fail("why it is awkward is missing");
      const JsonReader problems = entry.required("problems");
      for (const JsonReader& list : problems.elements()) {
        one.lists.emplace_back();
        for (const JsonReader& text : list.elements()) one.lists.back().push_back(text.string());
        if (one.lists.back().empty()) list.fail("at least one text is needed");
      }
      if (one.lists.empty()) problems.fail("at least one list is needed");
      if (!json_.diagnostics().ok()) return;
      if (bind_cases_) bind(one, problems);
      operation_.cases.push_back(std::move(one));
    }
  }

  void bind(const OperationCase& one, const JsonReader& json) const {
    for (const std::string& text : one.few()) {
      const Result<Problem> problem = Problem::parse(text);
      const Result<Problem> accepted = problem ? accept(*problem) : problem;
      if (!accepted) json.fail(concat("\"", text, "\": ", accepted.error().message));
    }
  }

  JsonReader json_;
  bool bind_cases_;
  Operation operation_;
  std::vector<std::string> names_;
};

}  // namespace

Result<Operation> parse_operation(std::string_view json, std::string_view file,
                                  std::string reference_source, bool bind_cases) {
  KW_ASSIGN(const JsonNode root, parse_json(json, file));
  Diagnostics diagnostics(file);
  Operation operation = OperationReader(JsonReader(root, diagnostics), bind_cases).read();
  if (!diagnostics.ok()) return diagnostics.error();
  operation.reference_source = std::move(reference_source);
  operation.folder = std::filesystem::path(file).parent_path().string();
  return operation;
}

}  // namespace kernwright
