#include <cmath>
#include <variant>

#include "cli/command.h"
#include "cli/output.h"
#include "model/operation/dtype_format.h"
#include "model/operation/ranged_problem.h"
#include "models/model_worklist.h"
#include "service/sweep/sizes.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

constexpr FileKind kConfig{"model's configuration", std::uint64_t{4} << 20};

class Worklist : public Command {
 public:
  Worklist()
      : Command("worklist", "Print the worklist of a model from its config.json"),
        config_(llvm::cl::Positional, llvm::cl::Optional, llvm::cl::desc("CONFIG.json"),
                llvm::cl::sub(sub)),
        tokens_("tokens",
                llvm::cl::desc(
                    "Rows of a step, e.g. \"1:256:x2, 4096\"; for families a\nrange, 1..8192"),
                llvm::cl::value_desc("SIZES"), llvm::cl::init("1:256:x2, 2048, 8192"),
                llvm::cl::sub(sub)),
        contexts_(
            "contexts", llvm::cl::desc("Keys in the cache, e.g. \"1024:32768:x2\", or a range"),
            llvm::cl::value_desc("SIZES"), llvm::cl::init("1024, 8192, 32768"), llvm::cl::sub(sub)),
        tensor_parallel_("tensor-parallel", llvm::cl::desc("GPUs that share a layer, default 1"),
                         llvm::cl::value_desc("N"), llvm::cl::init(1), llvm::cl::sub(sub)),
        dtype_("dtype", llvm::cl::desc("Of weights and activations, default bf16"),
               llvm::cl::value_desc("DTYPE"), llvm::cl::init("bf16"), llvm::cl::sub(sub)),
        values_("values", llvm::cl::desc("Print values of the model, e.g. hidden,heads"),
                llvm::cl::value_desc("NAMES"), llvm::cl::CommaSeparated, llvm::cl::sub(sub)),
        templates_("templates", llvm::cl::desc("Folder of own templates and models (repeatable)"),
                   llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)) {}

  Status run() override {
    if (config_.empty()) {
      return report({ErrorCode::invalid_argument, "no CONFIG.json given: that of a model"});
    }
    const Result<std::string> text = read_file(config_.getValue(), kConfig);
    if (!text) {
      const bool is_missing = text.error().code == ErrorCode::not_found;
      return report(
          {text.error().code, concat(text.error().message,
                                     is_missing ? "; a model is given by its config.json" : "")});
    }
    const auto catalog = Catalog::load({templates_.begin(), templates_.end()});
    if (!catalog) return report(catalog.error());
    if (!values_.empty()) return print_values(*text, **catalog);
    Result<std::vector<std::int64_t>> tokens = sizes_of(tokens_.getValue());
    if (!tokens) return report(tokens.error());
    Result<std::vector<std::int64_t>> contexts = sizes_of(contexts_.getValue());
    if (!contexts) return report(contexts.error());
    const std::optional<DType> dtype = dtype_meant(dtype_.getValue());
    if (!dtype || tensor_parallel_ < 1) {
      return report({ErrorCode::invalid_argument,
                     concat("--dtype is \"", dtype_.getValue(), "\" and --tensor-parallel ",
                            tensor_parallel_.getValue(), "; a dtype and 1 or more are expected")});
    }
    const ModelUse use{.tokens = *std::move(tokens),
                       .contexts = *std::move(contexts),
                       .tensor_parallel = tensor_parallel_,
                       .dtype = *dtype};
    const Result<ModelWorklist> list = model_worklist(*text, config_.getValue(), use, **catalog);
    if (!list) return report(list.error());
    for (const std::string& note : list->notes) report_warning(note);
    Json problems = Json::array();
    if (is_range(tokens_.getValue()) || is_range(contexts_.getValue())) {
      std::vector<BoundProblem> bound;
      for (const Problem& problem : list->problems) {
        Result<BoundProblem> one = (*catalog)->bind(problem);
        if (!one) return report(one.error());
        bound.push_back(*std::move(one));
      }
      for (const std::string& family : join_families(bound)) problems.push_back(family);
    } else {
      for (const Problem& problem : list->problems) problems.push_back(problem.text());
    }
    print_json(Json{{"problems", std::move(problems)}});
    return Status::ok;
  }

 private:
  static bool is_range(std::string_view text) { return text.find("..") != std::string_view::npos; }

  /// Returns the sizes of a list; of a range its ends and, between them, powers of two and these
  /// times three.
  static Result<std::vector<std::int64_t>> sizes_of(const std::string& text) {
    if (!is_range(text)) return parse_sizes(text);
    const std::size_t dots = text.find("..");
    KW_ASSIGN(const std::vector<std::int64_t> first, parse_sizes(text.substr(0, dots)));
    KW_ASSIGN(const std::vector<std::int64_t> last, parse_sizes(text.substr(dots + 2)));
    if (first.size() != 1 || last.size() != 1 || first[0] >= last[0]) {
      return Error{ErrorCode::invalid_argument,
                   concat('"', text, "\" is no range, such as 1..8192")};
    }
    return spread_sizes(first[0], last[0]);
  }

  Status print_values(const std::string& text, const Catalog& catalog) {
    const Result<ModelValues> values =
        model_values(text, config_.getValue(), {values_.begin(), values_.end()}, catalog);
    if (!values) return report(values.error());
    Json object = Json::object();
    for (const auto& [name, value] : *values) {
      const double* number = std::get_if<double>(&value);
      if (number == nullptr) {
        object[name] = std::get<std::string>(value);
      } else if (std::trunc(*number) == *number && std::abs(*number) < 1e15) {
        object[name] = static_cast<std::int64_t>(*number);
      } else {
        object[name] = *number;
      }
    }
    print_json(object);
    return Status::ok;
  }

  llvm::cl::opt<std::string> config_;
  llvm::cl::opt<std::string> tokens_;
  llvm::cl::opt<std::string> contexts_;
  llvm::cl::opt<std::int64_t> tensor_parallel_;
  llvm::cl::opt<std::string> dtype_;
  llvm::cl::list<std::string> values_;
  llvm::cl::list<std::string> templates_;
};

}  // namespace

std::unique_ptr<Command> make_worklist() { return std::make_unique<Worklist>(); }

}  // namespace kernwright::cli
