// Runs seeded faults in copies of our own templates through the checks that every candidate passes.
// Faults of arithmetic and indexing are made by operators, at places that a seed chooses. Some
// change nothing, so those that are accepted are listed to be looked at, and of each kind some must
// be found in every template. No fault of these kinds that a list names may be accepted. In the
// same run the unchanged templates and cuBLASLt's products must not be refused.
//
//   mutants [--json FILE] [--only KIND|NAME|cublaslt] [--list DIR] [--seed N] [--seconds N]
//           [--compile-only]

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/common/bench_json.h"
#include "bench/common/command.h"
#include "bench/common/contest.h"
#include "bench/common/cublaslt.h"
#include "bench/common/mutant_builds.h"
#include "bench/common/mutant_examiner.h"
#include "bench/common/mutant_generator.h"
#include "bench/common/mutant_list.h"
#include "compile/compile_pool.h"
#include "device/cuda/cuda_device.h"
#include "service/serve/core.h"
#include "support/steady_seconds.h"
#include "support/text.h"
#include "tuner/check/checker.h"
#include "tuner/data/buffer_sets.h"

namespace kernwright {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr const char* kUsage =
    "usage: mutants [--json FILE] [--only KIND|NAME|cublaslt] [--list DIR] [--seed N]\n"
    "               [--seconds N] [--compile-only]\n";
constexpr const char* kProfile = "h200";
constexpr std::string_view kCublasLt = "cublaslt";  ///< in place of a kind: no mutant at all
constexpr std::int64_t kWorkspaceBytes = 64 << 20;
/// Problems that cuBLASLt computes: tails, one row, deep and wide, both dtypes.
constexpr struct {
  MatmulSize size;
  DType dtype;
} kProducts[] = {{{1500, 1608, 520}, DType::bf16},  {{333, 200, 328}, DType::fp16},
                 {{1, 4096, 4096}, DType::bf16},    {{17, 264, 8200}, DType::fp16},
                 {{512, 512, 16384}, DType::bf16},  {{4096, 6144, 4096}, DType::bf16},
                 {{2048, 2048, 2048}, DType::fp16}, {{100, 1000, 40}, DType::bf16}};

/// Counts of one kind of one template, for the table at the end.
struct Tally {
  int mutants = 0;
  int accepted = 0;
  int not_run = 0;
  int unchanged = 0;  ///< made by operators, without a candidate that compiles to other code
  std::map<std::string, int> found_by;  ///< "screening wrong_result"
};

class Bench {
 public:
  Bench(const MutantBuilds& builds, const std::vector<const MutantTry*>& tries, CompilePool& pool,
        double seconds, BenchJson& json)
      : builds_(builds), tries_(tries), seconds_(seconds), json_(json) {
    for (const MutantTry* made : tries) compiled_.push_back(pool.submit(made->request));
  }

  /// Compiles everything and prints the list's defects; returns false if there are any.
  bool compile();
  /// Runs the tries problem by problem. False: a control was refused or a fault accepted.
  bool run(std::uint64_t seed);

 private:
  Result<void> add_row(const MutantTry& made, const Examination& ending);
  bool report(const std::map<const Mutant*, std::vector<Examination>>& endings, int refused) const;

