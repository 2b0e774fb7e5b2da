#include "service/tune/ncu_csv.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

struct Unit {
  std::string_view name;
  std::string_view base;  ///< the unit of `Counter::unit`
  double factor = 1;
};
// ncu scales units to the size of a value, unless it is called with --print-units base.
constexpr Unit kUnits[] = {
    {"byte", "byte", 1},     {"Kbyte", "byte", 1e3}, {"Mbyte", "byte", 1e6}, {"Gbyte", "byte", 1e9},
    {"Tbyte", "byte", 1e12}, {"ns", "ns", 1},        {"nsecond", "ns", 1},   {"us", "ns", 1e3},
    {"usecond", "ns", 1e3},  {"ms", "ns", 1e6},      {"msecond", "ns", 1e6}, {"s", "ns", 1e9},
    {"second", "ns", 1e9},   {"%", "%", 1},          {"", "warps", 1},       {"warp", "warps", 1},
    {"inst", "warps", 1},
};

using Cells = std::vector<std::string>;

/// The cells of one line; a quote within quotes is doubled.
Cells cells_of(std::string_view line) {
  Cells cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

/// A number, whose thousands may be separated by commas.
std::optional<double> number(std::string text) {
  std::erase(text, ',');
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// "(132, 1, 1)".
std::optional<std::array<std::uint32_t, 3>> grid(std::string_view text) {
  text = trim(text);
  if (!text.starts_with('(') || !text.ends_with(')')) return std::nullopt;
  const auto parts = split(text.substr(1, text.size() - 2), ',');
  std::array<std::uint32_t, 3> sizes{};
  if (parts.size() != sizes.size()) return std::nullopt;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string_view part = trim(parts[i]);
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), sizes[i]);
    if (error != std::errc() || stop != part.data() + part.size()) return std::nullopt;
  }
  return sizes;
}

/// "void ns::kernel<int>(float *)" is "kernel".
std::string base_name(std::string_view name) {
  name = trim(name.substr(0, name.find_first_of("<(")));
  if (const std::size_t at = name.find_last_of(" :"); at != std::string_view::npos) {
    name.remove_prefix(at + 1);
  }
  return std::string(name);
}

/// The columns of a file.
class Columns {
 public:
  explicit Columns(Cells names) : names_(std::move(names)) {}

  std::size_t count() const { return names_.size(); }
  std::optional<std::size_t> find(std::string_view name) const {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - names_.begin());
  }

 private:
  Cells names_;
};

CounterValue value_of(const Counter& counter, const std::string& unit, const std::string& cell) {
  const auto known = std::ranges::find_if(
      kUnits, [&](const Unit& one) { return one.name == unit && one.base == counter.unit; });
  if (known == std::end(kUnits)) {
    return {std::string(counter.name), std::nullopt,
            concat("ncu gives it in \"", unit, "\", which is no unit of ", counter.unit)};
  }
  const std::optional<double> counted = number(cell);
  if (!counted) {
    return {std::string(counter.name), std::nullopt, concat("ncu says \"", cell, '"')};
  }
  return judged(counter.name, *counted * known->factor);
}

Error no_file(std::size_t line, std::string_view what) {
  return {ErrorCode::invalid_argument,
          concat("line ", line, ": ", what, "; what ncu --csv --page raw prints is expected")};
}

std::string grid_text(const std::array<std::uint32_t, 3>& grid) {
  return concat('(', grid[0], ", ", grid[1], ", ", grid[2], ')');
}

}  // namespace

Result<std::vector<NcuKernel>> parse_ncu_csv(std::string_view text) {
  std::optional<Columns> columns;
  Cells units;
  std::vector<NcuKernel> kernels;
  std::size_t line_number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++line_number;
    if (!line.starts_with('"')) continue;  // the program's, or ncu's own: ==PROF== ...
    Cells cells = cells_of(line);
    if (cells.front() == "ID") {
      columns.emplace(std::move(cells));
      units.clear();
      if (!columns->find("Kernel Name") || !columns->find("Grid Size")) {
        return no_file(line_number, "there is no column \"Kernel Name\" or \"Grid Size\"");
      }
      continue;
    }
    if (!columns) return no_file(line_number, "no line of names, which begins with \"ID\"");
    if (cells.size() != columns->count()) {
      return no_file(line_number,
                     concat(cells.size(), " cells, and ", columns->count(), " columns have names"));
    }
    if (units.empty()) {
      if (!cells.front().empty()) return no_file(line_number, "the line of units is missing");
      units = std::move(cells);
      continue;
    }
    NcuKernel& kernel = kernels.emplace_back();
    kernel.counted.name = base_name(cells[*columns->find("Kernel Name")]);
    const std::string& size = cells[*columns->find("Grid Size")];
    const auto sizes = grid(size);
    if (!sizes) return no_file(line_number, concat("the grid \"", size, "\" is none"));
    kernel.counted.grid = *sizes;
    if (const auto passes = columns->find("profiler__replayer_passes")) {
      kernel.passes = static_cast<int>(number(cells[*passes]).value_or(0));
    }
    for (const Counter& counter : counters()) {
      const auto column = columns->find(counter.name);
      kernel.counted.values.push_back(
          column ? value_of(counter, units[*column], cells[*column])
                 : CounterValue{std::string(counter.name), std::nullopt, "not in the file of ncu"});
    }
  }
  if (kernels.empty()) return no_file(line_number, "it has no kernels");
  return kernels;
}

Result<CounterSet> take_from_ncu(std::vector<NcuKernel>& kernels, const Candidate& candidate) {
  CounterSet set;
  set.choice = candidate.choice();
  set.source = CounterSource::ncu;
  std::vector<NcuKernel*> taken;
  for (const LaunchPlan& launch : candidate.plan.launches) {
    const auto found = std::ranges::find_if(kernels, [&](const NcuKernel& kernel) {
      return !kernel.used && std::ranges::find(taken, &kernel) == taken.end() &&
             kernel.counted.name == launch.kernel && kernel.counted.grid == launch.grid;
    });
    if (found == kernels.end()) {
      return Error{ErrorCode::not_found, concat("no kernel ", launch.kernel, " with grid ",
                                                grid_text(launch.grid), " is left in the file")};
    }
    taken.push_back(&*found);
    set.kernels.push_back(found->counted);
    set.passes += found->passes;
  }
  for (NcuKernel* kernel : taken) kernel->used = true;
  return set;
}

}  // namespace kernwright
