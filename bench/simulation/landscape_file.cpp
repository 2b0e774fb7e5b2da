#include "bench/simulation/landscape_file.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/json.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

/// How a parameter that a template lacks is written.
constexpr std::int64_t kAbsent = -1;
constexpr double kMicrosecondDigits = 1e4;
constexpr double kMegahertzDigits = 10;
constexpr double kSecondDigits = 1e4;

double rounded(double value, double digits) { return std::round(value * digits) / digits; }

Json microseconds(const std::vector<Sample>& samples) {
  Json list = Json::array();
  for (const Sample& sample : samples) list.push_back(rounded(sample.us, kMicrosecondDigits));
  return list;
}

Json clocks(const std::vector<Sample>& samples) {
  Json list = Json::array();
  for (const Sample& sample : samples) list.push_back(rounded(sample.sm_mhz, kMegahertzDigits));
  return list;
}

std::int64_t shared_memory_bytes(const Candidate& candidate, const Resources& resources) {
  std::int64_t dynamic = 0;
  for (const LaunchPlan& launch : candidate.plan.launches) {
    dynamic = std::max(dynamic, std::int64_t{launch.dynamic_smem});
  }
  return resources.static_smem_bytes + dynamic;
}

Result<std::string> compressed(std::string_view text) {
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS;
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return Error{ErrorCode::internal, "zlib does not start"};
  }
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) return Error{ErrorCode::internal, "zlib does not end"};
  return out;
}

}  // namespace

LandscapeFile::LandscapeFile(std::filesystem::path path, std::span<const Candidate> candidates)
    : path_(std::move(path)), part_(path_.string() + ".part"), candidates_(candidates) {
  const auto add_new = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Candidate& candidate : candidates) {
    add_new(templates_, candidate.kernel_template->name);
    for (const auto& [name, value] : candidate.configuration.values()) add_new(parameters_, name);
  }
  for (std::size_t i = 0; i < candidates.size(); ++i) by_point_.emplace(point(i), i);
}

std::string LandscapeFile::point(std::size_t candidate) const {
  const Candidate& one = candidates_[candidate];
  const auto place = std::find(templates_.begin(), templates_.end(), one.kernel_template->name);
  Json values = Json::array({place - templates_.begin()});
  for (const std::string& name : parameters_) {
    values.push_back(one.configuration.contains(name) ? one.configuration.at(name) : kAbsent);
  }
  return values.dump();
}

std::string LandscapeFile::header_text(const LandscapeHeader& header,
                                       std::size_t default_index) const {
  Json names = Json::array({"template"});
  Json values = Json::object();
  for (std::size_t i = 0; i < templates_.size(); ++i) values["template"].push_back(i);
  for (const std::string& name : parameters_) {
    names.push_back(name);
    std::set<std::int64_t> seen;
    for (const Candidate& one : candidates_) {
      if (one.configuration.contains(name)) seen.insert(one.configuration.at(name));
    }
    values[name] = seen;
  }
  return Json{{"space", header.space},
              {"device", header.device},
              {"kernel", header.kernel},
              {"problem_size", header.problem},
              {"problem", header.problem},
              {"policy", header.policy},
              {"compiler", header.compiler},
              {"sample_ms", header.sample_ms},
              {"templates", templates_},
              {"parameters", names},
              {"values", values},
              {"default", parse_value(point(default_index))},
              {"unit", "us"}}
      .dump();
}

Result<LandscapeFile> LandscapeFile::open(const std::filesystem::path& path,
                                          const LandscapeHeader& header,
                                          std::span<const Candidate> candidates,
                                          std::size_t default_index) {
  LandscapeFile file(path, candidates);
  const std::string wanted = file.header_text(header, default_index);
  const auto there = read_file(file.part_);
  if (!there) {
    if (there.error().code != ErrorCode::not_found) return there.error();
    KW_TRY(append_line(file.part_, wanted));
    return file;
  }
  KW_TRY(file.resume(*there, wanted));
  return file;
}

Result<void> LandscapeFile::resume(std::string_view text, const std::string& header) {
  const std::vector<std::string_view> lines = split(text, '\n');
  if (lines.front() != header) {
    return Error{ErrorCode::invalid_argument,
                 concat(part_.string(), " is a recording of ", lines.front(), ", not of ", header)};
  }
  std::optional<std::size_t> begun;
  for (std::size_t number = 1; number < lines.size(); ++number) {
    if (lines[number].empty()) continue;
    const Json line = parse_value(lines[number]);
    const auto known =
        line.is_object() && line.contains("c") ? by_point_.find(line["c"].dump()) : by_point_.end();
    if (known == by_point_.end()) {
      return Error{ErrorCode::corrupt,
                   concat(part_.string(), ":", number + 1, ": no candidate of this space")};
    }
    begun.reset();
    if (line.contains("begun")) {
      begun = known->second;
    } else {
      recorded_.insert(known->second);
    }
  }
  if (!begun) return {};
  LandscapeEntry ended;
  ended.outcome = Outcome::worker_died;
  ended.detail = "the recording process ended with it";
  return add(*begun, ended);
}

Result<void> LandscapeFile::begin(std::size_t candidate) {
  return append_line(part_, concat(R"({"begun":true,"c":)", point(candidate), "}"));
}

Result<void> LandscapeFile::add(std::size_t candidate, const LandscapeEntry& entry) {
  Json line{{"c", parse_value(point(candidate))},
            {"ok", entry.outcome == Outcome::ok},
            {"compile_s", rounded(entry.compile_seconds, kSecondDigits)}};
  if (entry.outcome != Outcome::ok) {
    line["outcome"] = to_string(entry.outcome);
    line["detail"] = entry.detail;
  }
  line["regs"] = entry.resources.registers;
  line["spill"] = entry.resources.spill_bytes();
  line["smem"] = shared_memory_bytes(candidates_[candidate], entry.resources);
  line["predicted_us"] = rounded(entry.predicted_us, kMicrosecondDigits);
  line["t"] = microseconds(entry.samples);
  if (!entry.samples.empty()) {
    const bool known = std::all_of(entry.samples.begin(), entry.samples.end(),
                                   [](const Sample& sample) { return sample.sm_mhz > 0; });
    if (known) line["mhz"] = clocks(entry.samples);
    line["at_s"] = rounded(entry.samples.front().at_seconds, kSecondDigits);
    line["sm_reference"] = microseconds(entry.sm_probe);
    line["sm_reference_mhz"] = clocks(entry.sm_probe);
    line["dram_reference"] = microseconds(entry.dram_probe);
  }
  KW_TRY(append_line(part_, line.dump()));
  recorded_.insert(candidate);
  return {};
}

Result<void> LandscapeFile::finish() const {
  KW_ASSIGN(const auto text, read_file(part_));
  std::string kept;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty() || line.starts_with(R"({"begun")")) continue;
    kept += line;
    kept += '\n';
  }
  KW_ASSIGN(auto packed, compressed(kept));
  KW_TRY(publish_file(path_, packed));
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
  return {};
}

}  // namespace kernwright