  const MutantBuilds& builds_;
  const std::vector<const MutantTry*>& tries_;
  double seconds_;
  BenchJson& json_;
  std::vector<Build> compiled_;
};

bool Bench::compile() {
  const std::vector<Change> changes = changes_of(tries_, compiled_);
  const std::vector<std::string> defects = find_defects(tries_, compiled_, changes);
  for (const std::string& defect : defects) std::printf("%s\n", defect.c_str());
  std::map<Change, int> count;
  for (std::size_t i = 0; i < tries_.size(); ++i) {
    if (tries_[i]->mutant && tries_[i]->mutant->place) ++count[changes[i]];
  }
  std::printf(
      "tries made by operators: %d compile to other code, %d to the same, %d do not compile\n",
      count[Change::code], count[Change::none], count[Change::no_code]);
  return defects.empty();
}

Result<void> Bench::add_row(const MutantTry& made, const Examination& ending) {
  const std::string name = made.mutant ? made.mutant->name : "control";
  return json_.add({{"problem", made.candidate.problem->text()},
                    {"peer", concat(name, " on ", made.where->name)},
                    {"kind", made.mutant ? to_string(made.mutant->kind) : "control"},
                    {"mutant", name},
                    {"template", made.where->kernel_template},
                    {"configuration", made.candidate.configuration.text()},
                    {"fault", made.mutant ? made.mutant->fault : ""},
                    {"outcome", to_string(ending.outcome)},
                    {"found_by", ending.found_by},
                    {"accepted", ending.accepted()},
                    {"detail", ending.detail},
                    {"max_error", ending.report.max_error},
                    {"exact", ending.report.exact},
                    {"guarded", ending.report.guarded},
                    {"unmapped", ending.report.unmapped},
                    {"repeats", ending.report.repeats},
                    {"survives_because", made.mutant ? made.mutant->survives_because : ""},
                    {"check_seconds", ending.seconds}});
}

bool Bench::run(std::uint64_t seed) {
  const auto start = Clock::now();
  std::vector<std::size_t> order(tries_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::map<std::string, std::size_t> first_seen;
  for (const std::size_t i : order) first_seen.emplace(tries_[i]->candidate.problem->text(), i);
  const auto place = [&](std::size_t i) {
    return std::pair(first_seen.at(tries_[i]->candidate.problem->text()), i);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  const std::vector<Change> changes = changes_of(tries_, compiled_);
  MutantExaminer examiner(builds_.template_dir(), seed);
  std::map<const Mutant*, std::vector<Examination>> endings;
  int refused = 0;
  for (const std::size_t i : order) {
    const MutantTry& made = *tries_[i];
    if (made.mutant && made.mutant->place) {
      endings[made.mutant];  // stays empty if none of its tries changes anything
      if (changes[i] != Change::code) continue;
    }
    Examination ending;
    if (const CompileResult& kernel = compiled_[i].get(); !kernel) {
      ending.detail = kernel.error().message;
    } else if (seconds_since(start) < seconds_) {
      ending = examiner.examine(made.candidate, **kernel);
    } else {
      ending.detail = "no time was left";
    }
    if (!ending.ran) {
      std::printf("%s did not run: %s\n", made.label().c_str(), ending.detail.c_str());
    } else if (auto added = add_row(made, ending); !added) {
      std::fprintf(stderr, "mutants: %s\n", added.error().message.c_str());
    }
    if (made.mutant) {
      endings[made.mutant].push_back(std::move(ending));
    } else if (!ending.accepted()) {
      ++refused;
      std::printf("%s is REFUSED: %s, %s\n", made.label().c_str(),
                  std::string(to_string(ending.outcome)).c_str(), ending.detail.c_str());
    }
  }
  std::printf("%zu tries in %.1f s\n", order.size(), seconds_since(start));
  return report(endings, refused);
}

/// A fault of arithmetic or indexing that a list names counts as accepted if one of its tries was
/// accepted, another if all were.
bool Bench::report(const std::map<const Mutant*, std::vector<Examination>>& endings,
                   int refused) const {
  bool right = refused == 0;
  std::map<std::string, Tally> table;
  for (const auto& [mutant, tried] : endings) {
    const bool must = !mutant->place && mutant->kind != MutantKind::synchronisation;
    const auto accepted = [](const Examination& f) { return f.accepted(); };
    const bool all_ran = std::all_of(tried.begin(), tried.end(), [](auto& f) { return f.ran; });
    const bool taken = must ? std::any_of(tried.begin(), tried.end(), accepted)
                            : std::all_of(tried.begin(), tried.end(), accepted);
    Tally& tally = table[concat(to_string(mutant->kind), " ", mutant->kernel_template)];
    ++tally.mutants;
    if (tried.empty()) {
      ++tally.unchanged;
      continue;
    }
    if (!all_ran) {
      ++tally.not_run;
      right = false;
    }
    if (taken) {
      ++tally.accepted;
      right = right && !must;
      const std::string why = must                               ? "NEVER RIGHT"
                              : mutant->place                    ? "MAY BE EQUIVALENT"
                              : mutant->survives_because.empty() ? "UNEXPLAINED"
                                                                 : mutant->survives_because;
      std::printf("accepted: %s (%s): %s [%s]\n", mutant->name.c_str(),
                  mutant->kernel_template.c_str(), mutant->fault.c_str(), why.c_str());
    } else if (const auto by = std::find_if_not(tried.begin(), tried.end(), accepted);
               by != tried.end() && by->ran) {
      ++tally.found_by[concat(by->found_by, " ", to_string(by->outcome))];
    }
  }
  for (const auto& [name, tally] : table) {
    std::printf("%-40s %4d mutants %4d accepted %4d not run %4d unchanged  ", name.c_str(),
                tally.mutants, tally.accepted, tally.not_run, tally.unchanged);
    for (const auto& [by, count] : tally.found_by) std::printf(" %s: %d", by.c_str(), count);
    std::printf("\n");
    // One mutant alone may well change nothing.
    if (tally.found_by.empty() && tally.mutants > 1 && !name.starts_with("synchronisation")) {
      right = false;
      std::printf("%s: NONE WAS FOUND\n", name.c_str());
    }
  }
  std::printf("%d controls refused\n", refused);
  return right;
}

/// cuBLASLt's products under the checks of candidates: right ones must not be refused.
class Peer {
 public:
  static Result<Peer> open(ServiceCore& core) {
    auto device = BenchDevice::open(core.builder().pool());
    if (!device) return device.error();
    Peer peer(core, *std::move(device));
    const ContextScope scope(peer.device_.context->api(), peer.device_.context->context());
    auto library = CublasLt::open();
    if (!library) return library.error();
    peer.library_ = *std::move(library);
    return peer;
  }

  /// The results of all algorithms for one product.
  struct Verdict {
    int algorithms = 0;
    int refused = 0;  ///< beyond the bound
    int inexact = 0;  ///< not right to the last bit on small integers
    double max_error = 0;
    std::string detail;
  };
  Result<Verdict> examine(const MatmulSize& size, DType dtype, std::uint64_t seed);

 private:
  Peer(ServiceCore& core, BenchDevice device) : core_(&core), device_(std::move(device)) {}

  ServiceCore* core_;
  BenchDevice device_;
  std::shared_ptr<const CublasLt> library_;
};

Result<Peer::Verdict> Peer::examine(const MatmulSize& size, DType dtype, std::uint64_t seed) {
  const ContextScope scope(device_.context->api(), device_.context->context());
  const auto bound = core_->bind(matmul(size, dtype));
  if (!bound) return bound.error();
  Device& device = *device_.device;
  DataOps& data_ops = *device_.data_ops;
  const auto sets = BufferSets::make(device, data_ops, bound->shapes(), L2State::warm, seed,
                                     {.exact = exact_draw(*bound)});
  if (!sets) return sets.error();
  const auto checker =
      Checker::make(device, data_ops, *bound, core_->catalog(), core_->builder().pool(), *sets);
  if (!checker) return checker.error();
  const auto product = CublasLtMatmul::make(library_, size, {dtype, dtype}, kWorkspaceBytes);
  if (!product) return product.error();
  const auto workspace = device.allocate(kWorkspaceBytes);
  if (!workspace) return workspace.error();

  const auto run = [&](int algorithm, int set) -> Result<CheckReport> {
    if (auto done = sets->poison(device, data_ops, set, 0xFF); !done) return done.error();
    if (auto done = device.wait(); !done) return done.error();
    const std::vector<DevicePointer> tensors = sets->addresses(set);
    if (auto done = (*product)->launch(device_.context->stream(), algorithm, tensors[0], tensors[1],
                                       tensors[2], (*workspace)->address());
        !done) {
      return done.error();
    }
    if (auto done = device_.context->wait(); !done) return done.error();
    const auto first = checker->enqueue(data_ops, set, tensors);
    if (!first) return first.error();
    const auto findings = data_ops.take_findings();
    if (!findings) return findings.error();
    return checker->report(device, set, tensors, *findings, *first);
  };
  Verdict verdict;
  verdict.algorithms = (*product)->algorithms();
  for (int i = 0; i < verdict.algorithms; ++i) {
    const auto realistic = run(i, 0);
    if (!realistic) return realistic.error();
    verdict.max_error = std::max(verdict.max_error, realistic->max_error);
    if (realistic->mismatches != 0) {
      ++verdict.refused;
      verdict.detail = concat("algorithm ", i, ": ", realistic->first_mismatch);
    }
    if (!sets->has_exact_set()) continue;
    const auto integers = run(i, BufferSets::kExactSet);
    if (!integers) return integers.error();
    if (integers->mismatches != 0) {
      ++verdict.inexact;
      verdict.detail = concat("algorithm ", i, " on integers: ", integers->first_mismatch);
    }
  }
  return verdict;
}

bool check_cublaslt(BenchJson& json, std::uint64_t seed) {
  const auto complain = [](const Error& error) {
    std::printf("cuBLASLt was not tried: %s\n", error.message.c_str());
    return false;
  };
  const auto core = ServiceCore::open({});
  if (!core) return complain(core.error());
  auto peer = Peer::open(**core);
  if (!peer) return complain(peer.error());
  bool right = true;
  for (const auto& [size, dtype] : kProducts) {
    const auto verdict = peer->examine(size, dtype, seed++);
    if (!verdict) return complain(verdict.error());
    right = right && verdict->refused == 0;
    const std::string problem = matmul(size, dtype).text();
    std::printf(
        "cuBLASLt %-40s %2d algorithms, %d refused, %d inexact, worst error %.3f of the bound %s\n",
        problem.c_str(), verdict->algorithms, verdict->refused, verdict->inexact,
        verdict->max_error, verdict->detail.c_str());
    if (auto added = json.add({{"problem", problem},
                               {"peer", "cublaslt"},
                               {"algorithms", verdict->algorithms},
                               {"refused", verdict->refused},
                               {"inexact", verdict->inexact},
                               {"accepted", verdict->refused == 0 && verdict->inexact == 0},
                               {"max_error", verdict->max_error},
                               {"detail", verdict->detail}});
        !added) {
      std::fprintf(stderr, "mutants: %s\n", added.error().message.c_str());
    }
  }
  return right;
}

struct Options {
  std::string json;
  std::string only;
  std::string list;
  std::uint64_t seed = 1;  ///< of the places that operators change
  double seconds = 600;
  bool compile_only = false;
};

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--compile-only") {
      options.compile_only = true;
      continue;
    }
    if (++i == argc) return std::nullopt;
    if (name == "--json") {
      options.json = argv[i];
    } else if (name == "--only") {
      options.only = argv[i];
    } else if (name == "--list") {
      options.list = argv[i];
    } else if (name == "--seed") {
      options.seed = std::strtoull(argv[i], nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(argv[i], nullptr);
    } else {
      return std::nullopt;
    }
  }
  return options;
}

/// The controls, and the mutants that were asked for.
std::vector<const MutantTry*> select(const MutantBuilds& builds, const std::string& only) {
  const auto wanted = [&](const Mutant& mutant) {
    return only.empty() || to_string(mutant.kind) == only || mutant.name == only;
  };
  std::vector<bool> needed(builds.tries().size(), false);
  for (const MutantTry& made : builds.tries()) {
    if (made.mutant && wanted(*made.mutant)) needed[made.control] = true;
  }
  std::vector<const MutantTry*> tries;
  for (std::size_t i = 0; i < builds.tries().size(); ++i) {
    const MutantTry& made = builds.tries()[i];
    if (made.mutant ? wanted(*made.mutant) : needed[i]) tries.push_back(&made);
  }
  return tries;
}

int run(int argc, const char* const* argv) {
  if (argc == 2 && std::string_view(argv[1]) == kExaminerOption) return serve_examinations();
  const std::optional<Options> options = parse_options(argc, argv);
  if (!options) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  auto list = options->list.empty() ? MutantList::built_in() : MutantList::load(options->list);
  if (!list) return report(list.error());
  Result<DeviceProfile> profile = find_profile(kProfile);
  Json device;
  if (!options->compile_only) {
    const auto info = describe_cuda_device(0);
    if (!info) return report(info.error());
    profile = info->profile;
    device = {{"name", info->profile.name},
              {"uuid", info->identity.uuid},
              {"driver", info->identity.driver_version}};
  } else {
    device = cpu_device();
  }
  if (!profile) return report(profile.error());
  if (options->list.empty()) {
    const auto catalog = Catalog::load({});
    if (!catalog) return report(catalog.error());
    if (auto added = add_generated_mutants(*list, **catalog, *profile, options->seed); !added) {
      return report(added.error());
    }
  }
  const auto builds = MutantBuilds::make(*list, *profile);
  if (!builds) return report(builds.error());
  const std::vector<const MutantTry*> tries = select(**builds, options->only);
  if (tries.empty() && options->only != kCublasLt) {
    return report(
        {ErrorCode::invalid_argument, concat("no mutant or kind \"", options->only, "\"")});
  }
  const std::shared_ptr<Compiler> compiler = make_toolkit_compiler();
  if (const auto identity = compiler->identity(); !identity) return report(identity.error());
  CompilePool pool(compiler, {});
  auto json = BenchJson::open(options->json, "mutants", command_line(argc, argv), device);
  if (!json) return report(json.error());
  const std::uint64_t seed = std::random_device{}();
  std::printf("%zu mutants, %zu tries, seed %llu\n", list->mutants.size(), tries.size(),
              static_cast<unsigned long long>(seed));
  Bench bench(**builds, tries, pool, options->seconds, *json);
  if (options->compile_only) return bench.compile() ? 0 : 1;
  const bool found = tries.empty() || bench.run(seed);
  const bool peer_asked = options->only.empty() || options->only == kCublasLt;
  const bool unrefused = !peer_asked || check_cublaslt(*json, seed);
  return found && unrefused ? 0 : 1;
}

}  // namespace
}  // namespace kernwright

int main(int argc, char** argv) { return kernwright::run(argc, argv); }
