// SPDX-License-Identifier: Apache-2.0
// HostTensor: a tensor that owns its memory, for the kernel tests; its gaps and ends are watched.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/tensor_view.h"
#include "kernels/ref/element.h"
#include "tests/support/tensors.h"

namespace snapkv::kernels {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Elements start as NaN (floats), so that one which an op forgets is seen. `gap` elements follow every row
// and a guard follows the whole: an op must leave both alone.
class HostTensor {
 public:
  HostTensor(DType dtype, std::vector<int64_t> shape, int64_t gap = 0) : gap_(gap) {
    view_.dtype = dtype;
    view_.rank = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), view_.shape.begin());
    int64_t step = 1;
    for (int i = view_.rank - 1; i >= 0; --i) {
      view_.strides[static_cast<size_t>(i)] = step;
      step *= view_.dim(i) + (i == view_.rank - 1 ? gap : 0);
    }
    const size_t bytes = static_cast<size_t>(step * BlockBytes(dtype)) + kGuardBytes;
    storage_.assign((bytes + 63) / 64, Line{});
    std::memset(storage_.data(), 0xff, storage_.size() * sizeof(Line));
    view_.data = storage_.data();
    before_ = Bytes();
  }
  HostTensor(HostTensor&&) = default;
  HostTensor& operator=(HostTensor&&) = default;
  // Of values in row-major order.
  static HostTensor Of(DType dtype, std::vector<int64_t> shape, std::initializer_list<double> values,
                       int64_t gap = 0) {
    HostTensor t(dtype, std::move(shape), gap);
    t.SetValues(values);
    return t;
  }
  static HostTensor Normal(DType dtype, std::vector<int64_t> shape, std::mt19937_64& rng, double sigma = 1.0,
                           int64_t gap = 0) {
    HostTensor t(dtype, std::move(shape), gap);
    std::normal_distribution<double> normal(0.0, sigma);
    t.Fill([&](int64_t) { return normal(rng); });
    return t;
  }
  HostTensor Copy() const {
    HostTensor t(view_.dtype, std::vector<int64_t>(view_.shape.begin(), view_.shape.begin() + view_.rank),
                 gap_);
    std::memcpy(t.storage_.data(), storage_.data(), storage_.size() * sizeof(Line));
    return t;
  }

  const TensorView& view() const { return view_; }
  // NOLINTNEXTLINE(google-explicit-constructor): a tensor is passed to an op as its view.
  operator const TensorView&() const { return view_; }

  // Element number i in row-major order.
  double Get(int64_t i) const {
    const auto x = Coordinates(i);
    return ref::Load(view_, x[0], x[1], x[2], x[3]);
  }
  void Set(int64_t i, double value) {
    const auto x = Coordinates(i);
    ref::Store(value, view_, x[0], x[1], x[2], x[3]);
  }
  template <class F>
  void Fill(F value_of) {
    for (int64_t i = 0; i < view_.elements(); ++i) Set(i, value_of(i));
  }
  void SetValues(const std::vector<double>& values) {
    ASSERT_EQ(static_cast<int64_t>(values.size()), view_.elements());
    Fill([&](int64_t i) { return values[static_cast<size_t>(i)]; });
  }
  std::vector<double> Values() const {
    std::vector<double> values(static_cast<size_t>(view_.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = Get(static_cast<int64_t>(i));
    return values;
  }
  // "[1, 2, 3]" of element number i.
  std::string Where(int64_t i) const {
    const auto x = Coordinates(i);
    std::string s = "[";
    for (int d = 0; d < view_.rank; ++d) {
      s += (d ? ", " : "") + std::to_string(x[static_cast<size_t>(d)]);
    }
    return s + "]";
  }
  // Whether everything that is not an element has its first contents.
  bool GapsIntact() const {
    std::vector<unsigned char> now = Bytes();
    const unsigned char* start = reinterpret_cast<const unsigned char*>(storage_.data());
    for (int64_t i = 0; i < view_.elements(); ++i) {
      const size_t offset = static_cast<size_t>(Address(i) - start);
      std::copy_n(before_.begin() + static_cast<std::ptrdiff_t>(offset), BlockBytes(view_.dtype),
                  now.begin() + static_cast<std::ptrdiff_t>(offset));
    }
    return now == before_;
  }

 private:
  static constexpr size_t kGuardBytes = 128;  // two vectors
  struct alignas(64) Line {
    unsigned char bytes[64];
  };

  std::array<int64_t, kMaxRank> Coordinates(int64_t i) const {
    std::array<int64_t, kMaxRank> x{};
    for (int d = view_.rank - 1; d >= 0; --d) {
      x[static_cast<size_t>(d)] = i % view_.dim(d);
      i /= view_.dim(d);
    }
    return x;
  }
  const unsigned char* Address(int64_t i) const {
    const auto x = Coordinates(i);
    int64_t offset = 0;
    for (int d = 0; d < view_.rank; ++d) offset += x[static_cast<size_t>(d)] * view_.stride(d);
    return reinterpret_cast<const unsigned char*>(storage_.data()) + offset * BlockBytes(view_.dtype);
  }
  std::vector<unsigned char> Bytes() const {
    const unsigned char* start = reinterpret_cast<const unsigned char*>(storage_.data());
    return {start, start + storage_.size() * sizeof(Line)};
  }

  TensorView view_;
  int64_t gap_ = 0;
  std::vector<Line> storage_;
  std::vector<unsigned char> before_;
};

// All elements equal bit for bit; same dtype and shape.
inline ::testing::AssertionResult SameBits(const HostTensor& actual, const HostTensor& expected) {
  return testing::EqualBits(actual.view(), expected.view());
}

// |actual - expected| <= bound(i) for every element i; infinities and NaN exactly where expected.
template <class Bound>
::testing::AssertionResult WithinBound(const HostTensor& actual, const std::vector<double>& expected,
                                       Bound bound) {
  if (static_cast<int64_t>(expected.size()) != actual.view().elements()) {
    return ::testing::AssertionFailure()
           << actual.view().ToString() << " against " << expected.size() << " expected values";
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    const double a = actual.Get(at), e = expected[i];
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    const double error = std::fabs(a - e), limit = bound(at);
    if (std::isfinite(a) && std::isfinite(e) && error <= limit) continue;
    return ::testing::AssertionFailure()
           << "at " << actual.Where(at) << ": " << ::testing::PrintToString(a) << ", expected "
           << ::testing::PrintToString(e) << ", error " << error << " > " << limit;
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult Near(const HostTensor& actual, const std::vector<double>& expected,
                                       double absolute, double relative = 0) {
  return WithinBound(actual, expected, [&](int64_t i) {
    return absolute + relative * std::fabs(expected[static_cast<size_t>(i)]);
  });
}

inline ::testing::AssertionResult Equal(const HostTensor& actual, const std::vector<double>& expected) {
  return Near(actual, expected, 0);
}

}  // namespace snapkv::kernels
