#include "service/serve/family_table.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "service/serve/quick_hash.h"
#include "tuner/candidates/shortlist.h"

namespace kernwright {
namespace {

/// The values that an outline has in place of the sizes of a problem's dims. A free dim has the
/// number of its interval there, below 0.
class Outlined {
 public:
  Outlined(const Problem& written, const Operation& operation) {
    if (written.dims().size() > values_.size()) return;
    std::size_t next = 0;  // dims are mostly written in their order
    for (const auto& [name, size] : written.dims()) {
      const Dim* const dim = find(operation.dims, name, next);
      const bool is_free = dim != nullptr && dim->match == DimMatch::bucket;
      values_[count_++] = is_free ? -1 - static_cast<std::int64_t>(dim->interval(size)) : size;
    }
  }

  /// Returns one value for each dim, or none if there are too many.
  std::span<const std::int64_t> values() const { return {values_.data(), count_}; }

 private:
  static const Dim* find(const std::vector<Dim>& dims, std::string_view name, std::size_t& next) {
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const std::size_t at = next + i < dims.size() ? next + i : next + i - dims.size();
      if (dims[at].name != name) continue;
      next = at + 1;
      return &dims[at];
    }
    return nullptr;
  }

  std::array<std::int64_t, 32> values_;
  std::size_t count_ = 0;
};

std::size_t hash_of(const Problem& written, const Outlined& outlined) {
  QuickHash hash;
  hash.add(written.operation());
  for (std::size_t i = 0; i < outlined.values().size(); ++i) {
    hash.add(written.dims()[i].first);
    hash.add(static_cast<std::uint64_t>(outlined.values()[i]));
  }
  for (const auto& [name, value] : written.flags()) {
    hash.add(name);
    hash.add(value);
  }
  return hash.value();
}

bool has_outline(const Problem& written, const Outlined& outlined, const Problem& outline) {
  if (written.operation() != outline.operation() ||
      outlined.values().size() != outline.dims().size() || written.flags() != outline.flags()) {
    return false;
  }
  for (std::size_t i = 0; i < outline.dims().size(); ++i) {
    const auto& [name, value] = outline.dims()[i];
    if (outlined.values()[i] != value || written.dims()[i].first != name) return false;
  }
  return true;
}

}  // namespace

FamilyTable::FamilyTable(const Catalog& catalog) {
  for (const Operation& operation : catalog.operations()) {
    operations_.emplace_back(operation.name, &operation);
  }
}

const Operation* FamilyTable::operation_of(const Problem& problem) const {
  for (const auto& [name, operation] : operations_) {
    if (name == problem.operation()) return operation;
  }
  return nullptr;
}

std::size_t FamilyTable::slot_of(const FreeSizes& sizes) {
  QuickHash hash;
  for (const std::int64_t size : sizes.values()) hash.add(static_cast<std::uint64_t>(size));
  return hash.value() % kSlots;
}

const FamilyTable::Spelling* FamilyTable::find(const Problem& written, const Operation& operation,
                                               std::size_t& place) const {
  const Outlined outlined(written, operation);
  place = hash_of(written, outlined) % kPlaces;
  while (const Spelling* const known = by_hash_[place].load(std::memory_order_acquire)) {
    if (has_outline(written, outlined, known->outline)) return known;
    place = (place + 1) % kPlaces;
  }
  return nullptr;
}

std::optional<FamilyTable::Found> FamilyTable::find(const Problem& written) const {
  const Operation* const operation = operation_of(written);
  if (operation == nullptr) return std::nullopt;
  std::size_t place = 0;
  const Spelling* const spelling = find(written, *operation, place);
  if (spelling == nullptr) return std::nullopt;
  Found found{.family = spelling->cell->family.load(std::memory_order_acquire),
              .sizes = {},
              .cell = spelling->cell};
  if (found.family == nullptr) return std::nullopt;
  for (const FreeDim& dim : found.family->free) {
    found.sizes.add(
        std::ranges::find(written.dims(), dim.name, &std::pair<std::string, std::int64_t>::first)
            ->second);
  }
  return found;
}

FamilyTable::Cell& FamilyTable::cell(const BoundProblem& problem) {
  std::unique_ptr<Cell>& cell = cells_[family_of(problem)];
  if (cell == nullptr) cell = std::make_unique<Cell>();
  return *cell;
}

void FamilyTable::learn(const Problem& written, const BoundProblem& problem) {
  // A dim that was written although it has its default may have another one at another size.
  const Problem::Dims& dims = problem.problem().dims();
  if (written.dims().size() != dims.size()) return;
  const Operation& operation = problem.operation();
  const MutexLock lock(mutex_);
  if (spellings_.size() == kMostSpellings) return;
  std::size_t place = 0;
  if (find(written, operation, place) != nullptr) return;
  const Outlined outlined(written, operation);
  Problem::Dims outline = written.dims();
  if (outlined.values().size() != outline.size()) return;
  for (std::size_t i = 0; i < outline.size(); ++i) outline[i].second = outlined.values()[i];
  const Spelling& spelling = spellings_.emplace_back(Spelling{
      Problem::make(written.operation(), std::move(outline), written.flags()), &cell(problem)});
  by_hash_[place].store(&spelling, std::memory_order_release);
}

void FamilyTable::publish(std::shared_ptr<const Family> family) {
  const MutexLock lock(mutex_);
  Cell& of = cell(family->example);
  if (of.slots.empty()) of.slots = std::vector<Slot>(kSlots);
  of.family.store(family.get(), std::memory_order_release);
  kept_.push_back(std::move(family));
}

std::vector<Problem> FamilyTable::forget(const RangedProblem& form) {
  const MutexLock lock(mutex_);
  std::vector<Problem> examples;
  for (const auto& [text, cell] : cells_) {
    const Family* const family = cell->family.load(std::memory_order_acquire);
    if (family == nullptr || !form.has_form(family->example.problem())) continue;
    cell->family.store(nullptr, std::memory_order_release);
    examples.push_back(family->example.problem());
  }
  return examples;
}

void FamilyTable::forget(const BoundProblem& problem) {
  const MutexLock lock(mutex_);
  cell(problem).family.store(nullptr, std::memory_order_release);
}

}  // namespace kernwright
