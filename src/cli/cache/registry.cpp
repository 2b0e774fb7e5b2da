#include "cli/cache/registry.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cache/layers/bundle_manifest.h"
#include "cli/cache/certificates.h"
#include "cli/cache/credentials.h"
#include "cli/output.h"
#include "support/json.h"
#include "support/libraries/sha256.h"
#include "support/text.h"
#include "support/try.h"
#include "support/version.h"

namespace kernwright::cli {
namespace {

constexpr std::string_view kScheme = "oci://";
constexpr std::string_view kManifestType = "application/vnd.oci.image.manifest.v1+json";
constexpr std::string_view kArtifactType = "application/vnd.kernwright.bundle.v1";
constexpr std::string_view kConfigType = "application/vnd.kernwright.bundle.config.v1+json";
constexpr std::string_view kLayerType = "application/vnd.kernwright.bundle.v1.tar+zstd";
constexpr std::string_view kEmptyConfig = "{}";

std::string sha256(std::string_view bytes) { return concat("sha256:", sha256_hex(bytes)); }

bool is_sha256(std::string_view text) {
  constexpr std::string_view kPrefix = "sha256:";
  return text.starts_with(kPrefix) && text.size() == kPrefix.size() + 64 &&
         text.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.front() != '/' && text.back() != '/' &&
         text.find("//") == std::string_view::npos &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789._-/") ==
             std::string_view::npos;
}

bool is_tag(std::string_view text) {
  return !text.empty() && text.size() <= 128 && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter(c) || is_digit(c) || c == '_' || c == '.' || c == '-';
         });
}

bool is_host(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == ':' || c == '[' || c == ']';
  });
}

/// Whether it is this machine, over which nobody listens.
bool is_here(std::string_view host) {
  const std::string_view machine =
      host.starts_with('[') ? host.substr(0, host.find(']') + 1) : host.substr(0, host.find(':'));
  return machine == "localhost" || machine.starts_with("127.") || machine == "[::1]";
}

std::string url_encoded(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    if (is_letter(c) || is_digit(c) || c == '-' || c == '_' || c == '.' || c == '~') {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += kHex[byte >> 4];
    encoded += kHex[byte & 15];
  }
  return encoded;
}

/// What a challenge says after its scheme: realm="...",service="...",scope="...".
std::map<std::string, std::string> parameters_of(std::string_view challenge) {
  std::map<std::string, std::string> parameters;
  while (!challenge.empty()) {
    const std::size_t equals = challenge.find("=\"");
    if (equals == std::string_view::npos) break;
    const std::size_t end = challenge.find('"', equals + 2);
    if (end == std::string_view::npos) break;
    std::string_view name = challenge.substr(0, equals);
    name.remove_prefix(std::min(name.find_first_not_of(" ,"), name.size()));
    parameters[std::string(name)] = challenge.substr(equals + 2, end - equals - 2);
    challenge.remove_prefix(end + 1);
  }
  return parameters;
}

/// What the registry says is wrong, in a few words.
std::string reason_of(const HttpAnswer& answer) {
  const Json body = parse_value(answer.body);
  if (body.is_object() && body.contains("errors") && body["errors"].is_array() &&
      !body["errors"].empty()) {
    const std::string code = text_member(body["errors"][0], "code");
    const std::string message = text_member(body["errors"][0], "message");
    return concat(answer.status, " ", code, message.empty() ? "" : ": ", message);
  }
  return concat("status ", answer.status);
}

Error unexpected(const RegistryReference& reference, std::string_view what,
                 const HttpAnswer& answer) {
  const bool refused = answer.status == 401 || answer.status == 403;
  return {refused                ? ErrorCode::refused
          : answer.status == 404 ? ErrorCode::not_found
                                 : ErrorCode::unavailable,
          concat(reference.text(), ": ", what, ": ", reason_of(answer),
                 refused ? concat("; log in with: docker login ", reference.host) : "")};
}

}  // namespace

Result<RegistryReference> RegistryReference::parse(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::invalid_argument,
                 concat("\"", text, "\" is no oci://registry/name:tag: ", why)};
  };
  if (!text.starts_with(kScheme)) return wrong("it does not begin with oci://");
  std::string_view rest = text.substr(kScheme.size());
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return wrong("it has no name");
  RegistryReference reference;
  reference.host = rest.substr(0, slash);
  rest.remove_prefix(slash + 1);
  if (!is_host(reference.host)) return wrong("the registry is no host");
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    reference.digest = rest.substr(at + 1);
    if (!is_sha256(reference.digest)) return wrong("the digest is not sha256: and 64 digits");
    rest = rest.substr(0, at);
  } else {
    const std::size_t colon = rest.find(':');
    if (colon == std::string_view::npos) return wrong("it has no tag");
    reference.tag = rest.substr(colon + 1);
    if (!is_tag(reference.tag)) return wrong("the tag has other than letters, digits, _ . -");
    rest = rest.substr(0, colon);
  }
  reference.name = rest;
  if (!is_name(reference.name)) return wrong("the name has other than a-z, digits, . _ - /");
  return reference;
}

