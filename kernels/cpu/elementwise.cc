// SPDX-License-Identifier: Apache-2.0
// Element-wise CPU kernels and copies: add, bias, cast, silu, embedding, dequantisation, merge, row
// gathering.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <cstring>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ref/ref.h"

HWY_BEFORE_NAMESPACE();
namespace snapkv::kernels::cpu::HWY_NAMESPACE {

template <class T>
HWY_ATTR void AddRow(float* HWY_RESTRICT x, const T* HWY_RESTRICT y, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreF32(hn::Add(LoadF32(x + i), LoadF32(y + i)), x + i);
  for (; i < n; ++i) x[i] += LoadScalar(y + i);
}

template <class T>
HWY_ATTR void AddBiasRow(T* HWY_RESTRICT x, const float* HWY_RESTRICT bias, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreF32(hn::Add(LoadF32(x + i), LoadF32(bias + i)), x + i);
  for (; i < n; ++i) StoreScalar(LoadScalar(x + i) + bias[i], x + i);
}

// silu(g) * u = g * u / (1 + exp(-g)); exp(-g) overflows only where the quotient is 0 in f32 anyway.
HWY_INLINE V SiluTimes(V g, V u) {
  const F32 d;
  const V e = Exp<false>(hn::Min(hn::Neg(g), hn::Set(d, 88.0f)));
  return hn::Mul(hn::Div(g, hn::Add(hn::Set(d, 1.0f), e)), u);
}

template <class T>
HWY_ATTR void SiluMulRow(const T* gate, const T* up, T* out, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreF32(SiluTimes(LoadF32(gate + i), LoadF32(up + i)), out + i);
  if (i < n) {  // the tail goes through the same arithmetic
    HWY_ALIGN T tail[3][hn::MaxLanes(F32())] = {};
    for (int64_t j = i; j < n; ++j) tail[0][j - i] = gate[j], tail[1][j - i] = up[j];
    StoreF32(SiluTimes(LoadF32(tail[0]), LoadF32(tail[1])), tail[2]);
    for (int64_t j = i; j < n; ++j) out[j] = tail[2][j - i];
  }
}

template <class In, class Out>
HWY_ATTR void CastRow(const In* in, Out* out, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreF32(LoadF32(in + i), out + i);
  for (; i < n; ++i) StoreScalar(LoadScalar(in + i), out + i);
}

void AddRows(int threads, const TensorView& x, const TensorView& y) {
  ParallelRanges(threads, x.dim(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (y.dtype == DType::kF32)
        AddRow(x.at<float>(i), y.at<float>(i), x.dim(1));
      else
        AddRow(x.at<float>(i), y.at<Bf16>(i), x.dim(1));
    }
  });
}

void AddBiasRows(int threads, const TensorView& x, const TensorView& bias) {
  ParallelRanges(threads, x.dim(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (x.dtype == DType::kF32)
        AddBiasRow(x.at<float>(i), bias.at<float>(), x.dim(1));
      else
        AddBiasRow(x.at<Bf16>(i), bias.at<float>(), x.dim(1));
    }
  });
}

void SiluMulRows(int threads, const TensorView& gate_up, const TensorView& out) {
  const int64_t n = out.dim(1);
  ParallelRanges(threads, out.dim(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (out.dtype == DType::kF32)
        SiluMulRow(gate_up.at<float>(i), gate_up.at<float>(i, n), out.at<float>(i), n);
      else
        SiluMulRow(gate_up.at<Bf16>(i), gate_up.at<Bf16>(i, n), out.at<Bf16>(i), n);
    }
  });
}

// Calls row(in, out, n) for every innermost row of two views of the same shape whose last dimension is
// contiguous.
template <class In, class Out>
void CastRows(int threads, const TensorView& in, const TensorView& out) {
  TensorView a = in, b = out;  // brought to rank 4
  while (a.rank < kMaxRank) {
    for (size_t d = kMaxRank - 1; d > 0; --d) {
      a.shape[d] = a.shape[d - 1], a.strides[d] = a.strides[d - 1];
      b.shape[d] = b.shape[d - 1], b.strides[d] = b.strides[d - 1];
    }
    a.shape[0] = b.shape[0] = 1;
    a.strides[0] = b.strides[0] = 0;
    ++a.rank;
  }
  const int64_t rows = a.dim(0) * a.dim(1) * a.dim(2);
  ParallelRanges(threads, rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t z = i % a.dim(2), y = i / a.dim(2) % a.dim(1), x = i / a.dim(2) / a.dim(1);
      CastRow(a.at<In>(x, y, z), b.at<Out>(x, y, z), a.dim(3));
    }
  });
}

