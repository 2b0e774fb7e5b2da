#include "cache/records/override.h"

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"

namespace kernwright {

std::string to_json(const Override& override) { return fields_text(override); }

Result<Override> parse_override(std::string_view json) {
  return read_fields<Override>(json, "override");
}

void Decisions::add(std::span<const Override> layer) {
  for (const Override& one : layer) {
    const std::string id = one.choice.id();
    switch (one.action) {
      case OverrideAction::pin:
        bans_.erase(id);
        pin_ = one;
        break;
      case OverrideAction::ban:
        if (pin_ && pin_->choice.id() == id) pin_.reset();
        bans_.insert_or_assign(id, one);
        break;
      case OverrideAction::lift:
        if (pin_ && pin_->choice.id() == id) pin_.reset();
        bans_.erase(id);
        break;
    }
  }
}

}  // namespace kernwright
