// Fuzzes manifest.json, as a user may write it, with every operation. The result is an error that
// names the file, or a template with candidates and generated headers that can be made.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/candidate/candidate.h"
#include "model/candidate/config_header.h"
#include "model/catalog/catalog.h"
#include "model/catalog/manifest.h"
#include "support/json.h"

namespace kernwright {
namespace {

constexpr std::string_view kFile = "fuzz.json";

template <typename T>
void expect_named(const Result<T>& result) {
  if (!result && !result.error().message.starts_with("fuzz.json:")) std::abort();
}

void try_template(std::string_view text, const Operation& operation, const DeviceProfile& profile) {
  const Result<KernelTemplate> made = parse_manifest(text, kFile, "fuzz/fuzz", operation);
  expect_named(made);
  if (!made) return;
  const BoundProblem example = BoundProblem::bind(operation, operation.example).value();
  for (const std::int64_t index : {std::int64_t{0}, made->space.size() - 1}) {
    const Result<Candidate> candidate =
        make_candidate(*made, example, made->space.at(index), profile);
    if (candidate && config_header(*candidate).empty()) std::abort();
  }
  const Result<Candidate> candidate =
      make_candidate(*made, example, made->default_configuration, profile);
  if (candidate && candidate->plan.workspace_bytes() < 0) std::abort();
}

}  // namespace
}  // namespace kernwright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kernwright;
  static const auto catalog = Catalog::load({}).value();
  static const DeviceProfile profile = find_profile("h200").value();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  expect_named(parse_json(text, kFile));
  for (const Operation& known : catalog->operations()) try_template(text, known, profile);
  return 0;
}
