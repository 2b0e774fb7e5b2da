#pragma once

#include <span>
#include <string>

#include "cache/records/record.h"
#include "compile/compile_request.h"
#include "model/candidate/candidate.h"
#include "model/result/trial.h"

namespace kernwright {

/// A trial of the candidate before anything was found out.
Trial make_trial(const Candidate& candidate, double predicted_us);

/// The part of a trial that a record keeps. `artifact` is the digest of the compiled bits, hex.
RankedConfiguration ranked_configuration(const Trial& trial, std::string artifact);

/// Adds what a later check found: what was proven stays proven, what was worse counts.
void merge(CheckReport& proof, const CheckReport& later);

/// More than a fifth of its time passes between kernels: what launching costs decides, not the
/// kernel.
bool gap_dominated(const RankedConfiguration& ranked);

/// That no candidate passed: how many there were, how they ended, and the commonest outcome's
/// detail.
Error none_passed(std::string_view problem, std::span<const Trial> trials);

}  // namespace kernwright
