#pragma once

#include <map>
#include <string>
#include <string_view>

#include "cli/cache/http.h"
#include <kernwright/result.h>

namespace kernwright::cli {

/// Where a registry has, or is to have, an artifact: "oci://registry.example:5000/team/h200:1".
struct RegistryReference {
  std::string host;    ///< with the port, if one is said
  std::string name;    ///< "team/h200"
  std::string tag;     ///< empty where there is a digest
  std::string digest;  ///< "sha256:..." of the manifest; empty where there is a tag

  /// Errors: `invalid_argument`, which says what is wrong.
  static Result<RegistryReference> parse(std::string_view text);
  std::string text() const;
  /// The tag or the digest.
  const std::string& version() const { return digest.empty() ? tag : digest; }
};

/// One artifact of a registry of the OCI distribution specification 1.0 or 1.1. An artifact is a
/// bundle: a manifest with one layer, the file as it is, so that its signature stays inside.
class Registry {
 public:
  /// A registry is spoken to by HTTPS; one on this machine that does not know it, by plain HTTP.
  static Result<Registry> open(RegistryReference reference);

  struct Pushed {
    std::string manifest_digest;  ///< "sha256:...": what to pull so that nobody can move it
    std::string blob_digest;
    bool already_there = false;  ///< the registry had the blob
  };
  /// Uploads the bytes of a bundle and gives them the tag. Errors: `unavailable`, which names what
  /// the registry answered; `refused` where it refuses the credentials.
  Result<Pushed> push(std::string_view bundle);

  struct Pulled {
    std::string bundle;
    std::string manifest_digest;
  };
  /// The bytes of a bundle, checked against both digests. Errors: as above; `not_found`; `corrupt`
  /// where what came is not what was promised, or is no bundle.
  Result<Pulled> pull();

 private:
  Registry(RegistryReference reference, HttpClient client, std::string base)
      : reference_(std::move(reference)), client_(std::move(client)), base_(std::move(base)) {}

  /// Sends a request with what the registry wants to be shown. `path` lies below the name, or is a
  /// whole address.
  Result<HttpAnswer> send(HttpRequest request, std::string_view path);
  Result<void> authorize(const HttpAnswer& refused);
  Result<bool> upload(std::string_view bytes, const std::string& digest);
  std::string place(std::string_view path) const;

  RegistryReference reference_;
  HttpClient client_;
  std::string base_;           ///< "https://registry.example:5000"
  std::string authorization_;  ///< header, empty until it is asked for
};

}  // namespace kernwright::cli
