// Compares our tuned matrix product with cuBLASLt, in one process and in turn, with a cold L2 and
// random data. Both sides are chosen before: ours by the tuner, cuBLASLt's best algorithm by rounds
// of its own. The reported times come from new rounds.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/common/contest.h"
#include "bench/common/cublaslt.h"
#include "bench/common/random_shapes.h"
#include "service/serve/core.h"
#include "service/sweep/worklist.h"
#include "support/files.h"
#include "support/text.h"

namespace kernwright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: matmul_vs_cublaslt [--shapes MxNxK,... | --shapes WORKLIST.json |\n"
    "                           --random N --seed S [--dtype bf16|fp16|fp8_e4m3]]\n"
    "                          [--seconds N] [--json FILE] [--cache DIR]\n";
constexpr const char* kShapes =
    "8192x8192x8192,4096x4096x4096,2048x2048x2048,1024x1024x1024,4096x6144x4096,4096x28672x4096,"
    "4096x4096x14336,2048x10240x8192,2048x8192x28672,512x28672x4096";
constexpr int kSelectionRounds = 7;
constexpr int kRounds = 21;
constexpr std::int64_t kWorkspaceBytes = 64 << 20;
constexpr const char* kScheduled = "matmul/persistent_wave";
constexpr const char* kSchedule = "PERSISTENT";
constexpr const char* kEarlyStart = "PROGRAMMATIC";

/// "4096x6144x4096,..." in bf16, or a worklist file.
Result<std::vector<Problem>> parse_shapes(const std::string& text) {
  if (text.ends_with(".json")) {
    const Result<std::string> file = read_file(text);
    if (!file) return file.error();
    const Result<std::vector<WorklistEntry>> entries = parse_worklist(*file, text);
    if (!entries) return entries.error();
    std::vector<Problem> problems;
    for (const WorklistEntry& entry : *entries) problems.push_back(entry.problem);
    return problems;
  }
  std::vector<Problem> problems;
  for (const std::string_view shape : split(text, ',')) {
    std::istringstream in{std::string(shape)};
    MatmulSize size;
    char first = 0, second = 0;
    if (!(in >> size.m >> first >> size.n >> second >> size.k) || first != 'x' || second != 'x' ||
        in.peek() != EOF) {
      return Error{ErrorCode::invalid_argument, concat("shape ", shape, ": MxNxK expected")};
    }
    problems.push_back(matmul(size, DType::bf16));
  }
  return problems;
}

/// Returns products of random sizes. Products of fp8 have 16-bit results, and sizes that cuBLASLt
/// takes. Errors: a dtype that has no such list.
Result<std::vector<Problem>> random_problems(int count, std::uint64_t seed,
                                             const std::string& dtype) {
  const std::optional<DType> type = parse_dtype(dtype);
  if (!type || (*type != DType::bf16 && *type != DType::fp16 && *type != DType::fp8_e4m3)) {
    return Error{ErrorCode::invalid_argument,
                 concat("--dtype ", dtype, ": bf16, fp16 or fp8_e4m3 expected")};
  }
  const bool narrow = *type == DType::fp8_e4m3;
  std::vector<Problem> problems;
  for (const MatmulSize& size : random_shapes(count, seed, narrow ? 16 : 8)) {
    const Problem problem = matmul(size, *type);
    problems.push_back(narrow ? problem.with("out", "bf16").with("accumulate", "fast") : problem);
  }
  return problems;
}

/// The record that answers for a problem, and the trials if it was made now.
struct Answer {
  BoundProblem problem;
  TuningRecord record;
  std::vector<Trial> trials;
  double tuning_seconds = 0;
};

Result<Answer> obtain(ServiceCore& core, const BoundProblem& problem, double seconds) {
  for (const GradedRecord& found : core.answers().look_up(problem).records) {
    if (found.match != Match::exact) continue;
    Lookup<TuningRecord> record = read_record(found.file);
    if (record) return Answer{problem, *std::move(record.value), {}, 0};
  }
  auto tuned = core.tune(problem.problem(), {.budget = {.seconds = seconds}});
  if (!tuned) return tuned.error();
  return Answer{problem, std::move(tuned->record), std::move(tuned->trials),
                tuned->shares.wall_seconds};
}

/// Returns the fastest of the measured candidates that `matches` accepts; null if there is none.
template <typename Matches>
const Choice* fastest_of(const Answer& answer, const Matches& matches) {
  const Choice* best = nullptr;
  double best_us = 0;
  const auto consider = [&](const auto& measured) {
    if (measured.measurement.samples_us.empty() || !matches(measured.choice)) return;
    const double us = measured.measurement.median_us();
    if (best && us >= best_us) return;
    best = &measured.choice;
    best_us = us;
  };
  for (const Trial& trial : answer.trials) {
    if (trial.outcome == Outcome::ok) consider(trial);
  }
  consider(answer.record.winner);
  for (const RankedConfiguration& other : answer.record.runners_up) consider(other);
  return best;
}

/// The fastest configuration of the scheduled template with that schedule among what was measured.
std::optional<Configuration> fastest(const Answer& answer, int persistent) {
  const Choice* const best = fastest_of(answer, [persistent](const Choice& choice) {
    return choice.kernel_template == kScheduled && choice.configuration.at(kSchedule) == persistent;
  });
  return best ? std::optional(best->configuration) : std::nullopt;
}

/// The fastest among what was measured without an early start, or the winner without it.
Choice fastest_waiting(const Answer& answer) {
  const Choice* const best = fastest_of(answer, [](const Choice& choice) {
    const Configuration& values = choice.configuration;
    return !values.contains(kEarlyStart) || values.at(kEarlyStart) == 0;
  });
  if (best) return *best;
  const Choice& winner = answer.record.winner.choice;
  auto values = winner.configuration.values();
  for (auto& [name, value] : values) {
    if (name == kEarlyStart) value = 0;
  }
  return {winner.kernel_template, Configuration(std::move(values))};
}

/// Never one that starts early: the schedules are compared without.
Configuration with_schedule(const Configuration& configuration, int persistent) {
  auto values = configuration.values();
  for (auto& [name, value] : values) {
    if (name == kSchedule) value = persistent;
    if (name == kEarlyStart) value = 0;
    if (name == "OVERLAP" && persistent == 0) value = 0;  // there is no next tile to overlap with
  }
  return Configuration(std::move(values));
}

MatmulSize size_of(const Problem& problem) {
  MatmulSize size;
  for (const auto& [name, value] : problem.dims()) {
    if (name == "m") size.m = value;
    if (name == "n") size.n = value;
    if (name == "k") size.k = value;
  }
  return size;
}

/// The product that cuBLASLt is measured with: a and b as [n, k] into 16 bits, or operands whose
/// blocks have scales. If the problem has a bias, an activation, a gate or a split, it is the
/// `bare` product alone, with all rows of b.
struct PeerProduct {
  MatmulSize size;
  CublasLtTypes types;
  bool bare = false;
};

/// Errors: no such product.
Result<PeerProduct> peer_product(const BoundProblem& problem) {
  for (const auto& [name, value] : problem.problem().dims()) {
    if (name == "m" || name == "n" || name == "k" || name == "n_kv" || name == "lds") continue;
    return Error{ErrorCode::invalid_argument,
                 concat(name, "=", value, ": one product of contiguous rows expected")};
  }
  PeerProduct product;
  product.size = size_of(problem.problem());
  product.types = {problem.dtype("dtype"), problem.dtype("out")};
  for (const auto& [name, value] : problem.problem().flags()) {
    if (name == "accumulate") {
      product.types.fast = value == "fast";
    } else if (name == "tf32") {
      product.types.tf32 = value == "allow";
    } else if (name == "scaling" && value == "block") {
      product.types.block_scales = true;
    } else if (name == "bias" || name == "activation" || name == "gate" || name == "split") {
      product.bare = true;
      if (name == "gate") product.size.n *= 2;
    } else if (name != "dtype" && name != "out") {
      return Error{ErrorCode::invalid_argument,
                   concat(name, "=", value, ": no product that cuBLASLt is measured with")};
    }
  }
  if (product.types.block_scales) {
    const std::int64_t apart = *problem.scope().find("lds");
    if (apart != ((product.size.k + 127) / 128 + 3) / 4 * 4) {
      return Error{
          ErrorCode::invalid_argument,
          concat("lds=", apart, ": ceil(k / 128), rounded up to a multiple of 4, expected")};
    }
  }
  if (dtype_bits(product.types.result) < 16) {
    return Error{ErrorCode::invalid_argument, concat("out=", to_string(product.types.result),
                                                     ": a result of 16 bits or fp32 expected")};
  }
  return product;
}

/// All competitors over one problem. `persistent` and `unscheduled` are null if the template with
/// the two schedules does not apply, and `ours` if the tuner chose them. `waiting` is the fastest
/// of our kernels that start when the kernel before them has ended, as cuBLASLt's do; null if ours
/// does.
struct Field {
  std::deque<Competitor> all;
  std::vector<Competitor*> algorithms;  ///< of cuBLASLt, right ones, its first choice first
  Competitor* ours = nullptr;
  Competitor* waiting = nullptr;
  Competitor* persistent = nullptr;
  Competitor* unscheduled = nullptr;
  bool one_wave = false;  ///< of `persistent`: without it the launch would be the same
  std::unique_ptr<DeviceBuffer> bare_results;  ///< cuBLASLt's, if it does not compute d
  std::string note;
};

class Bench {
 public:
  Bench(ServiceCore& core, BenchDevice& device, std::shared_ptr<const CublasLt> cublaslt,
        double seconds, BenchJson& json)
      : core_(core),
        device_(device),
        cublaslt_(std::move(cublaslt)),
        seconds_(seconds),
        json_(json) {}

  /// Tunes if need be, measures, keeps and prints the rows of one problem. Errors: among others, a
  /// wrong result of ours; there is no row then.
  Result<void> run(const Problem& problem);
  /// Keeps and prints how the ratios to cuBLASLt's best are spread over all problems so far.
  Result<void> report_spread(const std::string& name);

 private:
  Result<void> enter_ours(Field& field, const Contest& contest, const Kernel& kernel,
                          const Answer& answer, DevicePointer workspace);
  /// Returns another configuration of a template; null if no rule allows it.
  Result<Competitor*> enter_other(Field& field, const Contest& contest, const Answer& answer,
                                  const Choice& choice);
  Result<void> enter_algorithms(Field& field, const Contest& contest,
                                const std::shared_ptr<const CublasLtMatmul>& peer,
                                const PeerProduct& product, DevicePointer workspace);
  /// `size`: of the product that cuBLASLt computes.
  Result<void> report(const Field& field, const Answer& answer, const MatmulSize& size,
                      const Competitor& best);

  ServiceCore& core_;
  BenchDevice& device_;
  std::shared_ptr<const CublasLt> cublaslt_;
  double seconds_;
  BenchJson& json_;
  std::vector<double> ratios_, waiting_ratios_;  ///< cuBLASLt's best time over ours, by problem
};

Result<Competitor*> Bench::enter_other(Field& field, const Contest& contest, const Answer& answer,
                                       const Choice& choice) {
  const RankedConfiguration& winner = answer.record.winner;
  if (winner.choice == choice) return field.ours;
  const auto candidate =
      core_.site().candidate(answer.problem, choice.kernel_template, choice.configuration.values());
  if (!candidate) return static_cast<Competitor*>(nullptr);
  const auto artifact = core_.builder().build(*candidate);
  if (!artifact) return artifact.error();
  auto loaded = Launcher::load(artifact->kernel->bits, candidate->plan);
  if (!loaded) return loaded.error();
  auto allocated =
      device_.device->allocate(std::max<std::int64_t>(candidate->plan.workspace_bytes(), 1));
  if (!allocated) return allocated.error();
  Competitor& entered = field.all.emplace_back();
  entered.name = candidate->id();
  entered.launch = [launcher = std::shared_ptr<Launcher>(*std::move(loaded)),
                    workspace = std::shared_ptr(*std::move(allocated)),
                    &contest](CUstream stream, int set) {
    const std::vector<DevicePointer> tensors =
        contest.sets().addresses(set, launcher->plan().tensors);
    return launcher->launch(stream, tensors, {}, workspace->address());
  };
  if (auto right = contest.check(entered); !right) return right.error();
  return &entered;
}

Result<void> Bench::enter_ours(Field& field, const Contest& contest, const Kernel& kernel,
                               const Answer& answer, DevicePointer workspace) {
  field.ours = &field.all.emplace_back();
  field.ours->name = concat(kernel.summary().kernel_template, " ", kernel.summary().configuration);
  field.ours->launch = [kernel, &contest, workspace](CUstream stream, int set) {
    const auto pointer = [](DevicePointer address) { return reinterpret_cast<void*>(address); };
    std::vector<Arg> tensors;
    for (std::size_t i = 0; i < contest.sets().shapes().size(); ++i) {
      tensors.emplace_back(pointer(contest.address(set, i)));
    }
    return kernel.launch(stream, tensors.data(), tensors.size(), pointer(workspace));
  };
  if (auto right = contest.check(*field.ours); !right) return right.error();

  const auto waiting = enter_other(field, contest, answer, fastest_waiting(answer));
  if (!waiting) return waiting.error();
  field.waiting = *waiting == field.ours ? nullptr : *waiting;

  const auto scheduled = core_.catalog().kernel_template(kScheduled);
  if (!scheduled) return scheduled.error();
  const auto persistent_configuration =
      fastest(answer, 1).value_or(with_schedule((*scheduled)->default_configuration, 1));
  auto persistent =
      enter_other(field, contest, answer, {kScheduled, with_schedule(persistent_configuration, 1)});
  if (!persistent) return persistent.error();
  field.persistent = *persistent;
  const auto same_tile = with_schedule(persistent_configuration, 0);
  auto unscheduled =
      enter_other(field, contest, answer,
                  {kScheduled, with_schedule(fastest(answer, 0).value_or(same_tile), 0)});
  if (!unscheduled) return unscheduled.error();
  field.unscheduled = *unscheduled;
  field.one_wave =
      field.persistent && !core_.site().candidate(answer.problem, kScheduled, same_tile.values());
  return {};
}

Result<void> Bench::enter_algorithms(Field& field, const Contest& contest,
                                     const std::shared_ptr<const CublasLtMatmul>& peer,
                                     const PeerProduct& product, DevicePointer workspace) {
  const bool scaled = product.types.block_scales;  // then the scales follow a and b
  const std::size_t d = scaled ? 4 : 2;
  std::function<DevicePointer(int)> result = [&contest, d](int set) {
    return contest.address(set, d);
  };
  if (product.bare) {
    constexpr std::int64_t kAlignment = 256;
    const std::int64_t bytes =
        (bytes_of(product.size.m * product.size.n, product.types.result) + kAlignment - 1) /
        kAlignment * kAlignment;
    auto allocated = device_.device->allocate(bytes * contest.sets().count());
    if (!allocated) return allocated.error();
    field.bare_results = *std::move(allocated);
    result = [first = field.bare_results->address(), bytes](int set) {
      return first + static_cast<DevicePointer>(set * bytes);
    };
    field.note = "cuBLASLt's is the bare product, not compared with ours";
  }
  for (int i = 0; i < peer->algorithms(); ++i) {
    Competitor& entered = field.all.emplace_back();
    const Result<std::string> description = peer->describe(i);
    if (!description) return description.error();
    entered.name = concat("cuBLASLt algorithm ", i, ": ", *description);
    entered.launch = [peer, i, &contest, result, workspace, scaled](CUstream stream, int set) {
      const CublasLtScales scales =
          scaled ? CublasLtScales{contest.address(set, 2), contest.address(set, 3)}
                 : CublasLtScales{};
      return peer->launch(stream, i, contest.address(set, 0), contest.address(set, 1), result(set),
                          workspace, scales);
    };
    const Result<CheckReport> right = product.bare ? CheckReport{} : contest.check(entered);
    if (right) {
      field.algorithms.push_back(&entered);
    } else if (right.error().code == ErrorCode::internal) {
      field.note += concat(field.note.empty() ? "" : "; ", right.error().message);
    } else {
      return right.error();
    }
  }
  if (field.algorithms.empty()) {
    return Error{ErrorCode::internal,
                 concat("no algorithm of cuBLASLt is within the bound: ", field.note)};
  }
  return {};
}

Result<void> Bench::run(const Problem& problem) {
  const auto bound = core_.bind(problem);
  if (!bound) return bound.error();
  const auto product = peer_product(*bound);
  if (!product) return product.error();
  const auto answer = obtain(core_, *bound, seconds_);
  if (!answer) return answer.error();
  const auto kernel = core_.get_best_kernel(problem);
  if (!kernel) return kernel.error();
  auto peer = CublasLtMatmul::make(cublaslt_, product->size, product->types, kWorkspaceBytes);
  if (!peer) return peer.error();
  const auto contest = Contest::make(core_, device_, *bound);
  if (!contest) return contest.error();
  const auto workspace =
      device_.device->allocate(std::max(kWorkspaceBytes, kernel->workspace_bytes()));
  if (!workspace) return workspace.error();

  Field field;
  if (auto done = enter_ours(field, *contest, *kernel, *answer, (*workspace)->address()); !done) {
    return done;
  }
  if (auto done =
          enter_algorithms(field, *contest, *std::move(peer), *product, (*workspace)->address());
      !done) {
    return done;
  }
  const double expected_us = answer->record.winner.measurement.median_us();
  for (Competitor& competitor : field.all) {
    if (auto done = contest->prepare(competitor, expected_us); !done) return done;
  }

  if (auto done = contest->sample(field.algorithms, kSelectionRounds); !done) return done;
  Competitor* const best = *std::min_element(
      field.algorithms.begin(), field.algorithms.end(),
      [](const Competitor* a, const Competitor* b) { return a->median_us() < b->median_us(); });
  std::vector<Competitor*> finalists;
  for (Competitor* competitor : {field.ours, field.waiting, field.algorithms.front(), best,
                                 field.persistent, field.unscheduled}) {
    if (competitor &&
        std::find(finalists.begin(), finalists.end(), competitor) == finalists.end()) {
      finalists.push_back(competitor);
    }
  }
  if (auto done = contest->sample(finalists, kRounds); !done) return done;
  return report(field, *answer, product->size, *best);
}

Result<void> Bench::report(const Field& field, const Answer& answer, const MatmulSize& size,
                           const Competitor& best) {
  const Competitor& ours = *field.ours;
  const Competitor& first = *field.algorithms.front();
  Json waiting_us, persistent_us, non_persistent_us;
  if (field.waiting) waiting_us = field.waiting->median_us();
  if (field.persistent) persistent_us = field.persistent->median_us();
  if (field.unscheduled) non_persistent_us = field.unscheduled->median_us();
  std::string note = field.note;
  if (field.one_wave) {
    const double us = field.persistent->median_us();
    if (!field.unscheduled || us < field.unscheduled->median_us()) non_persistent_us = us;
    note += concat(note.empty() ? "" : "; ", "one wave: both schedules are the same launch");
  }
  const double flops =
      2.0 * static_cast<double>(size.m) * static_cast<double>(size.n) * static_cast<double>(size.k);
  for (const auto& [peer, competitor] :
       {std::pair{"cublaslt_first", &first}, std::pair{"cublaslt_best", &best}}) {
    auto added = json_.add({{"problem", answer.record.key.problem},
                            {"ours_us", ours.median_us()},
                            {"peer", peer},
                            {"peer_us", competitor->median_us()},
                            {"winner", ours.name},
                            {"peer_name", competitor->name},
                            {"algorithms", field.algorithms.size()},
                            {"without_early_start_us", waiting_us},
                            {"persistent_us", persistent_us},
                            {"non_persistent_us", non_persistent_us},
                            {"ours_mad_us", ours.mad_us()},
                            {"peer_mad_us", competitor->mad_us()},
                            {"rounds", kRounds},
                            {"tflops", flops / ours.median_us() * 1e-6},
                            {"candidates", answer.record.candidates},
                            {"measured", answer.record.measured},
                            {"tuning_seconds", answer.tuning_seconds},
                            {"note", note}});
    if (!added) return added;
  }
  ratios_.push_back(best.median_us() / ours.median_us());
  waiting_ratios_.push_back(best.median_us() / (field.waiting ? *field.waiting : ours).median_us());
  std::printf("%-22s %9.2f %9.2f %9.2f   %5.3f  %5.3f   %s\n",
              concat(size.m, "x", size.n, "x", size.k).c_str(), ours.median_us(), first.median_us(),
              best.median_us(), first.median_us() / ours.median_us(),
              best.median_us() / ours.median_us(), ours.name.c_str());
  std::fflush(stdout);
  return {};
}

Result<void> Bench::report_spread(const std::string& name) {
  Json row{{"problem", name}};
  for (const auto& [what, ratios] :
       {std::pair{"with_early_starts", &ratios_}, std::pair{"all_waiting", &waiting_ratios_}}) {
    const RatioSpread spread = spread_of(*ratios);
    std::printf("%s, %s: %s\n", name.c_str(), what, spread.text().c_str());
    row[what] = {{"count", spread.count},
                 {"lowest", spread.lowest},
                 {"p1", spread.p1},
                 {"p5", spread.p5},
                 {"median", spread.median},
                 {"mean", spread.mean},
                 {"geometric_mean", spread.geometric_mean},
                 {"share_below_0.97", spread.share_below}};
  }
  return json_.add(std::move(row));
}

/// `random` names the list of problems if it was drawn, and is empty otherwise.
int run_all(ServiceCore& core, const std::vector<Problem>& problems, const std::string& random,
            double seconds, const std::string& json_file, std::string command) {
  auto device = BenchDevice::open(core.builder().pool());
  if (!device) return report(device.error());
  const ContextScope scope(device->context->api(), device->context->context());
  if (auto current = device->context->check(scope.status()); !current)
    return report(current.error());
  auto cublaslt = CublasLt::open();
  if (!cublaslt) return report(cublaslt.error());
  auto json = BenchJson::open(json_file, "matmul_vs_cublaslt", std::move(command),
                              {{"name", core.profile().name},
                               {"uuid", core.identity().uuid},
                               {"driver", core.identity().driver_version},
                               {"sm_count", core.profile().sm_count},
                               {"cublaslt", (*cublaslt)->version()}});
  if (!json) return report(json.error());
  std::printf("%-22s %9s %9s %9s   %5s  %5s   %s\n", "m x n x k", "ours us", "first us", "best us",
              "first", "best", "winner");
  Bench bench(core, *device, *std::move(cublaslt), seconds, *json);
  int status = 0;
  for (const Problem& problem : problems) {
    if (auto done = bench.run(problem); !done) {
      std::fprintf(stderr, "%s: %s\n", problem.text().c_str(), done.error().message.c_str());
      status = 1;
      if (device->context->lost() || device->device->lost()) break;
    }
  }
  if (!random.empty()) {
    if (auto done = bench.report_spread(random); !done) return report(done.error());
  }
  return status;
}

/// The problems that the command line asks for, and the name of the list if it was drawn.
Result<std::pair<std::vector<Problem>, std::string>> chosen_problems(int argc, char** argv) {
  if (!option_value(argc, argv, "--random")) {
    auto problems = parse_shapes(option_value(argc, argv, "--shapes").value_or(kShapes));
    if (!problems) return problems.error();
    return std::pair{*std::move(problems), std::string()};
  }
  const std::int64_t count = integer_option(argc, argv, "--random", 0);
  const std::int64_t seed = integer_option(argc, argv, "--seed", 0);
  const std::string dtype = option_value(argc, argv, "--dtype").value_or("bf16");
  auto problems = random_problems(static_cast<int>(count), static_cast<std::uint64_t>(seed), dtype);
  if (!problems) return problems.error();
  return std::pair{*std::move(problems),
                   concat("random count=", count, " seed=", seed, " dtype=", dtype)};
}

int run(int argc, char** argv) {
  expect_options(argc, argv, kUsage);
  const auto problems = chosen_problems(argc, argv);
  const double seconds =
      std::strtod(option_value(argc, argv, "--seconds").value_or("20").c_str(), nullptr);
  if (!problems || seconds <= 0) {
    std::fprintf(
        stderr, "%s\n%s",
        problems ? "--seconds: a positive number expected" : problems.error().message.c_str(),
        kUsage);
    return 2;
  }
  const auto core = ServiceCore::open({.cache = option_value(argc, argv, "--cache").value_or("")});
  if (!core) return report(core.error());
  return run_all(**core, problems->first, problems->second, seconds,
                 option_value(argc, argv, "--json").value_or(""), command_line(argc, argv));
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
