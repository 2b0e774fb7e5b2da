#include "cli/cache/http.h"

#define CURL_DISABLE_DEPRECATION  // the options that take names of protocols need libcurl 7.85
#include <algorithm>
#include <array>
#include <curl/curl.h>
#include <utility>

#include "support/libraries/dynamic_library.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright::cli {
namespace {

constexpr long kConnectSeconds = 30;
/// A transfer that is slower than this for so long has stalled.
constexpr long kLeastBytesPerSecond = 1024;
constexpr long kStalledSeconds = 60;
constexpr long kMostRedirects = 5;

// What curl/curl.h declares beside these functions is macros, which want the functions themselves.
#undef curl_easy_setopt
#undef curl_easy_getinfo

template <typename Function>
Result<void> find_function(const DynamicLibrary& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.symbol(name));
  if (function != nullptr) return {};
  return Error{ErrorCode::unavailable, concat(library.name(), " has no ", name)};
}

/// What libcurl hands to the callbacks below.
struct Transfer {
  std::uint64_t most_bytes = 0;
  bool too_long = false;
  HttpAnswer answer;
};

std::size_t on_body(char* bytes, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (transfer.answer.body.size() + size * count > transfer.most_bytes) {
    transfer.too_long = true;
    return 0;  // ends the transfer
  }
  transfer.answer.body.append(bytes, size * count);
  return size * count;
}

std::size_t on_header(char* bytes, std::size_t size, std::size_t count, void* user) {
  auto& headers = static_cast<Transfer*>(user)->answer.headers;
  const std::string_view line(bytes, size * count);
  if (line.starts_with("HTTP/")) headers.clear();  // of the answer before a redirect
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(), to_lower);
    headers[name] = trim(line.substr(colon + 1));
  }
  return size * count;
}

}  // namespace

struct HttpClient::State {
  /// The functions of libcurl that are used.
  struct Curl {
    decltype(&::curl_global_init) global_init = nullptr;
    decltype(&::curl_easy_init) easy_init = nullptr;
    decltype(&::curl_easy_setopt) easy_setopt = nullptr;
    decltype(&::curl_easy_perform) easy_perform = nullptr;
    decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
    decltype(&::curl_easy_reset) easy_reset = nullptr;
    decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
    decltype(&::curl_easy_strerror) easy_strerror = nullptr;
    decltype(&::curl_slist_append) slist_append = nullptr;
    decltype(&::curl_slist_free_all) slist_free_all = nullptr;
  };

  State(const Curl& functions, Certificates given)
      : curl(functions), handle(functions.easy_init()), certificates(std::move(given)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (handle != nullptr) curl.easy_cleanup(handle);
  }

  /// Sets what holds of every request to `url`, and forgets what was set before; connections stay
  /// open.
  CURLcode prepare(const std::string& url) const {
    const auto set = [this](CURLoption option, auto value) {
      return curl.easy_setopt(handle, option, value);
    };
    curl.easy_reset(handle);
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_USERAGENT, "kernwright");
    if (!certificates.own_certificate.empty()) {
      set(CURLOPT_SSLCERT, certificates.own_certificate.c_str());
      set(CURLOPT_SSLKEY, certificates.own_key.c_str());
    }
    if (certificates.authorities.empty()) return CURLE_OK;
    // In place of the system's file; the system's folder stays trusted.
    curl_blob blob{const_cast<char*>(certificates.authorities.data()),
                   certificates.authorities.size(), CURL_BLOB_NOCOPY};
    return set(CURLOPT_CAINFO_BLOB, &blob);
  }

  Curl curl;
  CURL* handle;
  Certificates certificates;
};

