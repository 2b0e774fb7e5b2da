#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cache/records/record.h"
#include <kernwright/result.h>

namespace kernwright {

/// A person's decision about one candidate for one problem. `pin`: it is the answer. `ban`: it is
/// never served, compiled or measured. `lift`: neither holds any more.
enum class OverrideAction { pin, ban, lift };

constexpr auto names_of(OverrideAction) {
  return std::to_array<std::string_view>({"pin", "ban", "lift"});
}

struct Override {
  RecordKey key;
  OverrideAction action = OverrideAction::pin;
  Choice choice = {};
  std::string why = {};
  /// Later decisions of a layer have larger numbers, whatever the clock said: see
  /// `RecordStore::put`.
  std::int64_t number = 0;
  std::string created = {};  ///< UTC, ISO 8601

  friend bool operator==(const Override&, const Override&) = default;
};

void describe(auto& visitor, MaybeConst<Override> auto& decided) {
  describe(visitor, decided.key);
  visitor.field("action", decided.action);
  describe(visitor, decided.choice);
  visitor.field("why", decided.why);
  visitor.field("number", decided.number);
  visitor.field("created", decided.created);
}

/// JSON text on one line; `parse_override(to_json(o))` gives o back.
std::string to_json(const Override& override);

/// Errors: `corrupt` naming the field.
Result<Override> parse_override(std::string_view json);

/// All decisions about one problem's candidates that hold.
class Decisions {
 public:
  /// Adds the decisions of one layer, the oldest first. A layer that is added later outranks those
  /// before it, so the user's directory comes last.
  void add(std::span<const Override> layer);

  const std::optional<Override>& pin() const { return pin_; }
  bool banned(const std::string& id) const { return bans_.contains(id); }
  /// By the candidate's id.
  const std::map<std::string, Override>& bans() const { return bans_; }

 private:
  std::optional<Override> pin_;
  std::map<std::string, Override> bans_;
};

}  // namespace kernwright
