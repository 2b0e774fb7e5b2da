#include "cli/command.h"
#include "cli/output.h"
#include "model/operation/dtype_format.h"
#include "service/sweep/model_worklist.h"
#include "service/sweep/sizes.h"
#include "support/files.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

constexpr FileKind kConfig{"model's configuration", std::uint64_t{4} << 20};

class Worklist : public Command {
 public:
  Worklist()
      : Command("worklist", "Print the worklist of a model from its config.json"),
        config_(llvm::cl::Positional, llvm::cl::Optional, llvm::cl::desc("CONFIG.json"),
                llvm::cl::sub(sub)),
        tokens_("tokens", llvm::cl::desc("Rows of a step, e.g. \"1:256:x2, 4096\""),
                llvm::cl::value_desc("SIZES"), llvm::cl::init("1:256:x2, 2048, 8192"),
                llvm::cl::sub(sub)),
        contexts_("contexts", llvm::cl::desc("Keys in the cache, e.g. \"1024:32768:x2\""),
                  llvm::cl::value_desc("SIZES"), llvm::cl::init("1024, 8192, 32768"),
                  llvm::cl::sub(sub)),
        tensor_parallel_("tensor-parallel", llvm::cl::desc("GPUs that share a layer, default 1"),
                         llvm::cl::value_desc("N"), llvm::cl::init(1), llvm::cl::sub(sub)),
        dtype_("dtype", llvm::cl::desc("Of weights and activations, default bf16"),
               llvm::cl::value_desc("DTYPE"), llvm::cl::init("bf16"), llvm::cl::sub(sub)),
        templates_("templates", llvm::cl::desc("Folder of own templates (repeatable)"),
                   llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)) {}

  Status run() override {
    if (config_.empty()) {
      return report({ErrorCode::invalid_argument, "no CONFIG.json given: that of a model"});
    }
    const Result<std::string> text = read_file(config_.getValue(), kConfig);
    if (!text) return report(text.error());
    Result<std::vector<std::int64_t>> tokens = parse_sizes(tokens_.getValue());
    if (!tokens) return report(tokens.error());
    Result<std::vector<std::int64_t>> contexts = parse_sizes(contexts_.getValue());
    if (!contexts) return report(contexts.error());
    const std::optional<DType> dtype = dtype_meant(dtype_.getValue());
    if (!dtype || tensor_parallel_ < 1) {
      return report({ErrorCode::invalid_argument,
                     concat("--dtype is \"", dtype_.getValue(), "\" and --tensor-parallel ",
                            tensor_parallel_.getValue(), "; a dtype and 1 or more are expected")});
    }
    const auto catalog = Catalog::load({templates_.begin(), templates_.end()});
    if (!catalog) return report(catalog.error());
    const ModelUse use{.tokens = *std::move(tokens),
                       .contexts = *std::move(contexts),
                       .tensor_parallel = tensor_parallel_,
                       .dtype = *dtype};
    const Result<ModelWorklist> list = model_worklist(*text, config_.getValue(), use, **catalog);
    if (!list) return report(list.error());
    for (const std::string& note : list->notes) report_warning(note);
    Json problems = Json::array();
    for (const Problem& problem : list->problems) problems.push_back(problem.text());
    print_json(Json{{"problems", std::move(problems)}});
    return Status::ok;
  }

 private:
  llvm::cl::opt<std::string> config_;
  llvm::cl::opt<std::string> tokens_;
  llvm::cl::opt<std::string> contexts_;
  llvm::cl::opt<std::int64_t> tensor_parallel_;
  llvm::cl::opt<std::string> dtype_;
  llvm::cl::list<std::string> templates_;
};

}  // namespace

std::unique_ptr<Command> make_worklist() { return std::make_unique<Worklist>(); }

}  // namespace kernwright::cli
