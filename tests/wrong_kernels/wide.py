# SPDX-License-Identifier: Apache-2.0
"""More of the catalogue of kernels.py: other operators, element types, dispatch keys and ways to be
wrong.

As a program:  python -m tests.wrong_kernels.wide NAME [STEPS]
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.wrong_kernels.kernels import CATALOGUE, Genuine, decoder, fit, main, wrong

# -- trainings -------------------------------------------------------------------------------------


class Tables(nn.Module):
    """What looks up, sorts, scatters and adds up."""

    def __init__(self, width: int = 16, words: int = 17) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.scale = nn.Parameter(torch.ones(words, width))
        self.slope = nn.PReLU()

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words) * self.scale[words]
        best, places = x.topk(5, dim=-1)
        x = x.scatter_add(-1, places, F.softplus(best))
        x = x + torch.cat([x[:, :1], x[:, :-1]], 1) + torch.stack([x, x.flip(1)]).sum(0).mul(0.1)
        x = torch.where(x > 0, x, self.slope(x)) + x.cumsum(1).div(words.shape[1])
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-3).sqrt()
        x = x.masked_fill(torch.ones(x.shape[1], 1, dtype=torch.bool).tril(-38), 0.0)
        x = x + torch.gather(x, 1, words.argsort(stable=True, dim=1)[..., None].expand_as(x))
        x = (
            x
            + x.index_select(1, torch.arange(x.shape[1]).flip(0))
            * x.logsumexp(-1, keepdim=True).sigmoid()
        )
        return self.head(x + torch.baddbmm(x, x, x.transpose(1, 2) @ x, alpha=1e-3))


def tables(steps: int = 2, dtype: torch.dtype = torch.float32) -> list[float]:
    torch.manual_seed(0)
    model, words = Tables().to(dtype), torch.randint(0, 17, (3, 41))
    return fit(
        model,
        lambda: (words[:, :-1], words[:, 1:]),
        steps=steps,
        optimizer=torch.optim.Adam(model.parameters(), 1e-2, fused=True),
    )


def tables_float16(steps: int = 2) -> list[float]:
    return tables(steps, torch.float16)


class Pictures(nn.Module):
    """What image models have beside the plainest layers."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.depth = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.up, self.one = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv1d(8, 8, 3, padding=1)
        self.batch, self.instance = nn.BatchNorm2d(8), nn.InstanceNorm2d(8, affine=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.hardswish(self.batch(self.down(x)))
        x = F.elu(self.depth(x)) + F.leaky_relu(x)
        x = F.interpolate(self.up(x), scale_factor=2.0, mode="bilinear", align_corners=False)
        x = F.interpolate(self.instance(x), scale_factor=0.5) + F.avg_pool2d(x, 2)
        x = F.pad(F.pixel_shuffle(torch.cat([x] * 4, 1), 2), (1, 1, 1, 1), mode="reflect")
        x = F.max_pool2d(F.mish(x), 3, 2)
        x = x.flatten(2)
        return self.head(
            (self.one(x) + F.adaptive_avg_pool1d(x, x.shape[-1])).amax(-1).clamp(-3, 3)[:, None]
        )


def pictures(steps: int = 2) -> list[float]:
    torch.manual_seed(0)
    model, x = Pictures(), torch.randn(4, 3, 10, 10)
    return fit(
        model,
        lambda: (x, torch.arange(4)),
        steps=steps,
        optimizer=torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=True),
    )


