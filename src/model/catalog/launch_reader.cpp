#include "model/catalog/launch_reader.h"

#include <algorithm>

namespace kernwright::detail {
namespace {

struct KindRow {
  std::string_view key;
  ArgumentKind kind;
  std::vector<std::string> ArgumentNames::* names;  ///< null for expressions
};

constexpr KindRow kKinds[] = {{"tensor", ArgumentKind::tensor, &ArgumentNames::tensors},
                              {"tensor_map", ArgumentKind::tensor_map, &ArgumentNames::tensor_maps},
                              {"workspace", ArgumentKind::workspace, &ArgumentNames::workspaces},
                              {"scalar", ArgumentKind::scalar, &ArgumentNames::scalars},
                              {"int32", ArgumentKind::int32, nullptr},
                              {"int64", ArgumentKind::int64, nullptr},
                              {"early", ArgumentKind::early, nullptr},
                              {"ahead", ArgumentKind::ahead, nullptr},
                              {"reference", ArgumentKind::reference, &ArgumentNames::references},
                              {"magnitude", ArgumentKind::magnitude, &ArgumentNames::references}};

/// Returns the name of an argument's parameter, if the argument says none; empty if it has to.
std::string derived_parameter(const ArgumentSpec& argument) {
  switch (argument.kind) {
    case ArgumentKind::early:
      return "early";
    case ArgumentKind::ahead:
      return "ahead";
    case ArgumentKind::reference:
      return argument.name + "_reference";
    case ArgumentKind::magnitude:
      return argument.name + "_magnitude";
    case ArgumentKind::int32:
    case ArgumentKind::int64: {
      const std::vector<std::string>& names = argument.expression.names();
      const bool is_name = names.size() == 1 && names.front() == argument.expression.text();
      return is_name ? names.front() : "";
    }
    default:
      return argument.name;
  }
}

/// Reads the name and the type of the parameter that takes `argument`.
void read_parameter(const JsonReader& json, ArgumentSpec& argument) {
  const JsonReader name = json.optional("name"), type = json.optional("type");
  argument.parameter = name.present() ? name.value_name() : derived_parameter(argument);
  if (argument.parameter.empty()) {
    json.fail("the kernel's parameter needs a \"name\", since the expression is none");
  }
  if (!type.present()) return;
  argument.type = type.string();
  if (argument.type.empty() || argument.type.find('\n') != std::string::npos) {
    type.fail("expected a type of CUDA on one line");
  }
}

ArgumentSpec read_argument(const JsonReader& json, std::span<const std::string> names,
                           const ArgumentNames& arguments) {
  ArgumentSpec argument;
  auto members = json.members();
  std::erase_if(
      members, [](const auto& member) { return member.first == "name" || member.first == "type"; });
  if (members.size() != 1) {
    json.fail(concat("expected one key beside \"name\" and \"type\", found ", members.size()));
    return argument;
  }
  const auto& [key, value] = members.front();
  const auto row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                [&](const KindRow& kind) { return kind.key == key; });
  if (row == std::end(kKinds)) {
    std::string known;
    for (const KindRow& kind : kKinds) known += concat(known.empty() ? "" : ", ", kind.key);
    value.fail(concat("unknown kind of argument, known are ", known));
    return argument;
  }
  argument.kind = row->kind;
  if (!row->names) {
    argument.expression = value.expression(names);
  } else {
    argument.name = value.string();
    const std::vector<std::string>& known = arguments.*(row->names);
    if (std::find(known.begin(), known.end(), argument.name) == known.end()) {
      value.fail(concat("no \"", argument.name, "\", there are: ", join(known)));
    }
  }
  read_parameter(json, argument);
  return argument;
}

/// Reads the tensors that `launch`, whose arguments have been read, reads ahead.
std::vector<std::string> read_ahead(const JsonReader& launch_json, const LaunchSpec& launch,
                                    bool waits, const ArgumentNames& arguments) {
  const JsonReader json = launch_json.optional("ahead");
  std::vector<std::string> ahead;
  const bool is_told = std::ranges::find(launch.arguments, ArgumentKind::ahead,
                                         &ArgumentSpec::kind) != launch.arguments.end();
  if (!json.present()) {
    if (is_told) launch_json.fail("an argument {\"ahead\": ...}, but no tensors \"ahead\"");
    return ahead;
  }
  for (const JsonReader& element : json.elements()) {
    const std::string name = element.string();
    if (std::ranges::find(arguments.read, name) == arguments.read.end()) {
      element.fail(
          concat("no tensor \"", name, "\" that is read, there are: ", join(arguments.read)));
    }
    ahead.push_back(name);
  }
  if (!waits) json.fail("only a launch that \"waits\" can read ahead of its wait");
  if (!is_told) json.fail("no argument {\"ahead\": ...} tells the kernel when it may read ahead");
  return ahead;
}

std::vector<Expression> read_extent(const JsonReader& json, std::span<const std::string> names) {
  std::vector<Expression> extent;
  if (!json.present()) return extent;
  extent = json.expressions(names);
  if (extent.empty() || extent.size() > 3) {
    json.fail(concat("expected 1 to 3 expressions, found ", extent.size()));
  }
  return extent;
}

}  // namespace

LaunchSpec read_launch(const JsonReader& json, std::span<const std::string> names,
                       const ArgumentNames& arguments) {
  json.expect_keys({"kernel", "grid", "block", "cluster", "dynamic_smem", "cooperative",
                    "programmatic", "waits", "ahead", "in_place", "when", "arguments"});
  std::string kernel = json.required("kernel").value_name();
  LaunchSpec launch = read_geometry(json, names, arguments);
  launch.kernel = std::move(kernel);
  return launch;
}

LaunchSpec read_geometry(const JsonReader& json, std::span<const std::string> names,
                         const ArgumentNames& arguments) {
  LaunchSpec launch;
  launch.place = json.place();
  launch.grid = read_extent(json.required("grid"), names);
  launch.block = read_extent(json.required("block"), names);
  launch.cluster = read_extent(json.optional("cluster"), names);
  launch.dynamic_smem = json.optional("dynamic_smem").expression_or("0", names);
  launch.cooperative = json.optional("cooperative").expression_or("0", names);
  launch.programmatic = json.optional("programmatic").expression_or("0", names);
  launch.waits = json.optional("waits").expression_or("0", names);
  launch.when = json.optional("when").expression_or("1", names);
  const bool waits = json.optional("waits").present();
  const bool may_be_early = waits || json.optional("programmatic").present();
  for (const JsonReader& argument : json.required("arguments").elements()) {
    ArgumentSpec read = read_argument(argument, names, arguments);
    if (std::ranges::find(launch.arguments, read.parameter, &ArgumentSpec::parameter) !=
        launch.arguments.end()) {
      argument.fail(concat("two parameters \"", read.parameter, "\": one needs another \"name\""));
    }
    launch.arguments.push_back(std::move(read));
    if (launch.arguments.back().kind == ArgumentKind::early && !may_be_early) {
      argument.fail("the launch never starts early: it is not programmatic and does not wait");
    }
  }
  launch.ahead = read_ahead(json, launch, waits, arguments);
  const JsonReader in_place = json.optional("in_place");
  launch.in_place = in_place.present() && in_place.boolean();
  return launch;
}

}  // namespace kernwright::detail