HttpClient::HttpClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<HttpClient> HttpClient::open(Certificates certificates) {
  const Result<DynamicLibrary> library =
      DynamicLibrary::open({"libcurl.so.4", "libcurl-gnutls.so.4"});
  if (!library) {
    return Error{
        ErrorCode::unavailable,
        concat("registries need libcurl (Debian's package libcurl4): ", library.error().message)};
  }
  State::Curl curl;
  KW_TRY(find_function(*library, "curl_global_init", curl.global_init));
  KW_TRY(find_function(*library, "curl_easy_init", curl.easy_init));
  KW_TRY(find_function(*library, "curl_easy_setopt", curl.easy_setopt));
  KW_TRY(find_function(*library, "curl_easy_perform", curl.easy_perform));
  KW_TRY(find_function(*library, "curl_easy_getinfo", curl.easy_getinfo));
  KW_TRY(find_function(*library, "curl_easy_reset", curl.easy_reset));
  KW_TRY(find_function(*library, "curl_easy_cleanup", curl.easy_cleanup));
  KW_TRY(find_function(*library, "curl_easy_strerror", curl.easy_strerror));
  KW_TRY(find_function(*library, "curl_slist_append", curl.slist_append));
  KW_TRY(find_function(*library, "curl_slist_free_all", curl.slist_free_all));
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return Error{ErrorCode::unavailable, concat(library->name(), " cannot be initialised")};
  }
  auto state = std::make_unique<State>(curl, std::move(certificates));
  if (state->handle == nullptr) {
    return Error{ErrorCode::unavailable, concat(library->name(), " gives no handle")};
  }
  if (const CURLcode code = state->prepare({}); code != CURLE_OK) {
    return Error{
        ErrorCode::unavailable,
        concat(library->name(), " takes no certificates of yours: ", curl.easy_strerror(code))};
  }
  return HttpClient(std::move(state));
}

Result<HttpAnswer> HttpClient::send(const HttpRequest& request) {
  const State::Curl& curl = state_->curl;
  CURL* const handle = state_->handle;
  Transfer transfer{.most_bytes = request.most_bytes, .too_long = false, .answer = {}};
  std::array<char, CURL_ERROR_SIZE> reason{};
  curl_slist* headers = nullptr;
  for (const std::string& header : request.headers) {
    headers = curl.slist_append(headers, header.c_str());
  }
  state_->prepare(request.url);
  const bool secure = request.url.starts_with("https:");
  const auto set = [&](CURLoption option, auto value) { curl.easy_setopt(handle, option, value); };
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_ERRORBUFFER, reason.data());
  set(CURLOPT_LOW_SPEED_LIMIT, kLeastBytesPerSecond);
  set(CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
  set(CURLOPT_PROTOCOLS, static_cast<long>(secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP));
  set(CURLOPT_REDIR_PROTOCOLS,
      static_cast<long>(secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
  set(CURLOPT_FOLLOWLOCATION, request.method == "GET" ? 1L : 0L);
  set(CURLOPT_MAXREDIRS, kMostRedirects);
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, &transfer);
  if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (request.method != "GET") {
    set(CURLOPT_POSTFIELDS, request.body.data() == nullptr ? "" : request.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  const CURLcode code = curl.easy_perform(handle);
  long status = 0;
  curl.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  curl.slist_free_all(headers);
  if (transfer.too_long) {
    return Error{ErrorCode::corrupt,
                 concat(request.url, ": the answer has more than ", request.most_bytes, " bytes")};
  }
  if (code != CURLE_OK) {
    const std::string why =
        reason[0] == '\0' ? std::string(curl.easy_strerror(code)) : std::string(reason.data());
    const char* const remedy =
        code == CURLE_PEER_FAILED_VERIFICATION
            ? "; name its authority's certificate in SSL_CERT_FILE, or put it as ca.crt into the "
              "folder of the registry in ~/.config/containers/certs.d"
            : "";
    return Error{code == CURLE_PARTIAL_FILE ? ErrorCode::corrupt : ErrorCode::unavailable,
                 concat(request.url, ": ", why, remedy)};
  }
  transfer.answer.status = static_cast<int>(status);
  return std::move(transfer.answer);
}

bool HttpClient::speaks_tls(const std::string& url) {
  const State::Curl& curl = state_->curl;
  state_->prepare(url);
  curl.easy_setopt(state_->handle, CURLOPT_CONNECT_ONLY, 1L);
  const CURLcode code = curl.easy_perform(state_->handle);
  // A certificate that is not trusted is one, and the request that follows says what is wrong.
  return code == CURLE_OK || code == CURLE_PEER_FAILED_VERIFICATION;
}

}  // namespace kernwright::cli
