#include "cli/cache/credentials.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "cli/output.h"
#include "support/files.h"
#include "support/json.h"
#include "support/processes/run_program.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

constexpr FileKind kLogins{"file of logins", 1 << 20};
/// What a helper program says of a registry that it does not know, by Docker's protocol.
constexpr std::string_view kNotFound = "credentials not found";
/// The user's name with which a helper gives an identity token.
constexpr std::string_view kTokenUser = "<token>";

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += j <= count ? kBase64[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const std::size_t value = kBase64.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    group = group << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 255);
  }
  return bytes;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// The files that logins leave, the first to be asked first.
std::vector<std::filesystem::path> login_files() {
  if (const std::string file = variable("REGISTRY_AUTH_FILE"); !file.empty()) return {file};
  std::vector<std::filesystem::path> files;
  if (const std::string folder = variable("XDG_RUNTIME_DIR"); !folder.empty()) {
    files.push_back(std::filesystem::path(folder) / "containers/auth.json");
  }
  const std::string docker = variable("DOCKER_CONFIG");
  const std::filesystem::path home = variable("HOME");
  if (!docker.empty()) {
    files.push_back(std::filesystem::path(docker) / "config.json");
  } else if (!home.empty()) {
    files.push_back(home / ".docker/config.json");
  }
  return files;
}

/// What the helper `name` knows of `server`; nothing where it does not know it.
Result<std::optional<Credentials>> ask_helper(const std::filesystem::path& file,
                                              const std::string& name, const std::string& server) {
  const std::string program = concat("docker-credential-", name);
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::unavailable, concat(program, ", to which ", file.string(),
                                                " leaves the login for ", server, ": ", why)};
  };
  // A name with a slash would be a program of its own, and not looked for in PATH.
  if (name.find('/') != std::string::npos) return wrong("it is no name of a program");
  const Result<ProgramOutput> ran = run_program(program, {"get"}, server);
  if (!ran) return wrong(ran.error().message);
  if (ran->status.code != 0 || ran->status.signal != 0) {
    if (ran->out.find(kNotFound) != std::string::npos) return std::optional<Credentials>();
    const std::string_view said = trim(ran->out);
    return wrong(said.empty() ? ran->status.text()
                              : concat(ran->status.text(), ", \"", said, "\""));
  }
  const Json answer = parse_value(ran->out);
  Credentials found{.user = text_member(answer, "Username"),
                    .password = text_member(answer, "Secret"),
                    .identity_token = {}};
  // What it printed may hold a secret, and is not repeated.
  if (found.password.empty()) return wrong("its answer holds no Secret");
  if (found.user == kTokenUser) {
    found.identity_token = std::move(found.password);
    found.user = found.password = {};
  }
  return std::optional(found);
}

/// What the file itself has of a registry; nothing where it has none.
Result<std::optional<Credentials>> written_in(const std::filesystem::path& file, const Json& auths,
                                              const std::string& host) {
  for (const std::string& key : {host, concat("https://", host), concat("https://", host, "/v1/"),
                                 concat("https://", host, "/v2/")}) {
    if (!auths.is_object() || !auths.contains(key)) continue;
    Credentials found;
    found.identity_token = text_member(auths[key], "identitytoken");
    const std::string pair = text_member(auths[key], "auth");
    if (pair.empty() && found.identity_token.empty()) continue;  // a helper has them
    const std::optional<std::string> plain = from_base64(pair);
    const std::size_t colon = plain ? plain->find(':') : std::string::npos;
    if (!pair.empty() && colon == std::string::npos) {
      return Error{ErrorCode::corrupt,
                   concat(file.string(), ": the login for ", key, " is not user:password")};
    }
    if (colon != std::string::npos) {
      found.user = plain->substr(0, colon);
      found.password = plain->substr(colon + 1);
    }
    return std::optional(found);
  }
  return std::optional<Credentials>();
}

Result<std::optional<Credentials>> credentials_in(const std::filesystem::path& file,
                                                  const std::string& host) {
  const Result<std::string> text = read_file(file, kLogins);
  if (!text) {
    if (text.error().code == ErrorCode::not_found) return std::optional<Credentials>();
    return text.error();
  }
  const Json config = parse_value(*text);
  if (config.is_discarded() || !config.is_object()) {
    return Error{ErrorCode::corrupt, concat(file.string(), " is no JSON object")};
  }
  // Docker keeps what belongs to its own registry under an address.
  const bool docker = host == "docker.io";
  const std::string key = docker ? "index.docker.io" : host;
  const std::string server = docker ? "https://index.docker.io/v1/" : host;
  // As docker does: the helper of the registry, else that of all registries, else the file.
  const Json helpers = config.value("credHelpers", Json::object());
  std::string helper = text_member(helpers, server);
  if (helper.empty()) helper = text_member(helpers, host);
  if (helper.empty()) helper = text_member(config, "credsStore");
  if (!helper.empty()) {
    KW_ASSIGN(std::optional<Credentials> found, ask_helper(file, helper, server));
    if (found) return found;
  }
  return written_in(file, config.value("auths", Json::object()), key);
}

}  // namespace

std::string Credentials::basic() const {
  if (user.empty()) return {};
  return concat("Authorization: Basic ", base64(concat(user, ":", password)));
}

Result<std::optional<Credentials>> find_credentials(const std::string& host) {
  for (const std::filesystem::path& file : login_files()) {
    KW_ASSIGN(std::optional<Credentials> found, credentials_in(file, host));
    if (found) return found;
  }
  return std::optional<Credentials>();
}

}  // namespace kernwright::cli
