#include "bench/common/bench_json.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>
#include <utility>

#include "support/files.h"
#include "support/text.h"
#include "support/version.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

/// Today in UTC, "2026-11-20".
std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof("2026-11-20 and room")];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d", &parts)};
}

std::string text_field(const Json& object, std::string_view name) {
  const auto found = object.find(std::string(name));
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_row_of(const Json& row, std::string_view problem, std::string_view peer) {
  return text_field(row, "problem") == problem && text_field(row, "peer") == peer;
}

}  // namespace

Result<BenchJson> BenchJson::open(std::filesystem::path path, std::string bench,
                                  std::string command, Json device) {
  Json rows = Json::array();
  if (!path.empty() && std::filesystem::exists(path)) {
    const Result<std::string> text = read_file(path);
    if (!text) return text.error();
    const Json old = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!old.is_object() || !old.contains("rows") || !old["rows"].is_array() ||
        !old.contains("device") || !old["device"].is_object()) {
      return Error{ErrorCode::corrupt, concat(path.string(), ": not a bench results file")};
    }
    if (text_field(old, "bench") != bench) {
      return Error{ErrorCode::invalid_argument, concat(path.string(), ": holds results of bench ",
                                                       text_field(old, "bench"), ", not ", bench)};
    }
    if (text_field(old["device"], "name") != text_field(device, "name")) {
      return Error{ErrorCode::invalid_argument,
                   concat(path.string(), ": holds results of ", text_field(old["device"], "name"),
                          ", not ", text_field(device, "name"))};
    }
    rows = old["rows"];
  }
  BenchJson result;
  result.path_ = std::move(path);
  result.document_ = Json{{"bench", std::move(bench)},
                          {"command", std::move(command)},
                          {"date", today()},
                          {"kernwright", kernwright_commit()},
                          {"device", std::move(device)},
                          {"rows", std::move(rows)}};
  return result;
}

Result<void> BenchJson::add(Json row) {
  if (const auto ours = row.find("ours_us"), peer = row.find("peer_us");
      ours != row.end() && peer != row.end() && ours->is_number() && peer->is_number()) {
    row["ratio"] = peer->get<double>() / ours->get<double>();
  }
  row["date"] = today();
  row["kernwright"] = kernwright_commit();
  const std::string problem = text_field(row, "problem");
  const std::string peer = text_field(row, "peer");
  Json& rows = document_["rows"];
  const auto old = std::find_if(rows.begin(), rows.end(), [&](const Json& candidate) {
    return is_row_of(candidate, problem, peer);
  });
  if (old != rows.end()) {
    *old = std::move(row);
  } else {
    rows.push_back(std::move(row));
  }
  if (path_.empty()) return {};
  return publish_file(path_, document_.dump(1) + "\n");
}

Json cpu_device() {
  std::string name = "unknown CPU";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      name = trim(std::string_view(line).substr(line.find(':') + 1));
      break;
    }
  }
  return Json{{"name", name}, {"cores", std::thread::hardware_concurrency()}};
}

}  // namespace kernwright
