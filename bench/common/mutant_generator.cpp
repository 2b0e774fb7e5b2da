#include "bench/common/mutant_generator.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/common/mutation.h"
#include "model/candidate/candidate_maker.h"
#include "support/random.h"
#include "support/text.h"
#include "support/try.h"

namespace kernwright {
namespace {

constexpr std::size_t kCases = 6;  ///< of a template
constexpr std::size_t kCasesOfMutant = 3;

struct File {
  std::string name;
  std::string_view text;
  bool own;  ///< in the template's folder
};

/// Returns the template's source and the headers that it includes, with those that they include.
std::vector<File> sources_of(const KernelTemplate& made, const Catalog& catalog) {
  std::map<std::string, File, std::less<>> offered;
  for (const DeviceHeader& header : catalog.headers()) {
    offered.emplace(header.name, File{header.name, header.text, false});
  }
  for (const DeviceHeader& header : made.headers) {
    offered.emplace(header.name, File{header.name, header.text, true});
  }
  std::vector<File> files{{made.source_file, made.source, true}};
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const std::string_view line : split(files[i].text, '\n')) {
      constexpr std::string_view kInclude = "#include ";
      if (!line.starts_with(kInclude)) continue;
      const std::string_view name = line.substr(kInclude.size() + 1);
      const auto found = offered.find(name.substr(0, name.find_first_of(">\"")));
      if (found == offered.end()) continue;
      files.push_back(found->second);
      offered.erase(found);
    }
  }
  return files;
}

/// Brings `all` into an order that `seed` chooses.
template <typename T>
void shuffle(std::vector<T>& all, std::uint64_t seed) {
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    std::swap(all[i], all[i + hash_at(seed, i) % (all.size() - i)]);
  }
}

/// Returns a name that may also be a folder's.
std::string name_of(const KernelTemplate& made, const File& file, const Mutation& mutation) {
  std::string name = concat(made.name, "_", file.name, "_", mutation.line, "_", mutation.column);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

/// Returns the mutants of a template, without their cases.
std::vector<Mutant> mutants_of(const KernelTemplate& made, const Catalog& catalog,
                               std::uint64_t seed) {
  std::map<MutationOperator, std::vector<Mutant>> own;
  std::map<MutationOperator, std::vector<Mutant>> shared;
  const auto add = [&](const File& file, const std::vector<Mutation>& mutations) {
    for (const Mutation& one : mutations) {
      Mutant mutant;
      mutant.name = name_of(made, file, one);
      mutant.kind = one.indexes ? MutantKind::indexing : MutantKind::arithmetic;
      mutant.kernel_template = made.name;
      mutant.file = file.name;
      mutant.find = one.find;
      mutant.replace = one.replace;
      mutant.place = one.at;
      mutant.fault = concat(to_string(one.made_by), ", ", file.name, ":", one.line, ":", one.column,
                            ": \"", one.find, "\" becomes \"", one.replace, "\"");
      (file.own ? own : shared)[one.made_by].push_back(std::move(mutant));
    }
  };
  for (const File& file : sources_of(made, catalog)) add(file, mutations_of_source(file.text));
  add({"manifest.json", {}, true}, mutations_of_manifest(made.manifest().text));

  std::vector<Mutant> chosen;
  for (auto& [made_by, mutants] : own) {
    std::vector<Mutant>& others = shared[made_by];
    shuffle(mutants, seed);
    shuffle(others, seed);
    // A quarter is of headers that templates share.
    const std::size_t kept = kMutantsOfOperator - std::min(others.size(), kMutantsOfOperator / 4);
    mutants.resize(std::min(mutants.size(), kept));
    others.resize(std::min(others.size(), kMutantsOfOperator - mutants.size()));
    for (auto* each : {&mutants, &others}) {
      std::move(each->begin(), each->end(), std::back_inserter(chosen));
    }
  }
  return chosen;
}

/// Returns candidates of a template for several problems of its operation, the first problem with
/// the default configuration if that is valid.
Result<std::vector<MutantCase>> cases_of(const KernelTemplate& made, const Catalog& catalog,
                                         const DeviceProfile& profile, std::uint64_t seed) {
  KW_ASSIGN(const Operation* const operation, catalog.operation(made.operation));
  std::vector<std::string> texts;
  for (const OperationCase& one : operation->cases) {
    for (std::string& text : one.few()) texts.push_back(std::move(text));
  }
  shuffle(texts, seed);
  std::vector<MutantCase> cases;
  for (const std::string& text : texts) {
    if (cases.size() == kCases) break;
    KW_ASSIGN(Problem problem, Problem::parse(text));
    KW_ASSIGN(const BoundProblem bound, BoundProblem::bind(*operation, problem));
    const CandidateMaker maker(made, bound, profile);
    Configuration configuration = made.default_configuration;
    if (!cases.empty() || !maker.obeys_rules(configuration) || !maker.make(configuration)) {
      std::vector<std::int64_t> points;
      maker.add_obeying(0, made.space.size(), points);
      std::optional<Candidate> valid;
      shuffle(points, seed);
      for (std::size_t i = 0; i < points.size() && !valid; ++i) {
        if (auto candidate = maker.make(points[i])) valid = *std::move(candidate);
      }
      if (!valid) continue;
      configuration = valid->configuration;
    }
    cases.push_back(
        {concat("case ", cases.size() + 1), made.name, std::move(problem), configuration.values()});
  }
  return cases;
}

}  // namespace

Result<void> add_generated_mutants(MutantList& list, const Catalog& catalog,
                                   const DeviceProfile& profile, std::uint64_t seed) {
  for (const KernelTemplate& made : catalog.templates()) {
    if (!made.runs_on(profile.sm_arch)) continue;
    KW_ASSIGN(std::vector<MutantCase> cases, cases_of(made, catalog, profile, seed));
    if (cases.empty()) {
      return Error{ErrorCode::not_found, concat(made.name, " takes no problem of a case")};
    }
    const std::size_t first = list.cases.size();
    std::vector<Mutant> mutants = mutants_of(made, catalog, seed);
    for (std::size_t i = 0; i < mutants.size(); ++i) {
      for (std::size_t k = 0; k < std::min(kCasesOfMutant, cases.size()); ++k) {
        mutants[i].cases.push_back(first + (i + k) % cases.size());
      }
      list.mutants.push_back(std::move(mutants[i]));
    }
    std::move(cases.begin(), cases.end(), std::back_inserter(list.cases));
  }
  return {};
}

}  // namespace kernwright
