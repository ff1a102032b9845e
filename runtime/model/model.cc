// SPDX-License-Identifier: Apache-2.0
// The parts of a transformer layer around attention, one token block at a time.
#include "runtime/model/model.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/embed.h"
#include "kernels/op/rms_norm.h"
#include "kernels/op/rope.h"

namespace snapkv::runtime {
namespace {

// Adds the time of its scope to a counter.
class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds), start_(absl::GetCurrentTimeNanos()) {}
  ~Timer() { seconds_ += static_cast<double>(absl::GetCurrentTimeNanos() - start_) * 1e-9; }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& seconds_;
  int64_t start_;
};

// `wide`: f32 room for a token block of outputs, used where a bias meets bf16 outputs, so that product and
// bias are rounded once.
absl::Status Apply(const Stream& stream, const TensorView& in, const Linear& linear, const TensorView& out,
                   const Buffer& wide, ModelTimes& times) {
  const Timer timer(times.gemm);
  if (linear.bias.data() == nullptr) return kernels::Gemm(stream, in, linear.weight, out);
  const TensorView sum = out.dtype == DType::kF32 ? out : wide.View(DType::kF32, out.dim(0), out.dim(1));
  RETURN_IF_ERROR(kernels::Gemm(stream, in, linear.weight, sum));
  RETURN_IF_ERROR(kernels::AddBias(stream, sum, linear.bias.View(DType::kF32, linear.weight.outputs)));
  return out.dtype == DType::kF32 ? absl::OkStatus() : kernels::Cast(stream, sum, out);
}

}  // namespace

absl::StatusOr<Model::Scratch> Model::Scratch::Create(const Model& model, Allocator& allocator) {
  const ModelConfig& c = model.config();
  const int64_t wide = std::max(c.q_width() + 2 * c.kv_width(), 2 * c.ffn);
  Scratch scratch;
  ASSIGN_OR_RETURN(scratch.norm_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, model.dtype(),
                                             kTokenBlock, c.hidden));
  ASSIGN_OR_RETURN(scratch.wide_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu, model.dtype(),
                                             kTokenBlock, wide));
  ASSIGN_OR_RETURN(scratch.narrow_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu,
                                               model.dtype(), kTokenBlock, std::max(c.ffn, c.hidden)));
  if (model.dtype() != DType::kF32) {
    ASSIGN_OR_RETURN(scratch.biased_, Buffer::Of(allocator, MemoryKind::kActivation, Device::kCpu,
                                                 DType::kF32, kTokenBlock, std::max(wide, c.hidden)));
  }
  return scratch;
}

absl::Status Model::Embed(const Stream& stream, absl::Span<const int32_t> ids, const TensorView& out) const {
  return kernels::Embed(stream, embedding_, ids, out);
}

absl::Status Model::ProjectQkv(const Stream& stream, int64_t layer, const TensorView& hidden,
                               const TensorView& cos, const TensorView& sin, const TensorView& q,
                               const TensorView& k, const TensorView& v, Scratch& scratch,
                               ModelTimes& times) const {
  const LayerWeights& w = layers_[static_cast<size_t>(layer)];
  const ModelConfig& c = config_;
  const int64_t width = c.q_width() + 2 * c.kv_width();
  for (int64_t at = 0; at < hidden.dim(0); at += kTokenBlock) {
    const int64_t n = std::min(kTokenBlock, hidden.dim(0) - at), end = at + n;
    const TensorView norm = scratch.norm_.View(dtype_, n, c.hidden),
                     qkv = scratch.wide_.View(dtype_, n, width);
    {
      const Timer timer(times.other);
      RETURN_IF_ERROR(kernels::RmsNorm(stream, hidden.Slice(0, at, end),
                                       w.attention_norm.View(DType::kF32, c.hidden), c.rms_epsilon, norm));
    }
    RETURN_IF_ERROR(Apply(stream, norm, w.qkv, qkv, scratch.biased_, times));
    // [n, heads, head_dim] as [heads, n, head_dim]: the copies out of the block also change the order.
    const auto heads = [&](int64_t column, int64_t count) {
      TensorView view = qkv.Slice(1, column, column + count * c.head_dim);
      view.rank = 3;
      view.shape = {count, n, c.head_dim};
      view.strides = {c.head_dim, width, 1};
      return view;
    };
    const Timer timer(times.other);
    const TensorView block_cos = cos.Slice(0, at, end), block_sin = sin.Slice(0, at, end);
    RETURN_IF_ERROR(kernels::Rope(stream, heads(0, c.heads), block_cos, block_sin, q.Slice(1, at, end)));
    RETURN_IF_ERROR(
        kernels::Rope(stream, heads(c.q_width(), c.kv_heads), block_cos, block_sin, k.Slice(1, at, end)));
    RETURN_IF_ERROR(
        kernels::Cast(stream, heads(c.q_width() + c.kv_width(), c.kv_heads), v.Slice(1, at, end)));
  }
  return absl::OkStatus();
}

absl::Status Model::FinishLayer(const Stream& stream, int64_t layer, const TensorView& attention,
                                const TensorView& hidden, Scratch& scratch, ModelTimes& times) const {
  const LayerWeights& w = layers_[static_cast<size_t>(layer)];
  const ModelConfig& c = config_;
  const int64_t n = hidden.dim(0);
  const TensorView norm = scratch.norm_.View(dtype_, n, c.hidden);
  const TensorView gate_up = scratch.wide_.View(dtype_, n, 2 * c.ffn);
  const TensorView projected = scratch.narrow_.View(dtype_, n, c.hidden),
                   mlp = scratch.narrow_.View(dtype_, n, c.ffn);
  RETURN_IF_ERROR(Apply(stream, attention, w.output, projected, scratch.biased_, times));
  {
    const Timer timer(times.other);
    RETURN_IF_ERROR(kernels::Add(stream, hidden, projected));
    RETURN_IF_ERROR(
        kernels::RmsNorm(stream, hidden, w.ffn_norm.View(DType::kF32, c.hidden), c.rms_epsilon, norm));
  }
  RETURN_IF_ERROR(Apply(stream, norm, w.gate_up, gate_up, scratch.biased_, times));
  {
    const Timer timer(times.other);
    RETURN_IF_ERROR(kernels::SiluMul(stream, gate_up, mlp));
  }
  RETURN_IF_ERROR(Apply(stream, mlp, w.down, norm, scratch.biased_, times));
  const Timer timer(times.other);
  return kernels::Add(stream, hidden, norm);
}

absl::Status Model::Logits(const Stream& stream, const TensorView& hidden, const TensorView& logits,
                           Scratch& scratch, ModelTimes& times) const {
  if (!has_head_)
    return FailedPrecondition("the model was loaded without its head: this rank computes no logits");
  const TensorView norm = scratch.norm_.View(dtype_, hidden.dim(0), config_.hidden);
  RETURN_IF_ERROR(kernels::RmsNorm(stream, hidden, final_norm_.View(DType::kF32, config_.hidden),
                                   config_.rms_epsilon, norm));
  return Apply(stream, norm, head_, logits, scratch.biased_, times);
}

std::map<std::string, std::string> Model::KernelNames() const {
  std::map<std::string, std::string> names;
  names["qkv"] = layers_[0].qkv.weight.weights->kernel();
  names["attention_output"] = layers_[0].output.weight.weights->kernel();
  names["gate_up"] = layers_[0].gate_up.weight.weights->kernel();
  names["down"] = layers_[0].down.weight.weights->kernel();
  if (has_head_) names["head"] = head_.weight.weights->kernel();
  return names;
}

}  // namespace snapkv::runtime
