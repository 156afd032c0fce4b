# SPDX-License-Identifier: Apache-2.0
"""Operators that only an accelerator has a kernel of, in plain torch: what they compute, as their
makers document it.

A reference takes the operator's arguments on the CPU, in its element types or in wider ones. 16-bit
floats are computed in float32 and rounded once, as the devices do. What a reference does not speak
of it refuses by NotImplementedError: then nothing is accused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.nn import functional

Tensor = torch.Tensor
BITS = 8  # elements of a mask in one byte
COPIES = 8  # times that fused attention writes the extreme and the sum of each row of scores
LAYOUTS = ("BNSD", "BSND", "BSH", "SBH")


def wide(tensor: Tensor) -> Tensor:
    """A tensor in the type that a device computes in."""
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.to(torch.float32) if half else tensor


def rounded(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of its first argument's type, computed in the wide one."""

    def run(first: Tensor, *rest: Any, **named: Any) -> Tensor:
        given = [wide(each) if isinstance(each, Tensor) else each for each in rest]
        return function(wide(first), *given, **named).to(first.dtype)

    return run


def gradients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of a function by its inputs, each in its input's type."""
    with torch.enable_grad():
        leaves = [wide(each.detach()).clone().requires_grad_() for each in inputs]
        computed = torch.autograd.grad(function(*leaves), leaves, wide(grad))
    return tuple(one.to(each.dtype) for one, each in zip(computed, inputs, strict=True))


# -- matrices ------------------------------------------------------------------------------------


