#include "service/report/report_file.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "service/report/report_data.h"
#include "service/report/report_page.h"
#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

/// Returns the last part of a path, also of "cache/".
std::string name_of(const std::filesystem::path& path) {
  const std::filesystem::path plain = path.lexically_normal();
  return (plain.has_filename() ? plain : plain.parent_path()).filename().string();
}

std::vector<std::string> names_of(const ReportRequest& request) {
  const ReportInputs& inputs = request.inputs;
  if (!request.title.empty()) return {request.title};
  if (inputs.paths.empty()) return {name_of(inputs.cache)};
  std::vector<std::string> names;
  for (const std::filesystem::path& path : inputs.paths) names.push_back(name_of(path));
  return names;
}

std::string title_of(const ReportSources& sources, const std::vector<std::string>& names) {
  if (sources.count() == 1 && sources.missing.empty()) {
    return sources.records.empty() ? sources.families.front().head.key.problem
                                   : sources.records.front().record.key.problem;
  }
  std::string title;
  for (const std::string& name : names) title += concat(title.empty() ? "" : ", ", name);
  return title;
}

/// Refuses sources that have nothing to compare with: a misspelt folder has no record either.
Result<void> check_compared(const ReportSources& sources, const ReportSources& before,
                            const ReportRequest& request) {
  std::set<std::string> keys;
  for (const ReportedRecord& reported : before.records) keys.insert(reported.record.key.text());
  if (keys.empty()) {
    return Error{ErrorCode::not_found,
                 concat("no record in ", request.compare.native(), " to compare with",
                        before.defects.empty() ? "" : concat("; ", before.defects.front()))};
  }
  const auto is_compared = [&keys](const ReportedRecord& reported) {
    return keys.contains(reported.record.key.text());
  };
  if (std::ranges::any_of(sources.records, is_compared)) return {};
  return Error{ErrorCode::not_found,
               concat("nothing to compare: of ", counted(sources.records.size(), "record"),
                      " none is of a problem, target and SKU that ", request.compare.native(),
                      " has, in ", counted(keys.size(), "record"))};
}

}  // namespace

Result<ReportFile> write_report(const ReportRequest& request) {
  KW_ASSIGN(const std::shared_ptr<const Catalog> catalog,
            Catalog::load(request.template_dirs, request.epilogues));
  KW_ASSIGN(const ReportSources sources, read_report_sources(request.inputs, *catalog));
  const std::vector<std::string> names = names_of(request);
  if (sources.count() == 0) {
    const std::size_t missing = sources.missing.size();
    return Error{ErrorCode::not_found,
                 concat("no record ",
                        missing == 0 ? concat("in ", title_of(sources, names))
                                     : concat("of ", counted(missing, "problem"), " in ",
                                              request.inputs.cache.native()),
                        request.inputs.sku.empty() ? "" : concat(" for ", request.inputs.sku),
                        sources.defects.empty() ? "" : concat("; ", sources.defects.front()))};
  }
  ReportInput input{.sources = sources, .catalog = *catalog, .names = names};
  std::optional<ReportSources> before;
  if (!request.compare.empty()) {
    ReportInputs older = request.inputs;
    older.paths = {request.compare};
    older.problems.clear();
    KW_ASSIGN(before, read_report_sources(older, *catalog));
    KW_TRY(check_compared(sources, *before, request));
    input.before = &*before;
    input.before_name = name_of(request.compare);
  }
  const std::string page = report_page(title_of(sources, names), report_json(input));
  KW_TRY(publish_file(request.output, page));
  return ReportFile{.file = request.output,
                    .bytes = page.size(),
                    .records = sources.count(),
                    .missing = sources.missing.size(),
                    .defects = sources.defects};
}

}  // namespace kernwright
