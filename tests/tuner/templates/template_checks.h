#pragma once

#include <algorithm>
#include <future>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "compile/render.h"
#include "support/random.h"
#include "support/text.h"
#include "tests/results.h"
#include "tests/tuner/gpu_world.h"
#include "tuner/candidates/candidate_list.h"
#include "tuner/check/checker.h"

namespace kernwright {

/// Checks of candidates of the built-in templates, at the depth of a screening unless said.
class TemplateChecks : public GpuWorld {
 protected:
  CandidateList enumerate(const BoundProblem& problem) {
    return must(enumerate_candidates(*catalog_, problem, device_->profile()));
  }

  /// Starts to compile `chosen` of `list`.
  std::vector<Build> compile(const CandidateList& list, const std::vector<std::size_t>& chosen) {
    std::vector<Build> kernels;
    kernels.reserve(chosen.size());
    for (const std::size_t i : chosen) {
      kernels.push_back(
          pool_->submit(render(list.candidates[i], *catalog_, device_->profile().sm_arch)));
    }
    return kernels;
  }

  /// Compiles and checks `chosen` of `list`.
  void check(const BoundProblem& problem, const CandidateList& list,
             const std::vector<std::size_t>& chosen, std::uint64_t seed,
             Runner::CheckDepth depth = Runner::CheckDepth::screening) {
    check(problem, list, chosen, compile(list, chosen), seed, depth);
  }

  /// Checks `chosen` of `list`, which are `kernels`, on inputs drawn from `seed`, at the depth of a
  /// finalist against unmapped pages too; stops at a lost device.
  void check(const BoundProblem& problem, const CandidateList& list,
             const std::vector<std::size_t>& chosen, const std::vector<Build>& kernels,
             std::uint64_t seed, Runner::CheckDepth depth) {
    const bool finalist = depth == Runner::CheckDepth::finalist;
    const auto runner = must(open_runner(problem, seed, finalist));
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const Candidate& candidate = list.candidates[chosen[i]];
      SCOPED_TRACE(concat(problem.text(), ": ", candidate.id()));
      const CompileResult& kernel = kernels[i].get();
      ASSERT_TRUE(kernel) << kernel.error().message;
      const auto prepared = must(runner->prepare(candidate, *kernel.value()));
      ASSERT_EQ(to_string(prepared.step.outcome), "ok") << prepared.step.detail;
      const auto checked = must(runner->check(prepared.id, depth));
      EXPECT_EQ(to_string(checked.step.outcome), "ok") << checked.step.detail;
      EXPECT_TRUE(checked.report.guarded);
      EXPECT_EQ(checked.report.exact, exact_draw(problem).has_value());
      EXPECT_EQ(checked.report.unmapped, finalist);
      EXPECT_LE(checked.report.max_error, 1);
      ASSERT_FALSE(runner->lost());
      runner->drop(prepared.id);
    }
  }

  /// Returns for every template that has candidates its default configuration if that is valid,
  /// else its first candidate.
  static std::vector<std::size_t> defaults(const CandidateList& list) {
    std::map<std::string, std::size_t> of;
    for (std::size_t i = 0; i < list.candidates.size(); ++i) {
      const Candidate& candidate = list.candidates[i];
      of.emplace(candidate.kernel_template->name, i);
      if (candidate.configuration == candidate.kernel_template->default_configuration) {
        of[candidate.kernel_template->name] = i;
      }
    }
    std::vector<std::size_t> chosen;
    chosen.reserve(of.size());
    for (const auto& [name, i] : of) chosen.push_back(i);
    return chosen;
  }

  void check_defaults(const std::vector<std::string>& problems) {
    for (const std::string& text : problems) {
      const BoundProblem problem = bound(text);
      const CandidateList list = enumerate(problem);
      check(problem, list, defaults(list), 11);
      if (HasFatalFailure()) return;
    }
  }

  /// The defaults as finalists: against unmapped pages too.
  void check_finalists(const std::vector<std::string>& problems) {
    for (const std::string& text : problems) {
      const BoundProblem problem = bound(text);
      const CandidateList list = enumerate(problem);
      check(problem, list, defaults(list), 3, Runner::CheckDepth::finalist);
      if (HasFatalFailure()) return;
    }
  }

  /// Returns for one template a candidate, chosen by a hash, for all values that `parameters` have
  /// together.
  static std::vector<std::size_t> one_of_each(const CandidateList& list,
                                              std::string_view kernel_template,
                                              const std::vector<std::string>& parameters) {
    std::map<std::vector<std::int64_t>, std::size_t> of;
    for (const std::size_t i : some(list, kernel_template, list.candidates.size())) {
      std::vector<std::int64_t> values;
      for (const std::string& name : parameters) {
        values.push_back(list.candidates[i].configuration.at(name));
      }
      of.emplace(std::move(values), i);
    }
    std::vector<std::size_t> chosen;
    chosen.reserve(of.size());
    for (const auto& [values, i] : of) chosen.push_back(i);
    return chosen;
  }

  /// Returns `count` different candidates of one template, evenly spread by a hash.
  static std::vector<std::size_t> some(const CandidateList& list, std::string_view kernel_template,
                                       std::size_t count, std::uint64_t seed = 3) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < list.candidates.size(); ++i) {
      if (list.candidates[i].kernel_template->name == kernel_template) all.push_back(i);
    }
    std::sort(all.begin(), all.end(),
              [&](std::size_t a, std::size_t b) { return hash_at(seed, a) < hash_at(seed, b); });
    all.resize(std::min(all.size(), count));
    return all;
  }
};

}  // namespace kernwright