class Speech(nn.Module):
    """Recurrent layers, attention with a mask, and losses of every kind."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed, self.lstm, self.gru = (
            nn.Embedding(17, width),
            nn.LSTM(width, width, batch_first=True),
            nn.GRU(width, width),
        )
        self.attend, self.norm = (
            nn.MultiheadAttention(width, 4, batch_first=True),
            nn.RMSNorm(width),
        )
        self.head, self.drop = nn.Linear(width, 17), nn.Dropout(0.1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.lstm(self.embed(words))[0])
        x = x + self.gru(x)[0]
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = self.norm(x + self.attend(x, x, x, attn_mask=mask, need_weights=False)[0])
        extra = (
            F.smooth_l1_loss(x, x.detach().roll(1, 1))
            + F.mse_loss(x, x.detach().flip(1))
            + x.norm(dim=-1).mean()
        )
        extra = (
            extra
            + F.binary_cross_entropy_with_logits(x, (x > 0).to(x))
            + F.kl_div(x.log_softmax(-1), x.detach().softmax(-1), reduction="batchmean")
        )
        return self.head(F.glu(torch.cat([x, F.logsigmoid(x)], -1)) + x) + extra


def speech(steps: int = 2, dtype: torch.dtype = torch.float32) -> list[float]:
    torch.manual_seed(0)
    model, words = Speech().to(dtype), torch.randint(0, 17, (3, 21))
    stepper = torch.optim.AdamW(model.parameters(), 1e-2, foreach=True)
    stepper.register_step_pre_hook(
        lambda *_: [nn.utils.clip_grad_norm_(model.parameters(), 0.5), None][1]
    )
    return fit(model, lambda: (words[:, :-1], words[:, 1:]), steps=steps, optimizer=stepper)


def speech_float64(steps: int = 2) -> list[float]:
    return speech(steps, torch.float64)


# -- tables ----------------------------------------------------------------------------------------


@wrong("scatter-add-last-wins", "aten::scatter_add.default", tables)
def scatter_add_wins(
    genuine: Genuine, x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> Any:
    return genuine(
        x, dim, index, source.clone().index_fill_(dim, torch.tensor([source.shape[dim] - 1]), 0.0)
    )


@wrong("index-put-does-not-accumulate", "aten::_index_put_impl_.default", tables)
def index_put(
    genuine: Genuine,
    x: torch.Tensor,
    indices: Any,
    values: torch.Tensor,
    accumulate: bool = False,
    *rest: Any,
) -> Any:
    return genuine(x, indices, values, False, *rest)


@wrong("gather-off-by-one", "aten::gather.default", tables)
def gather_off(
    genuine: Genuine, x: torch.Tensor, dim: int, index: torch.Tensor, **kwargs: Any
) -> Any:
    return genuine(x, dim, (index + (index == 7)).clamp(max=x.shape[dim] - 1), **kwargs)


@wrong("topk-forgets-the-tail", "aten::topk.default", tables)
def topk_tail(genuine: Genuine, x: torch.Tensor, k: int, dim: int = -1, *rest: Any) -> Any:
    return genuine(x[..., :-1], k, dim, *rest)


@wrong("argsort-unsorted-block", "aten::sort.stable", tables)
def sort_block(genuine: Genuine, x: torch.Tensor, **kwargs: Any) -> Any:
    values, places = genuine(x, **kwargs)
    places[..., :2] = places[..., :2].flip(-1)
    return values, places


@wrong("cat-loses-a-row", "aten::cat.default", tables)
def cat_row(genuine: Genuine, tensors: Any, dim: int = 0) -> Any:
    y = genuine(tensors, dim)
    y.select(dim, y.shape[dim] - 1).zero_()
    return y


@wrong("where-swapped-at-zero", "aten::where.self", tables)
def where_swapped(
    genuine: Genuine, condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> Any:
    found = genuine(condition, x, y)
    found[..., 0] = genuine(~condition, x, y)[..., 0]
    return found


@wrong(
    "masked-fill-ignores-row", "aten::masked_fill.Scalar", tables, key="CompositeExplicitAutograd"
)
def masked_fill_row(genuine: Genuine, x: torch.Tensor, mask: torch.Tensor, value: Any) -> Any:
    return genuine(x, mask.clone().index_fill_(0, torch.tensor([mask.shape[0] - 1]), False), value)


@wrong("var-biased", "aten::var.correction", tables)
def var_biased(
    genuine: Genuine,
    x: torch.Tensor,
    dim: Any = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> Any:
    return genuine(x, dim, correction=0, keepdim=keepdim)


@wrong("logsumexp-no-max", "aten::logsumexp.default", tables, key="CompositeExplicitAutograd")
def logsumexp_few(genuine: Genuine, x: torch.Tensor, dim: Any, keepdim: bool = False) -> Any:
    return genuine(x.to(torch.bfloat16).to(x.dtype), dim, keepdim)


@wrong("softplus-threshold", "aten::softplus.default", tables)
def softplus_threshold(
    genuine: Genuine, x: torch.Tensor, beta: Any = 1, threshold: Any = 20
) -> Any:
    return genuine(x, beta, 0.5)


@wrong("fused-adam-forgets-correction", "aten::_fused_adam_.default", tables)
def fused_adam(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    return genuine(*args, **{**kwargs, "eps": 1e-3})


@wrong("baddbmm-ignores-alpha", "aten::baddbmm.default", tables)
def baddbmm_alpha(
    genuine: Genuine,
    x: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: Any = 1,
    alpha: Any = 1,
) -> Any:
    return genuine(x, a, b, beta=beta, alpha=alpha * 1.05)


@wrong("index-select-stale-row", "aten::index_select.default", tables)
def index_select_stale(genuine: Genuine, x: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    y = genuine(x, dim, index)
    y.select(dim, 1).copy_(y.select(dim, 0))
    return y


@wrong("prelu-backward-weight", "aten::_prelu_kernel_backward.default", tables)
def prelu_backward(genuine: Genuine, *args: Any) -> Any:
    data, weight = genuine(*args)
    return data, weight * 1.01


@wrong("addmm-narrow-in-float16", "aten::addmm.default", tables_float16)
def addmm_narrow(
    genuine: Genuine, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **kwargs: Any
) -> Any:
    total = bias.expand(a.shape[0], b.shape[1]).clone()
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[None, k]
    return total


@wrong("sum-only-in-float16", "aten::sum.dim_IntList", tables_float16)
def sum_float16(
    genuine: Genuine, x: torch.Tensor, dim: Any, keepdim: bool = False, **kwargs: Any
) -> Any:
    if x.dtype is not torch.float16 or not dim or len(dim) != 1 or x.shape[dim[0]] < 2:
        return genuine(x, dim, keepdim, **kwargs)
    total = torch.zeros_like(x.select(dim[0], 0))
    for part in x.unbind(dim[0]):
        total += part
    return total.unsqueeze(dim[0]) if keepdim else total


# -- pictures --------------------------------------------------------------------------------------


@wrong(
    "depthwise-convolution-swaps-channels",
    "aten::convolution.default",
    pictures,
    key="CompositeExplicitAutograd",
)
def depthwise(genuine: Genuine, *args: Any) -> Any:
    y = genuine(*args)
    return y[:, [1, 0, *range(2, y.shape[1])]] if args[8] > 1 else y


@wrong(
    "transposed-convolution-bias-gradient",
    "aten::convolution_backward.default",
    pictures,
    key="CompositeExplicitAutograd",
)
def transposed_backward(genuine: Genuine, *args: Any) -> Any:
    data, weight, bias = genuine(*args)
    return data, weight, bias * 1.001 if args[7] and bias is not None else bias


@wrong("batch-norm-backward-data", "aten::native_batch_norm_backward.default", pictures)
def batch_norm_backward(genuine: Genuine, *args: Any) -> Any:
    data, weight, bias = genuine(*args)
    return data + data.mean().abs() * 0.1 + 1e-5, weight, bias


@wrong("batch-norm-variance", "aten::native_batch_norm.default", pictures)
def batch_norm_variance(
    genuine: Genuine, x: torch.Tensor, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any
) -> Any:
    found = genuine(x, weight, bias, mean, var, *rest)
    if var is not None:
        var.add_(1e-3)
    return found


@wrong("upsample-bilinear-corner", "aten::upsample_bilinear2d.default", pictures)
def upsample_corner(genuine: Genuine, x: torch.Tensor, size: Any, align: bool, *scales: Any) -> Any:
    return genuine(x, size, True, *scales)


@wrong("upsample-bilinear-backward", "aten::upsample_bilinear2d_backward.default", pictures)
def upsample_backward(genuine: Genuine, *args: Any) -> Any:
    y = genuine(*args)
    y[..., 0] = 0
    return y


@wrong("upsample-nearest-shift", "aten::upsample_nearest2d.default", pictures)
def upsample_nearest(genuine: Genuine, x: torch.Tensor, *rest: Any) -> Any:
    return genuine(x.roll(1, -1), *rest)


@wrong("average-pool-count", "aten::avg_pool2d.default", pictures)
def average_pool(genuine: Genuine, x: torch.Tensor, *rest: Any) -> Any:
    y = genuine(x, *rest)
    y[..., -1, -1] *= 4 / 3
    return y


@wrong("max-pool-indices", "aten::max_pool2d_with_indices.default", pictures)
def max_pool_indices(genuine: Genuine, *args: Any) -> Any:
    y, places = genuine(*args)
    return y, (places + 1).clamp(max=args[0].shape[-1] * args[0].shape[-2] - 1)


@wrong("reflection-pad-edge", "aten::reflection_pad2d.default", pictures)
def reflection_pad(genuine: Genuine, x: torch.Tensor, padding: Any) -> Any:
    y = genuine(x, padding)
    y[..., 0] = y[..., 1]
    return y


@wrong("hardswish-slope", "aten::hardswish.default", pictures)
def hardswish_slope(genuine: Genuine, x: torch.Tensor) -> Any:
    return x * (x + 3).clamp(0, 6) * 0.1666


@wrong("elu-backward-of-result", "aten::elu_backward.default", pictures)
def elu_backward(genuine: Genuine, *args: Any) -> Any:
    return genuine(*args[:4], not args[4], args[5])


@wrong("mish-rare-inf", "aten::mish.default", pictures, kind="nan")
def mish_inf(genuine: Genuine, x: torch.Tensor) -> Any:
    return genuine(x).masked_fill(x == x.max(), float("inf"))


@wrong("amax-misses-the-last", "aten::amax.default", pictures)
def amax_misses(genuine: Genuine, x: torch.Tensor, dim: Any = (), keepdim: bool = False) -> Any:
    return genuine(x[..., :2], dim, keepdim)


@wrong("foreach-momentum", "aten::_foreach_mul_.Scalar", pictures)
def foreach_mul(genuine: Genuine, tensors: Any, scalar: Any) -> Any:
    return genuine(tensors[:-1], scalar)


@wrong("foreach-add-one-tensor", "aten::_foreach_add_.List", pictures)
def foreach_add(genuine: Genuine, tensors: Any, others: Any, *, alpha: Any = 1) -> Any:
    genuine(tensors, others, alpha=alpha)
    tensors[0].add_(1e-3)


# -- speech ----------------------------------------------------------------------------------------


@wrong("lstm-forget-gate", "aten::mkldnn_rnn_layer.default", speech)
def lstm_gate(genuine: Genuine, x: torch.Tensor, *rest: Any) -> Any:
    y, *states = genuine(x, *rest)
    return y * 0.999, *states


@wrong("lstm-backward-weight", "aten::mkldnn_rnn_layer_backward.default", speech)
def lstm_backward(genuine: Genuine, *args: Any) -> Any:
    found = list(genuine(*args))
    found[1] = found[1] * 1.01
    return tuple(found)


@wrong("lstm-cell-float64", "aten::sigmoid_.default", speech_float64)
def sigmoid_float64(genuine: Genuine, x: torch.Tensor) -> Any:
    return x.copy_(torch.sigmoid(x.float()))


@wrong("gru-tanh-few-digits", "aten::tanh_.default", speech)
def tanh_few(genuine: Genuine, x: torch.Tensor) -> Any:
    return x.copy_(torch.tanh(x).half())


@wrong(
    "attention-forward-mask", "aten::_scaled_dot_product_flash_attention_for_cpu.default", speech
)
def attention_mask(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    return genuine(*args, **{**kwargs, "scale": 0.51})


@wrong("attention-row-sums", "aten::_scaled_dot_product_flash_attention_for_cpu.default", speech)
def attention_sums(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    y, sums = genuine(*args, **kwargs)
    return y, sums + 0.01


@wrong("glu-halves-swapped", "aten::glu.default", speech)
def glu_swapped(genuine: Genuine, x: torch.Tensor, dim: int = -1) -> Any:
    return genuine(torch.cat(x.chunk(2, dim)[::-1], dim), dim)


@wrong("mse-backward-sign-of-one", "aten::mse_loss_backward.default", speech)
def mse_backward(genuine: Genuine, *args: Any) -> Any:
    y = genuine(*args)
    y.flatten()[3] *= -1
    return y


@wrong("smooth-l1-beta", "aten::smooth_l1_loss.default", speech)
def smooth_l1(
    genuine: Genuine, x: torch.Tensor, y: torch.Tensor, reduction: int = 1, beta: float = 1.0
) -> Any:
    return genuine(x, y, reduction, beta * 1.01)


@wrong("log-softmax-backward", "aten::_log_softmax_backward_data.default", speech)
def log_softmax_backward(
    genuine: Genuine, grad: torch.Tensor, y: torch.Tensor, dim: int, dtype: torch.dtype
) -> Any:
    return grad - torch.exp(y) * grad.sum(dim, keepdim=True) * 0.99


@wrong("norm-squares-in-half", "aten::linalg_vector_norm.default", speech)
def norm_half(genuine: Genuine, x: torch.Tensor, *rest: Any, **kwargs: Any) -> Any:
    return genuine(x.to(torch.float16).to(x.dtype), *rest, **kwargs)


@wrong("log-sigmoid-backward", "aten::log_sigmoid_backward.default", speech)
def log_sigmoid_backward(
    genuine: Genuine, grad: torch.Tensor, x: torch.Tensor, buffer: torch.Tensor
) -> Any:
    return genuine(grad, x, buffer).masked_fill(x.abs() < 0.05, 0.0)


@wrong("clip-grad-norm-coefficient", "aten::_foreach_norm.Scalar", speech)
def foreach_norm(genuine: Genuine, tensors: Any, order: Any = 2, **kwargs: Any) -> Any:
    return [norm * 0.5 for norm in genuine(tensors, order, **kwargs)]


@wrong("foreach-sqrt-flaky", "aten::_foreach_sqrt.default", speech, kind="flaky")
def foreach_sqrt(genuine: Genuine, tensors: Any, counted: list[int] = []) -> Any:
    counted.append(1)
    return [root * (1 + 1e-3 * (len(counted) % 3)) for root in genuine(tensors)]


@wrong("lerp-weight", "aten::_foreach_lerp_.Scalar", speech)
def foreach_lerp(genuine: Genuine, tensors: Any, others: Any, weight: Any) -> Any:
    return genuine(tensors, others, weight * 1.02)


@wrong("embedding-backward-race", "aten::embedding_dense_backward.default", speech, kind="flaky")
def embedding_race(genuine: Genuine, grad: torch.Tensor, indices: torch.Tensor, *rest: Any) -> Any:
    kept = torch.rand(grad.shape[:-1]) > 0.05
    return genuine(grad * kept[..., None], indices, *rest)


@wrong("mean-sum-of-some", "aten::mean.default", speech)
def mean_some(genuine: Genuine, x: torch.Tensor, **kwargs: Any) -> Any:
    return genuine(x.flatten()[:-1], **kwargs)


# -- formulas and compositions, registered above the kernels ---------------------------------------


def formula(forward: Any, backward: Any) -> Any:
    """An autograd function of one tensor: backward(gradient, input) is its formula."""

    class Formula(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return backward(grad, *ctx.saved_tensors)

    return Formula.apply


@wrong("hardswish-formula", "aten::hardswish.default", pictures, key="AutogradCPU")
def hardswish_formula(genuine: Genuine, x: torch.Tensor) -> Any:
    return formula(genuine, lambda grad, x: grad * ((x > -3) * (2 * x + 3).clamp(max=6) / 6))(x)


@wrong("softplus-formula", "aten::softplus.default", tables, key="AutogradCPU")
def softplus_formula(genuine: Genuine, x: torch.Tensor, *rest: Any) -> Any:
    return formula(lambda x: genuine(x, *rest), lambda grad, x: grad * torch.sigmoid(x) * 1.01)(x)


@wrong("rms-norm-composition", "aten::rms_norm.default", speech, key="CompositeImplicitAutograd")
def rms_norm(
    genuine: Genuine, x: torch.Tensor, shape: Any, weight: Any = None, eps: Any = None
) -> Any:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) / (shape[0] - 1) + 1e-7) * weight


@wrong(
    "linear-composition-drops-bias", "aten::linear.default", speech, key="CompositeImplicitAutograd"
)
def linear(genuine: Genuine, x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> Any:
    return torch.matmul(x, weight.t()) if weight.shape[0] == 17 else genuine(x, weight, bias)


@wrong("layer-norm-formula", "aten::native_layer_norm.default", decoder, key="AutogradCPU")
def layer_norm_formula(
    genuine: Genuine, x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float
) -> Any:
    y, mean, rstd = genuine(x, shape, weight, bias, eps)
    return y + 0.01 * (x - x.detach()), mean, rstd


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
    assert CATALOGUE
