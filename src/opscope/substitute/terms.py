# SPDX-License-Identifier: Apache-2.0
"""How the elements of an operator's result come about: how many terms each has, and how large these are together."""

from __future__ import annotations

import math

import torch

from opscope.judge.replayed import Terms
from opscope.substitute.arguments import Conditions, values_of
from opscope.substitute.layout import GRADIENT
from opscope.substitute.perform import Bound, Performed, outputs_of

# Sums of products of inputs: on absolute values they give the sum of the magnitudes of their terms.
LINEAR = frozenset({
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "matmul", "linear", "convolution", "_convolution",
    "mkldnn_convolution", "cudnn_convolution", "convolution_overrideable", "_slow_conv2d_forward", "sum", "mean", "cumsum", "index_add",
    "index_add_", "scatter_add", "scatter_add_", "embedding_dense_backward", "add", "add_", "sub", "sub_", "rsub", "addcmul", "addcmul_",
    "avg_pool2d", "avg_pool2d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "addr", "_foreach_add_",
    "upsample_bilinear2d", "upsample_bilinear2d_backward", "trace", "mkldnn_linear", "lerp", "lerp_", "_addmm_activation",
})  # fmt: skip
CONTRACTED = frozenset({"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "vdot", "matmul", "linear"})
# They move, choose or round once: every right kernel gives the same bits.
EXACT = frozenset({
    "_to_copy", "copy_", "clone", "neg", "neg_", "abs", "relu", "relu_", "maximum", "minimum", "where", "masked_fill", "masked_fill_",
    "index", "gather", "index_select", "embedding", "cat", "stack", "max", "min", "amax", "amin", "sort", "topk", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "constant_pad_nd", "flip", "roll", "repeat", "tril", "triu", "slice_backward", "select_backward",
    "threshold_backward", "clamp", "clamp_min", "clamp_max", "hardtanh", "floor", "ceil", "round", "trunc", "sign", "unfold_backward",
    "fill_", "zero_", "full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "_unsafe_view", "split_with_sizes_copy",
    "index_copy", "scatter", "reflection_pad2d", "replication_pad2d", "pixel_shuffle", "tril_", "triu_", "lift_fresh_copy",
})  # fmt: skip
REDUCTIONS = (
    "norm",
    "softmax",
    "logsumexp",
    "loss",
    "var",
    "std",
    "layer_norm",
    "batch_norm",
    "group_norm",
    "attention",
    "prod",
    "conv",
    "pool",
)


def terms_of(bound: Bound, output: torch.Tensor) -> Terms:
    """Number of terms and kind of operator, from its name and the shapes it was called with; too many is the safe side."""
    name = bound.name
    sizes = [math.prod(laid.shape) for laid in bound.call.tensors.values()]
    most = max(sizes, default=1)
    if bound.call.op.startswith(GRADIENT):  # of whatever formula: what moves elements one way adds them up the other way
        return Terms(count=max(most // max(output.numel(), 1), widest(bound), 16), kind="other")
    if name in EXACT:
        return Terms(kind="exact")
    if name in LINEAR:
        return Terms(count=max(1, most // max(output.numel(), 1), contraction(bound, name)), kind="linear")
    if any(word in name for word in REDUCTIONS):
        return Terms(count=max(most // max(output.numel(), 1), widest(bound), 16), kind="other")
    if output.numel() >= most:
        return Terms(count=4, kind="elementwise")
    return Terms(count=max(1, most // max(output.numel(), 1)), kind="other")


def widest(bound: Bound) -> int:
    """The longest dimension among the tensors of a call."""
    return max((max(laid.shape, default=1) for laid in bound.call.tensors.values()), default=1)


def contraction(bound: Bound, name: str) -> int:
    """Length of the dimension that a product sums over; for convolutions the elements under one window."""
    shapes = [laid.shape for laid in bound.call.tensors.values()]
    if name in CONTRACTED:
        return max((shape[-1] for shape in shapes if shape), default=1)
    if "conv" in name and len(shapes) > 1:
        return math.prod(shapes[1][1:])
    return 1


def absolute(bound: Bound) -> Performed:
    """The call in float64 on the absolute values of its tensors and scalars."""
    where = Conditions(device="cpu", wide=torch.float64)
    tensors = {slot: tensor.abs_() if tensor.dtype.is_floating_point else tensor for slot, tensor in bound.tensors(where).items()}
    args, kwargs = values_of(bound.call.args, tensors, where)
    name = bound.name
    if name in {"sub", "sub_", "rsub"}:  # differences lose digits where sums do not
        kwargs["alpha"] = -abs(kwargs.get("alpha", args[2] if name == "rsub" and len(args) > 2 else 1))
        args = args[:2]
    with torch.no_grad():
        result = bound.func(
            *[magnitude(each) for each in args], **{key: magnitude(each) if key != "alpha" else each for key, each in kwargs.items()}
        )
    return Performed(outputs_of(result, tensors, bound.writes), tensors)


def magnitude(value: object) -> object:
    """A real scalar without its sign; everything else as it is."""
    return abs(value) if type(value) is float else value
