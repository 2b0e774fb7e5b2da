// report_samples LANDSCAPES CACHE COUNT: fills a cache with COUNT records and the trials of their
// searches, for tests and benches of reports. The searches are simulated on spaces that were
// recorded on an H200, on a virtual clock, so every run writes the same records. Shapes beyond the
// recorded ones have the times of a recorded one, scaled. LANDSCAPES is
// bench/results/h200/landscapes.
// report_samples --families LINES CACHE: adds the records of families, one line of JSON each.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/simulation/virtual_session.h"
#include "cache/stores/record_store.h"
#include "model/catalog/catalog.h"
#include "support/files.h"
#include "support/statistics.h"
#include "support/text.h"
#include "support/try.h"
#include "tuner/cost/cost_model.h"

using namespace kernwright;

namespace {

struct Sample {
  TuningRecord record;
  TrialTable trials;
};

/// Returns the findings of a session on one recorded space.
Result<Sample> tuned(RecordedSpace space, std::string_view noise, double seconds,
                     std::uint64_t seed) {
  VirtualSession session(std::move(space), noise, seed);
  session.options.budget.seconds = seconds;
  session.options.strategy = "portfolio";
  KW_ASSIGN(TuningResult result, session.run());
  const TimeShares& shares = result.shares;
  return Sample{
      std::move(result.record),
      trial_table(result.trials, shares.wall_seconds - shares.finals_seconds, shares.wall_seconds)};
}

void scale(RankedConfiguration& ranked, double factor) {
  for (double& us : ranked.measurement.samples_us) us *= factor;
  ranked.predicted_us *= factor;
}

/// The sample with the name and the roofline of a problem. Every few records have something that
/// speaks against them.
Result<void> put(const RecordStore& store, const Catalog& catalog, Sample sample,
                 const std::string& problem, int number, double factor) {
  const DeviceProfile profile = find_profile("h200").value();
  KW_ASSIGN(const Problem parsed, Problem::parse(problem));
  KW_ASSIGN(const BoundProblem bound, catalog.bind(parsed));
  TuningRecord& record = sample.record;
  record.key = {bound.text(), "sm_90", "h200", {}};
  record.environment = {"digest", "nvrtc 13.0 c7ef469f9fe7", "580.159.04", "0.1.0"};
  record.device_name = "NVIDIA H200";
  record.created = concat("2026-11-2", 1 + number % 4, "T1", number % 10, ":03:21Z");
  record.roofline_us = roofline_us(bound, profile);
  scale(record.winner, factor);
  for (RankedConfiguration& ranked : record.runners_up) scale(ranked, factor);
  if (record.baseline) scale(*record.baseline, factor);
  for (TrialRow& row : sample.trials.rows) row.us = rounded(factor * row.us, 4);
  record.check = {0.914, 0, 33554432, "", true, true, true, 3, true, true};
  const bool capped = number % 7 == 3;
  const bool shared = number % 11 == 5;
  record.trust = shared ? Trust::c : capped ? Trust::b : Trust::a;
  record.audit.rows = {
      {"injection_variables", Trust::a, "none set"},
      {"foreign_processes", shared ? Trust::c : Trust::a,
       shared ? "process 4711 uses 83 % of the GPU" : "none"},
      {"power_cap", capped ? Trust::b : Trust::a, capped ? "600 W, 700 W by default" : "700 W"},
      {"temperature", Trust::a, "54 C"}};
  const double us = record.winner.measurement.median_us();
  record.launch_paths = {{{KernelPath::stream, 3.1, std::max(us, 3.1)},
                          {KernelPath::graph, 1.6, us},
                          {KernelPath::rebind, 2.2, us}},
                         KernelPath::graph};
  if (number % 13 == 7) {  // a prediction, without trials
    record.grade = RecordGrade::predicted;
    record.winner.measurement = {};
    for (RankedConfiguration& ranked : record.runners_up) ranked.measurement = {};
    record.baseline.reset();
    record.rounds = {};
    record.launch_paths = {};
    record.audit = {};
    record.trust = Trust::c;
    record.verdict = Verdict::unresolved;
    record.environment.driver.clear();
    KW_TRY(store.put(record));
    return {};
  }
  KW_TRY(store.put(record, &sample.trials));
  return {};
}

/// Returns problems like the problem of a recorded space.
std::vector<std::string> shapes(const std::string& space) {
  std::vector<std::string> all;
  const auto add = [&all](const auto&... parts) { all.push_back(concat(parts...)); };
  if (space.starts_with("matmul")) {
    const int rows = space == "matmul_m16" ? 16 : space == "matmul_m512" ? 512 : 4096;
    for (const char* const dtype : {"bf16", "fp16"}) {
      for (const int n : {28672, 4096, 6144, 8192, 14336, 2048, 1024, 5120, 3072, 12288}) {
        for (const int k : {4096, 8192, 1024, 2048, 14336, 3584}) {
          add("matmul m=", rows, " n=", n, " k=", k, " dtype=", dtype);
        }
      }
    }
  } else if (space.starts_with("rmsnorm")) {
    for (const int rows : {4096, 8192, 2048, 1024, 512, 256, 128, 64, 32, 16}) {
      for (const int columns : {4096, 8192, 2048, 1024, 5120, 6144, 7168, 14336}) {
        add("rmsnorm rows=", rows,
            " columns=", space == "rmsnorm_wide" ? 2 * columns : columns + 64, " dtype=bf16");
      }
    }
  } else {
    for (int n = 1 << 12; n <= 1 << 28; n *= 2) add("vector_add n=", n, " dtype=bf16");
  }
  return all;
}

Result<void> run(const std::string& landscapes, const std::string& cache, int count) {
  const RecordStore store{std::filesystem::path(cache)};
  KW_ASSIGN(const std::shared_ptr<const Catalog> catalog, Catalog::load({}));
  KW_ASSIGN(const std::vector<RecordedSpace> spaces, read_recorded_spaces(landscapes));
  struct Session {
    std::vector<std::string> shapes;
    std::size_t next = 0;
    std::vector<Sample> samples;
  };
  std::vector<Session> sessions;
  for (const RecordedSpace& space : spaces) {
    Session& session = sessions.emplace_back();
    session.shapes = shapes(space.name);
    std::erase(session.shapes, space.problem);
    session.shapes.insert(session.shapes.begin(), space.problem);
    for (const auto& [noise, seconds] :
         {std::pair{"samples=0.5+outliers+tick+drift=0.5", 8.0}, {"samples=1.5+outliers", 3.0}}) {
      KW_ASSIGN(Sample sample, tuned(space, noise, seconds, 1 + session.samples.size()));
      session.samples.push_back(std::move(sample));
      if (count <= 6) break;
    }
  }
  int written = 0;
  for (std::size_t at = 0; written < count; ++at) {
    Session& session = sessions[at % sessions.size()];
    if (session.next == session.shapes.size()) {
      if (std::all_of(sessions.begin(), sessions.end(),
                      [](const Session& one) { return one.next == one.shapes.size(); })) {
        return Error{ErrorCode::invalid_argument, concat("there are ", written, " shapes")};
      }
      continue;
    }
    const std::size_t shape = session.next++;
    const DeviceProfile profile = find_profile("h200").value();
    KW_ASSIGN(const BoundProblem first, catalog->bind(Problem::parse(session.shapes[0]).value()));
    KW_ASSIGN(const BoundProblem bound,
              catalog->bind(Problem::parse(session.shapes[shape]).value()));
    const double factor =
        shape == 0 ? 1 : roofline_us(bound, profile) / roofline_us(first, profile);
    KW_TRY(put(store, *catalog, session.samples[shape % session.samples.size()],
               session.shapes[shape], written, factor));
    ++written;
  }
  return {};
}

Result<void> add_families(const std::string& lines, const std::string& cache) {
  constexpr FileKind kLines{"records of families", std::uint64_t{64} << 20};
  const RecordStore store{std::filesystem::path(cache)};
  KW_ASSIGN(const std::string text, read_file(lines, kLines));
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    KW_ASSIGN(const FamilyRecord family, parse_family(line));
    KW_TRY(store.put(family));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const bool families = argc == 4 && std::string_view(argv[1]) == "--families";
  int count = families ? 1 : 0;
  const std::string_view text = argc == 4 && !families ? argv[3] : "";
  std::from_chars(text.data(), text.data() + text.size(), count);
  if (count < 1) {
    std::fprintf(stderr,
                 "usage: report_samples LANDSCAPES CACHE COUNT\n"
                 "       report_samples --families LINES CACHE\n");
    return 2;
  }
  const Result<void> filled =
      families ? add_families(argv[2], argv[3]) : run(argv[1], argv[2], count);
  if (!filled) std::fprintf(stderr, "report_samples: %s\n", filled.error().message.c_str());
  return filled ? 0 : 1;
}
