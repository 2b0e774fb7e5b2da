#include <algorithm>
#include <regex>

#include "cli/command.h"
#include "cli/output.h"
#include "model/catalog/catalog.h"
#include "model/catalog/operation_json.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

/// Returns an expression of a manifest in the words of a problem: bias=column for bias ==
/// bias_column.
std::string readable(const Expression& expression) {
  static const std::regex equal(R"(\b(\w+) == \1_(\w+))");
  static const std::regex differs(R"(\b(\w+) != \1_(\w+))");
  return std::regex_replace(std::regex_replace(expression.text(), equal, "$1=$2"), differs,
                            "$1!=$2");
}

/// Returns the condition of a tensor or scalar, "where bias=column"; empty if there is none.
std::string condition(const std::optional<Expression>& when, const Operation& operation) {
  if (!when) return {};
  for (const Flag& flag : operation.flags) {
    for (const std::string& variable : flag.variables) {
      if (when->text() == concat(flag.name, "_", variable)) {
        return concat("where ", flag.name, " uses ", variable);
      }
    }
  }
  return concat("where ", readable(*when));
}

std::string extent_text(const Tensor& tensor) {
  std::string text;
  for (const Expression& size : tensor.extent) {
    text += concat(text.empty() ? "[" : ", ", readable(size));
  }
  text += ']';
  if (tensor.pitches.empty()) return text;
  if (tensor.pitches.size() == 1) {
    return concat(text, ", rows ", readable(tensor.pitches.front()), " apart");
  }
  std::string pitches;
  for (const Expression& pitch : tensor.pitches) {
    pitches += concat(pitches.empty() ? "" : ", ", readable(pitch));
  }
  return concat(text, ", with pitches ", pitches);
}

std::string dtype_text(const Tensor& tensor) {
  return tensor.dtype_variable.empty() ? std::string(to_string(tensor.fixed_dtype))
                                       : tensor.dtype_variable;
}

std::string role_text(TensorRole role) {
  return role == TensorRole::in ? "in" : role == TensorRole::out ? "out" : "inout";
}

/// Returns the architectures of a template: "sm_90a", "sm_80 and newer".
std::string architectures(const KernelTemplate& kernel_template) {
  const ArchRange& arch = kernel_template.arch;
  std::string first = kernel_template.target(arch.min);
  if (arch.max == arch.min) return first;
  return arch.max == 0 ? concat(first, " and newer") : concat(first, " to sm_", arch.max);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += concat(text.empty() ? "" : ", ", word);
  return text;
}

std::vector<std::string> names_of(const std::vector<DType>& dtypes) {
  std::vector<std::string> names;
  for (const DType dtype : dtypes) names.emplace_back(to_string(dtype));
  return names;
}

Json operation_json(const Operation& operation, const Catalog& catalog) {
  Json json = to_json(operation);
  json["templates"] = Json::array();
  for (const KernelTemplate* each : catalog.templates_of(operation.name)) {
    Json when = Json::array();
    for (const Expression& condition : each->when) when.push_back(condition.text());
    json["templates"].push_back({{"name", each->name},
                                 {"description", each->description},
                                 {"min_arch", each->arch.min},
                                 {"max_arch", each->arch.max == 0 ? Json() : Json(each->arch.max)},
                                 {"target", each->target(each->arch.min)},
                                 {"when", std::move(when)}});
  }
  return json;
}

Table dims_table(const Operation& operation) {
  Table table({{"dim"}, {"may be"}, {"where it is left out"}});
  for (const Dim& dim : operation.dims) {
    table.add({dim.name, dim.match == DimMatch::bucket ? "a range" : "one size",
               dim.default_size ? readable(*dim.default_size) : "has to be given"});
  }
  return table;
}

Table dtypes_table(const Operation& operation) {
  Table table({{"dtype"}, {"where it is left out"}, {"values"}});
  for (const TypeVariable& variable : operation.type_variables) {
    const std::string& other = variable.default_variable;
    table.add({variable.name, other.empty() ? "has to be given" : concat("as ", other),
               joined(names_of(variable.dtypes))});
  }
  return table;
}