void CastFast(int threads, const TensorView& in, const TensorView& out) {
  const bool from_f32 = in.dtype == DType::kF32, to_f32 = out.dtype == DType::kF32;
  if (from_f32 && to_f32)
    CastRows<float, float>(threads, in, out);
  else if (from_f32)
    CastRows<float, Bf16>(threads, in, out);
  else if (to_f32)
    CastRows<Bf16, float>(threads, in, out);
  else
    CastRows<Bf16, Bf16>(threads, in, out);
}

}  // namespace snapkv::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snapkv::kernels::cpu {

HWY_EXPORT(AddRows);
HWY_EXPORT(AddBiasRows);
HWY_EXPORT(SiluMulRows);
HWY_EXPORT(CastFast);

void Add(int threads, const TensorView& x, const TensorView& y) {
  HWY_DYNAMIC_DISPATCH(AddRows)(threads, x, y);
}

void AddBias(int threads, const TensorView& x, const TensorView& bias) {
  HWY_DYNAMIC_DISPATCH(AddBiasRows)(threads, x, bias);
}

void SiluMul(int threads, const TensorView& gate_up, const TensorView& out) {
  HWY_DYNAMIC_DISPATCH(SiluMulRows)(threads, gate_up, out);
}

void Cast(int threads, const TensorView& in, const TensorView& out) {
  const auto fast = [](const TensorView& v) {
    return (v.dtype == DType::kF32 || v.dtype == DType::kBF16) &&
           (v.dim(v.rank - 1) == 1 || v.stride(v.rank - 1) == 1);
  };
  if (in.rank > 0 && fast(in) && fast(out))
    HWY_DYNAMIC_DISPATCH(CastFast)(threads, in, out);
  else
    ref::Cast(in, out);  // f16, f64 and transposed innermost dimensions: not on a hot path
}

void Dequantize(int threads, const TensorView& in, const TensorView& out) {
  // Used while loading only; the reference is exact, so rows are all there is to split.
  const int64_t blocks = in.elements() / BlockElements(in.dtype);
  constexpr int64_t kGrain = 4096;
  ParallelRanges(threads, blocks, kGrain, [&](int64_t begin, int64_t end) {
    const int64_t n = (end - begin) * BlockElements(in.dtype);
    const TensorView part =
        TensorView::Of(in.as<char>() + begin * BlockBytes(in.dtype), in.dtype, in.device, n);
    ref::Dequantize(
        part, TensorView::Of(out.as<float>() + begin * BlockElements(in.dtype), DType::kF32, out.device, n));
  });
}

void Embed(int threads, const TensorView& table, std::span<const int32_t> ids, const TensorView& out) {
  ParallelRanges(threads, static_cast<int64_t>(ids.size()), 16, [&](int64_t begin, int64_t end) {
    ref::Embed(table, ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
               out.Slice(0, begin, end));
  });
}

void MergeState(int threads, const TensorView& o, const TensorView& lse, const TensorView& other_o,
                const TensorView& other_lse) {
  ParallelFor(threads, o.dim(0), [&](int64_t h) {  // not on a hot path: the reference, per head
    ref::MergeState(o.Slice(0, h, h + 1), lse.Slice(0, h, h + 1), other_o.Slice(0, h, h + 1),
                    other_lse.Slice(0, h, h + 1));
  });
}

void GatherRows(int threads, const TensorView& in, std::span<const std::vector<int32_t>> rows,
                const TensorView& out) {
  const int64_t lists = static_cast<int64_t>(rows.size()), share = lists / in.dim(0);
  const int64_t row_bytes = in.dim(2) * BlockBytes(in.dtype);
  std::vector<int64_t> offset(rows.size(), 0);
  for (size_t h = 1; h < rows.size(); ++h)
    offset[h] = offset[h - 1] + static_cast<int64_t>(rows[h - 1].size());
  ParallelFor(threads, lists, [&](int64_t h) {
    const std::vector<int32_t>& list = rows[static_cast<size_t>(h)];
    char* to = out.as<char>() + offset[static_cast<size_t>(h)] * row_bytes;
    const char* base = in.as<char>() + h / share * in.stride(0) * BlockBytes(in.dtype);
    for (const int32_t row : list) {
      std::memcpy(to, base + row * in.stride(1) * BlockBytes(in.dtype), static_cast<size_t>(row_bytes));
      to += row_bytes;
    }
  });
}

}  // namespace snapkv::kernels::cpu
#endif  // HWY_ONCE
