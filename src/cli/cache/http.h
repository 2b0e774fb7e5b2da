#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cache/certificates.h"
#include <kernwright/result.h>

namespace kernwright::cli {

struct HttpRequest {
  std::string method = "GET";
  std::string url = {};
  std::vector<std::string> headers = {};  ///< "Accept: text/plain"
  std::string_view body = {};             ///< of POST and PUT
  std::uint64_t most_bytes = 1 << 20;     ///< that the answer may have
};

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< of the last answer, names in lower case
  std::string body;
};

/// Sends requests by the system's libcurl, which is loaded when it is first needed: it brings the
/// system's certificates and proxies, and a tool that pulls nothing does without it.
class HttpClient {
 public:
  /// Errors: `unavailable` where there is no libcurl, with the package to install, or where it can
  /// take no certificates from memory.
  static Result<HttpClient> open(Certificates certificates);
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  /// Any status is an answer. Redirects are followed, from https to https alone, and get no
  /// authorization of ours on another host. Errors: `unavailable` with the address and libcurl's
  /// reason; `corrupt` where the answer is longer than `most_bytes` or ends early.
  Result<HttpAnswer> send(const HttpRequest& request);

  /// Whether an https address answers with a certificate, trusted or not.
  bool speaks_tls(const std::string& url);

 private:
  struct State;
  explicit HttpClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kernwright::cli
