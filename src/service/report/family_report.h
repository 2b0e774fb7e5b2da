#pragma once

#include <nlohmann/json.hpp>

#include "cache/records/family_record.h"
#include "model/catalog/catalog.h"

namespace kernwright {

/// Returns what a report shows of a family: which kernel serves which sizes, the times that were
/// measured, and how much slower than the best they are. Without the family's operation, which is
/// in a folder of templates that is not here, there are times alone.
nlohmann::ordered_json family_json(const FamilyRecord& record, const Catalog& catalog);

}  // namespace kernwright
