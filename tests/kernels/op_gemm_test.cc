// SPDX-License-Identifier: Apache-2.0
// Contract tests of PackMatrix and Gemm: near the product in double, and in f32 rows that depend on nothing
// but themselves.
#include <cstdlib>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/op/gemm.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/op_testing.h"

namespace snapkv::kernels {
namespace {

class OpGemm : public OpTest {};
INSTANTIATE_TEST_SUITE_P(Ops, OpGemm, DevicesAndDTypes(), OpParamName);

// Compares a Gemm with the same product in double.
void ExpectProduct(const Stream& stream, const HostTensor& a, const HostTensor& w, DType out_dtype) {
  const DType dtype = a.view().dtype;
  const int64_t rows = a.view().dim(0), inputs = a.view().dim(1), outputs = w.view().dim(0);
  Allocator allocator;
  absl::StatusOr<PackedMatrix> packed = PackMatrix(stream, allocator, w, dtype);
  ASSERT_OK(packed.status());
  HostTensor out(out_dtype, {rows, outputs}, 3);
  ASSERT_OK(Gemm(stream, a, *packed, out));
  ASSERT_TRUE(out.GapsIntact());

  HostTensor rounded_w(dtype, {outputs, inputs}), exact(kF64, {rows, outputs}),
      magnitude(kF64, {rows, outputs});
  ref::Cast(w, rounded_w);
  ref::Gemm(a, rounded_w, exact);
  HostTensor abs_a = a.Copy();
  abs_a.Fill([&](int64_t i) { return std::fabs(a.Get(i)); });
  rounded_w.Fill([&](int64_t i) { return std::fabs(rounded_w.Get(i)); });
  ref::Gemm(abs_a, rounded_w, magnitude);
  // A sum of n products in f32, in any order: (n + 1) u sum |a w|.
  const double sum_error = static_cast<double>(inputs + 1) * kU32;
  ASSERT_TRUE(WithinBound(out, exact.Values(), [&](int64_t i) {
    return sum_error * magnitude.Get(i) + Roundoff(out_dtype) * std::fabs(exact.Get(i));
  }));
}

TEST_P(OpGemm, IsNearTheExactProductForEveryShape) {
  for (const int64_t rows : kTokens) {
    for (const auto& [inputs, outputs] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 5}, {5, 0}, {1, 1}, {7, 33}, {64, 16}, {65, 31}, {80, 65}, {256, 97}}) {
      for (const DType out_dtype : {kF32, dtype()}) {
        SCOPED_TRACE(Case(rows, inputs, outputs) + " to " + DTypeName(out_dtype));
        const HostTensor a = Normal(dtype(), {rows, inputs}, 1, rows % 3);
        ExpectProduct(stream(), a, Normal(kF32, {outputs, inputs}), out_dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(OpGemm, IsNearTheExactProductBeyondOneRowBlock) {
  for (const int64_t rows : {255, 256, 257, 300}) {
    SCOPED_TRACE(rows);
    ExpectProduct(stream(), Normal(dtype(), {rows, 72}), Normal(kF32, {40, 72}), kF32);
  }
}

TEST_P(OpGemm, WeightsAreCountedAndNamed) {
  Allocator allocator;
  {
    absl::StatusOr<PackedMatrix> packed = PackMatrix(stream(), allocator, Normal(kF32, {96, 64}), dtype());
    ASSERT_OK(packed.status());
    EXPECT_EQ(packed->outputs, 96);
    EXPECT_EQ(packed->inputs, 64);
    EXPECT_EQ(packed->dtype, dtype());
    EXPECT_FALSE(packed->weights->kernel().empty());
    EXPECT_GE(allocator.use(MemoryKind::kWeights).current_bytes, 96 * 64 * 2);
    RecordProperty("kernel", packed->weights->kernel());
  }
  EXPECT_EQ(allocator.use(MemoryKind::kWeights).current_bytes, 0);
}

TEST_P(OpGemm, HugeAndTinyValuesAreNotLost) {
  // 2^100 * 2^20 - 2^100 * 2^20 + 3 * 2^-100 * 2^100, and overflow to infinity.
  HostTensor a = HostTensor::Of(dtype(), {2, 3}, {0x1p100, 0x1p100, 0x1p-100, 0x1p127, 0, 0});
  const HostTensor w = HostTensor::Of(kF32, {2, 3}, {0, 0, 0x1p100, 8, 0, 0});
  Allocator allocator;
  absl::StatusOr<PackedMatrix> packed = PackMatrix(stream(), allocator, w, dtype());
  ASSERT_OK(packed.status());
  HostTensor out(kF32, {2, 2});
  ASSERT_OK(Gemm(stream(), a, *packed, out));
  EXPECT_TRUE(Equal(out, {1, 0x1p103, 0, kInf}));
}

// Rows [first, first + rows) of a, in tensors of their own.
HostTensor Multiply(const Stream& stream, const HostTensor& a, int64_t first, int64_t rows, int64_t gap,
                    const PackedMatrix& w) {
  HostTensor part(kF32, {rows, w.inputs}, gap);
  ref::Cast(a.view().Slice(0, first, first + rows), part);
  HostTensor out(kF32, {rows, w.outputs}, gap);
  const absl::Status status = Gemm(stream, part, w, out);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

TEST(OpGemmRows, AnF32RowDependsOnItselfAlone) {
  std::mt19937_64 rng(5);
  constexpr int64_t kRows = 300;
  for (const auto& [inputs, outputs] : std::vector<std::pair<int64_t, int64_t>>{
           {576, 192}, {192, 576}, {1536, 64}, {65, 33}, {64, 1}, {1, 17}}) {
    const HostTensor a = HostTensor::Normal(kF32, {kRows, inputs}, rng);
    Allocator allocator;
    absl::StatusOr<PackedMatrix> w =
        PackMatrix(kCpuStream, allocator, HostTensor::Normal(kF32, {outputs, inputs}, rng), kF32);
    ASSERT_OK(w.status());
    SCOPED_TRACE(Case(inputs, outputs) + " " + w->weights->kernel());
    const HostTensor whole = Multiply({Device::kCpu, 1}, a, 0, kRows, 0, *w);
    for (const int64_t rows : {1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 64, 100, 128, 255, 256, 257, 300}) {
      for (const int threads : {1, 2, 3}) {
        const int64_t last_start = kRows - rows;
        for (const int64_t first : {int64_t{0}, last_start / 3, last_start}) {
          const HostTensor part = Multiply({Device::kCpu, threads}, a, first, rows, threads == 2 ? 5 : 0, *w);
          HostTensor expected(kF32, {rows, outputs});
          ref::Cast(whole.view().Slice(0, first, first + rows), expected);
          ASSERT_TRUE(SameBits(part, expected))
              << rows << " rows from " << first << " of " << kRows << ", threads " << threads;
        }
      }
    }
  }
}

TEST(OpGemmRows, PackingDoesNotDependOnThreads) {
  std::mt19937_64 rng(6);
  const HostTensor w = HostTensor::Normal(kF32, {161, 96}, rng), a = HostTensor::Normal(kF32, {33, 96}, rng);
  for (const DType dtype : {kF32, kBF16}) {
    HostTensor typed_a(dtype, {33, 96}), first(kF32, {33, 161});
    ref::Cast(a, typed_a);
    for (const int threads : {1, 2, 3}) {
      Allocator allocator;
      absl::StatusOr<PackedMatrix> packed = PackMatrix({Device::kCpu, threads}, allocator, w, dtype);
      ASSERT_OK(packed.status());
      HostTensor out(kF32, {33, 161});
      ASSERT_OK(Gemm({Device::kCpu, 1}, typed_a, *packed, out));
      if (threads == 1) first = out.Copy();
      EXPECT_TRUE(SameBits(out, first)) << threads << " threads, " << DTypeName(dtype);
    }
  }
}

// The kernels that this CPU would not choose are held to the same law.
TEST(OpGemmRows, OurOwnKernelKeepsTheLawToo) {
  std::mt19937_64 rng(8);
  const HostTensor a = HostTensor::Normal(kF32, {70, 129}, rng, 1, 2),
                   w = HostTensor::Normal(kF32, {97, 129}, rng);
  const std::unique_ptr<cpu::GemmKernel> kernel = cpu::MakeSimdF32(97, 129);
  HostTensor packed(kF32, {kernel->packed_bytes() / 4});
  kernel->Pack(2, w.view().as<float>(), packed.view().data);
  HostTensor whole(kF32, {70, 97}, 3), exact(kF64, {70, 97});
  kernel->Run(2, a, packed.view().data, whole);
  ref::Gemm(a, w, exact);
  EXPECT_TRUE(Near(whole, exact.Values(), 130 * kU32 * 200));  // sum |a w| < 200
  EXPECT_TRUE(whole.GapsIntact());
  for (int64_t i = 0; i < 70; ++i) {
    HostTensor row(kF32, {1, 97}), expected(kF32, {1, 97});
    kernel->Run(3, a.view().Slice(0, i, i + 1), packed.view().data, row);
    ref::Cast(whole.view().Slice(0, i, i + 1), expected);
    ASSERT_TRUE(SameBits(row, expected)) << "row " << i;
  }
}

// CTest runs this binary once per instruction set: it must have got the one it asked for, in name and in
// fact.
TEST(OpIsa, TheEnvironmentLimitsTheInstructionSet) {
  const char* text = std::getenv("SNAPKV_MAX_ISA");
  const std::string limit = text != nullptr ? text : "none", isa = cpu::IsaName();
  const std::unique_ptr<cpu::GemmKernel> kernel = cpu::MakeSimdF32(1, 2);
  std::printf("instruction set %s, limit %s, f32 GEMM %s\n", isa.c_str(), limit.c_str(),
              cpu::MakeGemmKernel(576, 576, kF32)->name().c_str());
  // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 when multiplied and added at once, as AVX2 and AVX-512 do, else 0.
  HostTensor packed(kF32, {kernel->packed_bytes() / 4}), out(kF32, {1, 1});
  const HostTensor w = HostTensor::Of(kF32, {1, 2}, {-(1 + 0x1p-11), 1 + 0x1p-12});
  kernel->Pack(1, w.view().as<float>(), packed.view().data);
  kernel->Run(1, HostTensor::Of(kF32, {1, 2}, {1, 1 + 0x1p-12}), packed.view().data, out);
  EXPECT_EQ(out.Get(0), isa == "ssse3" ? 0 : 0x1p-24);
  if (limit == "avx2") {
    EXPECT_TRUE(isa == "avx2" || isa == "ssse3") << isa;
  } else if (limit == "ssse3") {
    EXPECT_EQ(isa, "ssse3");
  }
}

}  // namespace
}  // namespace snapkv::kernels
