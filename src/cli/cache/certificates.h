#pragma once

#include <string>

#include <kernwright/result.h>

namespace kernwright::cli {

/// Who is trusted besides those of the system's folder of certificates, and who we are.
struct Certificates {
  /// Of authorities, in PEM, one behind the other; empty: those of the system.
  std::string authorities;
  /// Files, in PEM, that a registry wants to see from its clients; empty for none.
  std::string own_certificate;
  std::string own_key;
};

/// What there is for a registry, as docker, podman and skopeo look for it: `*.crt` are authorities,
/// and `*.cert` with its `*.key` is our own, in the first that exists of
/// `~/.config/containers/certs.d/HOST`, `/etc/containers/certs.d/HOST` and
/// `/etc/docker/certs.d/HOST`. $SSL_CERT_FILE has further authorities, and takes the place of the
/// system's file. Errors: those of reading; `not_found` for a certificate without its key.
Result<Certificates> find_certificates(const std::string& host);

}  // namespace kernwright::cli
