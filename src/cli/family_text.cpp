#include "cli/family_text.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "support/text.h"
#include <kernwright/problem.h>

namespace kernwright::cli {
namespace {

/// A range of a family as its key has it.
struct Shown {
  std::string name;
  std::int64_t first;
  std::int64_t last;

  std::string text() const {
    return first == last ? concat(name, '=', first) : concat(name, '=', first, "..", last);
  }
};

std::vector<Shown> ranges_of(const FamilyHead& family) {
  std::vector<Shown> ranges;
  for (const std::string_view word : split(family.key.problem, ' ')) {
    const std::size_t equals = word.find('=');
    const std::size_t dots = word.find("..");
    if (dots == std::string_view::npos) continue;
    ranges.push_back({std::string(word.substr(0, equals)),
                      std::stoll(std::string(word.substr(equals + 1, dots - equals - 1))),
                      std::stoll(std::string(word.substr(dots + 2)))});
  }
  return ranges;
}

/// Adds a row for each leaf below a node, but one for neighbours that take the same kernel.
void add_rows(const FamilyHead& family, std::size_t node, std::vector<Shown> ranges,
              std::vector<std::pair<std::vector<Shown>, int>>& rows) {
  const DispatchTable::Form& table = family.table;
  const int dim = table.dims[node];
  if (dim < 0) {
    const auto leaf = static_cast<std::size_t>(table.next[node]);
    const int kernel = table.orders[leaf * family.kernels.size()];
    if (ranges.size() == 1 && !rows.empty() && rows.back().second == kernel) {
      rows.back().first.front().last = ranges.front().last;
    } else {
      rows.emplace_back(std::move(ranges), kernel);
    }
    return;
  }
  Shown& split = ranges[static_cast<std::size_t>(dim)];
  const std::int64_t last = std::exchange(split.last, table.at_most[node]);
  add_rows(family, node + 1, ranges, rows);
  split.first = table.at_most[node] + 1;
  split.last = last;
  add_rows(family, static_cast<std::size_t>(table.next[node]), std::move(ranges), rows);
}

std::string regret_text(const FamilyHead& family) {
  const FamilyRegret& regret = family.regret;
  if (regret.sizes == 0) return "not measured";
  double all = 1;
  for (const Shown& range : ranges_of(family)) {
    all *= static_cast<double>(range.last - range.first + 1);
  }
  return concat("at ",
                regret.sizes == all ? concat("all ", counted(regret.sizes, "size"))
                                    : counted(regret.sizes, "other size"),
                ": median ", format_share(regret.median), ", within ", format_share(regret.p95),
                " at 95 %, worst ", format_share(regret.worst), " slower than the best found");
}

}  // namespace

void print_family(const Page& page, const FamilyHead& family) {
  page.print("family", family.key.problem);
  page.print("kernels", concat(family.kernels.size(), ", trust ", to_string(family.trust)));
  page.print("regret", regret_text(family));
  std::vector<std::pair<std::vector<Shown>, int>> rows;
  add_rows(family, 0, ranges_of(family), rows);
  Table table({{"sizes"}, {"kernel"}});
  for (const auto& [ranges, kernel] : rows) {
    std::string sizes;
    for (const Shown& range : ranges) sizes += (sizes.empty() ? "" : " ") + range.text();
    table.add({std::move(sizes), family.kernels[static_cast<std::size_t>(kernel)].choice.id()});
  }
  page.print(table);
}

}  // namespace kernwright::cli
