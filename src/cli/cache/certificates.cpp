#include "cli/cache/certificates.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "support/files.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

namespace fs = std::filesystem;

constexpr FileKind kCertificates{"file of certificates", 16 << 20};

std::vector<fs::path> folders(const std::string& host) {
  std::vector<fs::path> all;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    all.push_back(fs::path(home) / ".config/containers/certs.d" / host);
  }
  all.push_back(fs::path("/etc/containers/certs.d") / host);
  all.push_back(fs::path("/etc/docker/certs.d") / host);
  return all;
}

/// The files of the first folder that exists, sorted.
std::vector<fs::path> files_for(const std::string& host) {
  for (const fs::path& folder : folders(host)) {
    std::error_code error;
    fs::directory_iterator entries(folder, error);
    if (error) continue;
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : entries) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }
  return {};
}

}  // namespace

Result<Certificates> find_certificates(const std::string& host) {
  Certificates found;
  const auto trust = [&](const fs::path& file) -> Result<void> {
    KW_ASSIGN(const std::string text, read_file(file, kCertificates));
    found.authorities += concat(text, "\n");
    return {};
  };
  if (const char* file = std::getenv("SSL_CERT_FILE"); file != nullptr && *file != '\0') {
    KW_TRY(trust(file));
  }
  for (fs::path file : files_for(host)) {
    if (file.extension() == ".crt") {
      KW_TRY(trust(file));
    } else if (file.extension() == ".cert") {
      found.own_certificate = file.native();
      found.own_key = file.replace_extension(".key").native();
      std::error_code error;
      if (!fs::exists(found.own_key, error)) {
        return Error{ErrorCode::not_found,
                     concat(found.own_certificate, " has no key: ", found.own_key, " is missing")};
      }
    }
  }
  return found;
}

}  // namespace kernwright::cli
