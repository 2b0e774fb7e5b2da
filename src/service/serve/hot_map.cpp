#include "service/serve/hot_map.h"

#include <cstdint>
#include <cstring>
#include <string_view>

namespace kernwright {
namespace {

/// Takes values into a hash that is good enough for a table: names are short, so that std::hash
/// would spend most of its time on being called, a third of what finding a kernel takes.
class QuickHash {
 public:
  void add(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15U;
    state_ ^= state_ >> 32;
  }
  void add(std::string_view text) {
    add(text.size());
    for (; text.size() > sizeof(std::uint64_t); text.remove_prefix(sizeof(std::uint64_t))) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data(), sizeof word);
      add(word);
    }
    std::uint64_t rest = 0;
    for (const char c : text) rest = rest << 8 | static_cast<unsigned char>(c);
    add(rest);
  }
  std::size_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace

std::size_t HotMap::Hash::operator()(const Problem& problem) const noexcept {
  QuickHash hash;
  hash.add(problem.operation());
  for (const auto& [name, value] : problem.dims()) {
    hash.add(name);
    hash.add(static_cast<std::uint64_t>(value));
  }
  for (const auto& [name, value] : problem.flags()) {
    hash.add(name);
    hash.add(value);
  }
  return hash.value();
}

HotMap::Slot* HotMap::slot(const Problem& normalized) {
  if (const auto found = slots_.find(normalized); found != slots_.end()) return found->second;
  const MutexLock lock(made_mutex_);
  if (const auto found = slots_.find(normalized); found != slots_.end()) return found->second;
  return slots_.emplace(normalized, &made_.emplace_back(nullptr)).first->second;
}

}  // namespace kernwright
