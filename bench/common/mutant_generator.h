#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/common/mutant_list.h"
#include "model/candidate/device_profile.h"
#include "model/catalog/catalog.h"

namespace kernwright {

/// Mutants that each operator makes of a template, at most.
inline constexpr std::size_t kMutantsOfOperator = 10;

/// Adds mutants of every template that runs on the device, made by operators at places that `seed`
/// chooses in its manifest, its sources and the device headers that they include. Each is tried on
/// candidates for several problems of the operation's cases.
Result<void> add_generated_mutants(MutantList& list, const Catalog& catalog,
                                   const DeviceProfile& profile, std::uint64_t seed);

}  // namespace kernwright
