#include "model/candidate/config_header.h"

#include <algorithm>
#include <limits>
#include <span>

#include "model/candidate/parameter_list.h"
#include "model/operation/dtype_format.h"
#include "support/text.h"

namespace kernwright {
namespace {

// In kernels these are templates, so that CUDA's own min and max of the exact types are preferred.
constexpr std::string_view kKernelFunctions = R"(
template <typename A, typename B>
__host__ __device__ constexpr auto ceil_div(A a, B b) { return a / b + (a % b != 0 ? 1 : 0); }
template <typename A, typename B>
__host__ __device__ constexpr auto round_up(A a, B b) { return ceil_div(a, b) * b; }
template <typename T>
__host__ __device__ constexpr T min(T a, T b) { return b < a ? b : a; }
template <typename T>
__host__ __device__ constexpr T max(T a, T b) { return a < b ? b : a; }
template <typename T>
__host__ __device__ constexpr bool is_pow2(T a) { return a > 0 && (a & (a - 1)) == 0; }
)";

// In pasted expressions these are functions of 64 bits, as on the host.
constexpr std::string_view kExpressionFunctions = R"(
__host__ __device__ constexpr long long ceil_div(long long a, long long b) {
  return a / b + (a % b != 0 ? 1 : 0);
}
__host__ __device__ constexpr long long round_up(long long a, long long b) { return ceil_div(a, b) * b; }
__host__ __device__ constexpr long long min(long long a, long long b) { return b < a ? b : a; }
__host__ __device__ constexpr long long max(long long a, long long b) { return a < b ? b : a; }
__host__ __device__ constexpr bool is_pow2(long long a) { return a > 0 && (a & (a - 1)) == 0; }
)";

/// Returns the value as a C++ expression. The smallest value of a signed type has no literal.
std::string literal(std::int64_t value) {
  if (value == std::numeric_limits<std::int64_t>::min()) return "(-9223372036854775807 - 1)";
  return std::to_string(value);
}

bool fits_int(std::int64_t value) {
  return value > std::numeric_limits<std::int32_t>::min() &&
         value <= std::numeric_limits<std::int32_t>::max();
}

/// Returns the text as a C++ string literal, which may be in a #line directive.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    // Control characters become spaces; a newline would end the literal.
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

/// Writes the header. `constants` are the names that kernels and pasted expressions may use, in
/// order.
class HeaderWriter {
 public:
  /// `files` hold the rules and derived values that will be added.
  explicit HeaderWriter(std::span<const JsonFile> files) : files_(files) {}

  void constant(std::string_view name, std::int64_t value) {
    values_ += concat("constexpr ", fits_int(value) ? "int " : "long long ", name, " = ",
                      literal(value), ";\n");
    constants_ += concat("constexpr long long ", name, " = ", literal(value), ";\n");
  }

  void type_alias(std::string_view name, DType dtype) {
    aliases_ += concat("using ", name, "_t = ", dtype_format(dtype).cuda_type, ";\n");
  }

  /// Writes the function template of a formula over its variables. `Formula::code` says what `Math`
  /// must have.
  void formula(const Flag& flag, const Formula& formula) {
    std::string parameters;
    for (const std::string& variable : flag.variables) {
      parameters += concat(parameters.empty() ? "" : ", ", "typename Math::Value ", variable);
    }
    functions_ += concat(
        "template <typename Math>\n__device__ __forceinline__ typename Math::Value ", flag.name,
        "(", parameters, ") {\n  using Value = typename Math::Value;\n  return Value(",
        formula.code(), ");\n}\n");
  }

  /// Declares the function that a flag takes, and includes it from `<flag>.cu` if the problem
  /// brings its source along. The declaration is static then, so that the compiler reports a
  /// missing definition.
  void function(const BoundProblem& problem, const Flag& flag) {
    const UserFunction* const given = problem.function(flag);
    if (given && !given->is_lto_ir) {
      // Error 20037: a definition without __device__ would otherwise be taken for an empty
      // function.
      declarations_ +=
          concat("#pragma nv_diag_error 20037\n#line 1 ", quoted(flag.name), "\nstatic __device__ ",
                 flag.declaration, ";\n#include <", flag.header(), ">\n");
      return;
    }
    const bool named = problem.scope().find(flag.name) != flag.default_index;
    if (!given && named) {
      declarations_ +=
          concat("#error ", problem.text(), ": the file of this ", flag.name, " was not given\n");
    }
    declarations_ += concat("__device__ ", flag.declaration, ";\n");
  }

  /// Writes a derived value. If it is pasted, the compiler computes it too, and asserts that the
  /// host's value is equal.
  void derived(const Derived& derived, std::int64_t value) {
    values_ += concat("constexpr ", fits_int(value) ? "int " : "long long ", derived.name, " = ",
                      literal(value), ";\n");
    assertions_ += concat(line_of(derived.place), "constexpr long long ", derived.name, " = ",
                          derived.expression.text(), ";\n");
    const std::string message =
        concat("derived value ", derived.name, ": the host computed ", value);
    assertion(concat(derived.name, " == ", literal(value)), message, derived.place);
  }

  void rule(const Rule& rule) {
    assertion(rule.expression.text(),
              concat("rule \"", rule.expression.text(), "\" failed: ", rule.why), rule.place);
  }

  /// Defines the list of a kernel's parameters, unless an earlier launch of it has.
  void parameters(std::string_view kernel, std::string_view list) {
    const std::string definition = concat("#define KW_PARAMETERS_", kernel, " ");
    if (parameters_.find(definition) == std::string::npos) {
      parameters_ += concat(definition, list, "\n");
    }
  }

