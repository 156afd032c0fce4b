// SPDX-License-Identifier: Apache-2.0
// The aclnn operators that the tests' programs and opscope's statistics ask for, by ATen's CPU kernels on views of the device's memory. The order of
// arguments is that of the public headers of aclnn. What computes in float32 inside on the hardware does so here.
#include "device.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ThreadLocalState.h>

#include <thread>

namespace {

using at::Scalar;
using at::Tensor;
using std::get;

at::ScalarType type_of(int type) {
  switch (type) {
    case 0: return at::kFloat;
    case 1: return at::kHalf;
    case 2: return at::kChar;
    case 3: return at::kInt;
    case 4: return at::kByte;
    case 6: return at::kShort;
    case 9: return at::kLong;
    case 11: return at::kDouble;
    case 12: return at::kBool;
    case 16: return at::kComplexFloat;
    case 27: return at::kBFloat16;
  }
  throw std::runtime_error("aclDataType " + std::to_string(type) + " is not here");
}
Tensor view_of(const TensorHandle& handle) {
  const auto type = type_of(handle.type);
  char* start = static_cast<char*>(handle.data) + handle.offset * int64_t(c10::elementSize(type));
  return at::from_blob(start, handle.sizes, handle.strides, at::TensorOptions(type));
}
Tensor wide(const Tensor& tensor) { return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor; }
std::optional<Tensor> wide(const std::optional<Tensor>& tensor) { return tensor ? std::optional(wide(*tensor)) : std::nullopt; }

// Each is one pointer, and so passed as one by the C interface.
struct In {
  TensorHandle* handle;
  operator Tensor() const { return view_of(*handle); }
  Tensor operator*() const { return view_of(*handle); }
  Tensor operator+() const { return wide(view_of(*handle)); }  // +x: in float32 where it is narrower
  std::optional<Tensor> maybe() const { return handle ? std::optional(wide(view_of(*handle))) : std::nullopt; }
};
struct Out {
  TensorHandle* handle;
  Tensor operator*() const { return view_of(*handle); }
  Tensor operator+() const { return wide(view_of(*handle)); }
  void operator=(const Tensor& result) const {
    if (!handle) return;
    Tensor target = view_of(*handle);
    target.copy_(result.numel() == target.numel() ? result.reshape(target.sizes()) : result.expand(target.sizes()));
    if (device::saturates() && target.scalar_type() == at::kHalf && !at::isfinite(target).all().item<bool>()) {
      target.copy_(at::nan_to_num(target, 0.0, 65504.0, -65504.0));
      device::overflowed();
    }
    if (device::breaks("scale") && at::isFloatingType(target.scalar_type())) target.mul_(1.01);
    if (device::breaks("lastrow") && target.numel()) (target.dim() ? target.select(0, -1) : target).zero_();
  }
};
struct Number {
  ScalarHandle* handle;
  operator Scalar() const { return **this; }
  std::optional<Scalar> maybe() const { return handle ? std::optional(**this) : std::nullopt; }
  Scalar operator*() const {
    switch (handle->type) {
      case 0: return *reinterpret_cast<float*>(handle->bytes);
      case 3: return *reinterpret_cast<int32_t*>(handle->bytes);
      case 9: return *reinterpret_cast<int64_t*>(handle->bytes);
      case 11: return *reinterpret_cast<double*>(handle->bytes);
      case 12: return *reinterpret_cast<bool*>(handle->bytes);
    }
    throw std::runtime_error("a number of aclDataType " + std::to_string(handle->type) + " is not here");
  }
};
struct Ints {
  ArrayHandle<int64_t>* handle;
  operator at::IntArrayRef() const { return handle ? at::IntArrayRef(handle->elements) : at::IntArrayRef(); }
  at::OptionalIntArrayRef or_all() const { return handle && !handle->elements.empty() ? at::OptionalIntArrayRef(handle->elements) : std::nullopt; }
};
struct Flags {
  ArrayHandle<char>* handle;
  operator std::array<bool, 3>() const { return {bool((*this)[0]), bool((*this)[1]), bool((*this)[2])}; }
  bool operator[](int at) const { return handle->elements[at]; }
};
struct Ins {
  ArrayHandle<TensorHandle*>* handle;
  size_t size() const { return handle->elements.size(); }
  In operator[](size_t at) const { return {handle->elements[at]}; }
  operator std::vector<Tensor>() const {
    std::vector<Tensor> all;
    for (auto* each : handle->elements) all.push_back(view_of(*each));
    return all;
  }
};
struct Outs {
  ArrayHandle<TensorHandle*>* handle;
  Out operator[](size_t at) const { return {handle->elements[at]}; }
};
struct Numbers {
  ArrayHandle<ScalarHandle*>* handle;
  Number operator[](size_t at) const { return {handle->elements[at]}; }
};

at::Generator generator(int64_t seed, int64_t offset) { return at::make_generator<at::CPUGeneratorImpl>(uint64_t(seed * 1000003 + offset)); }
// Sets those results of a backward pass that the mask asks for: the others stay as the memory was.
void set_asked(Flags mask, const std::tuple<Tensor, Tensor, Tensor>& results, Out first, Out second, Out third) {
  if (mask[0]) first = get<0>(results);
  if (mask[1]) second = get<1>(results);
  if (mask[2]) third = get<2>(results);
}

}  // namespace

