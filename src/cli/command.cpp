#include "cli/command.h"

#include "cache/entries/default_root.h"
#include "cli/output.h"
#include "model/operation/user_function.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {

ServiceFlags::ServiceFlags(llvm::cl::SubCommand& sub)
    : cache("cache", llvm::cl::desc("Directory of the cache; default: see ENVIRONMENT"),
            llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)),
      read_only_caches("read-only-cache", llvm::cl::desc("A further cache, only read (repeatable)"),
                       llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)),
      templates("templates", llvm::cl::desc("Folder of own templates (repeatable)"),
                llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)),
      epilogues("epilogue",
                llvm::cl::desc("A function for matmul's results, NAME.cu or\n"
                               "NAME.ltoir; several are told apart by\n"
                               "epilogue=NAME (repeatable)"),
                llvm::cl::value_desc("FILE"), llvm::cl::sub(sub)),
      sku("sku",
          llvm::cl::desc("Work for this SKU without a GPU, e.g. h200;\n"
                         "default: for the GPU of --device"),
          llvm::cl::value_desc("NAME"), llvm::cl::sub(sub),
          llvm::cl::cb<void, const std::string&>([this](const std::string& name) {
            // Records have the profile's id. The service refuses an unknown name.
            if (const Result<DeviceProfile> profile = find_profile(name)) {
              sku.setValue(profile->id);
            }
          })),
      device("device", llvm::cl::desc("The GPU's number (default 0)"), llvm::cl::value_desc("N"),
             llvm::cl::init(0), llvm::cl::sub(sub)),
      l2("l2", llvm::cl::desc("What kernels find in the L2, part of a record's key:"),
         llvm::cl::values(
             clEnumValN(L2State::cold, "cold", "nothing (default)"),
             clEnumValN(L2State::warm, "warm", "their tensors, as far as they fit"),
             clEnumValN(L2State::mixed, "mixed", "the inputs their operation marks as warm")),
         llvm::cl::init(L2State::cold), llvm::cl::sub(sub)) {}

ServiceOptions ServiceFlags::options() const {
  ServiceOptions options;
  options.cache = cache;
  options.read_only_caches = {read_only_caches.begin(), read_only_caches.end()};
  options.signed_caches = signed_cache_roots();
  options.template_dirs = {templates.begin(), templates.end()};
  options.epilogues = {epilogues.begin(), epilogues.end()};
  options.sku = sku;
  options.device = device;
  options.l2 = l2;
  options.log = [](LogLevel level, std::string_view message) {
    if (level == LogLevel::warning) report_warning(message);
  };
  return options;
}

std::vector<std::string> ServiceFlags::arguments(int number) const {
  std::vector<std::string> words = {concat("--device=", number),
                                    concat("--l2=", to_string(l2.getValue()))};
  if (!cache.empty()) words.push_back(concat("--cache=", cache.getValue()));
  if (!sku.empty()) words.push_back(concat("--sku=", sku.getValue()));
  for (const std::string& dir : read_only_caches) words.push_back("--read-only-cache=" + dir);
  for (const std::string& dir : templates) words.push_back("--templates=" + dir);
  for (const std::string& file : epilogues) words.push_back("--epilogue=" + file);
  return words;
}

ProblemWords::ProblemWords(llvm::cl::SubCommand& sub)
    : words(llvm::cl::Positional, llvm::cl::ZeroOrMore,
            llvm::cl::desc("OPERATION dim=value ... flag=value ..."), llvm::cl::sub(sub)) {}

Result<Problem> ProblemWords::parse(const ServiceFlags& service) const {
  if (words.empty()) {
    return Error{ErrorCode::invalid_argument,
                 "no problem given: OPERATION dim=value ..., such as "
                 "matmul m=4096 n=6144 k=4096 dtype=bf16"};
  }
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  Result<Problem> problem = Problem::parse(text);
  if (!problem || service.epilogues.size() != 1) return problem;
  for (const auto& [name, value] : problem->flags()) {
    if (name == "epilogue") return problem;
  }
  return problem->with("epilogue", UserFunction::name_of(service.epilogues[0]));
}

WorklistFile::WorklistFile(llvm::cl::SubCommand& sub)
    : path(llvm::cl::Positional, llvm::cl::Optional, llvm::cl::desc("WORKLIST.json"),
           llvm::cl::sub(sub)) {}

Result<std::vector<WorklistEntry>> WorklistFile::read() const {
  if (path.empty()) {
    return Error{
        ErrorCode::invalid_argument,
        "no WORKLIST.json given: a file {\"problems\": [\"vector_add n=4096 dtype=bf16\"]}"};
  }
  std::size_t unread = 0;
  auto entries = read_worklist(path.getValue(), &unread);
  if (unread > 0) report_warning(lines_left_out(unread, path.getValue()));
  return entries;
}

Result<std::vector<Problem>> WorklistFile::normalize(const std::vector<WorklistEntry>& entries,
                                                     const ServiceCore& service) {
  std::vector<Problem> problems;
  for (const WorklistEntry& entry : entries) {
    const Result<Problem> normalized = [&]() -> Result<Problem> {
      if (has_range(entry.problem)) {
        KW_ASSIGN(const RangedProblem family, service.site().bind_family(entry.problem));
        return Problem::parse(family.text());
      }
      KW_ASSIGN(const BoundProblem bound, service.bind(entry.problem));
      return bound.problem();
    }();
    if (!normalized) {
      return Error{normalized.error().code,
                   concat(path.getValue(), ":", entry.line, ": ", normalized.error().message)};
    }
    const bool first = lines_.emplace(normalized->text(), entry.line).second;
    if (first) problems.push_back(*normalized);
  }
  return problems;
}

std::string WorklistFile::place(const Problem& normalized) const {
  const auto line = lines_.find(normalized.text());
  return line == lines_.end() ? path.getValue() : concat(path.getValue(), ":", line->second);
}

Result<void> check_budget(double seconds) {
  if (seconds > 0) return {};
  return Error{ErrorCode::invalid_argument,
               concat("--seconds is ", seconds, ", it must be above 0")};
}

}  // namespace kernwright::cli
