#include "cache/records/override.h"

#include <utility>

#include "cache/fields/field_writer.h"
#include "cache/fields/json_fields.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {

std::string_view to_string(OverrideAction action) {
  switch (action) {
    case OverrideAction::pin:
      return "pin";
    case OverrideAction::ban:
      return "ban";
    case OverrideAction::lift:
      return "lift";
  }
  return "lift";
}

std::optional<OverrideAction> parse_override_action(std::string_view text) {
  for (const OverrideAction action :
       {OverrideAction::pin, OverrideAction::ban, OverrideAction::lift}) {
    if (to_string(action) == text) return action;
  }
  return std::nullopt;
}

std::string to_json(const Override& override) {
  FieldWriter json;
  json.write("problem", override.key.problem);
  json.write("target", override.key.target);
  json.write("sku", override.key.sku);
  json.write("policy", override.key.policy.text());
  json.write("action", to_string(override.action));
  json.write("template", override.choice.kernel_template);
  json.write("configuration", override.choice.configuration);
  json.write("why", override.why);
  json.write("number", override.number);
  json.write("created", override.created);
  return json.text();
}

Result<Override> parse_override(std::string_view json) {
  Override read;
  KW_TRY(parse_fields(json, "override", [&](FieldReader& fields) {
    fields.read("problem", read.key.problem);
    fields.read("target", read.key.target);
    fields.read("sku", read.key.sku);
    std::string text;
    fields.read("policy", text);
    if (const auto policy = parse_policy(text)) {
      read.key.policy = *policy;
    } else {
      fields.fail("policy", concat('"', text, "\" is no measure policy"));
    }
    fields.read("action", text);
    if (const auto action = parse_override_action(text)) {
      read.action = *action;
    } else {
      fields.fail("action", concat('"', text, "\" is none of pin, ban and lift"));
    }
    fields.read("template", read.choice.kernel_template);
    fields.read("configuration", read.choice.configuration);
    fields.read("why", read.why);
    fields.read("number", read.number);
    fields.read("created", read.created);
  }));
  return read;
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