  std::string finish() const {
    std::string text = concat(
        "#pragma once\n#include <kernwright/math/limits.cuh>\n#include "
        "<kernwright/math/types.cuh>\n\nnamespace kernwright::config {\n",
        kKernelFunctions, "\n", aliases_, values_, functions_);
    if (!assertions_.empty()) {
      // The same names once more, with 64 bits as on the host.
      text += concat("\nnamespace wide {\n", kExpressionFunctions, "\n", constants_, assertions_,
                     "}  // namespace wide\n");
    }
    return text + concat("}  // namespace kernwright::config\n",
                         "#define KW_PARAMETERS(kernel) KW_PARAMETERS_##kernel\n", parameters_,
                         declarations_);
  }

 private:
  void assertion(std::string_view condition, std::string_view message, JsonPlace place) {
    assertions_ +=
        concat(line_of(place), "static_assert(", condition, ", ", quoted(message), ");\n");
  }

  /// Names the file as in its folder of templates, so that the text does not depend on the place of
  /// that folder.
  std::string line_of(JsonPlace place) const {
    const std::string& file = files_[static_cast<std::size_t>(place.file)].name;
    return concat("#line ", place.line, " ", quoted(file), "\n");
  }

  std::span<const JsonFile> files_;
  std::string aliases_;
  std::string functions_;
  std::string declarations_;
  std::string values_;
  std::string constants_;
  std::string assertions_;
  std::string parameters_;
};

/// Returns the names of a problem whose value a compile does not hold: the dims that are not
/// constant, and the values that are derived from them.
std::vector<std::string_view> late_names(const Operation& operation,
                                         const std::vector<std::string>& constant_dims) {
  std::vector<std::string_view> late;
  const auto is_late = [&](const std::string& name) {
    return std::ranges::find(late, name) != late.end();
  };
  for (const Dim& dim : operation.dims) {
    if (std::ranges::find(constant_dims, dim.name) == constant_dims.end()) late.push_back(dim.name);
  }
  for (const NamedValue& value : operation.derived) {
    if (std::ranges::any_of(value.expression.names(), is_late)) late.push_back(value.name);
  }
  return late;
}

void add_problem(HeaderWriter& writer, const BoundProblem& problem,
                 const std::vector<std::string>& constant_dims) {
  const Operation& operation = problem.operation();
  for (const TypeVariable& variable : operation.type_variables) {
    writer.type_alias(variable.name, problem.dtype(variable.name));
  }
  const std::vector<std::string_view> late = late_names(operation, constant_dims);
  const Scope& scope = problem.scope();
  for (std::size_t i = 0; i < scope.size(); ++i) {
    const std::string& name = scope.name(i);
    if (std::ranges::find(late, name) == late.end()) writer.constant(name, scope.values()[i]);
  }
  for (const Flag& flag : operation.flags) {
    if (flag.is_formula()) writer.formula(flag, problem.formula(flag));
    if (flag.is_function()) writer.function(problem, flag);
  }
}

/// The names that the compiler knows: no run-time dims or parameters, no device fields, and nothing
/// that is derived from these.
class PastedNames {
 public:
  explicit PastedNames(const Candidate& candidate)
      : host_only_(
            late_names(candidate.problem->operation(), candidate.kernel_template->constant_dims)) {
    const KernelTemplate& made = *candidate.kernel_template;
    for (const Parameter& parameter : made.space.parameters()) {
      if (parameter.binding != Binding::compile) host_only_.push_back(parameter.name);
    }
    for (const std::string_view field : device_field_names()) host_only_.push_back(field);
    for (const Derived& derived : made.derived) {
      if (!derived.pasted && !derived.bound) host_only_.push_back(derived.name);
    }
  }

  bool cover(const Expression& expression) const {
    return std::none_of(
        expression.names().begin(), expression.names().end(), [&](const std::string& name) {
          return std::find(host_only_.begin(), host_only_.end(), name) != host_only_.end();
        });
  }

 private:
  std::vector<std::string_view> host_only_;
};

}  // namespace

std::string config_header(const Candidate& candidate) {
  const KernelTemplate& made = *candidate.kernel_template;
  HeaderWriter writer(made.manifests);
  add_problem(writer, *candidate.problem, made.constant_dims);
  for (const Parameter& parameter : made.space.parameters()) {
    if (parameter.binding == Binding::compile) {
      writer.constant(parameter.name, candidate.configuration.at(parameter.name));
    }
  }
  for (const Derived& derived : made.derived) {
    const std::int64_t value = candidate.scope.find(derived.name).value_or(0);
    if (derived.pasted) {
      writer.derived(derived, value);
    } else if (derived.bound) {
      writer.constant(derived.name, value);
    }
  }
  const PastedNames pasted(candidate);
  for (const Rule& rule : made.rules) {
    if (pasted.cover(rule.expression)) writer.rule(rule);
  }
  for (const LaunchSpec& launch : made.launches) {
    writer.parameters(launch.kernel,
                      parameter_list(launch, *candidate.problem, KernelUse::candidate));
  }
  return writer.finish();
}

std::string reference_config_header(const BoundProblem& problem) {
  HeaderWriter writer({});
  add_problem(writer, problem, {});
  const LaunchSpec& reference = problem.operation().reference;
  writer.parameters(reference.kernel, parameter_list(reference, problem, KernelUse::reference));
  if (const auto& inputs = problem.operation().input_kernels) {
    const std::string list = parameter_list(inputs->launch, problem, KernelUse::input);
    for (const std::string* kernel :
         {&inputs->timing, &inputs->exact, &inputs->count, &inputs->nan}) {
      if (!kernel->empty()) writer.parameters(*kernel, list);
    }
  }
  return writer.finish();
}

}  // namespace kernwright
