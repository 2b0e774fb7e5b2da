// Measures how soon a search strategy finds the best candidates of recorded spaces. Such a space
// was measured as a whole, so that a search on it needs no GPU: a candidate that is proposed gets
// its recorded time, without noise.
//
// A strategy proposes a batch and then sees its results. `frac` is the best time of the space over
// the best found. N95 and N99 are how many candidates were proposed until frac reached .95 and .99,
// the default and the failed ones among them; cap + 1 says never. With --warm-from each space with
// the kernel of a source space is searched once more, with the best 8 of the source as warm starts.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <oneapi/tbb/parallel_for.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/simulation/recorded_space.h"
#include "support/random.h"
#include "support/text.h"
#include "tuner/strategies/search_strategy.h"

namespace kernwright {
namespace {

constexpr const char* kUsage =
    "usage: strategy_regret --strategy NAME|all --landscapes DIR [--json FILE]\n"
    "                       [--repetitions 30] [--cap 1024] [--seed 1] [--batch 16]\n"
    "                       [--warm-from SOURCE_SPACE,...]\n";
constexpr std::size_t kWarmStarts = 8;
constexpr std::array<std::size_t, 3> kMarks = {64, 128, 256};

struct Options {
  std::string strategy;
  std::string landscapes;
  std::string json;
  std::vector<std::string> warm_from;
  std::size_t repetitions = 30;
  std::size_t cap = 1024;
  std::size_t batch = 16;
  std::size_t seed = 1;
};

Options read_options(int argc, const char* const* argv) {
  Options options;
  options.strategy = text_option(argc, argv, "--strategy");
  options.landscapes = text_option(argc, argv, "--landscapes");
  options.json = option_value(argc, argv, "--json").value_or("");
  if (const auto sources = option_value(argc, argv, "--warm-from")) {
    for (const std::string_view source : split(*sources, ',')) {
      options.warm_from.emplace_back(source);
    }
  }
  const auto number = [&](const char* name, std::size_t default_value) {
    return static_cast<std::size_t>(
        integer_option(argc, argv, name, static_cast<std::int64_t>(default_value)));
  };
  options.repetitions = number("--repetitions", options.repetitions);
  options.cap = number("--cap", options.cap);
  options.batch = number("--batch", options.batch);
  options.seed = number("--seed", options.seed);
  return options;
}

/// One search.
struct Run {
  std::size_t n95 = 0;
  std::size_t n99 = 0;
  std::array<double, kMarks.size()> frac = {};  ///< after kMarks candidates
};

/// The part of a recorded space that one search has seen.
class Replay {
 public:
  Replay(const RecordedSpace& recorded, std::size_t cap)
      : recorded_(recorded), cap_(cap), best_us_(recorded.best_us()) {
    run_.n95 = run_.n99 = cap + 1;
  }

  bool done() const { return count_ >= cap_ || found_us_ <= best_us_; }

  Trial measure(std::size_t candidate) {
    const RecordedConfiguration& one = recorded_.configurations[candidate];
    Trial trial;
    trial.choice.configuration = one.configuration;
    trial.outcome = one.outcome;
    ++count_;
    if (one.outcome == Outcome::ok) {
      trial.measurement.samples_us = {one.truth_us};
      found_us_ = std::min(found_us_, one.truth_us);
    }
    if (count_ > cap_) return trial;
    const double frac = best_us_ / found_us_;
    if (frac >= .95) run_.n95 = std::min(run_.n95, count_);
    if (frac >= .99) run_.n99 = std::min(run_.n99, count_);
    for (std::size_t mark = 0; mark < kMarks.size(); ++mark) {
      if (count_ <= kMarks[mark]) run_.frac[mark] = frac;
    }
    return trial;
  }

  Run end() {
    for (std::size_t mark = 0; mark < kMarks.size(); ++mark) {
      if (count_ < kMarks[mark]) run_.frac[mark] = best_us_ / found_us_;
    }
    return run_;
  }

