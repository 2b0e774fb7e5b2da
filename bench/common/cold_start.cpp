#include "bench/common/cold_start.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "support/text.h"

namespace kernwright {
namespace {

using Moment = std::pair<const char*, std::int64_t ColdStart::*>;
constexpr std::array<Moment, 8> kMoments = {{{"spawned", &ColdStart::spawned},
                                             {"main", &ColdStart::main},
                                             {"context", &ColdStart::context},
                                             {"opened", &ColdStart::opened},
                                             {"served", &ColdStart::served},
                                             {"buffers", &ColdStart::buffers},
                                             {"launched", &ColdStart::launched},
                                             {"finished", &ColdStart::finished}}};

}  // namespace

std::string to_line(const ColdStart& start) {
  nlohmann::ordered_json line = {{"kernel", start.kernel}, {"match", start.match}};
  for (const auto& [name, moment] : kMoments) line[name] = start.*moment;
  return line.dump();
}

Result<ColdStart> read_cold_start(std::string_view line) {
  ColdStart start;
  try {
    const auto json = nlohmann::json::parse(line);
    for (const auto& [name, moment] : kMoments) start.*moment = json.at(name).get<std::int64_t>();
    start.kernel = json.at("kernel").get<std::string>();
    start.match = json.at("match").get<std::string>();
  } catch (const nlohmann::json::exception& failure) {
    return Error{ErrorCode::corrupt, concat("\"", line, "\" is no cold start: ", failure.what())};
  }
  return start;
}

std::vector<std::string> mapped_compilers(std::string_view maps) {
  std::vector<std::string> found;
  for (const std::string_view line : split(maps, '\n')) {
    const std::size_t slash = line.rfind('/');
    if (slash == std::string_view::npos) continue;
    const std::string_view file = line.substr(slash + 1);
    if (!file.starts_with("libnvrtc") && !file.starts_with("libnvJitLink")) continue;
    if (std::find(found.begin(), found.end(), file) == found.end()) found.emplace_back(file);
  }
  return found;
}

}  // namespace kernwright
