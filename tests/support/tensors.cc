// SPDX-License-Identifier: Apache-2.0
// Element access, seeded fillers and the two comparisons.
#include "tests/support/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numbers>

#include "kernels/base/log.h"

namespace snapkv::testing {
namespace {

// Byte address of the element at linear row-major index `i`; for quantised types, of the block at index `i`.
char* AddressOf(const TensorView& view, int64_t i) {
  if (IsQuantized(view.dtype)) return static_cast<char*>(view.data) + i * BlockBytes(view.dtype);
  int64_t offset = 0;
  for (int d = view.rank - 1; d >= 0; --d) {
    offset += i % view.dim(d) * view.stride(d);
    i /= view.dim(d);
  }
  return static_cast<char*>(view.data) + offset * BlockBytes(view.dtype);
}

std::string Coordinate(const TensorView& view, int64_t i) {
  std::vector<int64_t> index(static_cast<size_t>(view.rank));
  for (int d = view.rank - 1; d >= 0; --d) {
    index[static_cast<size_t>(d)] = i % view.dim(d);
    i /= view.dim(d);
  }
  std::string s = "[";
  for (size_t d = 0; d < index.size(); ++d) s += (d ? ", " : "") + std::to_string(index[d]);
  return s + "]";
}

bool SameShape(const TensorView& a, const TensorView& b) {
  return a.rank == b.rank && std::equal(a.shape.begin(), a.shape.begin() + a.rank, b.shape.begin());
}

std::string Number(double x) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", x);
  return text;
}

std::string Hex(const char* bytes, int n) {
  std::string s = "0x";
  char two[3];
  for (int i = n - 1; i >= 0; --i) {
    std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned char>(bytes[i]));
    s += two;
  }
  return s;
}

// Half from double: the nearest of the two neighbours, ties to the even one. Slow and obviously right.
F16 ToHalf(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return {0x7e00};
  const double magnitude = std::fabs(x);
  if (magnitude >= 65520.0) return {static_cast<uint16_t>(sign | 0x7c00)};
  // Non-negative halves are ordered like their bit patterns: find the largest one that is <= magnitude.
  uint16_t low = 0, high = 0x7c00;
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (double{ToFloat(F16{middle})} <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - double{ToFloat(F16{low})};
  const double step = high == 0x7c00 ? 32.0 : double{ToFloat(F16{high})} - double{ToFloat(F16{low})};
  const bool up = below * 2 > step || (below * 2 == step && (low & 1) != 0);
  return {static_cast<uint16_t>(sign | (up ? high : low))};
}

// splitmix64: a full-period generator whose every output is defined by seed and index.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// Equal as far as Close() is concerned; `error` is the distance of two finite values, else infinity.
bool ElementClose(double got, double want, double absolute, double relative, double* error) {
  *error = INFINITY;
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return want == got;
  *error = std::fabs(got - want);
  return *error <= absolute + relative * std::fabs(want);
}

void Report(const ::testing::AssertionResult& result, const std::string& what,
            const std::source_location& where) {
  if (result) return;
  ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line()))
      << what << (what.empty() ? "" : ": ") << result.message();
}

}  // namespace

TensorView ViewOf(const void* data, DType dtype, const std::vector<int64_t>& shape) {
  CHECK(shape.size() <= static_cast<size_t>(kMaxRank)) << "rank " << shape.size();
  TensorView v;
  v.data = const_cast<void*>(data);
  v.dtype = dtype;
  v.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), v.shape.begin());
  v.SetContiguous();
  return v;
}

void TestTensor::Free::operator()(void* p) const { std::free(p); }

TestTensor::TestTensor(DType dtype, const std::vector<int64_t>& shape) {
  view_ = ViewOf(nullptr, dtype, shape);
  const size_t bytes = static_cast<size_t>(view_.bytes());
  void* data = nullptr;
  CHECK(::posix_memalign(&data, 64, std::max<size_t>(bytes, 1)) == 0) << "no memory for " << view_.ToString();
  data_.reset(data);
  std::memset(data, 0xff, bytes);
  view_.data = data;
}

double ElementAt(const TensorView& view, int64_t i) {
  const char* p = AddressOf(view, i);
  switch (view.dtype) {
    case DType::kF32:
      return *reinterpret_cast<const float*>(p);
    case DType::kF64:
      return *reinterpret_cast<const double*>(p);
    case DType::kF16:
      return ToFloat(*reinterpret_cast<const F16*>(p));
    case DType::kBF16:
      return ToFloat(*reinterpret_cast<const Bf16*>(p));
    case DType::kI32:
      return *reinterpret_cast<const int32_t*>(p);
    case DType::kI64:
      return static_cast<double>(*reinterpret_cast<const int64_t*>(p));
    case DType::kU8:
      return *reinterpret_cast<const uint8_t*>(p);
    default:
      CHECK(false) << "no elements in " << view.ToString();
      return 0;
  }
}

