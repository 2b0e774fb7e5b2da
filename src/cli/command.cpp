#include "cli/command.h"

#include "cli/output.h"
#include "support/text.h"

namespace kernwright::cli {

ServiceFlags::ServiceFlags(llvm::cl::SubCommand& sub)
    : cache("cache", llvm::cl::desc("Directory of the cache"), llvm::cl::value_desc("DIR"),
            llvm::cl::sub(sub)),
      read_only_caches("read-only-cache", llvm::cl::desc("A further cache, only read (repeatable)"),
                       llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)),
      templates("templates", llvm::cl::desc("Folder of own templates (repeatable)"),
                llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)),
      sku("sku", llvm::cl::desc("Work for this SKU without a GPU, e.g. h200"),
          llvm::cl::value_desc("NAME"), llvm::cl::sub(sub)),
      device("device", llvm::cl::desc("The GPU's number"), llvm::cl::value_desc("N"),
             llvm::cl::init(0), llvm::cl::sub(sub)) {}

ServiceOptions ServiceFlags::options() const {
  ServiceOptions options;
  options.cache = cache;
  options.read_only_caches = {read_only_caches.begin(), read_only_caches.end()};
  options.template_dirs = {templates.begin(), templates.end()};
  options.sku = sku;
  options.device = device;
  options.log = [](LogLevel level, std::string_view message) {
    if (level == LogLevel::warning) report_warning(message);
  };
  return options;
}

std::shared_ptr<ServiceCore> ServiceFlags::open() const {
  Result<std::shared_ptr<ServiceCore>> service = ServiceCore::open(options());
  if (service) return *std::move(service);
  report(service.error());
  return nullptr;
}

ProblemWords::ProblemWords(llvm::cl::SubCommand& sub)
    : words(llvm::cl::Positional, llvm::cl::OneOrMore,
            llvm::cl::desc("OPERATION dim=value ... flag=value ..."), llvm::cl::sub(sub)) {}

Result<Problem> ProblemWords::parse() const {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return Problem::parse(text);
}

}  // namespace kernwright::cli