 private:
  const RecordedSpace& recorded_;
  std::size_t cap_;
  double best_us_;
  double found_us_ = std::numeric_limits<double>::infinity();
  std::size_t count_ = 0;
  Run run_;
};

Run search(const RecordedSpace& recorded, const SearchSpace& space, std::string_view name,
           const Options& options, std::uint64_t seed) {
  const auto strategy = take(make_strategy(name, space, seed));
  Replay replay(recorded, options.cap);
  strategy->report(space.default_index, replay.measure(space.default_index));
  while (!replay.done()) {
    const std::vector<std::size_t> batch = strategy->propose(options.batch);
    if (batch.empty()) break;
    for (const std::size_t candidate : batch) {
      strategy->report(candidate, replay.measure(candidate));
    }
  }
  return replay.end();
}

template <typename Get>
double quantile(const std::vector<Run>& runs, double share, const Get& get) {
  std::vector<double> values;
  for (const Run& run : runs) values.push_back(static_cast<double>(get(run)));
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (place - static_cast<double>(low)) * (values[high] - values[low]);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Returns the figures of one strategy on one space; the names are the names of the JSON rows.
nlohmann::ordered_json figures(const std::vector<Run>& runs) {
  nlohmann::ordered_json row;
  const auto n95 = [](const Run& run) { return run.n95; };
  const auto n99 = [](const Run& run) { return run.n99; };
  row["n95_median"] = quantile(runs, .5, n95);
  row["n95_p90"] = quantile(runs, .9, n95);
  row["n99_p10"] = quantile(runs, .1, n99);
  row["n99_median"] = quantile(runs, .5, n99);
  row["n99_p90"] = quantile(runs, .9, n99);
  for (std::size_t mark = 0; mark < kMarks.size(); ++mark) {
    const auto frac = [mark](const Run& run) { return run.frac[mark]; };
    row[concat("frac_", kMarks[mark], "_p10")] = quantile(runs, .1, frac);
    row[concat("frac_", kMarks[mark])] = quantile(runs, .5, frac);
    row[concat("frac_", kMarks[mark], "_p90")] = quantile(runs, .9, frac);
  }
  return row;
}

void print_heading() {
  std::printf("%-44s %-13s %6s %6s %6s %6s   frac after 64, 128, 256 (worst decile)\n", "space",
              "strategy", "N95", "N99", "p10", "p90");
}

void print(const nlohmann::ordered_json& row) {
  const auto value = [&row](const char* name) { return row.at(name).get<double>(); };
  std::printf("%-44s %-13s %6.0f %6.0f %6.0f %6.0f  ", row["space"].get<std::string>().c_str(),
              row["strategy"].get<std::string>().c_str(), value("n95_median"), value("n99_median"),
              value("n99_p10"), value("n99_p90"));
  for (const char* mark : {"frac_64", "frac_128", "frac_256"}) {
    std::printf(" %.3f (%.3f)", value(mark), value(concat(mark, "_p10").c_str()));
  }
  std::printf("\n");
  std::fflush(stdout);
}

/// One space to search, perhaps from warm starts.
struct Entry {
  std::string name;
  const RecordedSpace* recorded = nullptr;
  SearchSpace space;
};

/// The source's best configurations that exist in `target`, best first.
std::vector<std::size_t> transferred(const RecordedSpace& source, const RecordedSpace& target) {
  std::vector<const RecordedConfiguration*> ranked;
  for (const RecordedConfiguration& one : source.configurations) {
    if (one.outcome == Outcome::ok) ranked.push_back(&one);
  }
  std::sort(ranked.begin(), ranked.end(),
            [](const auto* a, const auto* b) { return a->truth_us < b->truth_us; });
  std::vector<std::size_t> warm_starts;
  for (const RecordedConfiguration* one : ranked) {
    const auto& all = target.configurations;
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& other) {
      return other.kernel_template == one->kernel_template &&
             other.configuration == one->configuration;
    });
    if (found != all.end()) warm_starts.push_back(static_cast<std::size_t>(found - all.begin()));
    if (warm_starts.size() == kWarmStarts) break;
  }
  return warm_starts;
}

/// Every space, and each once more per source of warm starts.
std::vector<Entry> entries(const std::vector<RecordedSpace>& spaces, const Options& options) {
  std::vector<Entry> all;
  for (const RecordedSpace& space : spaces) {
    all.push_back({space.name, &space, make_search_space(space)});
  }
  for (const std::string& name : options.warm_from) {
    const auto source = std::find_if(spaces.begin(), spaces.end(),
                                     [&](const RecordedSpace& one) { return one.name == name; });
    if (source == spaces.end()) {
      fail({ErrorCode::not_found, concat("--warm-from ", name, ": no such space")});
    }
    for (const RecordedSpace& target : spaces) {
      if (target.name == name || target.kernel != source->kernel) continue;
      Entry entry{concat(target.name, " from ", name), &target, make_search_space(target)};
      entry.space.warm_starts = transferred(*source, target);
      if (!entry.space.warm_starts.empty()) all.push_back(std::move(entry));
    }
  }
  return all;
}

/// Medians over the cold spaces, and the worst of them.
nlohmann::ordered_json summary(const std::vector<nlohmann::ordered_json>& rows) {
  nlohmann::ordered_json all = rows.front();
  for (const auto& [name, value] : rows.front().items()) {
    if (!value.is_number()) continue;
    std::vector<double> values;
    for (const auto& row : rows) values.push_back(row.at(name).get<double>());
    all[name] = median(std::move(values));
  }
  const auto worst = std::max_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.at("n99_median").template get<double>() < b.at("n99_median").template get<double>();
  });
  all["space"] = concat("median of ", rows.size(), " spaces");
  all["worst_space"] = worst->at("space");
  all["worst_n99_median"] = worst->at("n99_median");
  all["worst_n99_p90"] = worst->at("n99_p90");
  return all;
}

