#include "service/tune/ncu_csv.h"

#include <algorithm>
#include <charconv>
#include <map>
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
    {"byte", "byte", 1},    {"Kbyte", "byte", 1e3},  {"Mbyte", "byte", 1e6},
    {"Gbyte", "byte", 1e9}, {"Tbyte", "byte", 1e12}, {"ns", "ns", 1},
    {"nsecond", "ns", 1},   {"us", "ns", 1e3},       {"usecond", "ns", 1e3},
    {"ms", "ns", 1e6},      {"msecond", "ns", 1e6},  {"s", "ns", 1e9},
    {"second", "ns", 1e9},  {"%", "%", 1},           {"", "warps", 1},
    {"warp", "warps", 1},   {"inst", "warps", 1},    {"sector", "sector", 1},
};

constexpr Counter kHits{"lts__t_sectors_lookup_hit.sum", "sector", "", 0};
constexpr Counter kMisses{"lts__t_sectors_lookup_miss.sum", "sector", "", 0};
/// What the sections of ncu have for the share of device memory.
constexpr Counter kSectionsDramShare{"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%",
                                     "", 0};

using Cells = std::vector<std::string>;

/// The cells of one line; a quote within quotes is doubled.
Cells cells_of(std::string_view line, char separator) {
  Cells cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == separator && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

/// What stands before the fraction: ncu prints numbers as the locale has them. Nothing where the
/// text does not tell, as "1,234".
std::optional<char> decimal_sign(std::string_view text) {
  const std::size_t comma = text.rfind(',');
  const std::size_t point = text.rfind('.');
  constexpr std::size_t kNone = std::string_view::npos;
  if (comma == kNone && point == kNone) return std::nullopt;
  if (comma != kNone && point != kNone) return comma > point ? ',' : '.';
  const char sign = comma != kNone ? ',' : '.';
  const char other = sign == ',' ? '.' : ',';
  const std::size_t at = comma != kNone ? comma : point;
  if (text.find(sign) != at) return other;  // twice, so it separates thousands
  constexpr std::size_t kGroup = 3;
  const bool groups =
      text.size() - at - 1 == kGroup && at > 0 && at <= kGroup && !text.starts_with('0');
  return groups ? std::nullopt : std::optional(sign);
}

/// A number, whose thousands may be separated.
std::optional<double> number(std::string text, char decimal) {
  // The two kinds of narrow spaces in UTF-8, as French has them.
  for (const std::string_view space : {"\u00a0", "\u202f", " ", "'"}) {
    for (std::size_t at = 0; (at = text.find(space)) != std::string::npos;) {
      text.erase(at, space.size());
    }
  }
  std::erase(text, decimal == ',' ? '.' : ',');
  std::ranges::replace(text, ',', '.');
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

/// "(132, 1, 1)".
std::optional<Extent3> extent(std::string_view text) {
  text = trim(text);
  if (!text.starts_with('(') || !text.ends_with(')')) return std::nullopt;
  const auto parts = split(text.substr(1, text.size() - 2), ',');
  Extent3 sizes{};
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

Error no_file(std::size_t line, std::string_view what) {
  return {ErrorCode::invalid_argument,
          concat("line ", line, ": ", what, "; what ncu --csv --page raw prints is expected")};
}

/// A line of names with what follows it. A file that was put together has several.
struct NcuSection {
  char separator = ',';
  bool quoted = false;  ///< as ncu writes it, and not a program that changed the file
  Cells names;
  Cells units;
  std::vector<std::pair<std::size_t, Cells>> rows;  ///< with their lines

  std::optional<std::size_t> find(std::string_view name) const {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) return std::nullopt;
    return static_cast<std::size_t>(found - names.begin());
  }
};

/// Begins a section where the line is one of names.
std::optional<NcuSection> begin_ncu_section(std::string_view line) {
  NcuSection section;
  section.quoted = line.starts_with('"');
  const std::string_view id = section.quoted ? "\"ID\"" : "ID";
  if (!line.starts_with(id) || line.size() == id.size()) return std::nullopt;
  section.separator = line[id.size()];
  if (section.separator != ',' && section.separator != ';' && section.separator != '\t') {
    return std::nullopt;
  }
  section.names = cells_of(line, section.separator);
  return section;
}

/// All columns that are read.
std::vector<const Counter*> columns_read() {
  std::vector<const Counter*> all{&kHits, &kMisses, &kSectionsDramShare};
  for (const Counter& counter : counters()) all.push_back(&counter);
  return all;
}

Result<std::vector<NcuSection>> read_sections(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\ufeff";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<NcuSection> sections;
  std::size_t line_number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++line_number;
    if (auto begun = begin_ncu_section(line)) {
      if (begun->find("Metric Name")) {
        return no_file(line_number, "this is the page \"details\", with a line for each metric");
      }
      if (!begun->find("Kernel Name") || !begun->find("Grid Size")) {
        return no_file(line_number, "there is no column \"Kernel Name\" or \"Grid Size\"");
      }
      if (std::ranges::none_of(columns_read(), [&](const Counter* counter) {
            return begun->find(counter->name).has_value();
          })) {
        return no_file(line_number, concat("it has none of the counters that are read, such as ",
                                           kTimeCounter, "; collect them with --metrics"));
      }
      sections.push_back(*std::move(begun));
      continue;
    }
    // Other lines are the program's, or ncu's own: ==PROF== ...
    const bool quoted = line.starts_with('"');
    if (sections.empty()) {
      if (quoted) return no_file(line_number, "no line of names, which begins with \"ID\"");
      continue;
    }
    NcuSection& section = sections.back();
    if (section.quoted ? !quoted : trim(line).empty() || line.starts_with("==")) continue;
    Cells cells = cells_of(line, section.separator);
    if (cells.size() != section.names.size()) {
      return no_file(line_number, concat(cells.size(), " cells, and ", section.names.size(),
                                         " columns have names"));
    }
    if (!section.units.empty()) {
      section.rows.emplace_back(line_number, std::move(cells));
    } else if (cells.front().empty()) {
      section.units = std::move(cells);
    } else {
      return no_file(line_number, "the line of units is missing");
    }
  }
  if (std::ranges::all_of(sections, [](const NcuSection& one) { return one.rows.empty(); })) {
    return no_file(line_number, "it has no kernels");
  }
  return sections;
}

/// What stands before fractions in the whole file.
Result<char> decimal_sign(const std::vector<NcuSection>& sections) {
  std::map<char, std::string> seen;
  for (const NcuSection& section : sections) {
    for (const Counter* counter : columns_read()) {
      const auto column = section.find(counter->name);
      if (!column) continue;
      for (const auto& [line, cells] : section.rows) {
        const std::string& cell = cells[*column];
        const bool numeric = cell.find_first_of("0123456789") != std::string::npos;
        const std::optional<char> sign = numeric ? decimal_sign(cell) : std::nullopt;
        if (!sign) continue;
        seen.emplace(*sign, cell);
        if (seen.size() > 1) {
          return no_file(line, concat('"', seen[','], "\" has a comma before its fraction and \"",
                                      seen['.'], "\" a point"));
        }
      }
    }
  }
  return seen.contains(',') ? ',' : '.';
}

/// A kernel's line.
struct NcuRow {
  const NcuSection& section;
  const Cells& cells;
  char decimal;

  CounterValue value(const Counter& counter) const {
    const auto column = section.find(counter.name);
    if (!column) return {std::string(counter.name), std::nullopt, "not in the file of ncu"};
    const std::string& unit = section.units[*column];
    const auto known = std::ranges::find_if(
        kUnits, [&](const Unit& one) { return one.name == unit && one.base == counter.unit; });
    if (known == std::end(kUnits)) {
      return {std::string(counter.name), std::nullopt,
              concat("ncu gives it in \"", unit, "\", which is no unit of ", counter.unit)};
    }
    const std::optional<double> counted = number(cells[*column], decimal);
    if (!counted) {
      return {std::string(counter.name), std::nullopt, concat("ncu says \"", cells[*column], '"')};
    }
    return judged(counter.name, *counted * known->factor);
  }

  /// As `value`, from other columns where those say the same, or say it better.
  CounterValue best_value(const Counter& counter) const {
    if (counter.name == kL2HitCounter) {
      // As we count them ourselves.
      const CounterValue hits = value(kHits);
      const CounterValue misses = value(kMisses);
      if (hits.value && misses.value) {
        return judged(counter.name, 100 * *hits.value / (*hits.value + *misses.value));
      }
    }
    if (counter.name == kDramShareCounter && !section.find(counter.name)) {
      const CounterValue share = value(kSectionsDramShare);
      if (share.value) return judged(counter.name, *share.value);
    }
    return value(counter);
  }
};

std::string extent_text(const Extent3& extent) {
  return concat('(', extent[0], ", ", extent[1], ", ", extent[2], ')');
}

}  // namespace

