# SPDX-License-Identifier: Apache-2.0
"""Healthy results of real operators are within their tolerances, wrong ones are not: both sides of
what a tolerance is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401
import numpy as np
import pytest
from tests.judge.elements import by_elements

from opscope.judge import families
from opscope.judge.terms import magnitude_of, terms_of
from opscope.judge.tolerance import gamma, precision_of, tolerance_of
from opscope.kernels import statistics
from opscope.operators.catalogue import family

torch = pytest.importorskip("torch")
F = torch.nn.functional


def array(tensor: Any) -> Any:
    found = tensor.detach()
    return (
        found.view(torch.uint16).numpy().view("bfloat16")
        if found.dtype == torch.bfloat16
        else found.numpy()
    )


def drawn(*shape: int, dtype: Any = None, scale: float = 1.0) -> Any:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) * scale).to(
        dtype or torch.float32
    )


Case = tuple[str, Callable[..., Any], tuple[Any, ...]]
X, W = drawn(64, 512), drawn(512, 96, scale=0.05)
IMAGE, KERNEL = drawn(2, 16, 20, 20), drawn(24, 16, 3, 3, scale=0.1)
CASES: list[Case] = [
    ("aten::mm.default", torch.mm, (X, W)),
    ("aten::addmm.default", torch.addmm, (drawn(96), X, W)),
    ("aten::bmm.default", torch.bmm, (drawn(4, 32, 64), drawn(4, 64, 32))),
    ("aten::convolution.default", lambda x, w: F.conv2d(x, w, padding=1), (IMAGE, KERNEL)),
    ("aten::sum.dim_IntList", lambda x: x.sum(0), (drawn(4096, 8),)),
    ("aten::sum.default", lambda x: x.sum(), (drawn(3000) - drawn(3000).mean(),)),
    ("aten::mean.dim", lambda x: x.mean(-1), (X,)),
    (
        "aten::native_layer_norm.default",
        lambda x, w, b: F.layer_norm(x, (512,), w, b),
        (X * 3 + 5, drawn(512), drawn(512)),
    ),
    (
        "aten::native_batch_norm.default",
        lambda x: F.batch_norm(x, None, None, training=True),
        (IMAGE,),
    ),
    ("aten::_softmax.default", lambda x: x.softmax(-1), (X * 8,)),
    ("aten::_log_softmax.default", lambda x: x.log_softmax(-1), (X * 8,)),
    ("aten::gelu.default", F.gelu, (X * 3,)),
    ("aten::silu.default", F.silu, (X * 3,)),
    ("aten::tanh.default", torch.tanh, (X,)),
    ("aten::exp.default", torch.exp, (X * 4,)),
    ("aten::sigmoid.default", torch.sigmoid, (X * 4,)),
    ("aten::add.Tensor", lambda a, b: torch.add(a, b, alpha=0.3), (X, drawn(64, 512) * 2)),
    ("aten::addcmul.default", lambda a, b: torch.addcmul(a, b, b, value=0.7), (X, X)),
    ("aten::div.Tensor", torch.div, (X, X.abs() + 0.1)),
    ("aten::rsqrt.default", lambda x: x.abs().add(0.01).rsqrt(), (X,)),
    ("aten::linalg_vector_norm.default", torch.linalg.vector_norm, (X,)),
    ("aten::cumsum.default", lambda x: x.cumsum(0), (drawn(2000, 4),)),
    ("aten::mse_loss.default", F.mse_loss, (X, X * 1.1)),
    ("aten::relu.default", torch.relu, (X,)),
    (
        "aten::scaled_dot_product_attention",
        F.scaled_dot_product_attention,
        tuple(drawn(1, 2, 32, 16) for _ in range(3)),
    ),
    ("aten::avg_pool2d.default", lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
]


def judged(op: str, target: Any, golden: Any, inputs: tuple[Any, ...]) -> Any:
    """The verdict with all that a comparison of two runs knows of a call."""
    shapes = [tuple(one.shape) for one in inputs]
    terms = terms_of(op, shapes, [tuple(golden.shape)])
    extents = [statistics(np.ascontiguousarray(array(one))) for one in inputs]
    tolerance = tolerance_of(
        op, array(golden).dtype.name, terms=terms, magnitude=magnitude_of(op, terms, extents)
    )
    return by_elements(array(target), array(golden), tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("op", "function", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_a_healthy_result_agrees_with_one_of_double_precision(
    op: str, function: Any, inputs: tuple[Any, ...], dtype: Any
) -> None:
    low = tuple(one.to(dtype) for one in inputs)
    golden = function(*(one.double() for one in low)).to(dtype)
    found = judged(op, function(*low), golden, low)
    assert found.verdict in ("equal", "agree"), found.words


def test_an_average_is_of_the_size_of_its_terms() -> None:
    extents = [statistics(array(IMAGE))]
    pooled = magnitude_of("aten::avg_pool2d.default", 4, extents)
    for op in ("AvgPool", "tf::AvgPool", "aten::avg_pool3d.default", "aten::_adaptive_avg_pool3d"):
        assert magnitude_of(op, 4, extents) == pooled, op
    assert magnitude_of("aten::sum.default", 4, extents) == pytest.approx(4 * (pooled or 0.0))


def test_sums_in_any_order_agree() -> None:
    """Sequential float32 sums, the worst way there is, forwards and backwards."""
    for values in (np.abs(array(drawn(20_000))), array(drawn(20_000))):
        forwards, backwards = np.float32(0), np.float32(0)
        for one, other in zip(values, values[::-1], strict=True):
            forwards, backwards = np.float32(forwards + one), np.float32(backwards + other)
        tolerance = tolerance_of(
            "sum",
            "float32",
            terms=20_000,
            magnitude=magnitude_of("sum", 20_000, [statistics(values)]),
        )
        assert by_elements(np.array([forwards]), np.array([backwards]), tolerance).verdict in (
            "equal",
            "agree",
        )


def wrong_mm(x: Any, w: Any) -> Any:
    """The inner dimension is summed in bfloat16, eight terms at a time."""
    total = torch.zeros(x.shape[0], w.shape[1], dtype=torch.bfloat16)
    for part in range(0, x.shape[1], 8):
        total = total + (x[:, part : part + 8] @ w[part : part + 8]).to(torch.bfloat16)
    return total.float()


def tf32(x: Any) -> Any:
    return (x.view(torch.int32) + 4096 & -8192).view(torch.float32)


FAULTS: list[tuple[str, str, Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = [
    ("accumulation in bfloat16", "aten::mm", wrong_mm, torch.mm, (X, W)),
    ("inputs rounded to TF32", "aten::mm", lambda x, w: tf32(x) @ tf32(w), torch.mm, (X, W)),
    ("no bias", "aten::addmm", lambda b, x, w: x @ w, torch.addmm, (drawn(96, scale=0.02), X, W)),
    (
        "another epsilon",
        "aten::native_layer_norm",
        lambda x: F.layer_norm(x, (512,), eps=1e-3),
        lambda x: F.layer_norm(x, (512,)),
        (X,),
    ),
    (
        "variance over n - 1",
        "aten::native_layer_norm",
        lambda x: (x - x.mean(-1, True)) / x.std(-1, keepdim=True),
        lambda x: F.layer_norm(x, (512,)),
        (X,),
    ),
    ("tanh for erf", "aten::gelu", lambda x: F.gelu(x, approximate="tanh"), F.gelu, (X,)),
    (
        "a column lost",
        "aten::sum.dim_IntList",
        lambda x: x[:-1].sum(0),
        lambda x: x.sum(0),
        (drawn(512, 8),),
    ),
    (
        "softmax over another scale",
        "aten::_softmax",
        lambda x: (x * 1.001).softmax(-1),
        lambda x: x.softmax(-1),
        (X,),
    ),
    (
        "one element of a copy",
        "aten::clone",
        lambda x: x + (torch.arange(512) == 7) * 1e-6,
        lambda x: x,
        (X,),
    ),
    ("a sign", "aten::add", torch.sub, torch.add, (X, drawn(64, 512))),
    (
        "half precision in between",
        "aten::mul",
        lambda a, b: (a.half() * b.half()).float(),
        torch.mul,
        (X, drawn(64, 512)),
    ),
]


@pytest.mark.parametrize(
    ("name", "op", "wrong", "right", "inputs"), FAULTS, ids=[fault[0] for fault in FAULTS]
)
def test_a_wrong_result_differs(
    name: str, op: str, wrong: Any, right: Any, inputs: tuple[Any, ...]
) -> None:
    found = judged(op, wrong(*inputs), right(*inputs), inputs)
    assert found.verdict == "differ", found.words


def test_tolerances_are_per_operator_and_type() -> None:
    wide, narrow = (
        tolerance_of("mm", "float32", terms=512),
        tolerance_of("mm", "bfloat16", terms=512),
    )
    assert wide.relative < narrow.relative
    assert tolerance_of("mm", "float32", terms=1024).scaled > wide.scaled
    assert tolerance_of("view", "float32").exact
    assert tolerance_of("mm", "int8", terms=9).exact  # integers are exact
    assert not tolerance_of("dropout", "float32").judged
    assert not tolerance_of("linalg_svd", "float32").judged
    assert "no analysis" in tolerance_of("my_own_kernel", "float32").reason
    assert tolerance_of("exp", "float8_e4m3fn").relative > tolerance_of("exp", "float16").relative
    assert precision_of("torch.half") == precision_of("DT_FLOAT16")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm.default", "product"),
        ("torch.nn.functional.linear", "product"),
        ("MatMul", "product"),
        ("BatchMatMulV2", "product"),
        ("Conv2D", "product"),
        ("DepthwiseConv2dNative", "product"),
        ("Default/network/Conv2D", "product"),
        ("torch.nn.LSTM", "product"),
        ("SoftmaxV2", "softmax"),
        ("torch.nn.functional.softmax", "softmax"),
        ("LayerNorm", "norm"),
        ("torch.nn.LayerNorm", "norm"),
        ("LayerNormV3", "norm"),
        ("BNTrainingUpdate", "norm"),
        ("npu_rms_norm", "norm"),
        ("aten::native_group_norm.default", "norm"),
        ("FlashAttentionScore", "attention"),
        ("npu_fusion_attention", "attention"),
        ("aten::_scaled_dot_product_flash_attention", "attention"),
        ("ReduceMeanD", "sum"),
        ("ReduceSum", "sum"),
        ("aten::mean.dim", "sum"),
        ("BiasAdd", "arithmetic"),
        ("RealDiv", "arithmetic"),
        ("aten::add_.Tensor", "arithmetic"),
        ("Tanh", "elementary"),
        ("Exp", "elementary"),
        ("Gelu", "composed"),
        ("Cast", "cast"),
        ("npu_dtype_cast", "cast"),
        ("TransData", "exact"),
        ("aten::view.default", "exact"),
        ("Reshape", "exact"),
        ("GatherV2", "exact"),
        ("ApplyAdamD", "optimizer"),
        ("aten::_fused_adamw_", "optimizer"),
        ("FusedSgd", "optimizer"),
        ("SparseSoftmaxCrossEntropyWithLogits", "loss"),
        ("torch.nn.functional.cross_entropy", "loss"),
        ("NLLLoss", "loss"),
        ("aten::native_dropout.default", "unjudged"),
        ("DropOutDoMask", "unjudged"),
        ("StandardNormal", "unjudged"),
        ("aten::empty.memory_format", "unjudged"),
        ("aten::_fft_c2c.default", "transform"),
        ("SomethingNobodyKnows", "unknown"),
    ],
)
def test_names_of_every_world_have_a_rule(name: str, kind: str) -> None:
    assert families.tolerance_kind(family(name)) == kind


def test_gamma_is_the_smaller_bound() -> None:
    assert gamma(4, 2.0**-24) == pytest.approx(4 * 2.0**-24, rel=1e-5)
    assert gamma(10**6, 2.0**-24) == pytest.approx(3 * 1000 * 2.0**-24)
    assert math.isfinite(gamma(10**12, 2.0**-8))


def test_terms_from_shapes() -> None:
    assert terms_of("mm", [(64, 512), (512, 96)], [(64, 96)]) == 512
    assert terms_of("UnsortedSegmentSum", [(4, 8), (4,)], []) == 32  # a call that raised
    assert terms_of("addmm", [(96,), (64, 512), (512, 96)], [(64, 96)]) == 512
    assert terms_of("linear", [(2, 7, 512), (96, 512), (96,)], [(2, 7, 96)]) == 512
    assert terms_of("mm", [(8, 8), (8, 8)], [(8, 8)]) == 8
    assert (
        terms_of("aten::nll_loss_forward.default", [(64, 100), (64,)], [(), ()]) == 64
    )  # one of each row
    assert (
        terms_of("upsample_bicubic2d", [(2, 3, 4, 4)], [(2, 3, 6, 6)]) == 16
    )  # the neighbours of one place
    assert terms_of("upsample_bilinear2d_backward", [(2, 3, 60, 60)], [(2, 3, 6, 6)]) == 100
    assert terms_of("Conv2D", [(2, 16, 20, 20), (24, 16, 3, 3)], [(2, 24, 20, 20)]) == 144
    assert terms_of("sum", [(4096, 8)], [(8,)]) == 4096
    assert terms_of("sum", [(4096, 8)], [()]) == 32768
    assert terms_of("layer_norm", [(4, 9, 512), (512,), (512,)], [(4, 9, 512)]) == 512
    assert terms_of("batch_norm", [(4, 9, 5, 5)], [(4, 9, 5, 5)]) == 100
    assert terms_of("add", [(4,), (4,)], [(4,)]) == 1
    assert terms_of("mm", [], []) == 1
    assert terms_of("sum", [(0, 3)], [(3,)]) == 1
