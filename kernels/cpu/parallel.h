// SPDX-License-Identifier: Apache-2.0
// Parallel loops over independent tasks, and the instruction set in use.
#pragma once

#include <omp.h>

#include <cstdint>

namespace snapkv::kernels::cpu {

// The instruction set that the SIMD kernels use: "avx512", "avx2" or "ssse3". The environment variable
// SNAPKV_MAX_ISA, read once before the first kernel runs, lowers it (for tests).
const char* IsaName();

// Applies SNAPKV_MAX_ISA, once. Every file with kernels includes this header and thereby does so before
// main(), also in a program that links only some of them.
bool LimitIsa();
inline const bool isa_is_limited = LimitIsa();

// f(i) for i in [0, n), dynamically scheduled over `threads` OpenMP threads; inline when one suffices.
// Every task must write to memory of its own: then results do not depend on `threads`.
template <class F>
void ParallelFor(int threads, int64_t n, const F& f) {
  if (threads <= 1 || n <= 1) {
    for (int64_t i = 0; i < n; ++i) f(i);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t i = 0; i < n; ++i) f(i);
}

// f(begin, end) for pieces of [0, n) of at most `grain`.
template <class F>
void ParallelRanges(int threads, int64_t n, int64_t grain, const F& f) {
  ParallelFor(threads, (n + grain - 1) / grain, [&](int64_t i) {
    const int64_t begin = i * grain;
    f(begin, begin + grain < n ? begin + grain : n);
  });
}

}  // namespace snapkv::kernels::cpu
