#include "model/operation/ranged_problem.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "support/names.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::string_view kDots = "..";

std::optional<std::int64_t> size_in(std::string_view text) {
  std::int64_t size = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  const bool is_whole = error == std::errc() && stop == text.data() + text.size();
  return is_whole && size > 0 ? std::optional(size) : std::nullopt;
}

Result<FreeDim> read_range(const Operation& operation, const std::string& name,
                           std::string_view value) {
  const auto fail = [&](std::string_view what) {
    return Error{ErrorCode::invalid_argument, concat(operation.name, ": ", name, '=', value, what)};
  };
  const Dim* dim = find_named(operation.dims, name);
  if (dim == nullptr) return fail(" is a range, and there is no such dim");
  if (dim->match != DimMatch::bucket) {
    return fail(" is a range, and kernels are made for one size of this dim");
  }
  const std::size_t dots = value.find(kDots);
  const std::optional<std::int64_t> first = size_in(value.substr(0, dots));
  const std::optional<std::int64_t> last = size_in(value.substr(dots + kDots.size()));
  if (!first || !last) return fail(" is no range of positive integers, such as 1..8192");
  if (*first >= *last) return fail(concat(" begins at ", *first, ", which is not below ", *last));
  return FreeDim{name, *first, *last};
}

}  // namespace

bool is_range(std::string_view value) {
  return !value.empty() && is_digit(value.front()) && value.find(kDots) != std::string_view::npos;
}

bool has_range(const Problem& written) {
  return std::ranges::any_of(written.flags(),
                             [](const auto& flag) { return is_range(flag.second); });
}

std::vector<std::int64_t> spread_sizes(std::int64_t first, std::int64_t last) {
  std::set<std::int64_t> sizes{first, last};
  for (std::int64_t power = 1; power > 0 && power < last; power *= 2) {
    for (std::int64_t quarters = 4; quarters < 8; ++quarters) {
      const std::int64_t size = power / 4 * quarters + power % 4 * quarters / 4;
      if (size > first && size < last) sizes.insert(size);
    }
  }
  return {sizes.begin(), sizes.end()};
}

std::vector<std::string> join_families(std::span<const BoundProblem> problems) {
  struct Joined {
    std::string form;
    const BoundProblem* first;
    std::vector<FreeDim> sizes;  // of all dims
  };
  std::vector<Joined> all;
  for (const BoundProblem& problem : problems) {
    Joined one{.form = problem.operation().name, .first = &problem, .sizes = {}};
    for (const auto& [name, size] : problem.problem().dims()) {
      const bool is_free = find_named(problem.operation().dims, name)->match == DimMatch::bucket;
      one.form += concat(' ', name, '=', is_free ? "?" : concat(size));
      one.sizes.push_back({name, size, size});
    }
    for (const auto& [name, value] : problem.problem().flags()) {
      one.form += concat(' ', name, '=', value);
    }
    const auto same = std::ranges::find(all, one.form, &Joined::form);
    if (same == all.end()) {
      all.push_back(std::move(one));
      continue;
    }
    for (std::size_t i = 0; i < one.sizes.size(); ++i) {
      same->sizes[i].first = std::min(same->sizes[i].first, one.sizes[i].first);
      same->sizes[i].last = std::max(same->sizes[i].last, one.sizes[i].last);
    }
  }
  std::vector<std::string> texts;
  for (const Joined& one : all) {
    std::string& text = texts.emplace_back(one.first->operation().name);
    for (const auto& [name, first, last] : one.sizes) {
      text += concat(' ', name, '=', first);
      if (last > first) text += concat(kDots, last);
    }
    for (const auto& [name, value] : one.first->problem().flags()) {
      text += concat(' ', name, '=', value);
    }
  }
  return texts;
}

Result<RangedProblem> RangedProblem::bind(const Operation& operation, const Problem& written) {
  Problem::Dims dims = written.dims();
  Problem::Flags flags;
  std::vector<FreeDim> given;
  for (const auto& [name, value] : written.flags()) {
    if (!is_range(value)) {
      flags.emplace_back(name, value);
      continue;
    }
    KW_ASSIGN(FreeDim range, read_range(operation, name, value));
    dims.emplace_back(name, range.last);
    given.push_back(std::move(range));
  }
  KW_ASSIGN(BoundProblem last,
            BoundProblem::bind(
                operation, Problem::make(written.operation(), std::move(dims), std::move(flags))));
  std::vector<FreeDim> free;
  for (const auto& [name, size] : last.problem().dims()) {
    if (const FreeDim* range = find_named(given, name)) free.push_back(*range);
  }
  for (const FreeDim& range : given) {
    if (find_named(free, range.name) != nullptr) continue;
    return Error{ErrorCode::invalid_argument,
                 concat(operation.name, ": ", range.name, '=', range.first, kDots, range.last,
                        " ends at the dim's default, so ", last.text(), " does not name it")};
  }
  return RangedProblem(std::move(last), std::move(free));
}

std::string RangedProblem::text() const {
  std::string text = last_.operation().name;
  for (const auto& [name, size] : last_.problem().dims()) {
    const FreeDim* range = find_named(free_, name);
    text += concat(' ', name, '=');
    text += range == nullptr ? concat(size) : concat(range->first, kDots, range->last);
  }
  for (const auto& [name, value] : last_.problem().flags()) text += concat(' ', name, '=', value);
  return text;
}

Result<BoundProblem> RangedProblem::at(std::span<const std::int64_t> sizes) const {
  Problem::Dims dims = last_.problem().dims();
  std::size_t range = 0;
  for (auto& [name, size] : dims) {
    if (range < free_.size() && free_[range].name == name) size = sizes[range++];
  }
  const Problem written = Problem::make(last_.problem().operation(), dims, last_.problem().flags());
  KW_ASSIGN(BoundProblem problem, BoundProblem::bind(last_.operation(), written));
  if (problem.problem().dims() == dims) return problem;
  return Error{ErrorCode::invalid_argument,
               concat(written.text(), " is the same as ", problem.text(),
                      ", which is not of the family ", text())};
}

bool RangedProblem::has_form(const Problem& normalized) const {
  const Problem& own = last_.problem();
  return normalized.operation() == own.operation() && normalized.flags() == own.flags() &&
         std::ranges::equal(normalized.dims(), own.dims(), {},
                            &std::pair<std::string, std::int64_t>::first,
                            &std::pair<std::string, std::int64_t>::first);
}

std::optional<std::vector<std::int64_t>> RangedProblem::sizes_of(const Problem& normalized) const {
  if (!has_form(normalized)) return std::nullopt;
  const Problem& own = last_.problem();
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < own.dims().size(); ++i) {
    const auto& [name, size] = normalized.dims()[i];
    if (const FreeDim* range = find_named(free_, name)) {
      if (size < range->first || size > range->last) return std::nullopt;
      sizes.push_back(size);
    } else if (size != own.dims()[i].second) {
      return std::nullopt;
    }
  }
  return sizes;
}

bool RangedProblem::includes(const RangedProblem& other) const {
  return sizes_of(other.last_.problem()) &&
         std::ranges::all_of(other.free_, [this](const FreeDim& asked) {
           const FreeDim* const own = find_named(free_, asked.name);
           return own != nullptr && own->first <= asked.first;
         });
}

}  // namespace kernwright
