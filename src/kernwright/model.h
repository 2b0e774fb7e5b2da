#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <kernwright/export.h>
#include <kernwright/result.h>

namespace kernwright {

/// Values of a model by their names in `templates/models/`: sizes, numbers and flags as numbers,
/// and words.
using ModelValues = std::map<std::string, std::variant<double, std::string>>;

/// Reads values such as "hidden" or "kv_heads" from the text of a `config.json`; "type" is the type
/// of the model. `file` is its name in messages. Errors: `invalid_argument` for an unknown type, an
/// unknown name, and a field with a wrong value, naming the file, the field and the value.
KERNWRIGHT_API Result<ModelValues> read_model(std::string_view config, const std::string& file,
                                              const std::vector<std::string>& names);

}  // namespace kernwright
