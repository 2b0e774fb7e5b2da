#pragma once

#include "cache/records/family_record.h"
#include "cli/page.h"

namespace kernwright::cli {

/// Prints the kernels of a family, the sizes for which each is taken, and how far they are from the
/// best.
void print_family(const Page& page, const FamilyHead& family);

}  // namespace kernwright::cli
