// The operations of a mixture of experts: choose_experts, order_experts, combine_experts.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/tuner/templates/in_double/in_double.h"

namespace kernwright {
namespace {

/// The places of `values`, the largest first, of equal ones the first.
std::vector<std::size_t> ranked(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  return order;
}

/// Scores that a choice compares are rounded to fp32 before it, and may then be equal. Here they
/// are logits, or sums of two numbers that are rounded once.
bool compares_logits(const Problem& problem) {
  const bool adds = flag(problem, "bias") == "choice" ||
                    (dim(problem, "expert_groups") > 1 && flag(problem, "group_score") != "best");
  return !adds || flag(problem, "score") == "none" || flag(problem, "softmax_at") == "after";
}

/// Takes the experts of all but the best groups out.
void keep_groups(std::vector<double>& keys, std::size_t groups, std::size_t kept, bool adds_two) {
  const std::size_t size = keys.size() / groups;
  std::vector<double> scores;
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<double> own(keys.begin() + static_cast<std::ptrdiff_t>(g * size),
                            keys.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::ranges::sort(own, std::greater());
    scores.push_back(adds_two ? static_cast<double>(static_cast<float>(own[0] + own[1])) : own[0]);
  }
  const std::vector<std::size_t> order = ranked(scores);
  for (std::size_t i = kept; i < groups; ++i) {
    std::fill_n(keys.begin() + static_cast<std::ptrdiff_t>(order[i] * size), size,
                -std::numeric_limits<double>::infinity());
  }
}

Outputs choose_experts_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  constexpr double kFactor = 2.5, kCap = 3;  // the checked values
  const std::size_t experts = d.at("experts"), top = d.at("top");
  const std::string score = flag(problem, "score");
  const bool is_softmax = score.empty() || score == "softmax";
  const bool divides =
      flag(problem, "renormalise") == "sum" || flag(problem, "softmax_at") == "after";
  const std::size_t real = flag(problem, "padding") == "behind"
                               ? static_cast<std::size_t>(in.at("real")[0])
                               : d.at("tokens");
  Outputs out;
  for (std::size_t t = 0; t < d.at("tokens"); ++t) {
    if (t >= real) {
      for (std::size_t j = 0; j < top; ++j) {
        out["ids"].add(-1, 0);
        out["weights"].add(0, 0);
      }
      continue;
    }
    std::vector<double> x(experts), keys(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      const double logit = in.at("logits")[t * experts + e];
      x[e] = flag(problem, "softcap") == "tanh" ? kCap * std::tanh(logit / kCap) : logit;
      keys[e] = logit;
      if (flag(problem, "bias") == "choice") {
        keys[e] = static_cast<double>(static_cast<float>(x[e] + in.at("bias")[e]));
      }
    }
    if (d.at("kept_groups") < d.at("expert_groups")) {
      keep_groups(keys, d.at("expert_groups"), d.at("kept_groups"),
                  flag(problem, "group_score") != "best");
    }
    std::vector<std::size_t> chosen = ranked(keys);
    chosen.resize(top);

    double most = *std::ranges::max_element(x);
    if (divides) {
      most = x[chosen[0]];
      for (const std::size_t e : chosen) most = std::max(most, x[e]);
    }
    const auto score_of = [&](double logit) {
      if (is_softmax) return std::exp(logit - most);
      if (score == "sigmoid") return 1 / (1 + std::exp(-logit));
      if (score == "sqrt_softplus") return std::sqrt(std::log1p(std::exp(logit)));
      return logit;
    };
    const auto error_of = [&](double logit) {
      if (score == "none") return std::fabs(logit);
      return score_of(logit) * (1 + std::fabs(logit) + (is_softmax ? std::fabs(most) : 0));
    };
    double divisor = 1, error = 0;
    if (divides) {
      divisor = 1e-20;
      for (const std::size_t e : chosen) {
        divisor += score_of(x[e]);
        error += error_of(x[e]);
      }
      error /= std::fabs(divisor);
    } else if (is_softmax) {
      divisor = 0;
      for (const double logit : x) divisor += score_of(logit);
    }
    for (const std::size_t e : chosen) {
      const double weight = score_of(x[e]) / divisor;
      out["ids"].add(static_cast<double>(e), 0);
      out["weights"].add(kFactor * weight, kFactor * (error_of(x[e]) / std::fabs(divisor) +
                                                      std::fabs(weight) * error));
    }
  }
  return out;
}

const InDouble kChooseExpertsForm("choose_experts", choose_experts_in_double, [](const Problem& p) {
  return compares_logits(p) && flag(p, "softcap") != "tanh";
});

Outputs order_experts_in_double(const Arrays& in, const Dims& d, const Problem&) {
  constexpr double kFirst = 3;  // the checked value
  const std::size_t experts = d.at("experts"), top = d.at("top");
  const std::vector<double>& ids = in.at("ids");
  std::vector<std::vector<std::size_t>> pairs(experts + 1);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double e = ids[i] - kFirst;
    const bool is_here = e >= 0 && e < static_cast<double>(experts);
    pairs[is_here ? static_cast<std::size_t>(e) : experts].push_back(i);
  }
  Outputs out;
  std::vector<double> place(ids.size(), -1);
  for (std::size_t e = 0; e <= experts; ++e) {
    for (const std::size_t i : pairs[e]) {
      if (e < experts) place[i] = static_cast<double>(out["row_of"].value.size());
      out["row_of"].add(static_cast<double>(i / top), 0);
    }
    if (e < experts) out["ends"].add(static_cast<double>(out["row_of"].value.size()), 0);
  }
  for (const double row : place) out["place"].add(row, 0);
  return out;
}

const InDouble kOrderExpertsForm("order_experts", order_experts_in_double);

Outputs combine_experts_in_double(const Arrays& in, const Dims& d, const Problem& problem) {
  const std::size_t columns = d.at("columns"), top = d.at("top");
  Outputs out;
  for (std::size_t t = 0; t < d.at("tokens"); ++t) {
    for (std::size_t c = 0; c < columns; ++c) {
      double sum = 0, terms = 0;
      const auto add = [&](double term) {
        sum += term;
        terms += std::fabs(term);
      };
      for (std::size_t j = t * top; j < (t + 1) * top; ++j) {
        if (in.at("place")[j] < 0) continue;
        const double weight = flag(problem, "weights") == "none" ? 1 : in.at("weights")[j];
        add(weight * in.at("y")[static_cast<std::size_t>(in.at("place")[j]) * columns + c]);
      }
      for (const char* const other : {"shared", "residual"}) {
        if (flag(problem, other) == "add") add(in.at(other)[t * columns + c]);
      }
      out["out"].add(sum, terms);
    }
  }
  return out;
}

const InDouble kCombineExpertsForm("combine_experts", combine_experts_in_double);

}  // namespace
}  // namespace kernwright