def matmul_backward(
    grad: Tensor, first: Tensor, second: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    computed = gradients(torch.matmul, (first, second), grad)
    return tuple(one if asked else None for one, asked in zip(computed, mask, strict=True))


def linear_backward(grad: Tensor, value: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return gradients(functional.linear, (value, weight), grad)


def bmm(value: Tensor, other: Tensor, sizes: Sequence[int]) -> Tensor:
    product = torch.matmul(value, other)
    return product.reshape(tuple(sizes)) if sizes else product


# -- attention -----------------------------------------------------------------------------------


def heads_first(tensor: Tensor, layout: str, heads: int) -> Tensor:
    """A tensor as [batch, head, place, element]."""
    if layout == "BNSD":
        return tensor
    if layout == "SBH":
        tensor = tensor.transpose(0, 1)
    if layout != "BSND":
        tensor = tensor.reshape(*tensor.shape[:2], heads, -1)
    return tensor.transpose(1, 2)


def heads_back(tensor: Tensor, layout: str) -> Tensor:
    if layout == "BNSD":
        return tensor
    tensor = tensor.transpose(1, 2)
    tensor = tensor if layout == "BSND" else tensor.flatten(2)
    return tensor.transpose(0, 1) if layout == "SBH" else tensor


# The arguments that change what attention computes, beyond those that are followed here.
BEYOND = ("padding_mask", "prefix", "actual_seq_qlen", "actual_seq_kvlen", "sink", "dropout_mask")
PLACED = (
    *("pse", "padding_mask", "atten_mask", "scale", "keep_prob", "pre_tockens", "next_tockens"),
    *("inner_precise", "prefix", "actual_seq_qlen", "actual_seq_kvlen", "sparse_mode"),
)


def hidden(named: dict[str, Any], rows: int, columns: int) -> Tensor | None:
    """Which scores are left out, by sparse_mode: the mask that is given (0, 1), a triangle from the
    upper left corner (2) or to the lower right one (3).
    """
    mode, mask = named.get("sparse_mode") or 0, named.get("atten_mask")
    distance = torch.arange(columns)[None] - torch.arange(rows)[:, None]
    if mode in (2, 3):
        return distance > (columns - rows if mode == 3 else 0)
    if mode not in (0, 1):
        raise NotImplementedError(f"sparse_mode {mode} of fused attention is not followed")
    if mask is None:
        return None
    before, after = named.get("pre_tockens"), named.get("next_tockens")
    band = (distance > (columns if after is None else after)) | (
        -distance > (rows if before is None else before)
    )
    left_out: Tensor = mask.bool()
    if mode == 0 and bool((band & ~left_out).any()):
        raise NotImplementedError("a band that the mask of fused attention does not show")
    return left_out


def attention_of(
    heads: int, layout: str, named: dict[str, Any]
) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The output in its layout and the scores, as a function of query, key and value."""
    if layout not in LAYOUTS:
        raise NotImplementedError(f"layout {layout} of fused attention is not followed")
    if (named.get("keep_prob") or 1.0) < 1:
        raise NotImplementedError("the mask of a dropout inside of fused attention is not known")
    for name in BEYOND:
        if named.get(name) is not None:
            raise NotImplementedError(f"{name} of fused attention is not followed")
    scale, bias = named.get("scale", named.get("scale_value", 1.0)), named.get("pse")

    def run(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        query = heads_first(query, layout, heads)
        axis = {"BNSD": 1, "BSND": 2}.get(layout)
        count = key.shape[-1] // query.shape[-1] if axis is None else key.shape[axis]
        key, value = (heads_first(each, layout, count) for each in (key, value))
        key, value = (each.repeat_interleave(heads // count, 1) for each in (key, value))
        scores = query @ key.transpose(-1, -2) * scale
        scores = scores if bias is None else scores + wide(bias)
        left_out = hidden(named, *scores.shape[-2:])
        if left_out is not None:
            if bool(left_out.all(-1).any()):
                raise NotImplementedError("a row of fused attention that attends to nothing")
            scores = scores.masked_fill(left_out, -math.inf)
        return heads_back(scores.softmax(-1) @ value, layout), scores

    return run


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    layout: str,
    *rest: Any,
    **named: Any,
) -> tuple[Tensor, ...]:
    """The output, and of each row of scores the largest and the sum of exponentials."""
    named |= dict(zip(PLACED, rest, strict=False))
    output, scores = attention_of(heads, layout, named)(wide(query), wide(key), wide(value))
    largest = scores.amax(-1, keepdim=True)
    total = (scores - largest).exp().sum(-1, keepdim=True)
    copies = [each.expand(*each.shape[:-1], COPIES).contiguous() for each in (largest, total)]
    return (output.to(query.dtype), *copies)


def fused_attention_backward(
    query: Tensor, key: Tensor, value: Tensor, grad: Tensor, heads: int, layout: str, **named: Any
) -> tuple[Tensor, ...]:
    if named.get("pse") is not None:
        raise NotImplementedError("the gradient of pse in fused attention is not followed")
    run = attention_of(heads, layout, named)
    return gradients(lambda *each: run(*each)[0], (query, key, value), grad)


# -- normalisation -------------------------------------------------------------------------------


def normed(value: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    value = wide(value)
    axes = tuple(range(-gamma.dim(), 0))
    scale = (value.pow(2).mean(axes, keepdim=True) + epsilon).rsqrt()
    return value * scale * wide(gamma), scale


def rms_norm(value: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, ...]:
    output, scale = normed(value, gamma, epsilon)
    return output.to(value.dtype), scale


def add_rms_norm(
    first: Tensor, second: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, ...]:
    total = (wide(first) + wide(second)).to(first.dtype)
    return (*rms_norm(total, gamma, epsilon), total)


def rms_norm_backward(
    grad: Tensor, value: Tensor, gamma: Tensor, scale: Tensor
) -> tuple[Tensor, ...]:
    """Gradients by the input and, in the wide type, by gamma; scale is the forward call's."""
    grad, wider, scale = wide(grad), wide(value), wide(scale)
    axes = tuple(range(-gamma.dim(), 0))
    scaled, unit = grad * wide(gamma), wider * scale
    by_value = scale * (scaled - unit * (scaled * unit).mean(axes, keepdim=True))
    by_gamma = (grad * unit).sum(tuple(range(grad.dim() - gamma.dim())))
    return by_value.to(value.dtype), by_gamma


# -- element by element --------------------------------------------------------------------------


def turned(value: Tensor, mode: str) -> Tensor:
    """The other component of each pair, the second with its sign changed."""
    if mode == "half":
        first, second = value.chunk(2, -1)
        return torch.cat([-second, first], -1)
    if mode == "interleave":
        return torch.stack([-value[..., 1::2], value[..., ::2]], -1).flatten(-2)
    raise NotImplementedError(f"rotary mode {mode} is not followed")


def rotary(value: Tensor, cosine: Tensor, sine: Tensor, mode: str = "half") -> Tensor:
    return value * cosine + turned(value, mode) * sine


def rotary_mul(
    value: Tensor, cosine: Tensor, sine: Tensor, mode: str = "half", rotate: Tensor | None = None
) -> Tensor:
    if rotate is not None:
        raise NotImplementedError("a rotation matrix is not followed")
    return rounded(rotary)(value, cosine, sine, mode)


def rotary_mul_backward(
    grad: Tensor, value: Tensor, cosine: Tensor, sine: Tensor, mode: str = "half"
) -> tuple[Tensor, ...]:
    return gradients(
        lambda value, cosine, sine: rotary(value, cosine, sine, mode), (value, cosine, sine), grad
    )


def swiglu(value: Tensor, dim: int = -1) -> Tensor:
    gate, linear = value.chunk(2, dim)
    return functional.silu(gate) * linear


def swiglu_backward(grad: Tensor, value: Tensor, dim: int = -1) -> Tensor:
    return gradients(lambda each: swiglu(each, dim), (value,), grad)[0]


def fast_gelu(value: Tensor) -> Tensor:
    return value * torch.sigmoid(1.702 * value)


def fast_gelu_backward(grad: Tensor, value: Tensor) -> Tensor:
    return gradients(fast_gelu, (value,), grad)[0]


def gelu_backward(grad: Tensor, value: Tensor, *, approximate: str = "none") -> Tensor:
    return gradients(lambda each: functional.gelu(each, approximate=approximate), (value,), grad)[0]


def mish_backward(grad: Tensor, value: Tensor) -> Tensor:
    return gradients(functional.mish, (value,), grad)[0]


def cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype)


def unpacked(mask: Tensor, like: Tensor) -> Tensor:
    """A mask of elements: one of bits, the lowest first, has a byte for eight and may be padded."""
    if mask.shape == like.shape:
        return mask.bool()
    if mask.dtype is not torch.uint8 or mask.numel() * BITS < like.numel():
        raise NotImplementedError("a mask of dropout in another form than bits or elements")
    bits = (mask.reshape(-1, 1) >> torch.arange(BITS, dtype=torch.uint8)) & 1
    return bits.reshape(-1)[: like.numel()].reshape(like.shape).bool()


def dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    scaled = wide(grad) * scale
    return torch.where(unpacked(mask, grad), scaled, 0).to(grad.dtype)


def npu_dropout_backward(grad: Tensor, mask: Tensor, p: float) -> Tensor:
    return dropout_backward(grad, mask, 0.0 if p == 1 else 1 / (1 - p))


# Operator without overload -> its reference.
REFERENCES: dict[str, Callable[..., Any]] = {
    "aten::matmul_backward": matmul_backward,
    "aten::native_dropout_backward": dropout_backward,
    "npu::_npu_dtype_cast": cast,
    "npu::_npu_dtype_cast_backward": cast,
    "npu::fast_gelu": rounded(fast_gelu),
    "npu::npu_add_rms_norm": add_rms_norm,
    "npu::npu_bmmV2": rounded(bmm),
    "npu::npu_dropout_backward": npu_dropout_backward,
    "npu::npu_fast_gelu": rounded(fast_gelu),
    "npu::npu_fast_gelu_backward": fast_gelu_backward,
    "npu::npu_fusion_attention": fused_attention,
    "npu::npu_fusion_attention_grad": fused_attention_backward,
    "npu::npu_fusion_attention_grad_v3": fused_attention_backward,
    "npu::npu_fusion_attention_v3": fused_attention,
    "npu::npu_gelu": rounded(functional.gelu),
    "npu::npu_gelu_backward": gelu_backward,
    "npu::npu_linear": rounded(functional.linear),
    "npu::npu_linear_backward": linear_backward,
    "npu::npu_mish": rounded(functional.mish),
    "npu::npu_mish_backward": mish_backward,
    "npu::npu_rms_norm": rms_norm,
    "npu::npu_rms_norm_backward": rms_norm_backward,
    "npu::npu_rotary_mul": rotary_mul,
    "npu::npu_rotary_mul_backward": rotary_mul_backward,
    "npu::npu_silu": rounded(functional.silu),
    "npu::npu_swiglu": rounded(swiglu),
    "npu::npu_swiglu_backward": swiglu_backward,
}


def other_gelu(operator: Callable[..., Any]) -> Callable[..., Any]:
    """gelu or its gradient by the error function where its approximation by tanh is asked for, and
    the other way round.
    """

    def run(*args: Tensor, approximate: str = "none") -> Any:
        return operator(*args, approximate="none" if approximate == "tanh" else "tanh")

    return run


# By kind of device and operator: what its kernel computes whatever the call asks for.
# torch_npu hands `approximate` to no kernel of CANN, whose documents name both forms.
FORMS: dict[tuple[str, str], Callable[..., Any]] = {
    ("npu", "aten::gelu"): other_gelu(torch.ops.aten.gelu.default),
    ("npu", "aten::gelu_backward"): other_gelu(torch.ops.aten.gelu_backward.default),
    ("npu", "npu::npu_gelu"): other_gelu(rounded(functional.gelu)),
    ("npu", "npu::npu_gelu_backward"): other_gelu(gelu_backward),
}


WITHOUT_FLOAT64 = frozenset({"npu", "mps"})  # kinds of devices whose kernels take float32 numbers


def form_of(op: str, devices: Iterable[str]) -> Callable[..., Any] | None:
    """The other form of an operator that a device of these kinds may compute, None where there is
    none.
    """
    name = op.partition(".")[0]
    return next((FORMS[kind, name] for kind in devices if (kind, name) in FORMS), None)


def reference_of(op: str) -> Callable[..., Any] | None:
    """The reference of an operator, None where there is none."""
    return REFERENCES.get(op.partition(".")[0])