int run(int argc, const char* const* argv) {
  if (lacks_arguments(argc, argv, kUsage)) return kCannotRun;
  expect_options(argc, argv, kUsage);
  const Options options = read_options(argc, argv);
  std::vector<std::string> names = {options.strategy};
  if (options.strategy == "all") {
    const std::vector<std::string_view> known = strategy_names();
    names.assign(known.begin(), known.end());
  }
  const std::vector<RecordedSpace> spaces = take(read_recorded_spaces(options.landscapes));
  const std::vector<Entry> all = entries(spaces, options);
  for (const std::string& name : names) take(make_strategy(name, all.front().space, 1));
  BenchJson json = take(
      BenchJson::open(options.json, "strategy_regret", command_line(argc, argv), cpu_device()));
  const auto record = [&](nlohmann::ordered_json row) {
    print(row);
    nlohmann::ordered_json full;
    full["problem"] =
        concat(row["space"].get<std::string>(), " ", row["strategy"].get<std::string>());
    full.update(row);
    if (const Result<void> added = json.add(std::move(full)); !added) fail(added.error());
  };
  print_heading();
  for (const std::string& name : names) {
    std::vector<std::vector<Run>> runs(all.size(), std::vector<Run>(options.repetitions));
    oneapi::tbb::parallel_for(std::size_t{0}, all.size() * options.repetitions, [&](std::size_t i) {
      const std::size_t repetition = i / all.size();
      const Entry& entry = all[i % all.size()];
      runs[i % all.size()][repetition] =
          search(*entry.recorded, entry.space, name, options, hash_at(options.seed, repetition));
    });
    std::vector<nlohmann::ordered_json> cold;
    for (std::size_t e = 0; e < all.size(); ++e) {
      nlohmann::ordered_json row = {{"space", all[e].name},
                                    {"strategy", name},
                                    {"candidates", all[e].recorded->configurations.size()},
                                    {"repetitions", options.repetitions},
                                    {"cap", options.cap},
                                    {"batch", options.batch},
                                    {"seed", options.seed}};
      row.update(figures(runs[e]));
      if (e < spaces.size()) cold.push_back(row);
      record(std::move(row));
    }
    const nlohmann::ordered_json over_all = summary(cold);
    record(over_all);
    std::printf("%-44s %-13s worst: %s, N99 %.0f, p90 %.0f\n", "", name.c_str(),
                over_all["worst_space"].get<std::string>().c_str(),
                over_all["worst_n99_median"].get<double>(),
                over_all["worst_n99_p90"].get<double>());
  }
  return 0;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