Result<std::vector<NcuKernel>> parse_ncu_csv(std::string_view text) {
  KW_ASSIGN(const std::vector<NcuSection> sections, read_sections(text));
  KW_ASSIGN(const char decimal, decimal_sign(sections));
  std::vector<NcuKernel> kernels;
  for (const NcuSection& section : sections) {
    for (const auto& [line, cells] : section.rows) {
      const NcuRow row{section, cells, decimal};
      NcuKernel& kernel = kernels.emplace_back();
      kernel.counted.name = base_name(cells[*section.find("Kernel Name")]);
      const std::string& size = cells[*section.find("Grid Size")];
      const auto sizes = extent(size);
      if (!sizes) return no_file(line, concat("the grid \"", size, "\" is none"));
      kernel.counted.grid = *sizes;
      if (const auto block = section.find("Block Size")) kernel.block = extent(cells[*block]);
      if (const auto passes = section.find("profiler__replayer_passes")) {
        kernel.passes = static_cast<int>(number(cells[*passes], decimal).value_or(0));
      }
      for (const Counter& counter : counters()) {
        kernel.counted.values.push_back(row.best_value(counter));
      }
    }
  }
  return kernels;
}

NcuKernels::NcuKernels(std::vector<NcuKernel> kernels)
    : kernels_(std::move(kernels)),
      used_(kernels_.size()),
      has_blocks_(std::ranges::all_of(
          kernels_, [](const NcuKernel& kernel) { return kernel.block.has_value(); })) {}

