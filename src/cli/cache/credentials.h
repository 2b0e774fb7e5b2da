#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <kernwright/result.h>

namespace kernwright::cli {

struct Credentials {
  std::string user;
  std::string password;
  /// In place of both: what a login with a browser left.
  std::string identity_token;

  /// The header of HTTP's basic authentication; empty without a user.
  std::string basic() const;
};

/// Those of a registry that `docker login`, `podman login` or `skopeo login` left, in
/// $REGISTRY_AUTH_FILE, podman's auth.json or docker's config.json, or with the helper program,
/// `docker-credential-NAME`, that one of these names; nothing where none of them knows it. Errors:
/// `corrupt`, which names the file; `unavailable` where a helper cannot be run or fails.
Result<std::optional<Credentials>> find_credentials(const std::string& host);

}  // namespace kernwright::cli
