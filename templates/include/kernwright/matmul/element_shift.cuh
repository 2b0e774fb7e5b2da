#pragma once
// Shifts of 16-bit elements that do not start at a word.

namespace kernwright {

// Moves words of two 16-bit elements down by `shift` elements, 0 to 7: the first `Count` words then
// hold the elements from `shift` on.
template <int Count>
__device__ __forceinline__ void shift_elements(unsigned (&words)[Count + 4], int shift) {
  // Shifts by 4 and 2 in whole words, by 1 across them. A runtime index would put the array into
  // memory.
#pragma unroll
  for (int i = 0; i < Count + 2; ++i) words[i] = shift & 4 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < Count + 1; ++i) words[i] = shift & 2 ? words[i + 1] : words[i];
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    words[i] = shift & 1 ? __funnelshift_r(words[i], words[i + 1], 16) : words[i];
  }
}

}  // namespace kernwright
