#include "service/report/family_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/fields/tree_writer.h"
#include "model/candidate/device_profile.h"
#include "model/candidate/size_check.h"
#include "model/operation/ranged_problem.h"
#include "support/statistics.h"
#include "support/try.h"
#include "tuner/candidates/family_fit.h"
#include "tuner/candidates/shortlist.h"
#include "tuner/cost/cost_model.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBandSizes = 4096;  ///< at which the kernel of one range is asked for
constexpr int kRoofSizes = 97;    ///< of the roofline of one range
constexpr int kMapColumns = 64;   ///< of the first range of several
constexpr int kMapRows = 40;      ///< of the second
constexpr int kFamilyDigits = 4;

/// The kernels of a family as a service chooses among them.
class Chosen {
 public:
  static Result<Chosen> make(const FamilyRecord& record, const Catalog& catalog) {
    Chosen chosen;
    KW_ASSIGN(chosen.profile_, find_profile(record.head.key.sku));
    KW_ASSIGN(const Problem written, Problem::parse(record.head.key.problem));
    KW_ASSIGN(const Operation* operation, catalog.operation(written.operation()));
    KW_ASSIGN(chosen.family_, RangedProblem::bind(*operation, written));
    std::vector<std::string> free;
    for (const FreeDim& dim : chosen.ranges()) free.push_back(dim.name);
    const std::size_t count = record.head.kernels.size();
    KW_ASSIGN(chosen.table_, table_of(record.head));
    for (std::size_t kernel = 0; kernel < count; ++kernel) {
      chosen.checks_.push_back(chosen.check_of(record, kernel, catalog, free));
    }
    return chosen;
  }

  const std::vector<FreeDim>& ranges() const { return family_->free(); }

  /// Returns the kernel that serves these sizes, or nothing if none is valid.
  std::optional<std::size_t> at(const std::vector<std::int64_t>& sizes) const {
    const DispatchTable::Order& order = table_.order(sizes);
    for (std::size_t i = 0; i < checks_.size(); ++i) {
      if (checks_[order[i]] && checks_[order[i]]->holds(sizes)) return order[i];
    }
    return std::nullopt;
  }

  /// Returns 0 if no problem has these sizes.
  double roofline_us(const std::vector<std::int64_t>& sizes) const {
    const Result<BoundProblem> problem = family_->at(sizes);
    return problem ? kernwright::roofline_us(*problem, profile_) : 0;
  }

 private:
  /// Returns nothing if the kernel's template is not here, or takes it no more.
  std::optional<SizeCheck> check_of(const FamilyRecord& record, std::size_t kernel,
                                    const Catalog& catalog,
                                    std::span<const std::string> free) const {
    const Choice& choice = record.head.kernels[kernel].choice;
    const auto made_by = catalog.kernel_template(choice.kernel_template);
    if (!made_by) return std::nullopt;
    for (const auto* rows : {&record.matrix, &record.validation}) {
      for (const FamilyRow& row : *rows) {
        if (row.times_us[kernel] <= 0) continue;
        const Result<BoundProblem> problem = family_->at(row.sizes);
        if (!problem) continue;
        const Result<Candidate> candidate =
            make_candidate(**made_by, *problem, choice.configuration, profile_);
        if (candidate && broken_habit(*candidate) == nullptr) return SizeCheck(*candidate, free);
      }
    }
    return std::nullopt;
  }

  DeviceProfile profile_;
  std::optional<RangedProblem> family_;
  DispatchTable table_;
  std::vector<std::optional<SizeCheck>> checks_;
};

Json number_of(const std::optional<std::size_t>& kernel) {
  return kernel ? Json(*kernel) : Json(nullptr);
}

/// Returns [first size, kernel] of each run of sizes with one kernel.
Json bands_json(const Chosen& chosen, const DispatchTable::Form& table) {
  const FreeDim& range = chosen.ranges().front();
  std::set<std::int64_t> sizes;
  for (int i = 0; i < kBandSizes; ++i) {
    sizes.insert(size_at(range, i / static_cast<double>(kBandSizes - 1)));
  }
  for (std::size_t node = 0; node < table.dims.size(); ++node) {
    if (table.dims[node] >= 0) sizes.insert({table.at_most[node], table.at_most[node] + 1});
  }
  Json bands = Json::array();
  std::optional<std::size_t> last;
  for (const std::int64_t size : sizes) {
    const std::optional<std::size_t> kernel = chosen.at({size});
    if (bands.empty() || kernel != last) bands.push_back({size, number_of(kernel)});
    last = kernel;
  }
  return bands;
}

