// Fuzzes operation.json, as a user may write it. The result is an error, or an operation that
// accepts its example and has a reference that can be planned and configured.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/candidate/candidate.h"
#include "model/candidate/config_header.h"
#include "model/catalog/operation_reader.h"

using namespace kernwright;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const Result<Operation> operation = parse_operation(input, "operation.json", "");
  if (!operation) {
    if (operation.error().message.empty()) std::abort();
    return 0;
  }
  const Result<Problem> normalized = operation->normalize(operation->example);
  if (!normalized) std::abort();
  if (!(*operation->normalize(*normalized) == *normalized)) std::abort();
  static const DeviceProfile profile = find_profile("h200").value();
  const Result<BoundProblem> bound = BoundProblem::bind(*operation, *normalized);
  if (!bound) return 0;
  static_cast<void>(make_reference_plan(*bound, profile));
  static_cast<void>(reference_config_header(*bound));
  return 0;
}