std::string RegistryReference::text() const {
  return concat(kScheme, host, "/", name, digest.empty() ? ":" : "@", version());
}

Result<Registry> Registry::open(RegistryReference reference) {
  KW_ASSIGN(Certificates certificates, find_certificates(reference.host));
  KW_ASSIGN(HttpClient client, HttpClient::open(std::move(certificates)));
  std::string base =
      concat("https://", reference.host == "docker.io" ? "registry-1.docker.io" : reference.host);
  if (is_here(reference.host) && !client.speaks_tls(base)) base.erase(4, 1);  // http
  return Registry(std::move(reference), std::move(client), std::move(base));
}

std::string Registry::place(std::string_view path) const {
  if (path.starts_with("http://") || path.starts_with("https://")) return std::string(path);
  if (path.starts_with('/')) return concat(base_, path);
  return concat(base_, "/v2/", reference_.name, "/", path);
}

Result<HttpAnswer> Registry::send(HttpRequest request, std::string_view path) {
  request.url = place(path);
  if (base_.starts_with("https:") && !request.url.starts_with("https:")) {
    return Error{ErrorCode::unavailable, concat(reference_.text(), ": the registry leads to ",
                                                request.url, ", which is not https")};
  }
  const std::vector<std::string> headers = request.headers;
  const auto attempt = [&] {
    request.headers = headers;
    // Nobody but the registry itself is shown what it asked for.
    if (!authorization_.empty() && request.url.starts_with(base_ + "/")) {
      request.headers.push_back(authorization_);
    }
    return client_.send(request);
  };
  Result<HttpAnswer> answer = attempt();
  if (!answer || answer->status != 401) return answer;
  KW_TRY(authorize(*answer));
  return attempt();
}

Result<void> Registry::authorize(const HttpAnswer& refused) {
  const auto header = refused.headers.find("www-authenticate");
  const std::string_view challenge =
      header == refused.headers.end() ? std::string_view() : header->second;
  const std::size_t space = std::min(challenge.find(' '), challenge.size());
  std::string scheme(challenge.substr(0, space));
  std::transform(scheme.begin(), scheme.end(), scheme.begin(), to_lower);
  KW_ASSIGN(const std::optional<Credentials> login, find_credentials(reference_.host));
  const std::string basic = login ? login->basic() : std::string();
  if (scheme == "basic") {
    if (basic.empty()) return unexpected(reference_, "the registry wants a login", refused);
    authorization_ = basic;
    return {};
  }
  if (scheme != "bearer") return unexpected(reference_, "no known kind of login", refused);
  std::map<std::string, std::string> parameters = parameters_of(challenge.substr(space));
  const std::string realm = parameters["realm"];
  // A password goes over the wire only to who is as safe as the registry is.
  const bool secure = base_.starts_with("https:");
  if (!realm.starts_with(secure ? "https://" : "http")) {
    return Error{ErrorCode::unavailable,
                 concat(reference_.text(), ": it gives tokens at \"", realm, "\", not by https")};
  }
  HttpRequest request;
  const std::string scope = parameters["scope"];
  const std::string service = parameters["service"];
  std::string form;
  if (login && !login->identity_token.empty()) {
    form = concat("grant_type=refresh_token&client_id=kernwright&service=", url_encoded(service),
                  "&scope=", url_encoded(scope),
                  "&refresh_token=", url_encoded(login->identity_token));
    request = {.method = "POST",
               .url = realm,
               .headers = {"Content-Type: application/x-www-form-urlencoded"},
               .body = form};
  } else {
    request.url = concat(realm, realm.find('?') == std::string::npos ? "?" : "&",
                         "service=", url_encoded(service), "&scope=", url_encoded(scope));
    if (!basic.empty()) request.headers.push_back(basic);
  }
  KW_ASSIGN(const HttpAnswer answer, client_.send(request));
  if (answer.status != 200) return unexpected(reference_, "it gives no token", answer);
  const Json body = parse_value(answer.body);
  std::string token = text_member(body, "token");
  if (token.empty()) token = text_member(body, "access_token");
  if (token.empty()) {
    return Error{ErrorCode::unavailable, concat(realm, ": the answer holds no token")};
  }
  authorization_ = concat("Authorization: Bearer ", token);
  return {};
}