Json roofline_json(const Chosen& chosen) {
  Json points = Json::array();
  std::int64_t last = 0;
  for (int i = 0; i < kRoofSizes; ++i) {
    const std::int64_t size = size_at(chosen.ranges().front(), i / (kRoofSizes - 1.0));
    if (size == std::exchange(last, size)) continue;
    points.push_back({size, rounded(chosen.roofline_us({size}), kFamilyDigits)});
  }
  return points;
}

/// Returns the kernels over the first two ranges: rows of letters, A for the first kernel and a dot
/// for none. The other ranges are in their middles.
Json map_json(const Chosen& chosen) {
  std::vector<std::int64_t> sizes;
  Json fixed = Json::array();
  for (const FreeDim& range : chosen.ranges()) {
    sizes.push_back(size_at(range, 0.5));
    if (sizes.size() > 2) fixed.push_back({range.name, sizes.back()});
  }
  Json cells = Json::array();
  for (int row = 0; row < kMapRows; ++row) {
    sizes[1] = size_at(chosen.ranges()[1], (row + 0.5) / kMapRows);
    std::string letters;
    for (int column = 0; column < kMapColumns; ++column) {
      sizes[0] = size_at(chosen.ranges()[0], (column + 0.5) / kMapColumns);
      const std::optional<std::size_t> kernel = chosen.at(sizes);
      letters += kernel ? static_cast<char>('A' + *kernel) : '.';
    }
    cells.push_back(std::move(letters));
  }
  return {{"fixed", std::move(fixed)}, {"cells", std::move(cells)}};
}

/// Returns the times of the family's kernels at one size, and the first in the table's order that
/// was measured there, of which the record's regret is. It stands in for one that was not.
Json row_json(const FamilyRow& row, const DispatchTable& table, std::size_t kernels) {
  Json us = Json::array();
  for (std::size_t i = 0; i < kernels; ++i) {
    us.push_back(row.times_us[i] > 0 ? Json(rounded(row.times_us[i], kFamilyDigits))
                                     : Json(nullptr));
  }
  double best = 0;
  for (const double time : row.times_us) {
    if (time > 0 && (best == 0 || time < best)) best = time;
  }
  Json json = {
      {"sizes", row.sizes}, {"us", std::move(us)}, {"best_us", rounded(best, kFamilyDigits)}};
  const DispatchTable::Order& order = table.order(row.sizes);
  for (std::size_t i = 0; i < kernels; ++i) {
    const double time = row.times_us[order[i]];
    if (time <= 0) continue;
    json["kernel"] = order[i];
    if (i > 0) json["stands_in"] = true;
    json["regret"] = rounded(time / best - 1, 3);
    break;
  }
  if (row.anchor) json["anchor"] = true;
  return json;
}

void add_choices(Json& json, const Chosen& chosen, const DispatchTable::Form& table) {
  Json ranges = Json::array();
  for (const FreeDim& range : chosen.ranges()) {
    ranges.push_back({range.name, range.first, range.last});
  }
  json["ranges"] = std::move(ranges);
  if (chosen.ranges().size() == 1) {
    json["bands"] = bands_json(chosen, table);
    json["roofline"] = roofline_json(chosen);
  } else {
    json["map"] = map_json(chosen);
  }
}

}  // namespace

Json family_json(const FamilyRecord& record, const Catalog& catalog) {
  const FamilyHead& head = record.head;
  Json json = {{"problem", head.key.problem},
               {"sku", head.key.sku},
               {"target", head.key.target},
               {"policy", head.key.policy.text()},
               {"device", record.device_name},
               {"created", head.created},
               {"driver", head.environment.driver},
               {"compiler", head.environment.compiler},
               {"kernwright", head.environment.kernwright},
               {"trust", to_string(head.trust)},
               {"regret", tree_of(head.regret)},
               {"wall_seconds", rounded(record.wall_seconds, kFamilyDigits)},
               {"tried", record.tried.size()}};
  Json kernels = Json::array();
  for (const FamilyKernel& kernel : head.kernels) {
    kernels.push_back({{"template", kernel.choice.kernel_template},
                       {"configuration", tree_of(kernel.choice.configuration)}});
  }
  json["kernels"] = std::move(kernels);
  const Result<Chosen> chosen = Chosen::make(record, catalog);
  if (chosen) add_choices(json, *chosen, head.table);
  Json rows = Json::array();
  const Result<DispatchTable> table = table_of(head);
  const auto add = [&](const FamilyRow& row, bool validates) {
    Json& added = rows.emplace_back(row_json(row, *table, head.kernels.size()));
    if (validates) added["validation"] = true;
    if (chosen) added["roofline_us"] = rounded(chosen->roofline_us(row.sizes), kFamilyDigits);
  };
  for (const FamilyRow& row : record.matrix) add(row, false);
  for (const FamilyRow& row : record.validation) add(row, true);
  json["rows"] = std::move(rows);
  return json;
}

}  // namespace kernwright
