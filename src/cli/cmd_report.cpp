#include <filesystem>
#include <system_error>

#include "cache/entries/default_root.h"
#include "cache/layers/bundle.h"
#include "cli/command.h"
#include "cli/output.h"
#include "service/report/report_file.h"
#include "support/text.h"

namespace kernwright::cli {
namespace {

class Report : public Command {
 public:
  Report()
      : Command("report", "Write records as a page to look at, one HTML file"),
        paths_(llvm::cl::Positional, llvm::cl::ZeroOrMore,
               llvm::cl::desc("[CACHE | WORKLIST.json | RECORD.kwr ...]"), llvm::cl::sub(sub)),
        output_("o", llvm::cl::desc("The file (default report.html)"), llvm::cl::value_desc("FILE"),
                llvm::cl::init("report.html"), llvm::cl::sub(sub)),
        compare_("compare",
                 llvm::cl::desc("An older cache or record that all is compared with:\n"
                                "what is faster, slower, the same or unclear"),
                 llvm::cl::value_desc("CACHE"), llvm::cl::sub(sub)),
        cache_("cache",
               llvm::cl::desc("The cache where no path names one; default: see\nENVIRONMENT"),
               llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)),
        read_only_caches_("read-only-cache",
                          llvm::cl::desc("A further cache, only read (repeatable)"),
                          llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)),
        templates_("templates", llvm::cl::desc("Folder of own templates (repeatable)"),
                   llvm::cl::value_desc("DIR"), llvm::cl::sub(sub)),
        epilogues_("epilogue", llvm::cl::desc("A function for matmul's results (repeatable)"),
                   llvm::cl::value_desc("FILE"), llvm::cl::sub(sub)),
        sku_("sku", llvm::cl::desc("Records of this SKU alone, e.g. h200"),
             llvm::cl::value_desc("NAME"), llvm::cl::sub(sub)) {}

  Status run() override {
    ReportRequest request;
    request.inputs.paths = {paths_.begin(), paths_.end()};
    request.inputs.cache =
        cache_.empty() ? default_cache_root() : std::filesystem::path(cache_.getValue());
    request.inputs.read_only_caches = {read_only_caches_.begin(), read_only_caches_.end()};
    for (const std::string& folder : signed_cache_roots()) {
      if (auto checked = check_packaged_bundle(folder); checked) {
        request.inputs.read_only_caches.emplace_back(folder);
      } else {
        report_warning(concat(folder, " is passed over: ", checked.error().message));
      }
    }
    if (!sku_.empty()) {
      const Result<DeviceProfile> profile = find_profile(sku_.getValue());
      if (!profile) return report({ErrorCode::invalid_argument, profile.error().message});
      request.inputs.sku = profile->id;
    }
    request.template_dirs = {templates_.begin(), templates_.end()};
    request.epilogues = {epilogues_.begin(), epilogues_.end()};
    request.compare = compare_.getValue();
    request.output = output_.getValue();
    const Result<ReportFile> written = write_report(request);
    if (!written) return report(written.error());
    for (const std::string& defect : written->defects) report_warning(defect);
    if (json) {
      print_json(Json{{"file", written->file.string()},
                      {"bytes", written->bytes},
                      {"records", written->records},
                      {"missing", written->missing},
                      {"defects", written->defects}});
    } else {
      print(concat(written->file.string(), ": ", counted(written->records, "record"), ", ",
                   format_bytes(static_cast<double>(written->bytes)),
                   written->missing == 0
                       ? std::string()
                       : concat("; ", counted(written->missing, "problem has", "problems have"),
                                " no record")));
    }
    return Status::ok;
  }

 private:
  llvm::cl::list<std::string> paths_;
  llvm::cl::opt<std::string> output_;
  llvm::cl::opt<std::string> compare_;
  llvm::cl::opt<std::string> cache_;
  llvm::cl::list<std::string> read_only_caches_;
  llvm::cl::list<std::string> templates_;
  llvm::cl::list<std::string> epilogues_;
  llvm::cl::opt<std::string> sku_;
};

}  // namespace

std::unique_ptr<Command> make_report() { return std::make_unique<Report>(); }

}  // namespace kernwright::cli
