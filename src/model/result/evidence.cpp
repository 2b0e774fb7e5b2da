#include "model/result/evidence.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace kernwright {
namespace {

constexpr std::array<std::string_view, 3> kTrusts = {"A", "B", "C"};
constexpr std::array<std::string_view, 3> kVerdicts = {"win", "tie", "unresolved"};
constexpr std::array<std::string_view, 3> kPaths = {"stream", "graph", "rebind"};

template <typename Enum, std::size_t Count>
std::optional<Enum> parse(const std::array<std::string_view, Count>& names, std::string_view text) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

}  // namespace

std::string_view to_string(Trust trust) { return kTrusts.at(static_cast<std::size_t>(trust)); }
std::optional<Trust> parse_trust(std::string_view text) { return parse<Trust>(kTrusts, text); }

std::string_view to_string(Verdict verdict) {
  return kVerdicts.at(static_cast<std::size_t>(verdict));
}
std::optional<Verdict> parse_verdict(std::string_view text) {
  return parse<Verdict>(kVerdicts, text);
}

std::string_view to_string(KernelPath path) { return kPaths.at(static_cast<std::size_t>(path)); }
std::optional<KernelPath> parse_kernel_path(std::string_view text) {
  return parse<KernelPath>(kPaths, text);
}

Trust Audit::trust() const {
  Trust worst = Trust::a;
  for (const AuditRow& row : rows) worst = std::max(worst, row.trust);
  return worst;
}

void Audit::merge(const Audit& other) {
  for (const AuditRow& row : other.rows) {
    const auto known = std::find_if(rows.begin(), rows.end(),
                                    [&](const AuditRow& r) { return r.check == row.check; });
    if (known == rows.end()) {
      rows.push_back(row);
    } else if (row.trust > known->trust) {
      *known = row;
    }
  }
}

}  // namespace kernwright