namespace device {
void isolated(const std::function<void()>& run) {
  static const at::ThreadLocalState* fresh = [] {
    const at::ThreadLocalState* state = nullptr;
    std::thread([&] { state = new at::ThreadLocalState; }).join();
    return state;
  }();
  at::ThreadLocalStateGuard alone(*fresh);
  at::AutoDispatchBelowADInplaceOrView plain;
  run();
}
}  // namespace device

#define LIST(...) __VA_ARGS__
#define OPERATOR(name, arguments, ...)                                                                              \
  EXPORTED int name##GetWorkspaceSize(LIST arguments, uint64_t* workspace_, Launch** launch_) {                     \
    return device::prepare(#name, [=]() __VA_ARGS__, workspace_, launch_);                                          \
  }                                                                                                                 \
  EXPORTED int name(void*, uint64_t, Launch* launch, void*) { return device::launch(launch); }
#define ELEMENTWISE(Name, function)                                              \
  OPERATOR(aclnn##Name, (In x, Out out), { out = function(*x); })                \
  OPERATOR(aclnnInplace##Name, (Out x), { x = function(*x); })

// ---- moving and filling
OPERATOR(aclnnInplaceCopy, (Out to, In from), { to = *from; })
OPERATOR(aclnnCast, (In x, int, Out out), { out = *x; })
OPERATOR(aclnnInplaceZero, (Out x), { x = at::zeros_like(*x); })
OPERATOR(aclnnInplaceOne, (Out x), { x = at::ones_like(*x); })
OPERATOR(aclnnInplaceFillScalar, (Out x, Number value), { x = at::full_like(*x, value); })
OPERATOR(aclnnCat, (Ins xs, int64_t dim, Out out), { out = at::cat(std::vector<Tensor>(xs), dim); })
OPERATOR(aclnnStack, (Ins xs, int64_t dim, Out out), { out = at::stack(std::vector<Tensor>(xs), dim); })
OPERATOR(aclnnArange, (Number from, Number to, Number step, Out out), { out = at::arange(*from, *to, *step, (*out).options()); })
OPERATOR(aclnnTriu, (In x, int64_t diagonal, Out out), { out = at::triu(x, diagonal); })

// ---- element by element
#define WITH_FACTOR(Name, function)                                                                                      \
  OPERATOR(aclnn##Name, (In x, In y, Number factor, Out out), { out = function(*x, *y, *factor); })                      \
  OPERATOR(aclnn##Name##s, (In x, Number y, Number factor, Out out), { out = function(*x, *y, *factor); })               \
  OPERATOR(aclnnInplace##Name, (Out x, In y, Number factor), { x = function(*x, *y, *factor); })                         \
  OPERATOR(aclnnInplace##Name##s, (Out x, Number y, Number factor), { x = function(*x, *y, *factor); })
#define WITHOUT_FACTOR(Name, function)                                                        \
  OPERATOR(aclnn##Name, (In x, In y, Out out), { out = function(*x, *y); })                   \
  OPERATOR(aclnn##Name##s, (In x, Number y, Out out), { out = function(*x, *y); })            \
  OPERATOR(aclnnInplace##Name, (Out x, In y), { x = function(*x, *y); })                      \
  OPERATOR(aclnnInplace##Name##s, (Out x, Number y), { x = function(*x, *y); })
WITH_FACTOR(Add, at::add)
WITH_FACTOR(Sub, at::sub)
WITHOUT_FACTOR(Mul, at::mul)
WITHOUT_FACTOR(Div, at::div)
OPERATOR(aclnnRsubs, (In x, Number y, Number factor, Out out), { out = at::rsub(*x, *y, *factor); })
OPERATOR(aclnnMaximum, (In x, In y, Out out), { out = at::maximum(x, y); })
OPERATOR(aclnnMinimum, (In x, In y, Out out), { out = at::minimum(x, y); })
OPERATOR(aclnnPowTensorScalar, (In x, Number power, Out out), { out = at::pow(*x, *power); })
OPERATOR(aclnnClamp, (In x, Number low, Number high, Out out), { out = at::clamp(*x, low.maybe(), high.maybe()); })
OPERATOR(aclnnClampMin, (In x, Number low, Out out), { out = at::clamp_min(*x, *low); })
OPERATOR(aclnnClampMax, (In x, Number high, Out out), { out = at::clamp_max(*x, *high); })
OPERATOR(aclnnNanToNum, (In x, float nan, float high, float low, Out out), { out = at::nan_to_num(x, nan, high, low); })
OPERATOR(aclnnInplaceAddcmul, (Out x, In a, In b, Number factor), { x = at::addcmul(*x, *a, *b, *factor); })
OPERATOR(aclnnInplaceAddcdiv, (Out x, In a, In b, Number factor), { x = at::addcdiv(*x, *a, *b, *factor); })
OPERATOR(aclnnInplaceLerps, (Out x, In y, Number weight), { x = at::lerp(*x, *y, *weight); })
OPERATOR(aclnnSWhere, (In mask, In x, In y, Out out), { out = at::where((*mask).to(at::kBool), x, y); })
OPERATOR(aclnnInplaceMaskedFillScalar, (Out x, In mask, Number value), { x = at::masked_fill(*x, (*mask).to(at::kBool), *value); })
OPERATOR(aclnnAbs, (In x, Out out), { out = at::abs(x); })
OPERATOR(aclnnNeg, (In x, Out out), { out = at::neg(x); })
OPERATOR(aclnnSquare, (In x, Out out), { out = at::square(x); })
OPERATOR(aclnnEqual, (In x, In y, Out out), { out = at::scalar_tensor(at::equal(x, y), at::kBool); })
OPERATOR(aclnnIsFinite, (In x, Out out), { out = at::isfinite(x); })
OPERATOR(aclnnIsInf, (In x, Out out), { out = at::isinf(x); })
ELEMENTWISE(Sqrt, at::sqrt)
ELEMENTWISE(Rsqrt, at::rsqrt)
ELEMENTWISE(Exp, at::exp)
ELEMENTWISE(Log, at::log)
ELEMENTWISE(Sin, at::sin)
ELEMENTWISE(Cos, at::cos)
ELEMENTWISE(Tanh, at::tanh)
ELEMENTWISE(Relu, at::relu)
ELEMENTWISE(Reciprocal, at::reciprocal)
ELEMENTWISE(LogicalNot, at::logical_not)
#define COMPARISON(Name, function)                                                        \
  OPERATOR(aclnn##Name##Tensor, (In x, In y, Out out), { out = function(*x, *y); })       \
  OPERATOR(aclnn##Name##Scalar, (In x, Number y, Out out), { out = function(*x, *y); })
COMPARISON(Eq, at::eq)
COMPARISON(Ne, at::ne)
COMPARISON(Gt, at::gt)
COMPARISON(Ge, at::ge)
COMPARISON(Lt, at::lt)
COMPARISON(Le, at::le)
#define LOGIC(Name, function)                                                                        \
  OPERATOR(aclnnLogical##Name, (In x, In y, Out out), { out = at::logical_##function(x, y); })       \
  OPERATOR(aclnnInplaceLogical##Name, (Out x, In y), { x = at::logical_##function(*x, *y); })        \
  OPERATOR(aclnnBitwise##Name##Tensor, (In x, In y, Out out), { out = at::bitwise_##function(*x, *y); })  \
  OPERATOR(aclnnBitwise##Name##Scalar, (In x, Number y, Out out), { out = at::bitwise_##function(*x, *y); })
LOGIC(And, and)
LOGIC(Or, or)

// ---- reductions
OPERATOR(aclnnReduceSum, (In x, Ints dims, bool keep, int, Out out), { out = at::sum(+x, dims.or_all(), keep); })
OPERATOR(aclnnMean, (In x, Ints dims, bool keep, int, Out out), { out = at::mean(+x, dims.or_all(), keep); })
OPERATOR(aclnnMax, (In x, Out out), { out = at::max(x); })
OPERATOR(aclnnMin, (In x, Out out), { out = at::min(x); })
OPERATOR(aclnnAmax, (In x, Ints dims, bool keep, Out out), { out = at::amax(x, dims, keep); })
OPERATOR(aclnnAmin, (In x, Ints dims, bool keep, Out out), { out = at::amin(x, dims, keep); })
OPERATOR(aclnnAminmaxAll, (In x, Out low, Out high), { low = at::amin(x); high = at::amax(x); })
OPERATOR(aclnnAll, (In x, Ints dims, bool keep, Out out), { out = at::all(x, dims.or_all(), keep); })
OPERATOR(aclnnAny, (In x, Ints dims, bool keep, Out out), { out = at::any(x, dims.or_all(), keep); })
OPERATOR(aclnnNorm, (In x, Number order, Ints dims, bool keep, Out out), { out = at::linalg_vector_norm(+x, *order, dims.or_all(), keep); })
OPERATOR(aclnnLinalgVectorNorm, (In x, Number order, Ints dims, bool keep, int, Out out), { out = at::linalg_vector_norm(+x, *order, dims.or_all(), keep); })

// ---- products, in float32 inside
OPERATOR(aclnnMm, (In a, In b, Out out, int8_t), { out = at::matmul(+a, +b); })
OPERATOR(aclnnMatmul, (In a, In b, Out out, int8_t), { out = at::matmul(+a, +b); })
OPERATOR(aclnnBatchMatMul, (In a, In b, Out out, int8_t), { out = at::matmul(+a, +b); })
OPERATOR(aclnnAddmm, (In x, In a, In b, Number beta, Number alpha, Out out, int8_t), { out = at::add(at::mul(at::matmul(+a, +b), *alpha), +x, *beta); })

// ---- activations, normalisations, convolutions
OPERATOR(aclnnSoftmax, (In x, int64_t dim, Out out), { out = at::softmax(+x, dim); })
OPERATOR(aclnnSoftmaxBackward, (In grad, In y, int64_t dim, Out out), { out = at::_softmax_backward_data(+grad, +y, dim, at::kFloat); })
OPERATOR(aclnnLogSoftmax, (In x, int64_t dim, Out out), { out = at::log_softmax(+x, dim); })
OPERATOR(aclnnLogSoftmaxBackward, (In grad, In y, int64_t dim, Out out), { out = at::_log_softmax_backward_data(+grad, +y, dim, at::kFloat); })
OPERATOR(aclnnGelu, (In x, Out out), { out = at::gelu(+x); })
OPERATOR(aclnnGeluBackward, (In grad, In x, Out out), { out = at::gelu_backward(+grad, +x); })
OPERATOR(aclnnThresholdBackward, (In grad, In x, Number threshold, Out out), { out = at::threshold_backward(grad, x, threshold); })
OPERATOR(aclnnLayerNorm, (In x, Ints shape, In weight, In bias, double eps, Out out, Out mean, Out scale), {
  auto [normed, its_mean, its_scale] = at::native_layer_norm(+x, shape, weight.maybe(), bias.maybe(), eps);
  out = normed;
  mean = its_mean;
  scale = its_scale;
})
OPERATOR(aclnnLayerNormBackward, (In grad, In x, Ints shape, In mean, In scale, In weight, In bias, Flags mask, Out to_x, Out to_weight, Out to_bias), {
  set_asked(mask, at::native_layer_norm_backward(+grad, +x, shape, +mean, +scale, weight.maybe(), bias.maybe(), mask), to_x, to_weight, to_bias);
})
OPERATOR(aclnnBatchNorm, (In x, In weight, In bias, In mean, In variance, bool trains, double momentum, double eps, Out out, Out its_mean, Out its_scale), {
  auto results = at::native_batch_norm(+x, weight.maybe(), bias.maybe(), *mean, *variance, trains, momentum, eps);
  out = get<0>(results);
  if (!trains) return;
  its_mean = get<1>(results);
  its_scale = get<2>(results);
})
OPERATOR(aclnnBatchNormBackward, (In grad, In x, In weight, In mean, In variance, In its_mean, In its_scale, bool trains, double eps, Flags mask, Out to_x, Out to_weight, Out to_bias), {
  set_asked(mask, at::native_batch_norm_backward(+grad, +x, weight.maybe(), *mean, *variance, its_mean.maybe(), its_scale.maybe(), trains, eps, mask), to_x, to_weight, to_bias);
})
OPERATOR(aclnnRmsNorm, (In x, In gamma, double eps, Out out, Out scale), {
  auto its_scale = at::rsqrt(at::mean(at::square(+x), {-1}, true) + eps);
  out = +x * its_scale * +gamma;
  scale = its_scale;
})
OPERATOR(aclnnRmsNormGrad, (In grad, In x, In scale, In gamma, Out to_x, Out to_gamma), {
  auto normed = +x * *scale, scaled = +grad * +gamma;
  to_x = *scale * (scaled - normed * at::mean(scaled * normed, {-1}, true));
  to_gamma = (+grad * normed).flatten(0, -2).sum(0);
})
OPERATOR(aclnnConvolution, (In x, In weight, In bias, Ints stride, Ints padding, Ints dilation, bool transposed, Ints more, int64_t groups, Out out, int8_t), {
  out = at::convolution(+x, +weight, bias.maybe(), stride, padding, dilation, transposed, more, groups);
})
OPERATOR(aclnnConvolutionBackward, (In grad, In x, In weight, Ints bias, Ints stride, Ints padding, Ints dilation, bool transposed, Ints more, int64_t groups, Flags mask, int8_t, Out to_x, Out to_weight, Out to_bias), {
  set_asked(mask, at::convolution_backward(+grad, +x, +weight, bias.or_all(), stride, padding, dilation, transposed, more, groups, mask), to_x, to_weight, to_bias);
})
OPERATOR(aclnnMaxPool2dWithMask, (In x, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceils, Out out, Out), {
  out = get<0>(at::max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceils));  // its mask of bits is the device's own: left unwritten
})
OPERATOR(aclnnMaxPool2dWithMaskBackward, (In grad, In x, In, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceils, Out out), {
  auto places = get<1>(at::max_pool2d_with_indices(+x, kernel, stride, padding, dilation, ceils));
  out = at::max_pool2d_with_indices_backward((+grad).contiguous(), (+x).contiguous(), kernel, stride, padding, dilation, ceils, places);
})
OPERATOR(aclnnEmbedding, (In weight, In ids, Out out), { out = at::embedding(weight, ids); })
OPERATOR(aclnnEmbeddingDenseBackward, (In grad, In ids, int64_t count, int64_t padding, bool scales, Out out), {
  out = at::embedding_dense_backward(+grad, *ids, count, padding, scales);
})

// ---- losses
OPERATOR(aclnnMseLoss, (In x, In y, int64_t reduction, Out out), { out = at::mse_loss(+x, +y, reduction); })
OPERATOR(aclnnMseLossBackward, (In grad, In x, In y, int64_t reduction, Out out), { out = at::mse_loss_backward(+grad, +x, +y, reduction); })
OPERATOR(aclnnNLLLoss, (In x, In labels, In weight, int64_t reduction, int64_t ignored, Out out, Out total), {
  auto [loss, its_total] = at::nll_loss_forward(+x, (*labels).to(at::kLong), weight.maybe(), reduction, ignored);
  out = loss;
  total = its_total;
})
OPERATOR(aclnnNLLLossBackward, (In grad, In x, In labels, In weight, int64_t reduction, int64_t ignored, In total, Out out), {
  out = at::nll_loss_backward(+grad, +x, (*labels).to(at::kLong), weight.maybe(), reduction, ignored, +total);
})

// ---- fused attention, heads second (BNSD), without mask or dropout
#define ATTENTION In query, In key, In value
OPERATOR(aclnnFlashAttentionScore, (ATTENTION, In, In, In, In, Ints, double scale, double, int64_t, int64_t, int64_t, char*, int64_t, int64_t, Out most, Out sum, Out, Out out), {
  auto scores = at::matmul(+query, (+key).transpose(-1, -2)) * scale, top = at::amax(scores, {-1}, true), parts = at::exp(scores - top);
  auto whole = at::sum(parts, {-1}, true);
  most = top.expand({-1, -1, -1, 8});
  sum = whole.expand({-1, -1, -1, 8});
  out = at::matmul((parts / whole).to((*query).scalar_type()).to(at::kFloat), +value);
})
OPERATOR(aclnnFlashAttentionScoreGrad, (ATTENTION, In grad, In, In, In, In, In, In, In, In, Ints, double scale, double, int64_t, int64_t, int64_t, char*, int64_t, int64_t, Out to_query, Out to_key, Out to_value, Out), {
  auto weights = at::softmax(at::matmul(+query, (+key).transpose(-1, -2)) * scale, -1);
  auto to_weights = at::matmul(+grad, (+value).transpose(-1, -2));
  auto to_scores = weights * (to_weights - at::sum(to_weights * weights, {-1}, true)) * scale;
  to_query = at::matmul(to_scores, +key);
  to_key = at::matmul(to_scores.transpose(-1, -2), +query);
  to_value = at::matmul(weights.transpose(-1, -2), +grad);
})

// ---- optimizers: lists of tensors, a whole step, the scale of a loss
#define OF_EACH for (size_t i = 0; i < xs.size(); i++)
#define FOREACH_NUMBER(Name, function)                                                                                  \
  OPERATOR(aclnnForeach##Name##ScalarV2, (Ins xs, Number y, Outs out), { OF_EACH out[i] = function(*xs[i], *y); })     \
  OPERATOR(aclnnForeach##Name##ScalarList, (Ins xs, Numbers ys, Outs out), { OF_EACH out[i] = function(*xs[i], *ys[i]); })
FOREACH_NUMBER(Add, at::add)
FOREACH_NUMBER(Mul, at::mul)
FOREACH_NUMBER(Div, at::div)
OPERATOR(aclnnForeachAddListV2, (Ins xs, Ins ys, Number factor, Outs out), { OF_EACH out[i] = at::add(*xs[i], *ys[i], *factor); })
OPERATOR(aclnnForeachMulList, (Ins xs, Ins ys, Outs out), { OF_EACH out[i] = at::mul(*xs[i], *ys[i]); })
OPERATOR(aclnnForeachDivList, (Ins xs, Ins ys, Outs out), { OF_EACH out[i] = at::div(*xs[i], *ys[i]); })
OPERATOR(aclnnForeachSqrt, (Ins xs, Outs out), { OF_EACH out[i] = at::sqrt(xs[i]); })
OPERATOR(aclnnForeachNorm, (Ins xs, Number order, Outs out), { OF_EACH out[i] = at::linalg_vector_norm(+xs[i], *order); })
OPERATOR(aclnnForeachLerpScalar, (Ins xs, Ins ys, Number weight, Outs out), { OF_EACH out[i] = at::lerp(*xs[i], *ys[i], *weight); })
OPERATOR(aclnnForeachAddcmulScalarV2, (Ins xs, Ins as, Ins bs, Number factor, Outs out), { OF_EACH out[i] = at::addcmul(*xs[i], *as[i], *bs[i], *factor); })
OPERATOR(aclnnForeachAddcdivScalarList, (Ins xs, Ins as, Ins bs, Numbers factors, Outs out), { OF_EACH out[i] = at::addcdiv(*xs[i], *as[i], *bs[i], *factors[i]); })
OPERATOR(aclnnForeachNonFiniteCheckAndUnscale, (Outs gradients, Out overflow, In factor), {
  for (auto* each : gradients.handle->elements) {
    Out gradient{each};
    if (!at::isfinite(*gradient).all().item<bool>()) overflow = at::ones({1});
    gradient = +gradient * (*factor).reshape({});
  }
})
OPERATOR(aclnnAmpUpdateScale, (Out scale, Out steps, In overflow, double growth, double backoff, int64_t interval, Out, Out), {
  const bool shrinks = (*overflow).item<float>() != 0, grows = !shrinks && (*steps).item<int64_t>() + 1 == interval;
  if (shrinks) scale = *scale * backoff;
  if (grows) scale = *scale * growth;
  steps = shrinks || grows ? at::zeros_like(*steps) : *steps + 1;
})
OPERATOR(aclnnApplyAdamWV2, (Out weight, Out first, Out second, In, In grad, In steps, float rate, float beta1, float beta2, float decay, float eps, bool, bool), {
  const double step = (*steps).to(at::kDouble).item<double>() + 1;
  first = *first * beta1 + +grad * (1 - beta1);
  second = *second * beta2 + at::square(+grad) * (1 - beta2);
  auto away = *first / (1 - std::pow(double(beta1), step)) / (at::sqrt(*second / (1 - std::pow(double(beta2), step))) + eps);
  weight = *weight * (1 - rate * decay) - away * rate;
})

// ---- random numbers: this program's own, by the seed and offset that torch_npu gives
OPERATOR(aclnnInplaceUniform, (Out x, double low, double high, uint64_t seed, uint64_t offset), { x = at::empty((*x).sizes(), at::kFloat).uniform_(low, high, generator(seed, offset)); })
OPERATOR(aclnnInplaceNormal, (Out x, float mean, float deviation, int64_t seed, int64_t offset), { x = at::empty((*x).sizes(), at::kFloat).normal_(mean, deviation, generator(seed, offset)); })
OPERATOR(aclnnDropoutGenMaskV2, (Ints shape, double rate, int64_t seed, int64_t offset, int, Out mask), {
  auto kept = at::empty({c10::multiply_integers(at::IntArrayRef(shape))}, at::kFloat).uniform_(0, 1, generator(seed, offset)).ge(rate);
  auto bits = at::zeros_like(*mask);
  for (int64_t i = 0; i < kept.numel(); i++) bits.data_ptr<uint8_t>()[i / 8] |= kept.data_ptr<bool>()[i] << i % 8;
  mask = bits;
})
OPERATOR(aclnnDropoutDoMask, (In x, In mask, double rate, Out out), {
  auto bits = (*mask).contiguous();
  auto kept = at::empty({(*x).numel()}, at::kFloat);
  for (int64_t i = 0; i < kept.numel(); i++) kept.data_ptr<float>()[i] = bits.data_ptr<uint8_t>()[i / 8] >> i % 8 & 1;
  out = +x * kept.view((*x).sizes()) / (1 - rate);
})
