// SPDX-License-Identifier: Apache-2.0
// Linear layers by oneDNN's matmul, with weights in the layout that it prefers. The only file that includes
// oneDNN.
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.h"

namespace snapkv::kernels::cpu {
namespace {

// Rows per primitive. Shorter runs go to the next power of two, zero-padded, so that few primitives are
// created.
constexpr int64_t kRowBlock = 256;

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type OneDnnType(DType t) {
  return t == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

class OneDnnGemm : public GemmKernel {
 public:
  // Throws dnnl::error where the CPU has no implementation for `dtype`.
  OneDnnGemm(int64_t outputs, int64_t inputs, DType dtype)
      : outputs_(outputs), inputs_(inputs), dtype_(dtype) {
    const auto descriptor =
        Describe(kRowBlock, dtype,
                 dnnl::memory::desc({inputs, outputs}, OneDnnType(dtype), dnnl::memory::format_tag::any));
    weights_ = descriptor.weights_desc();
    name_ = descriptor.impl_info_str();
  }

  std::string name() const override { return "onednn " + name_; }
  int64_t packed_bytes() const override { return static_cast<int64_t>(weights_.get_size()); }

  void Pack(int threads, const float* w, void* packed) const override {
    omp_set_num_threads(threads);
    dnnl::stream stream(Engine());
    // [outputs, inputs] row-major is [inputs, outputs] with tag ba. The reorder rounds to bf16 to nearest
    // even.
    dnnl::memory from({{inputs_, outputs_}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ba},
                      Engine(), const_cast<float*>(w));
    dnnl::memory to(weights_, Engine(), packed);
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
  }

  void Run(int threads, const TensorView& a, const void* packed, const TensorView& out) const override {
    omp_set_num_threads(threads);
    const int64_t rows = a.dim(0), a_bytes = BlockBytes(a.dtype), out_bytes = BlockBytes(out.dtype);
    std::vector<char> padded_a, padded_out;
    for (int64_t at = 0; at < rows; at += kRowBlock) {
      const int64_t n = std::min(kRowBlock, rows - at);
      const int64_t block = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
      const char* in = a.as<char>() + at * a.stride(0) * a_bytes;
      char* result = out.as<char>() + at * out.stride(0) * out_bytes;
      if (block == n && a.stride(0) == inputs_ && out.stride(0) == outputs_) {
        Multiply(block, in, packed, result, out.dtype);
        continue;
      }
      padded_a.assign(static_cast<size_t>(block * inputs_ * a_bytes), 0);
      padded_out.resize(static_cast<size_t>(block * outputs_ * out_bytes));
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(padded_a.data() + i * inputs_ * a_bytes, in + i * a.stride(0) * a_bytes,
                    static_cast<size_t>(inputs_ * a_bytes));
      Multiply(block, padded_a.data(), packed, padded_out.data(), out.dtype);
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(result + i * out.stride(0) * out_bytes, padded_out.data() + i * outputs_ * out_bytes,
                    static_cast<size_t>(outputs_ * out_bytes));
    }
  }

 private:
  struct Primitive {
    dnnl::matmul matmul;
    dnnl::memory::desc a, out, scratch;
  };

  dnnl::matmul::primitive_desc Describe(int64_t rows, DType out, const dnnl::memory::desc& weights) const {
    const dnnl::memory::desc a({rows, inputs_}, OneDnnType(dtype_), dnnl::memory::format_tag::ab);
    const dnnl::memory::desc c({rows, outputs_}, OneDnnType(out), dnnl::memory::format_tag::ab);
    dnnl::primitive_attr attr;  // scratch per call, so that threads may share the primitive
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return {{a, weights, c}, attr, Engine()};
  }

  const Primitive& Find(int64_t rows, DType out) const {
    const std::lock_guard lock(mutex_);
    const auto key = std::pair(rows, out);
    auto it = primitives_.find(key);
    if (it == primitives_.end()) {
      const auto d = Describe(rows, out, weights_);
      it = primitives_
               .emplace(key, Primitive{dnnl::matmul(d), d.src_desc(), d.dst_desc(), d.scratchpad_desc()})
               .first;
    }
    return it->second;
  }

  void Multiply(int64_t rows, const void* a, const void* packed, void* out, DType out_dtype) const {
    const Primitive& p = Find(rows, out_dtype);
    thread_local std::vector<char> scratch;
    if (scratch.size() < p.scratch.get_size() + 64) scratch.resize(p.scratch.get_size() + 64);
    char* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    dnnl::stream stream(Engine());
    p.matmul.execute(stream, {{DNNL_ARG_SRC, dnnl::memory(p.a, Engine(), const_cast<void*>(a))},
                              {DNNL_ARG_WEIGHTS, dnnl::memory(weights_, Engine(), const_cast<void*>(packed))},
                              {DNNL_ARG_DST, dnnl::memory(p.out, Engine(), out)},
                              {DNNL_ARG_SCRATCHPAD, dnnl::memory(p.scratch, Engine(), aligned)}});
    stream.wait();
  }

  int64_t outputs_, inputs_;
  DType dtype_;
  dnnl::memory::desc weights_;
  std::string name_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<int64_t, DType>, Primitive> primitives_;
};

// Null where oneDNN has no implementation whose name starts with `wanted`.
std::unique_ptr<GemmKernel> MakeNamed(int64_t outputs, int64_t inputs, DType dtype,
                                      const std::string& wanted) {
  try {
    auto kernel = std::make_unique<OneDnnGemm>(outputs, inputs, dtype);
    if (kernel->name().starts_with("onednn " + wanted)) return kernel;
  } catch (const dnnl::error&) {
    // The CPU lacks the instructions: the caller falls back.
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<GemmKernel> MakeOneDnnF32(int64_t outputs, int64_t inputs) {
  // brgemm computes a row the same way wherever it stands; gemm:jit (AVX2) does not.
  return MakeNamed(outputs, inputs, DType::kF32, "brg:avx512");
}

std::unique_ptr<GemmKernel> MakeOneDnnBf16(int64_t outputs, int64_t inputs) {
  return MakeNamed(outputs, inputs, DType::kBF16, "brg:avx512_core_amx_bf16");
}

bool HasFastBf16() {
  static const bool fast = MakeOneDnnBf16(64, 64) != nullptr;
  return fast;
}

}  // namespace snapkv::kernels::cpu
