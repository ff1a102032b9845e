// SPDX-License-Identifier: Apache-2.0
// Tensors for tests: owned memory, seeded contents, and comparisons that look at every element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/tensor_view.h"

namespace snapkv::testing {

// A contiguous view of a run-time shape over existing elements.
TensorView ViewOf(const void* data, DType dtype, const std::vector<int64_t>& shape);
template <class Container>
TensorView ViewOf(const Container& values, const std::vector<int64_t>& shape) {
  return ViewOf(values.data(), DTypeOf<std::remove_cvref_t<decltype(*values.data())>>, shape);
}

// Host memory for one tensor, aligned to 64 bytes and of exactly its size, so that a sanitizer sees any
// overrun. Filled with 0xff bytes (NaN in every float type), so that an element which nobody wrote shows.
class TestTensor {
 public:
  TestTensor(DType dtype, const std::vector<int64_t>& shape);
  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_;
  TensorView view_;
};

// The element at linear index `i` in row-major order of the shape (strides honoured), as a double. Plain
// dtypes.
double ElementAt(const TensorView& view, int64_t i);
// Stores `value`, rounded to the view's dtype (floats: to nearest, ties to even).
void SetElement(const TensorView& view, int64_t i, double value);

// Fill every element of a plain view from `seed`. The same seed gives the same values on every machine.
void FillUniform(const TensorView& view, uint64_t seed, double low = -1, double high = 1);
void FillNormal(const TensorView& view, uint64_t seed, double standard_deviation = 1);
// Integers in [low, high]: sums of them are exact in any order while they stay small.
void FillIntegers(const TensorView& view, uint64_t seed, int64_t low, int64_t high);
// A copy in freshly owned, contiguous memory, converted to `dtype`.
TestTensor Converted(const TensorView& view, DType dtype);

// Whether |got - want| <= absolute + relative * |want| for every element, NaN exactly where `want` has NaN,
// and infinities exactly where and with the sign `want` has them. Dtypes may differ, shapes may not. The
// message names the first bad coordinate with both values, how many are bad, and the largest error.
::testing::AssertionResult Close(const TensorView& got, const TensorView& want, double absolute,
                                 double relative);
// Whether dtype, shape and the bits of every element are equal (NaN payloads and the sign of zero included).
::testing::AssertionResult EqualBits(const TensorView& got, const TensorView& want);

// The same as a non-fatal failure at the caller's line.
void ExpectClose(const TensorView& got, const TensorView& want, double absolute, double relative,
                 const std::string& what = "", std::source_location where = std::source_location::current());
void ExpectEqualBits(const TensorView& got, const TensorView& want, const std::string& what = "",
                     std::source_location where = std::source_location::current());

// For contiguous containers (std::vector, absl::Span) of a common `shape`. Sizes that do not fit it are a
// failure.
template <class A, class B>
void ExpectClose(const A& got, const B& want, const std::vector<int64_t>& shape, double absolute,
                 double relative, const std::string& what = "",
                 std::source_location where = std::source_location::current()) {
  const TensorView g = ViewOf(got, shape), w = ViewOf(want, shape);
  if (static_cast<int64_t>(got.size()) != g.elements() || static_cast<int64_t>(want.size()) != g.elements()) {
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line()))
        << what << ": " << got.size() << " and " << want.size() << " elements for the shape " << g.ToString();
    return;
  }
  ExpectClose(g, w, absolute, relative, what, where);
}
template <class A, class B>
void ExpectEqualBits(const A& got, const B& want, const std::vector<int64_t>& shape,
                     const std::string& what = "",
                     std::source_location where = std::source_location::current()) {
  const TensorView g = ViewOf(got, shape), w = ViewOf(want, shape);
  if (static_cast<int64_t>(got.size()) != g.elements() || static_cast<int64_t>(want.size()) != g.elements()) {
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line()))
        << what << ": " << got.size() << " and " << want.size() << " elements for the shape " << g.ToString();
    return;
  }
  ExpectEqualBits(g, w, what, where);
}

}  // namespace snapkv::testing