Result<bool> Registry::upload(std::string_view bytes, const std::string& digest) {
  KW_ASSIGN(const HttpAnswer known, send({.method = "HEAD"}, concat("blobs/", digest)));
  if (known.status == 200) return true;
  KW_ASSIGN(const HttpAnswer begun, send({.method = "POST"}, "blobs/uploads/"));
  const auto location = begun.headers.find("location");
  if (begun.status != 202 || location == begun.headers.end()) {
    return unexpected(reference_, "no upload could be begun", begun);
  }
  const std::string& there = location->second;
  const std::string path = concat(there, there.find('?') == std::string::npos ? "?" : "&",
                                  "digest=", url_encoded(digest));
  KW_ASSIGN(
      const HttpAnswer done,
      send({.method = "PUT", .headers = {"Content-Type: application/octet-stream"}, .body = bytes},
           path));
  if (done.status != 201) return unexpected(reference_, "the upload failed", done);
  return false;
}

Result<Registry::Pushed> Registry::push(std::string_view bundle) {
  if (reference_.tag.empty()) {
    return Error{ErrorCode::invalid_argument,
                 concat(reference_.text(), ": a push needs a tag, not a digest")};
  }
  Pushed pushed;
  pushed.blob_digest = sha256(bundle);
  KW_ASSIGN(pushed.already_there, upload(bundle, pushed.blob_digest));
  KW_TRY(upload(kEmptyConfig, sha256(kEmptyConfig)));
  const Json manifest = {
      {"schemaVersion", 2},
      {"mediaType", kManifestType},
      {"artifactType", kArtifactType},
      {"config",
       {{"mediaType", kConfigType},
        {"digest", sha256(kEmptyConfig)},
        {"size", kEmptyConfig.size()}}},
      {"layers",
       {{{"mediaType", kLayerType},
         {"digest", pushed.blob_digest},
         {"size", bundle.size()},
         {"annotations", {{"org.opencontainers.image.title", "bundle.tar.zst"}}}}}},
      {"annotations", {{"dev.kernwright.version", kernwright_version()}}}};
  const std::string text = manifest.dump();
  pushed.manifest_digest = sha256(text);
  KW_ASSIGN(
      const HttpAnswer put,
      send({.method = "PUT", .headers = {concat("Content-Type: ", kManifestType)}, .body = text},
           concat("manifests/", reference_.tag)));
  if (put.status != 201) return unexpected(reference_, "the manifest was refused", put);
  return pushed;
}

Result<Registry::Pulled> Registry::pull() {
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::corrupt, concat(reference_.text(), ": ", why)};
  };
  KW_ASSIGN(const HttpAnswer got, send({.headers = {concat("Accept: ", kManifestType)}},
                                       concat("manifests/", reference_.version())));
  if (got.status != 200) return unexpected(reference_, "no manifest", got);
  Pulled pulled;
  pulled.manifest_digest = sha256(got.body);
  if (!reference_.digest.empty() && reference_.digest != pulled.manifest_digest) {
    return wrong(concat("the manifest that came is ", pulled.manifest_digest));
  }
  const Json manifest = parse_value(got.body);
  const Json layers = manifest.is_object() ? manifest.value("layers", Json::array()) : Json();
  if (!layers.is_array() || layers.size() != 1 ||
      text_member(layers[0], "mediaType") != kLayerType) {
    return wrong(concat("it is no bundle, one has a single layer of ", kLayerType));
  }
  const std::string digest = text_member(layers[0], "digest");
  const Json size = layers[0].value("size", Json());
  if (!is_sha256(digest) || !size.is_number_unsigned() ||
      size.get<std::uint64_t>() > kMostBundleBytes) {
    return wrong("its layer has no SHA-256 digest or no size that a bundle can have");
  }
  KW_ASSIGN(HttpAnswer blob,
            send({.most_bytes = size.get<std::uint64_t>()}, concat("blobs/", digest)));
  if (blob.status != 200) return unexpected(reference_, "no bundle", blob);
  if (blob.body.size() != size.get<std::uint64_t>()) {
    return wrong(concat("the bundle has ", blob.body.size(), " bytes, its manifest says ",
                        size.get<std::uint64_t>()));
  }
  if (sha256(blob.body) != digest) {
    return wrong(
        concat("the bundle that came is ", sha256(blob.body), ", its manifest says ", digest));
  }
  pulled.bundle = std::move(blob.body);
  return pulled;
}

}  // namespace kernwright::cli
