#include "model/catalog/manifest.h"

#include <algorithm>
#include <set>

#include "model/candidate/device_profile.h"
#include "model/catalog/launch_reader.h"
#include "model/expression/json_reader.h"
#include "support/names.h"
#include "support/spelling.h"
#include "support/try.h"

namespace kernwright {
namespace {

using detail::Diagnostics;
using detail::JsonReader;

/// The limit of points: more than could ever be ranked, and within 64 bits.
constexpr std::int64_t kMaxSpace = std::int64_t{1} << 40;

template <typename T>
bool contains(const std::vector<T>& items, const T& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

class ManifestReader {
 public:
  ManifestReader(const JsonReader& json, const Operation& operation)
      : json_(json), operation_(operation), names_(operation.value_names()) {}

  KernelTemplate read() {
    json_.expect_keys({"extends", "operation", "description", "source", "arch", "when", "dims",
                       "parameters", "default", "numbers", "derived", "rules", "habits", "cost",
                       "spill_bytes", "tensor_maps", "workspace", "launches"});
    read_operation(json_.required("operation"));
    made_.description = json_.required("description").string();
    read_source(json_.required("source"));
    read_arch(json_.required("arch"));
    if (const JsonReader when = json_.optional("when"); when.present()) {
      made_.when = when.expressions(names_);
    }
    read_dims(json_.required("dims"));
    for (const std::string_view field : device_field_names()) names_.emplace_back(field);
    read_parameters(json_.optional("parameters"));
    read_default(json_.optional("default"));
    read_numbers(json_.optional("numbers"));
    read_derived(json_.optional("derived"));
    made_.rules = detail::read_rules(json_.optional("rules"), names_);
    made_.habits = detail::read_rules(json_.optional("habits"), names_);
    read_cost(json_.optional("cost"));
    if (const JsonReader spill = json_.optional("spill_bytes"); spill.present()) {
      made_.allowed_spill_bytes = spill.integer();
      if (made_.allowed_spill_bytes < 0) spill.fail(concat(made_.allowed_spill_bytes, " < 0"));
    }
    read_workspaces(json_.optional("workspace"));
    read_tensor_maps(json_.optional("tensor_maps"));
    read_launches(json_.required("launches"));
    return std::move(made_);
  }

 private:
  void read_operation(const JsonReader& json) {
    made_.operation = json.string();
    if (json.present() && made_.operation != operation_.name) {
      json.fail(concat("\"", made_.operation, "\" is not the operation of the folder, \"",
                       operation_.name, "\""));
    }
  }

  void read_source(const JsonReader& json) {
    made_.source_file = json.string();
    const std::string& name = made_.source_file;
    if (json.present() && (name.empty() || name.find('/') != std::string::npos)) {
      json.fail(concat("\"", name, "\" is no file beside the manifest"));
    }
  }

  void read_arch(const JsonReader& json) {
    json.expect_keys({"min", "max", "specific"});
    ArchRange& arch = made_.arch;
    arch.min = read_sm(json.required("min"));
    if (const JsonReader max = json.optional("max"); max.present()) {
      arch.max = read_sm(max);
      if (arch.max < arch.min) max.fail(concat("max ", arch.max, " < min ", arch.min));
    }
    if (const JsonReader specific = json.optional("specific"); specific.present()) {
      arch.specific = specific.boolean();
      if (arch.specific && arch.min != arch.max) {
        specific.fail(concat("an arch-specific target exists for one architecture, not for min ",
                             arch.min, " to max ", arch.max));
      }
    }
  }

  static int read_sm(const JsonReader& json) {
    const std::int64_t sm = json.integer();
    if (json.present() && (sm < 50 || sm > 999)) json.fail(concat(sm, " is no sm number"));
    return static_cast<int>(sm);
  }

  void read_dims(const JsonReader& json) {
    std::vector<std::string> bound;
    for (const auto& [name, dim] : json.members()) {
      bound.push_back(name);
      const bool known =
          std::any_of(operation_.dims.begin(), operation_.dims.end(),
                      [&, &wanted = name](const Dim& d) { return d.name == wanted; });
      if (!known) dim.fail(concat(operation_.name, " has no such dim"));
      const std::string binding = dim.string();
      if (binding == "constant") {
        made_.constant_dims.push_back(name);
      } else if (binding != "runtime") {
        dim.fail(concat("\"", binding, "\" is not one of runtime, constant"));
      }
    }
    for (const Dim& dim : operation_.dims) {  // a dim that is left out must have its default
      if (contains(bound, dim.name)) continue;
      if (dim.default_size) {
        made_.when.push_back(
            detail::literal(concat(dim.name, " == (", dim.default_size->text(), ")")));
      } else {
        json.fail(concat("dim ", dim.name, " is missing"));
      }
    }
    // The compiler knows all names of the problem except run-time dims.
    for (const std::string& name : names_) {
      const bool is_dim = std::any_of(operation_.dims.begin(), operation_.dims.end(),
                                      [&](const Dim& dim) { return dim.name == name; });
      const auto* const value = find_named(operation_.derived, name);
      const bool known = is_dim  ? contains(made_.constant_dims, name)
                         : value ? is_pasted(value->expression)
                                 : true;
      if (known) pasted_names_.push_back(name);
    }
  }

  /// Returns whether the compiler knows all names of the expression.
  bool is_pasted(const Expression& expression) const {
    return std::ranges::all_of(
        expression.names(), [&](const std::string& name) { return contains(pasted_names_, name); });
  }

  /// Adds a name that the manifest defines; it must be new.
  void add_name(const JsonReader& json, const std::string& name, bool pasted) {
    if (!is_value_name(name)) {
      json.fail(concat("\"", name, "\" cannot be a name: an identifier that C++ does not reserve"));
    }
    const bool alias =
        std::any_of(operation_.type_variables.begin(), operation_.type_variables.end(),
                    [&](const TypeVariable& v) { return v.name + "_t" == name; });
    if (alias || contains(names_, name)) {
      json.fail("the name is taken by the problem, the device or an earlier field");
    }
    names_.push_back(name);
    if (pasted) pasted_names_.push_back(name);
  }

  void read_parameters(const JsonReader& json) {
    if (!json.present()) return;
    std::vector<Parameter> parameters;
    std::int64_t size = 1;
    for (const auto& [name, entry] : json.members()) {
      Parameter parameter;
      parameter.name = name;
      JsonReader values = entry;
      if (entry.is_object()) {
        entry.expect_keys({"values", "bind"});
        values = entry.required("values");
        const JsonReader bind = entry.required("bind");
        const std::string binding = bind.string();
        if (binding == "runtime") {
          parameter.binding = Binding::runtime;
        } else if (binding == "chain") {
          parameter.binding = Binding::chain;
        } else if (binding != "compile") {
          bind.fail(concat("\"", binding, "\" is not one of compile, runtime, chain"));
        }
      }
      std::set<std::int64_t> listed;
      for (const JsonReader& element : values.elements()) {
        const std::int64_t value = element.integer();
        if (!listed.insert(value).second) element.fail(concat(value, " is listed twice"));
        parameter.values.push_back(value);
      }
      if (parameter.values.empty()) values.fail("at least one value is needed");
      if (__builtin_mul_overflow(size, static_cast<std::int64_t>(parameter.values.size()), &size) ||
          size > kMaxSpace) {
        entry.fail(concat("the parameter space has more than ", kMaxSpace, " points"));
        return;
      }
      add_name(entry, name, parameter.binding == Binding::compile);
      if (parameter.binding != Binding::compile) runtime_names_.push_back(name);
      parameters.push_back(std::move(parameter));
    }
    made_.space = ParameterSpace(std::move(parameters));
  }

  void read_default(const JsonReader& json) {
    const std::vector<Parameter>& parameters = made_.space.parameters();
    if (!json.present()) {
      if (!parameters.empty()) json.fail("missing");
      return;
    }
    for (const auto& [name, value] : json.members()) {
      if (std::none_of(parameters.begin(), parameters.end(),
                       [&, &wanted = name](const Parameter& p) { return p.name == wanted; })) {
        value.fail("no such parameter");
      }
    }
    std::vector<std::pair<std::string, std::int64_t>> values;
    for (const Parameter& parameter : parameters) {
      const JsonReader value = json.required(parameter.name);
      const std::int64_t chosen = value.integer();
      if (!contains(parameter.values, chosen)) {
        std::string known;
        for (const std::int64_t v : parameter.values) known += concat(known.empty() ? "" : ", ", v);
        value.fail(concat(chosen, " is not one of its values, ", known));
      }
      values.emplace_back(parameter.name, chosen);
    }
    made_.default_configuration = Configuration(std::move(values));
  }

  /// Reads numbers that were measured or chosen. The compiler does not know them, so that a kernel
  /// is not compiled anew for another one.
  void read_numbers(const JsonReader& json) {
    if (!json.present()) return;
    for (const auto& [name, entry] : json.members()) {
      entry.expect_keys({"value", "source"});
      const std::int64_t value = entry.required("value").integer();
      const JsonReader source = entry.required("source");
      if (source.string().empty() && source.present()) source.fail("a number needs a source");
      add_name(entry, name, /*pasted=*/false);
      made_.derived.push_back({.name = name,
                               .expression = detail::literal(std::to_string(value)),
                               .place = entry.place()});
    }
  }

  void read_derived(const JsonReader& json) {
    if (!json.present()) return;
    for (const auto& [name, entry] : json.members()) {
      Derived derived;
      derived.name = name;
      derived.place = entry.place();
      JsonReader value = entry;
      if (entry.is_object()) {
        entry.expect_keys({"value", "bind"});
        value = entry.required("value");
        const JsonReader bind = entry.required("bind");
        derived.bound = bind.is("compile");
        if (!derived.bound) bind.fail(concat("\"", bind.string(), "\" is not compile"));
      }
      derived.expression = value.expression(names_);
      const std::vector<std::string>& used = derived.expression.names();
      derived.pasted = is_pasted(derived.expression);
      const auto late = std::find_if(used.begin(), used.end(), [&](const std::string& other) {
        return contains(runtime_names_, other);
      });
      if (late != used.end()) {
        runtime_names_.push_back(name);
        if (derived.bound) {
          value.fail(concat("\"", *late,
                            "\" hangs on a run-time parameter: configurations that differ in it "
                            "share a compile"));
        }
      }
      add_name(entry, name, derived.pasted || derived.bound);
      made_.derived.push_back(std::move(derived));
    }
  }

  void read_cost(const JsonReader& json) {
    if (!json.present()) return;
    const auto known = demand_names();
    for (const auto& [name, entry] : json.members()) {
      const auto found = std::ranges::find(known, name, &DemandName::name);
      if (found == known.end()) {
        const std::vector<std::string> names = names_in(known);
        entry.fail(concat("no such demand", did_you_mean(name, names),
                          ", there are: ", detail::join(names)));
        continue;
      }
      made_.cost.push_back({*found, entry.expression(names_), entry.place()});
    }
  }

  const Tensor* find_tensor(const JsonReader& json) const {
    const std::string name = json.string();
    std::vector<std::string> known;
    for (const Tensor& tensor : operation_.tensors) {
      if (tensor.name == name) return &tensor;
      known.push_back(tensor.name);
    }
    if (json.present()) {
      json.fail(concat("no tensor \"", name, "\", there are: ", detail::join(known)));
    }
    return nullptr;
  }

  void read_tensor_maps(const JsonReader& json) {
    if (!json.present()) return;
    for (const auto& [name, entry] : json.members()) {
      entry.expect_keys({"tensor", "view", "copy", "box", "swizzle", "l2_promotion", "when"});
      TensorMapSpec map;
      map.name = name;
      map.place = entry.place();
      const Tensor* tensor = find_tensor(entry.required("tensor"));
      const JsonReader box = entry.required("box");
      map.box = box.expressions(names_);
      const JsonReader view = entry.optional("view");
      if (view.present()) map.view = view.expressions(names_);
      if (tensor) {
        map.tensor = tensor->name;
        const std::size_t dims = view.present() ? map.view.size() : tensor->extent.size();
        if (map.box.size() != dims) {
          box.fail(concat(map.box.size(), " dims for tensor ", tensor->name, " of ", dims));
        }
        if (dims > 5) {
          box.fail(concat("TMA addresses at most 5 dims, tensor ", tensor->name, " has ", dims));
        }
      }
      read_copy(entry.optional("copy"), map);
      if (view.present() && !map.copy.empty()) view.fail("a view of a copy");
      const JsonReader swizzle = entry.optional("swizzle");
      map.swizzle = swizzle.is("none") ? detail::literal("0") : swizzle.expression_or("0", names_);
      map.l2_promotion = entry.optional("l2_promotion").expression_or("0", names_);
      map.when = entry.optional("when").expression_or("1", names_);
      made_.tensor_maps.push_back(std::move(map));
    }
  }

  void read_copy(const JsonReader& json, TensorMapSpec& map) {
    if (!json.present()) return;
    json.expect_keys({"workspace", "pitch"});
    map.copy = json.required("workspace").string();
    map.pitch = json.required("pitch").expression(names_);
    std::vector<std::string> known;
    for (const WorkspaceSpec& space : made_.workspaces) known.push_back(space.name);
    if (std::find(known.begin(), known.end(), map.copy) == known.end()) {
      json.required("workspace")
          .fail(concat("no \"", map.copy, "\", there are: ", detail::join(known)));
    }
  }

  void read_workspaces(const JsonReader& json) {
    if (!json.present()) return;
    for (const auto& [name, entry] : json.members()) {
      entry.expect_keys({"bytes", "zeroed", "kept_zero"});
      made_.workspaces.push_back({name, entry.required("bytes").expression(names_),
                                  entry.optional("zeroed").expression_or("0", names_),
                                  entry.optional("kept_zero").expression_or("0", names_),
                                  entry.place()});
    }
  }

  void read_launches(const JsonReader& json) {
    detail::ArgumentNames arguments;
    for (const Tensor& tensor : operation_.tensors) {
      arguments.tensors.push_back(tensor.name);
      if (tensor.role != TensorRole::out) arguments.read.push_back(tensor.name);
    }
    for (const Scalar& scalar : operation_.scalars) arguments.scalars.push_back(scalar.name);
    for (const TensorMapSpec& map : made_.tensor_maps) arguments.tensor_maps.push_back(map.name);
    for (const WorkspaceSpec& space : made_.workspaces) {
      arguments.workspaces.push_back(space.name);
    }
    for (const JsonReader& launch : json.elements()) {
      LaunchSpec read = detail::read_launch(launch, names_, arguments);
      expect_parameters_of_before(launch, read);
      made_.launches.push_back(std::move(read));
    }
    if (json.present() && made_.launches.empty()) json.fail("at least one launch is needed");
  }

  /// Reports a launch of a kernel that an earlier launch gives other parameters.
  void expect_parameters_of_before(const JsonReader& json, const LaunchSpec& launch) const {
    const auto before = std::ranges::find(made_.launches, launch.kernel, &LaunchSpec::kernel);
    if (before == made_.launches.end()) return;
    const auto names = [](const LaunchSpec& of) {
      std::vector<std::string> list;
      for (const ArgumentSpec& argument : of.arguments) list.push_back(argument.parameter);
      return list;
    };
    if (names(launch) == names(*before)) return;
    json.required("arguments")
        .fail(concat("the parameters of ", launch.kernel, " are ", detail::join(names(launch)),
                     " here, and ", detail::join(names(*before)), " in a launch before"));
  }

  JsonReader json_;
  const Operation& operation_;
  KernelTemplate made_;
  std::vector<std::string> names_;          ///< known to expressions at this point of the file
  std::vector<std::string> pasted_names_;   ///< of those, the ones that the compiler knows too
  std::vector<std::string> runtime_names_;  ///< of those, run-time parameters and their users
};

}  // namespace

bool KernelTemplate::runs_on(int sm_arch) const {
  return sm_arch >= arch.min && (arch.max == 0 || sm_arch <= arch.max);
}

std::string KernelTemplate::target(int sm_arch) const {
  return concat("sm_", sm_arch, arch.specific ? "a" : "");
}

Result<KernelTemplate> parse_manifest(std::string_view json, std::string_view file,
                                      std::string_view name, const Operation& operation,
                                      std::span<const Fragment> fragments) {
  JsonFile manifest{concat(name, "/manifest.json"), std::string(file), std::string(json)};
  KW_ASSIGN(detail::MergedManifest merged, detail::read_merged(std::move(manifest), fragments));
  std::vector<std::string> places;
  for (const JsonFile& one : merged.files) places.push_back(one.place);
  Diagnostics diagnostics(std::move(places));
  KernelTemplate made = ManifestReader(JsonReader(merged.root, diagnostics), operation).read();
  if (!diagnostics.ok()) return diagnostics.error();
  made.name = name;
  made.manifests = std::move(merged.files);
  return made;
}

}  // namespace kernwright