Table flags_table(const Operation& operation) {
  Table table({{"flag"}, {"where it is left out"}, {"values"}});
  for (const Flag& flag : operation.flags) {
    if (flag.is_formula()) {
      table.add({flag.name, "has to be given",
                 concat("a formula over ", joined(flag.variables), ", without spaces")});
    } else {
      table.add({flag.name, flag.values[static_cast<std::size_t>(flag.default_index)],
                 concat(joined(flag.values),
                        flag.is_function()
                            ? concat(", or the name of a file that defines ", flag.declaration)
                            : std::string())});
    }
  }
  return table;
}

/// Returns the arguments of a launch, in their order.
Table arguments_table(const Operation& operation) {
  Table table({{"launch takes"}, {""}, {"dtype"}, {"extent"}});
  const auto add = [&](const std::string& name, std::string kind, std::string dtype,
                       const std::string& what, const std::optional<Expression>& when) {
    const std::string where = condition(when, operation);
    table.add(
        {name, std::move(kind), std::move(dtype), concat(what, where.empty() ? "" : ", ", where)});
  };
  for (const Tensor& tensor : operation.tensors) {
    add(tensor.name, role_text(tensor.role), dtype_text(tensor), extent_text(tensor), tensor.when);
  }
  for (const Scalar& scalar : operation.scalars) {
    add(scalar.name, "scalar", std::string(to_string(scalar.dtype)),
        scalar.default_formula ? concat("default ", scalar.default_formula->text())
                               : concat("default ", scalar.default_value),
        scalar.when);
  }
  return table;
}

Table templates_table(const Operation& operation, const Catalog& catalog) {
  Table table({{"template"}, {"runs on"}, {"what it is"}});
  for (const KernelTemplate* each : catalog.templates_of(operation.name)) {
    table.add({each->name, architectures(*each), each->description});
  }
  return table;
}

void print_operation(const Page& page, const Operation& operation, const Catalog& catalog) {
  page.print(concat(operation.name, ": ", operation.description), 2);
  const auto section = [&](const Table& table) {
    print("");
    page.print(table);
  };
  section(dims_table(operation));
  if (!operation.type_variables.empty()) section(dtypes_table(operation));
  if (!operation.flags.empty()) section(flags_table(operation));
  section(arguments_table(operation));
  if (!operation.requirements.empty()) {
    print("");
    page.print("  required");
    for (const Rule& rule : operation.requirements) {
      page.print(concat("  ", readable(rule.expression), ": ", rule.why), 4);
    }
  }
  section(templates_table(operation, catalog));
  print("");
  if (!operation.unfused.empty()) {
    page.print("  tune --unfused compares it with separate kernels that do the same.", 2);
  }
  page.print("example", concat("kernwright tune ", operation.example.text()));
}

class Operations : public Command {
 public:
  Operations()
      : Command("operations", "Show what operations there are, or what one takes"),
        name_(llvm::cl::Positional, llvm::cl::Optional, llvm::cl::desc("[NAME]"),
              llvm::cl::sub(sub)),
        templates_("templates", llvm::cl::desc("Folder of own templates (repeatable)"),
                   llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)),
        verbose_(sub) {}

  Status run() override {
    const auto catalog = Catalog::load({templates_.begin(), templates_.end()});
    if (!catalog) return report(catalog.error());
    const Page page = verbose_.page();
    if (!name_.empty()) {
      const Result<const Operation*> operation = (*catalog)->operation(name_.getValue());
      if (!operation) return report({ErrorCode::invalid_argument, operation.error().message});
      if (json) {
        print_json(operation_json(**operation, **catalog));
      } else {
        print_operation(page, **operation, **catalog);
      }
      return Status::ok;
    }
    if (const Result<void> parsed = (*catalog)->parse_all(); !parsed) return report(parsed.error());
    Json all = Json::array();
    Table table({{"operation"}, {"computes"}});
    for (const Operation& operation : (*catalog)->operations()) {
      all.push_back(operation_json(operation, **catalog));
      table.add({operation.name, operation.description});
    }
    if (json) {
      print_json(Json{{"operations", std::move(all)}});
    } else {
      page.print(table);
      page.print("What one of them takes: kernwright operations NAME");
    }
    return Status::ok;
  }

 private:
  llvm::cl::opt<std::string> name_;
  llvm::cl::list<std::string> templates_;
  VerboseFlag verbose_;
};

}  // namespace

std::unique_ptr<Command> make_operations() { return std::make_unique<Operations>(); }

}  // namespace kernwright::cli
