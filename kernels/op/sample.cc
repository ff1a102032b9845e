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
  if (params.top_k < 0) return InvalidArgument(kOp, ": top_k is ", params.top_k, ", expected at least 0");
  // Written so that NaN fails as well.
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return InvalidArgument(kOp, ": top_p is ", params.top_p, ", expected more than 0 and at most 1");
  }
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return InvalidArgument(kOp, ": min_p is ", params.min_p, ", expected 0 to 1");
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
