#include "sequences.cuh"
#include <kernwright/rope/rotation_reference.cuh>

using namespace kernwright;
using namespace kernwright::config;

constexpr int kWarps = 8;         // of a block, each with a query of its own
constexpr int kKeys = 32;         // of a tile: each lane has one
constexpr int kChunkBytes = 128;  // of a key, held by a tile at a time
constexpr int kVectorSize = 16 / sizeof(kv_t);
constexpr int kVectors = kChunkBytes / 16;
constexpr int kChunk = kVectors * kVectorSize;  // elements
constexpr int kPitch = kChunkBytes + 16;        // keys are in different banks
constexpr int kColumns = 4;                     // of v, side by side, that a lane loads at a time
constexpr int kGroups = 2;                      // of such columns, that a lane sums at a time
constexpr int kSummed = 16;                     // products that are summed in fp32
constexpr bool kVanish = sizeof(kv_t) == 1;     // small p
// The smallest p that a kernel may lose, relative to the largest p of a row's keys.
constexpr double kFloor = sizeof(dtype_t) == 1 ? 1.0 / (1 << 15) : 1.0 / (1 << 17);
constexpr bool kAppends = append != append_none;
constexpr long long kHidden = -1;  // the place of a key that the bias hides
constexpr double kLn2 = 0.69314718055994530942;

struct alignas(kColumns * sizeof(kv_t)) Values {
  kv_t of[kColumns];
};

// Shared memory of a warp.
struct Shared {
  alignas(16) unsigned char keys[kKeys * kPitch];
  float query[kChunk];
  float p[kKeys];
  long long key_places[kKeys], value_places[kKeys];
};

__device__ double minus_infinity() { return __longlong_as_double(0xfff0000000000000ll); }

// Returns the sum over the warp, to all lanes.
__device__ double warp_sum(double part) {
  for (int lane = 16; lane > 0; lane /= 2) part += __shfl_xor_sync(~0u, part, lane);
  return part;
}
__device__ double warp_largest(double part) {
  for (int lane = 16; lane > 0; lane /= 2) {
    part = larger(part, __shfl_xor_sync(~0u, part, lane));
  }
  return part;
}

// A head of a new token as it meets keys and goes to the cache: rotated by the angles of its
// position, and rounded.
struct NewHead {
  __device__ NewHead(const dtype_t* x, const dtype_t* weight, const float* cosine,
                     const float* sine, long long position, long long size, float eps)
      : head(x, weight, kAppends ? size : 0, eps),
        cosine(cosine + position * (size / 2)),
        sine(sine + position * (size / 2)),
        size(size) {}
  __device__ dtype_t operator[](long long d) const {
    float value = 0, magnitude = 0;
    rotated(d, &value, &magnitude);
    return from_float<dtype_t>(value);
  }
  // Computes element d before it is rounded, and the sum of its absolute terms.
  __device__ void rotated(long long d, float* value, float* magnitude) const {
    rotate(head, cosine, sine, size, d, value, magnitude);
  }

  HeadToRotate<append == append_norm_rope> head;
  const float *cosine, *sine;
  long long size;
};