std::size_t NcuKernels::expect(const Candidate& candidate) {
  for (const LaunchPlan& launch : candidate.plan.launches) {
    launches_.push_back({choices_.size(), launch.kernel, launch.grid, launch.block});
  }
  choices_.push_back(candidate.choice());
  return choices_.size() - 1;
}

bool NcuKernels::alike(const Launch& one, const Launch& other) const {
  return one.kernel == other.kernel && one.grid == other.grid &&
         (!has_blocks_ || one.block == other.block);
}

Result<std::size_t> NcuKernels::find(std::size_t launch) const {
  const Launch& wanted = launches_[launch];
  std::size_t before = 0;
  std::size_t expected = 0;
  bool shared = false;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    if (!alike(launches_[i], wanted)) continue;
    if (i < launch) ++before;
    ++expected;
    shared = shared || launches_[i].candidate != wanted.candidate;
  }
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    const NcuKernel& kernel = kernels_[i];
    if (kernel.counted.name == wanted.kernel && kernel.counted.grid == wanted.grid &&
        (!has_blocks_ || *kernel.block == wanted.block)) {
      places.push_back(i);
    }
  }
  const std::string what =
      concat("kernel ", wanted.kernel, " with grid ", extent_text(wanted.grid),
             has_blocks_ ? concat(" and block ", extent_text(wanted.block)) : std::string());
  if (shared && !places.empty() && places.size() != expected) {
    return Error{ErrorCode::invalid_argument,
                 concat("the file has ", what, ' ', counted(places.size(), "time"),
                        ", and candidates launch it ", counted(expected, "time"),
                        ": which launch is whose cannot be told unless the numbers are equal")};
  }
  if (before >= places.size()) {
    return Error{ErrorCode::not_found, concat("no ", what, " is left in the file")};
  }
  return places[before];
}

Result<CounterSet> NcuKernels::take(std::size_t candidate) {
  CounterSet set;
  set.choice = choices_[candidate];
  set.source = CounterSource::ncu;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    if (launches_[i].candidate != candidate) continue;
    const Result<std::size_t> place = find(i);
    if (!place) {
      return Error{place.error().code, concat(set.choice.id(), ": ", place.error().message)};
    }
    places.push_back(*place);
    set.kernels.push_back(kernels_[*place].counted);
    set.passes += kernels_[*place].passes;
  }
  for (const std::size_t place : places) used_[place] = true;
  return set;
}

std::size_t NcuKernels::unused() const {
  return static_cast<std::size_t>(std::ranges::count(used_, false));
}

}  // namespace kernwright
