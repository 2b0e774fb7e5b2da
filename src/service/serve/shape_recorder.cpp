#include "service/serve/shape_recorder.h"

#include "support/try.h"

namespace kernwright {

Result<void> ShapeRecorder::add(const LoggedLookup& lookup) {
  const MutexLock lock(mutex_);
  const auto [place, first] = unwritten_.try_emplace(lookup.key.problem);
  const std::int64_t before = place->second.count;
  place->second = lookup;
  place->second.count = first ? 0 : before + 1;
  return first ? log_.append(lookup) : Result<void>();
}

Result<void> ShapeRecorder::flush() {
  const MutexLock lock(mutex_);
  for (auto& [problem, lookup] : unwritten_) {
    if (lookup.count == 0) continue;
    KW_TRY(log_.append(lookup));
    lookup.count = 0;
  }
  return {};
}

}  // namespace kernwright
