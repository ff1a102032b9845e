// SPDX-License-Identifier: Apache-2.0
// Front door of Sample: the same code for every host device, so that all draw the same token.
#include "kernels/op/sample.h"

#include <cmath>

#include "kernels/op/validate.h"
#include "kernels/ref/ref.h"

namespace snapkv::kernels {

absl::StatusOr<int32_t> Sample(const Stream& stream, const TensorView& logits,
                               absl::Span<const int32_t> history, const SampleParams& params) {
  constexpr const char* kOp = "Sample";
  RETURN_IF_ERROR(CheckStream(kOp, stream));
  RETURN_IF_ERROR(CheckTensor(kOp, "logits", logits, {DType::kF32}, {kAnySize}, Layout::kContiguous));
  if (logits.empty())
    return InvalidArgument(kOp, ": logits is ", logits.ToString(), ", expected at least one");
  RETURN_IF_ERROR(CheckFinite(kOp, "temperature", params.temperature));
  RETURN_IF_ERROR(CheckFinite(kOp, "repeat_penalty", params.repeat_penalty));
  if (params.temperature < 0) {
    return InvalidArgument(kOp, ": temperature is ", params.temperature, ", expected at least 0");
  }
  if (params.repeat_penalty <= 0) {
    return InvalidArgument(kOp, ": repeat_penalty is ", params.repeat_penalty, ", expected more than 0");
  }
  for (size_t i = 0; i < history.size(); ++i) {
    if (history[i] < 0 || history[i] >= logits.dim(0)) {
      return InvalidArgument(kOp, ": history[", i, "] is ", history[i], ", expected a token of logits ",
                             logits.ToString());
    }
  }
  for (int64_t i = 0; i < logits.dim(0); ++i) {
    if (std::isnan(*logits.at<float>(i))) {
      return Internal(kOp, ": logits[", i, "] of ", logits.ToString(), " is NaN: the forward pass is broken");
    }
  }
  return ref::Sample(logits, {history.data(), history.size()}, params);
}

}  // namespace snapkv::kernels