void SetElement(const TensorView& view, int64_t i, double value) {
  char* p = AddressOf(view, i);
  switch (view.dtype) {
    case DType::kF32:
      *reinterpret_cast<float*>(p) = static_cast<float>(value);
      break;
    case DType::kF64:
      *reinterpret_cast<double*>(p) = value;
      break;
    case DType::kF16:
      *reinterpret_cast<F16*>(p) = ToHalf(value);
      break;
    case DType::kBF16:
      *reinterpret_cast<Bf16*>(p) = ToBf16(static_cast<float>(value));
      break;
    case DType::kI32:
      *reinterpret_cast<int32_t*>(p) = static_cast<int32_t>(value);
      break;
    case DType::kI64:
      *reinterpret_cast<int64_t*>(p) = static_cast<int64_t>(value);
      break;
    case DType::kU8:
      *reinterpret_cast<uint8_t*>(p) = static_cast<uint8_t>(value);
      break;
    default:
      CHECK(false) << "no elements in " << view.ToString();
  }
}

void FillUniform(const TensorView& view, uint64_t seed, double low, double high) {
  Random random(seed);
  for (int64_t i = 0; i < view.elements(); ++i) SetElement(view, i, low + (high - low) * random.Uniform());
}

// Box-Muller; 1 - u keeps the logarithm finite.
void FillNormal(const TensorView& view, uint64_t seed, double standard_deviation) {
  Random random(seed);
  for (int64_t i = 0; i < view.elements(); ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
    SetElement(view, i, standard_deviation * radius * std::cos(2 * std::numbers::pi * random.Uniform()));
  }
}

void FillIntegers(const TensorView& view, uint64_t seed, int64_t low, int64_t high) {
  Random random(seed);
  const uint64_t span = static_cast<uint64_t>(high - low) + 1;
  for (int64_t i = 0; i < view.elements(); ++i) {
    SetElement(view, i, static_cast<double>(low + static_cast<int64_t>(random.Next() % span)));
  }
}

TestTensor Converted(const TensorView& view, DType dtype) {
  TestTensor copy(dtype, std::vector<int64_t>(view.shape.begin(), view.shape.begin() + view.rank));
  for (int64_t i = 0; i < view.elements(); ++i) SetElement(copy, i, ElementAt(view, i));
  return copy;
}

::testing::AssertionResult Close(const TensorView& got, const TensorView& want, double absolute,
                                 double relative) {
  if (!SameShape(got, want)) {
    return ::testing::AssertionFailure() << "shape " << got.ToString() << ", want " << want.ToString();
  }
  int64_t bad = 0, first = -1, worst = -1;
  double worst_error = -1;
  for (int64_t i = 0; i < want.elements(); ++i) {
    double error = 0;
    if (ElementClose(ElementAt(got, i), ElementAt(want, i), absolute, relative, &error)) continue;
    if (bad++ == 0) first = i;
    if (error > worst_error) {
      worst_error = error;
      worst = i;
    }
  }
  if (bad == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "at " << Coordinate(want, first) << ": got " << Number(ElementAt(got, first)) << ", want "
         << Number(ElementAt(want, first)) << "; " << bad << " of " << want.elements() << " elements of "
         << want.ToString() << " are off by more than " << Number(absolute) << " + " << Number(relative)
         << " * |want|, worst at " << Coordinate(want, worst) << " by " << Number(worst_error);
}

::testing::AssertionResult EqualBits(const TensorView& got, const TensorView& want) {
  if (got.dtype != want.dtype || !SameShape(got, want)) {
    return ::testing::AssertionFailure() << "is " << got.ToString() << ", want " << want.ToString();
  }
  const int bytes = BlockBytes(want.dtype);
  const int64_t units = want.elements() / BlockElements(want.dtype);
  int64_t bad = 0, first = -1;
  for (int64_t i = 0; i < units; ++i) {
    if (std::memcmp(AddressOf(got, i), AddressOf(want, i), static_cast<size_t>(bytes)) == 0) continue;
    if (bad++ == 0) first = i;
  }
  if (bad == 0) return ::testing::AssertionSuccess();
  ::testing::AssertionResult result = ::testing::AssertionFailure();
  if (IsQuantized(want.dtype)) {
    result << "block " << first << ": got ";
  } else {
    result << "at " << Coordinate(want, first) << ": got " << Number(ElementAt(got, first)) << ", want "
           << Number(ElementAt(want, first)) << "; bits ";
  }
  return result << Hex(AddressOf(got, first), bytes) << ", want " << Hex(AddressOf(want, first), bytes)
                << "; " << bad << " of " << units << " differ in " << want.ToString();
}

void ExpectClose(const TensorView& got, const TensorView& want, double absolute, double relative,
                 const std::string& what, std::source_location where) {
  Report(Close(got, want, absolute, relative), what, where);
}

void ExpectEqualBits(const TensorView& got, const TensorView& want, const std::string& what,
                     std::source_location where) {
  Report(EqualBits(got, want), what, where);
}

}  // namespace snapkv::testing