// Computes a query of a head in one warp, in one pass over the keys that it sees, 32 at a time:
// each lane has the logit of a key, then columns of v. Keys that a query does not see are not read.
// value and magnitude are contiguous: o as [.., head_dim_v] in the layout's order, lse as [..,
// heads, tokens].
//
// Sums are in fp64, but first 8 or 16 products each are summed in fp32: products of q and k are
// exact there, so that a sum is off by less than 2^-20 of its terms, a hundredth of the error that
// a kernel may have.
//
// A bias is added to the logits, or says which keys are seen. Keys that it does not show are not
// read either.
//
// fp8 tensors are multiplied by their scales: one for the whole tensor, or one for each sequence
// and head of k.
//
// o_reference is the result, 0 for a query that sees nothing; o_magnitude = sum p |v|. p may be
// rounded to fp8 if queries are fp8, and p below 2^-17 of the row's largest vanish then. They may
// be rounded to fp16 if keys and values are fp8, and p below 2^-24 lose their digits. In both cases
// o_magnitude has kFloor |v| of each key more. A p may be off by an eighth of that with fp8
// queries, which is 2^-18 of the largest, and by a 128th with bf16 ones, 2^-24. lse_reference is
// the logarithm of the sum of all e^logit, the sink included, minus infinity if there is none. An
// error of a logit is one of the result, so lse_magnitude = 1 + |max| + sum p scale sum |q k|.
//
// With append the query and the last key come from NewHead, and blocks then go through the places
// of the cache. Each place has a new token or its old content: k_reference and v_reference are
// contiguous.
extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attention_reference(KW_PARAMETERS(attention_reference)) {
  __shared__ Shared of_warps[kWarps];
  Shared& shared = of_warps[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  const bool is_ragged = lengths == lengths_ragged;
  // Returns the page of the keys [i * page, (i + 1) * page) of a sequence.
  const auto page_at = [&](long long sequence, long long i) -> long long {
    if (table == table_list) return page_list[page_offsets[sequence] + i];
    const long long row = config::table_rows == table_rows_given ? table_rows[sequence] : sequence;
    return page_table[row * ld_table + i];
  };
  const BiasRows bias_rows{bias_batch, bias_heads, bias_q, ldbias_batch, ldbias_head, ldbias};
  const long long rows = (is_ragged ? q_tokens : batch * q_tokens) * heads;
  const long long warps = static_cast<long long>(gridDim.x) * kWarps;
  // Neighbouring warps have neighbouring queries of a head, which see the same keys.
  for (long long row = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32; row < rows;
       row += warps) {
    const long long token = row % q_tokens;
    const long long head = row / q_tokens % heads;
    const long long entry = row / q_tokens / heads;
    const long long k_head = head / (heads / kv_heads);
    long long sequence = entry;
    long long i = token;
    long long queries = q_len;
    if (is_ragged) {
      for (sequence = 0; q_offsets[sequence + 1] <= token;) ++sequence;
      i = token - q_offsets[sequence];
      queries = q_offsets[sequence + 1] - q_offsets[sequence];
    }
    long long keys = kv_len;
    if (kv_lengths) keys = kv_lengths[sequence];
    if (kv_offsets) keys = kv_offsets[sequence + 1] - kv_offsets[sequence];
    const Seen visible = seen_by(i, queries, keys, window);
    const long long position = position_of(i, queries, keys);
    const long long bias_row = biased ? bias_rows.place(sequence, head, i) : 0;

    const long long scale_at = sequence * kv_heads + k_head;
    double unit_of_logits = scale;
    double unit_of_values = 1;
    if constexpr (descale == descale_tensor) {
      unit_of_logits *= static_cast<double>(q_scale) * k_scale;
      unit_of_values = v_scale;
    }
    if constexpr (descale == descale_head) {
      unit_of_logits *=
          static_cast<double>(q_descale ? q_descale[scale_at] : 1) * k_descale[scale_at];
      unit_of_values = v_descale[scale_at];
    }

    // Returns the first element of a key, in k or in v.
    const auto key_at = [&](long long j, long long own_size, long long pitch) {
      if (cache == cache_paged) {
        const long long used = page_at(sequence, j / page);
        return place_of(used, j % page, k_head, page, kv_heads, own_size, pitch);
      }
      const long long first = is_ragged ? kv_offsets[sequence] : 0;
      return place_of(is_ragged ? 0 : sequence, first + j, k_head, kv_tokens, kv_heads, own_size,
                      pitch);
    };
    const dtype_t* const query = q + place_of(entry, token, head, q_tokens, heads, head_dim, ldq);
    const long long turned = max(0ll, position);
    const NewHead new_query(query, q_norm, cosine, sine, turned, head_dim, eps);
    const NewHead new_key(k_new + place_of(entry, 0, k_head, 1, kv_heads, head_dim, ldk_new),
                          k_norm, cosine, sine, turned, head_dim, eps);
    const dtype_t* const new_value =
        v_new + place_of(entry, 0, k_head, 1, kv_heads, head_dim_v, ldv_new);
    // Returns whether a key is the appended one.
    const auto is_new = [&](long long j) { return kAppends && j == keys - 1; };

    // Returns sum q k for this lane's key of a tile of `count` keys, and sum |q k| in `terms`.
    const auto product = [&](long long tile, int count, double& terms) {
      double dot = 0;
      terms = 0;
      for (long long first = 0; first < head_dim; first += kChunk) {
        __syncwarp();
        for (int d = lane; d < kChunk; d += 32) {
          shared.query[d] = 0;
          if (first + d >= head_dim) continue;
          shared.query[d] = to_float(kAppends ? new_query[first + d] : query[first + d]);
        }
        for (int at = lane; at < count * kVectors; at += 32) {
          const int j = at / kVectors, d = at % kVectors * kVectorSize;
          if (first + d >= head_dim || shared.key_places[j] == kHidden) continue;
          unsigned char* const to = shared.keys + j * kPitch + at % kVectors * 16;
          if (is_new(tile + j)) {
            for (int n = 0; n < kVectorSize; ++n) {
              reinterpret_cast<dtype_t*>(to)[n] = new_key[first + d + n];
            }
            continue;
          }
          *reinterpret_cast<uint4*>(to) =
              *reinterpret_cast<const uint4*>(k + shared.key_places[j] + first + d);
        }
        __syncwarp();
        if (lane >= count) continue;
        const int end = static_cast<int>(min(static_cast<long long>(kChunk), head_dim - first));
        float part = 0, absolute = 0;
        for (int at = 0; at < end; at += kVectorSize) {
          const uint4 vector = *reinterpret_cast<const uint4*>(shared.keys + lane * kPitch +
                                                               at * static_cast<int>(sizeof(kv_t)));
          const kv_t* const key = reinterpret_cast<const kv_t*>(&vector);
#pragma unroll
          for (int d = 0; d < kVectorSize; ++d) {
            const float x = shared.query[at + d] * to_float(key[d]);
            part += x;
            absolute += fabsf(x);
          }
          if ((at + kVectorSize) % kSummed != 0 && at + kVectorSize < end) continue;
          dot += part;
          part = 0;
        }
        terms += absolute;
      }
      return dot;
    };

    const long long own = place_of(entry, token, head, q_tokens, heads, head_dim_v,
                                   layout == layout_bshd ? heads * head_dim_v : head_dim_v);
    double most = minus_infinity(), of_keys = most, sum = 0, exponents = 0;
    bool nothing = false;
    for (long long first = 0; first < head_dim_v; first += 32 * kGroups * kColumns) {
      double part[kGroups][kColumns] = {};
      double absolute[kGroups][kColumns] = {};
      float unweighted[kGroups][kColumns] = {};
      most = of_keys = minus_infinity();
      if constexpr (sink == sink_head) most = sinks[head];
      sum = sink == sink_head && lane == 0 ? 1 : 0;
      exponents = 0;
      for (long long tile = visible.first; tile < visible.end; tile += kKeys) {
        const int count = static_cast<int>(min(static_cast<long long>(kKeys), visible.end - tile));
        const long long j = tile + lane;
        bool exists = lane < count;
        if constexpr (config::bias == bias_boolean) exists = exists && seen[bias_row + j];
        __syncwarp();
        if (lane < count) {
          shared.key_places[lane] = exists ? key_at(j, head_dim, ldk) : kHidden;
          shared.value_places[lane] = exists ? key_at(j, head_dim_v, ldv) : kHidden;
        }
        double terms;
        double s = unit_of_logits * product(tile, count, terms);
        terms *= fabs(unit_of_logits);
        if constexpr (softcap == softcap_tanh) s = cap * tanh(s / cap);
        if constexpr (config::bias == bias_alibi) {
          s -= static_cast<double>(slopes[head]) * fabs(static_cast<double>(position - j));
        }
        if constexpr (config::bias == bias_additive) {
          const double more = exists ? to_float(bias[bias_row + j]) : 0;
          s += more;
          terms += fabs(more);
          if (s <= kHidingBias) s = minus_infinity();
        }
        const double before = most;
        of_keys = larger(of_keys, warp_largest(exists ? s : minus_infinity()));
        most = larger(most, of_keys);
        const double factor = before == most ? 1 : exp(before - most);
        const double p = !exists || s == minus_infinity() ? 0 : exp(s - most);
        sum = sum * factor + p;
        exponents = exponents * factor + (p == 0 ? 0 : p * terms);
        shared.p[lane] = static_cast<float>(p);
        __syncwarp();
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const long long d = first + (32 * g + lane) * kColumns;
          if (d >= head_dim_v) continue;
          float x[kColumns] = {}, size_of_x[kColumns] = {};
          for (int c = 0; c < kColumns; ++c) {
            part[g][c] *= factor;
            absolute[g][c] *= factor;
          }
          for (int n = 0; n < count; ++n) {
            const bool is_hidden = shared.value_places[n] == kHidden;
            const Values values =
                is_hidden ? Values{}
                : is_new(tile + n)
                    ? *reinterpret_cast<const Values*>(new_value + d)
                    : *reinterpret_cast<const Values*>(v + shared.value_places[n] + d);
            for (int c = 0; c < kColumns; ++c) {
              const float value = shared.p[n] * to_float(values.of[c]);
              if constexpr (kVanish) unweighted[g][c] += fabsf(to_float(values.of[c]));
              x[c] += value;
              size_of_x[c] += fabsf(value);
            }
            if ((n + 1) % kSummed != 0 && n + 1 < count) continue;
            for (int c = 0; c < kColumns; ++c) {
              part[g][c] += x[c];
              x[c] = 0;
            }
          }
          for (int c = 0; c < kColumns; ++c) absolute[g][c] += size_of_x[c];
        }
      }
      nothing = most == minus_infinity();
      sum = warp_sum(sum);
      exponents = warp_sum(exponents);
#pragma unroll
      for (int n = 0; n < kGroups * kColumns; ++n) {
        const int g = n / kColumns, c = n % kColumns;
        const long long d = first + (32 * g + lane) * kColumns + c;
        if (d >= head_dim_v) continue;
        o_reference[own + d] =
            nothing ? 0.0f : static_cast<float>(unit_of_values * part[g][c] / sum);
        const double floor = kVanish ? kFloor * exp(of_keys - most) * unweighted[g][c] : 0;
        o_magnitude[own + d] =
            nothing ? 0.0f
                    : static_cast<float>(fabs(unit_of_values) * (absolute[g][c] + floor) / sum);
      }
    }
    if (lse == lse_none || lane != 0) continue;
    const double unit = lse == lse_base2 ? kLn2 : 1.0;
    const long long place = (entry * heads + head) * q_tokens + token;
    lse_reference[place] =
        static_cast<float>(nothing ? minus_infinity() : (most + log(sum)) / unit);
    lse_magnitude[place] =
        nothing ? 1.0f : static_cast<float>((1 + fabs(most) + exponents / sum) / unit);
  }

  if constexpr (kAppends) {
    const auto pitch_of = [&](long long own_size) {
      return layout == layout_bshd ? kv_heads * own_size : own_size;
    };
    __shared__ long long shared_sequence;
    for (long long place = blockIdx.x; place < kv_batch * kv_tokens; place += gridDim.x) {
      const long long entry = place / kv_tokens, entry_token = place % kv_tokens;
      __syncthreads();
      if (threadIdx.x == 0) shared_sequence = -1;
      __syncthreads();
      for (long long s = threadIdx.x; s < batch; s += blockDim.x) {
        const long long last = kv_lengths[s] - 1ll;
        if (last < 0) continue;
        const bool here = cache == cache_paged
                              ? page_at(s, last / page) == entry && last % page == entry_token
                              : s == entry && last == entry_token;
        if (here) shared_sequence = s;
      }
      __syncthreads();
      const long long s = shared_sequence;
      for (long long e = threadIdx.x; e < kv_heads * head_dim; e += blockDim.x) {
        const long long head = e / head_dim, d = e % head_dim;
        const long long to =
            place_of(entry, entry_token, head, kv_tokens, kv_heads, head_dim, pitch_of(head_dim)) +
            d;
        if (s < 0) {
          k_reference[to] = to_float(
              k[place_of(entry, entry_token, head, kv_tokens, kv_heads, head_dim, ldk) + d]);
          k_magnitude[to] = 0;
        } else {
          const NewHead key(k_new + place_of(s, 0, head, 1, kv_heads, head_dim, ldk_new), k_norm,
                            cosine, sine, kv_lengths[s] - 1, head_dim, eps);
          key.rotated(d, k_reference + to, k_magnitude + to);
        }
      }
      for (long long e = threadIdx.x; e < kv_heads * head_dim_v; e += blockDim.x) {
        const long long head = e / head_dim_v, d = e % head_dim_v;
        const long long to = place_of(entry, entry_token, head, kv_tokens, kv_heads, head_dim_v,
                                      pitch_of(head_dim_v)) +
                             d;
        v_reference[to] =
            s < 0 ? to_float(
                        v[place_of(entry, entry_token, head, kv_tokens, kv_heads, head_dim_v, ldv) +
                          d])
                  : to_float(v_new[place_of(s, 0, head, 1, kv_heads, head_dim_v, ldv_new) + d]);
        v_magnitude[to] = 0;
      }
    }
  }
}
