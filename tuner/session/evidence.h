#pragma once

#include <span>
#include <string>

#include "cache/records/record.h"
#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "model/result/trial.h"

namespace kernwright {

/// A trial of the candidate, before anything was found out about it.
Trial make_trial(const Candidate& candidate, double predicted_us);

/// The part of a trial that a record keeps. `artifact` is the digest of the compiled bits, hex.
RankedConfiguration ranked_configuration(const Trial& trial, std::string artifact);

/// Adds what a later check found. What was proven stays proven, and the worse of two findings
/// counts.
void merge(CheckReport& proof, const CheckReport& later);

/// Whether more than a fifth of its time passes between kernels. The cost of launching then
/// decides, not the kernel.
bool gap_dominated(const RankedConfiguration& ranked);

/// The error that no candidate passed. It says how many there were, how they ended, and the detail
/// of the commonest outcome.
Error none_passed(std::string_view problem, std::span<const Trial> trials);

}  // namespace kernwright
