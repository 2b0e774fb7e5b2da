#include "compile/ptxas_log.h"

#include <algorithm>
#include <charconv>

#include "support/text.h"

namespace kernwright {
namespace {

/// Returns the text between `before` and the next quote; empty if the line does not have `before`.
std::string_view quoted_after(std::string_view line, std::string_view before) {
  const std::size_t at = line.find(before);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = line.substr(at + before.size());
  return rest.substr(0, rest.find('\''));
}

/// Returns the number before `unit`, as in "128 bytes smem"; 0 if there is none.
int number_before(std::string_view line, std::string_view unit) {
  const std::size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int number = 0;
  std::from_chars(line.data() + begin, line.data() + end, number);
  return number;
}

void add_once(std::vector<std::string>& warnings, std::string warning) {
  if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) {
    warnings.push_back(std::move(warning));
  }
}

}  // namespace

PtxasReport parse_ptxas_log(std::string_view log) {
  constexpr std::string_view kProperties = "Function properties for ";
  PtxasReport report;
  Resources called;              // resources of functions that are not entries
  Resources* current = &called;  // the next line of stack and spills is for this
  for (const std::string_view line : split(log, '\n')) {
    // ptxas says this for serialised wgmma and for an ignored setmaxnreg alone (C7504 to C7514,
    // C7520), and not for waits that it inserts without loss (C7517, C7519).
    if (line.find("Potential Performance Loss") != std::string_view::npos) {
      add_once(report.warnings,
               std::string(trim(line.substr(std::min(line.find('('), line.size())))));
    } else if (const auto entry = quoted_after(line, "Compiling entry function '");
               !entry.empty()) {
      report.entries.push_back({std::string(entry), {}});
    } else if (const std::size_t at = line.find(kProperties); at != std::string_view::npos) {
      const std::string_view name = trim(line.substr(at + kProperties.size()));
      const bool is_entry = !report.entries.empty() && report.entries.back().name == name;
      current = is_entry ? &report.entries.back().resources : &called;
      if (!is_entry) add_once(report.warnings, concat(name, " is called, not inlined"));
    } else if (line.find(" bytes stack frame") != std::string_view::npos) {
      current->stack_bytes =
          std::max(current->stack_bytes, number_before(line, " bytes stack frame"));
      current->spill_store_bytes += number_before(line, " bytes spill stores");
      current->spill_load_bytes += number_before(line, " bytes spill loads");
    } else if (line.find("Used ") != std::string_view::npos && !report.entries.empty()) {
      Resources& resources = report.entries.back().resources;
      resources.registers = number_before(line, " registers");
      resources.barriers = number_before(line, " barriers");
      resources.static_smem_bytes = number_before(line, " bytes smem");
      resources.stack_bytes =
          std::max(resources.stack_bytes, number_before(line, " bytes cumulative stack size"));
    }
  }
  for (KernelEntry& entry : report.entries) {
    entry.resources.spill_store_bytes += called.spill_store_bytes;
    entry.resources.spill_load_bytes += called.spill_load_bytes;
  }
  return report;
}

std::string joined_log(std::string parts) {
  parts.erase(parts.find_last_not_of('\0') + 1);
  std::string text;
  for (const char c : parts) {
    if (c != '\0') {
      text += c;
    } else if (!text.empty() && text.back() != '\n') {
      text += '\n';
    }
  }
  return text;
}

std::string without_infos(std::string_view log) {
  std::string rest;
  for (const std::string_view line : split(log, '\n')) {
    if (line.starts_with("ptxas info") || line.starts_with("ptxas         .")) continue;
    rest += concat(line, '\n');
  }
  return std::string(trim(trim(rest).empty() ? log : rest));
}

}  // namespace kernwright
