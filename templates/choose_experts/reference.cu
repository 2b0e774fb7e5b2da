#include <kernwright/routing/scores.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kMostExperts = 1024;
constexpr int kMostChosen = 32;

// A weight before it is divided, with the magnitude of its error.
struct Share {
  double value, magnitude;
};

// Returns whether value a of number i comes before value b of number j: NaN before numbers, large
// before small ones, low numbers before high ones.
__device__ bool comes_before(float a, long long i, float b, long long j) {
  if (isnan(a) != isnan(b)) return isnan(a);
  return isnan(a) || a == b ? i < j : a > b;
}

__device__ double capped_logit(double x, double cap) {
  return softcap == softcap_tanh ? cap * tanh(x / cap) : x;
}

// Returns the share of a logit, in fp64. The relative error of an exponential is the absolute error
// of its exponent.
__device__ Share share_of(double x, double most) {
  if (score == score_none) return {x, fabs(x)};
  const double value = score == score_softmax   ? exp(x - most)
                       : score == score_sigmoid ? 1 / (1 + exp(-x))
                                                : sqrt(larger(x, 0.0) + log1p(exp(-fabs(x))));
  const double error = 1 + fabs(x) + (score == score_softmax ? fabs(most) : 0);
  return {value, value == 0 ? 0 : value * error};
}

// Chooses the experts of a token in each block of 256 threads. The numbers that are compared are
// the templates' own; ids follow from counting how many experts come before one. weights_reference
// is in fp64 from the logits.
extern "C" __global__ void choose_experts_reference(KW_PARAMETERS(choose_experts_reference)) {
  __shared__ float key[kMostExperts];
  __shared__ float of_group[kMostExperts];
  __shared__ bool kept[kMostExperts];
  __shared__ double chosen[kMostChosen];
  const long long per_group = experts / expert_groups;
  const bool compares_scores =
      config::bias == bias_choice || (expert_groups > 1 && group_score == group_score_two_best);
  const long long thread = threadIdx.x;

  for (long long token = blockIdx.x; token < tokens; token += gridDim.x) {
    if (padding == padding_behind && token >= real[0]) {
      for (long long j = thread; j < top; j += 256) {
        ids_reference[token * top + j] = -1;
        weights_reference[token * top + j] = weights_magnitude[token * top + j] = 0;
      }
      continue;
    }
    const dtype_t* const row = logits + token * experts;
    float most = to_float(row[0]);
    for (long long e = 1; e < experts; ++e) most = larger(most, to_float(row[e]));
    const double exact_most = capped_logit(most, cap);
    most = capped(most, cap);
    ExponentialSum sum = 0;
    double exact_sum = 0;
    if (score == score_softmax && softmax_at == softmax_at_before) {
      for (long long e = 0; e < experts; ++e) {
        sum += in_units(exp_fast(capped(to_float(row[e]), cap) - most));
        exact_sum += exp(capped_logit(to_float(row[e]), cap) - exact_most);
      }
    }

    for (long long e = thread; e < experts; e += 256) {
      float x = to_float(row[e]);
      if (compares_scores) {
        x = capped(x, cap);
        x = score == score_softmax && softmax_at == softmax_at_before ? softmax_score(x, most, sum)
                                                                      : score_alone(x);
        if (config::bias == bias_choice) x = __fadd_rn(x, to_float(bias[e]));
      }
      key[e] = x;
    }
    __syncthreads();
    for (long long g = thread; g < expert_groups; g += 256) {
      const long long first = g * per_group, end = first + per_group;
      long long best = first, second = -1;
      for (long long e = first + 1; e < end; ++e) {
        if (comes_before(key[e], e, key[best], best)) {
          second = best;
          best = e;
        } else if (second < 0 || comes_before(key[e], e, key[second], second)) {
          second = e;
        }
      }
      const bool adds = group_score == group_score_two_best && second >= 0;
      of_group[g] = adds ? __fadd_rn(key[best], key[second]) : key[best];
    }
    __syncthreads();
    for (long long g = thread; g < expert_groups; g += 256) {
      long long before = 0;
      for (long long other = 0; other < expert_groups; ++other) {
        before += comes_before(of_group[other], other, of_group[g], g) ? 1 : 0;
      }
      kept[g] = before < kept_groups;
    }
    __syncthreads();
    for (long long e = thread; e < experts; e += 256) {
      if (!kept[e / per_group]) continue;
      long long before = 0;
      for (long long other = 0; other < experts; ++other) {
        before += kept[other / per_group] && comes_before(key[other], other, key[e], e) ? 1 : 0;
      }
      if (before >= top) continue;
      ids_reference[token * top + before] = e;
      chosen[before] = capped_logit(to_float(row[e]), cap);
    }
    __syncthreads();
    for (long long j = thread; j < top; j += 256) {
      const bool divides = renormalise == renormalise_sum || softmax_at == softmax_at_after;
      double highest = exact_most;
      if (divides) {
        highest = chosen[0];
        for (long long i = 1; i < top; ++i) highest = larger(highest, chosen[i]);
      }
      const Share own = share_of(chosen[j], highest);
      double divisor = score == score_softmax && softmax_at == softmax_at_before ? exact_sum : 1;
      double error = 0;  // of the divisor, relative
      if (divides) {
        divisor = error = 0;
        for (long long i = 0; i < top; ++i) {
          const Share one = share_of(chosen[i], highest);
          divisor += one.value;
          error += one.magnitude;
        }
        divisor += 1e-20;
        error /= fabs(divisor);
      }
      const double weight = own.value / divisor;
      const double magnitude = own.magnitude / fabs(divisor) + fabs(weight) * error;
      weights_reference[token * top + j] = static_cast<float>(factor == 0 ? 0 : factor * weight);
      weights_magnitude[token * top + j] = static_cast<float>(fabs(factor) * magnitude);
    }
    __syncthreads();
  }
}
