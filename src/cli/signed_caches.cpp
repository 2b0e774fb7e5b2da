#include "cli/signed_caches.h"

#include <cstdlib>
#include <string_view>

#include "cache/layers/bundle.h"
#include "cache/layers/tiered_cache.h"
#include "support/text.h"

namespace kernwright::cli {

std::vector<std::string> signed_caches() {
  const char* value = std::getenv("KERNWRIGHT_SIGNED_CACHES");
  std::vector<std::string> folders;
  if (value == nullptr) return folders;
  for (const std::string_view folder : split(value, ':')) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

std::vector<SignedCache> examine_signed_caches() {
  std::vector<SignedCache> examined;
  for (const std::string& folder : signed_caches()) {
    SignedCache& one = examined.emplace_back();
    one.folder = folder;
    const Result<void> checked = check_bundle(folder, {std::string(kProjectKey)});
    if (checked) {
      one.records = TieredCache(folder).records().list().size();
    } else {
      one.defect = checked.error().message;
    }
  }
  return examined;
}

}  // namespace kernwright::cli
