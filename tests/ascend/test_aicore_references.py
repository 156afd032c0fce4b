# SPDX-License-Identifier: Apache-2.0
"""CPU references against PyTorch, which computes the same independently; attributes honoured;
judging by tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opscope.ascend.references import TABLE, Inapplicable, compute, find
from opscope.ascend.references.judge import AGREES, CANNOT, DIFFERS, judge

torch = pytest.importorskip("torch")
F = torch.nn.functional
R = np.random.default_rng(5)


def n(*shape: int) -> np.ndarray[Any, Any]:
    return R.standard_normal(shape).astype(np.float32)


def p(*shape: int) -> np.ndarray[Any, Any]:
    return (np.abs(n(*shape)) + 0.5).astype(np.float32)


def i(high: int, *shape: int) -> np.ndarray[Any, Any]:
    return R.integers(0, high, shape).astype(np.int32)


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


Torch = Callable[..., Any]
X = n(3, 4)
UNARY: dict[str, Torch] = {
    "Abs": torch.abs,
    "Exp": torch.exp,
    "Expm1": torch.expm1,
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Tan": torch.tan,
    "Atan": torch.atan,
    "Sinh": torch.sinh,
    "Tanh": torch.tanh,
    "Asinh": torch.asinh,
    "Sigmoid": torch.sigmoid,
    "Erf": torch.erf,
    "Erfc": torch.erfc,
    "Relu": F.relu,
    "Relu6": F.relu6,
    "Selu": F.selu,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Mish": F.mish,
    "HardSwish": F.hardswish,
    "Square": torch.square,
    "Sign": torch.sign,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Neg": torch.neg,
    "Rint": torch.round,
    "Elu": F.elu,
}
POSITIVE: dict[str, Torch] = {
    "Log": torch.log,
    "Log1p": torch.log1p,
    "Sqrt": torch.sqrt,
    "Rsqrt": torch.rsqrt,
    "Reciprocal": torch.reciprocal,
}
BINARY: dict[str, Torch] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Maximum": torch.maximum,
    "Minimum": torch.minimum,
    "RealDiv": torch.div,
    "Less": torch.lt,
    "GreaterEqual": torch.ge,
    "FloorMod": torch.remainder,
    "Mod": torch.fmod,
    "FloorDiv": torch.floor_divide,
    "Atan2": torch.atan2,
}


def check(op: str, inputs: list[Any], attributes: dict[str, Any], *wanted: Any) -> None:
    for got, want in zip(compute(op, inputs, attributes), wanted, strict=False):
        expected = want.detach().double().numpy() if hasattr(want, "detach") else np.asarray(want)
        np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str) -> None:
    check(op, [X], {}, UNARY[op](torch.tensor(X).double()))


@pytest.mark.parametrize("op", POSITIVE)
def test_positive(op: str) -> None:
    values = p(3, 4)
    check(op, [values], {}, POSITIVE[op](torch.tensor(values).double()))


@pytest.mark.parametrize("op", BINARY)
def test_binary_broadcasts(op: str) -> None:
    first, second = n(3, 4), n(4)
    check(
        op,
        [first, second],
        {},
        BINARY[op](torch.tensor(first).double(), torch.tensor(second).double()),
    )


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("op", "torch_op"),
    [
        ("ReduceSum", torch.sum),
        ("ReduceMean", torch.mean),
        ("ReduceMax", torch.amax),
        ("ReduceMin", torch.amin),
    ],
)
def test_reductions_take_axes_as_input_and_as_attribute(
    op: str, torch_op: Torch, keep: bool
) -> None:
    wanted = torch_op(torch.tensor(X).double(), dim=(1,), keepdim=keep)
    check(op, [X, ints(1)], {"keep_dims": keep}, wanted)
    check(f"{op}D", [X], {"axes": [1], "keep_dims": keep}, wanted)
    check(
        op,
        [X, ints(-2)],
        {"keep_dims": keep},
        torch_op(torch.tensor(X).double(), dim=(0,), keepdim=keep),
    )


def _gradient(function: Torch, *inputs: np.ndarray[Any, Any], of: int = 0, grad: Any = None) -> Any:
    held = [torch.tensor(one).double().requires_grad_(one.dtype.kind == "f") for one in inputs]
    out = function(*held)
    return torch.autograd.grad(
        out, held[of], torch.ones_like(out) if grad is None else torch.tensor(grad).double()
    )[0]


@pytest.mark.parametrize(
    ("op", "function", "order"),
    [
        ("ReluGrad", F.relu, "gx"),
        ("Relu6Grad", F.relu6, "gx"),
        ("TanhGrad", torch.tanh, "yg"),
        ("SigmoidGrad", torch.sigmoid, "yg"),
        ("GeluGrad", lambda x: F.gelu(x, approximate="tanh"), "gx"),
        ("SqrtGrad", torch.sqrt, "yg"),
        ("RsqrtGrad", torch.rsqrt, "yg"),
        ("ReciprocalGrad", torch.reciprocal, "yg"),
        ("SoftplusGrad", F.softplus, "gx"),
    ],
)
def test_gradients(op: str, function: Torch, order: str) -> None:
    x, g = p(3, 4), n(3, 4)
    y = function(torch.tensor(x).double()).numpy()
    check(
        op,
        [{"x": x, "g": g, "y": y}[letter] for letter in order],
        {},
        _gradient(function, x, grad=g),
    )


def test_matrix_products_transpose() -> None:
    a, b, bias = n(4, 3), n(5, 4), n(5)
    check(
        "MatMulV2",
        [a, b, bias],
        {"transpose_x1": True, "transpose_x2": True},
        torch.tensor(a).double().T @ torch.tensor(b).double().T + torch.tensor(bias),
    )
    a, b = n(2, 3, 4), n(2, 5, 4)
    check(
        "BatchMatMul",
        [a, b],
        {"adj_x2": True},
        torch.tensor(a).double() @ torch.tensor(b).double().mT,
    )


CONVOLUTIONS = [
    {
        "strides": [1, 1, 2, 1],
        "pads": [1, 1, 0, 1],
        "dilations": [1, 1, 1, 2],
        "groups": 1,
        "data_format": "NCHW",
    },
    {
        "strides": [1, 1, 1, 1],
        "pads": [0, 0, 0, 0],
        "dilations": [1, 1, 1, 1],
        "groups": 2,
        "data_format": "NCHW",
    },
    {
        "strides": [1, 2, 2, 1],
        "pads": [1, 0, 1, 0],
        "dilations": [1, 1, 1, 1],
        "groups": 1,
        "data_format": "NHWC",
    },
]


@pytest.mark.parametrize("attributes", CONVOLUTIONS, ids=["pads", "groups", "nhwc"])
def test_convolution_and_its_gradients(attributes: dict[str, Any]) -> None:
    nhwc = attributes["data_format"] == "NHWC"
    x, w, bias = n(2, 4, 7, 8), n(6, 4 // attributes["groups"], 3, 2), n(6)
    strides, dilations = (
        [attributes[name][d] for d in ((1, 2) if nhwc else (2, 3))]
        for name in ("strides", "dilations")
    )
    top, bottom, left, right = attributes["pads"]

    def conv(source: Any, weight: Any, b: Any = None) -> Any:
        return F.conv2d(
            F.pad(source, (left, right, top, bottom)),
            weight,
            b,
            strides,
            0,
            dilations,
            attributes["groups"],
        )

    wanted = conv(*(torch.tensor(one).double() for one in (x, w, bias)))
    xs, ws = (np.moveaxis(x, 1, -1), np.transpose(w, (2, 3, 1, 0))) if nhwc else (x, w)
    out = wanted.permute(0, 2, 3, 1) if nhwc else wanted
    check("Conv2D", [xs, ws, bias], attributes, out)
    dy = n(*wanted.shape)
    dys = np.moveaxis(dy, 1, -1) if nhwc else dy
    dx, dw = (_gradient(conv, x, w, of=place, grad=dy) for place in (0, 1))
    dx, dw = (dx.permute(0, 2, 3, 1), dw.permute(2, 3, 1, 0)) if nhwc else (dx, dw)
    check("Conv2DBackpropInput", [ints(*xs.shape), ws, dys], attributes, dx)
    check("Conv2DBackpropFilterD", [xs, dys], {**attributes, "filter_size": list(ws.shape)}, dw)


def test_depthwise_convolution() -> None:
    x, w = n(2, 3, 6, 6), n(2, 3, 3, 3)
    wanted = F.conv2d(
        torch.tensor(x).double(),
        torch.tensor(w).double().transpose(0, 1).reshape(6, 1, 3, 3),
        groups=3,
    )
    check(
        "DepthwiseConv2D",
        [x, w],
        {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NCHW"},
        wanted,
    )


def test_norms_and_their_gradients() -> None:
    x, gamma, beta, dy = n(5, 8), n(8), n(8), n(5, 8)
    wanted = F.layer_norm(
        *(
            torch.tensor(one).double() if not isinstance(one, tuple) else one
            for one in (x, (8,), gamma, beta)
        ),
        eps=1e-5,
    )
    check("LayerNorm", [x, gamma, beta], {"begin_norm_axis": 1, "epsilon": 1e-5}, wanted)
    mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    dx = _gradient(
        lambda v: F.layer_norm(v, (8,), torch.tensor(gamma).double(), eps=1e-5), x, grad=dy
    )
    check("LayerNormXBackprop", [dy, x, variance, mean, gamma], {"epsilon": 1e-5}, dx)
    image, scale, offset = n(4, 3, 5, 5), n(3), n(3)
    wanted = F.batch_norm(
        *(torch.tensor(one).double() for one in (image, np.zeros(3), np.ones(3), scale, offset)),
        training=True,
        eps=1e-4,
    )
    check(
        "BatchNorm",
        [image, scale, offset, None, None],
        {"data_format": "NCHW", "epsilon": 1e-4},
        wanted,
    )
    check(
        "RmsNorm",
        [x, gamma],
        {"epsilon": 1e-6},
        torch.nn.functional.rms_norm(
            torch.tensor(x).double(), (8,), torch.tensor(gamma).double(), 1e-6
        ),
    )
    check("SoftmaxV2", [x], {"axes": [-1]}, torch.softmax(torch.tensor(x).double(), -1))
    check("LogSoftmaxV2", [x], {"axes": [0]}, torch.log_softmax(torch.tensor(x).double(), 0))
    y = torch.softmax(torch.tensor(x).double(), -1).numpy()
    check("SoftmaxGrad", [y, dy], {}, _gradient(lambda v: torch.softmax(v, -1), x, grad=dy))
    check("L2Loss", [x], {}, (torch.tensor(x).double() ** 2).sum() / 2)


def test_losses() -> None:
    logits, classes = n(6, 5), i(5, 6)
    labels = np.eye(5, dtype=np.float32)[classes]
    loss = F.cross_entropy(
        torch.tensor(logits).double(), torch.tensor(classes).long(), reduction="none"
    )
    grad = _gradient(
        lambda v: F.cross_entropy(v, torch.tensor(classes).long(), reduction="none"), logits
    )
    check("SoftmaxCrossEntropyWithLogits", [logits, labels], {}, loss, grad)
    check("SparseSoftmaxCrossEntropyWithLogits", [logits, classes], {}, loss, grad)
    check(
        "SigmoidCrossEntropyWithLogits",
        [logits, labels],
        {},
        F.binary_cross_entropy_with_logits(
            *(torch.tensor(one).double() for one in (logits, labels)), reduction="none"
        ),
    )
    check(
        "MseLoss",
        [logits, labels],
        {"reduction": "sum"},
        F.mse_loss(torch.tensor(logits).double(), torch.tensor(labels).double(), reduction="sum"),
    )
    check(
        "SmoothL1Loss",
        [logits, labels],
        {"sigma": 1.0},
        F.smooth_l1_loss(
            *(torch.tensor(one).double() for one in (logits, labels)), reduction="none"
        ),
    )
    weight = p(5)
    check(
        "NLLLoss",
        [logits, classes, weight],
        {},
        F.nll_loss(
            torch.tensor(logits).double(),
            torch.tensor(classes).long(),
            torch.tensor(weight).double(),
        ),
    )


def test_gathers_and_scatters() -> None:
    x, at = n(5, 6), i(6, 2, 3)
    check("GatherV2", [x, at, ints(1)], {}, x[:, at])
    check(
        "GatherV2",
        [n_ := n(2, 4, 3), i_ := i(4, 2, 5), ints(1)],
        {"batch_dims": 1},
        np.stack([n_[b][i_[b]] for b in range(2)]),
    )
    check("GatherNd", [x, np.array([[0, 1], [4, 5]], np.int32)], {}, x[[0, 4], [1, 5]])
    rows, updates = ints(1, 1, 3), n(3, 6)
    wanted = (
        torch.tensor(x).double().index_add(0, torch.tensor(rows), torch.tensor(updates).double())
    )
    check("ScatterAdd", [x, rows, updates], {}, wanted)
    check(
        "UnsortedSegmentSum",
        [updates, rows, ints(4)],
        {},
        torch.zeros(4, 6).double().index_add(0, torch.tensor(rows), torch.tensor(updates).double()),
    )
    check(
        "OneHot",
        [rows, ints(4), np.float32(1).reshape(1), np.float32(0).reshape(1)],
        {},
        np.eye(4)[rows],
    )
    check("TopKV2", [x, ints(2)], {}, *torch.topk(torch.tensor(x).double(), 2))
    check(
        "Cumsum",
        [x, ints(1)],
        {"reverse": True},
        torch.flip(torch.cumsum(torch.flip(torch.tensor(x).double(), (1,)), 1), (1,)),
    )
    check("Cumsum", [x, ints(0)], {"exclusive": True}, np.cumsum(x, 0) - x)
    with pytest.raises(Inapplicable, match="index"):
        compute("GatherV2", [x, ints(6), ints(1)], {})


def test_shapes() -> None:
    x = n(2, 3, 4)
    check("TransposeD", [x], {"perm": [2, 0, 1]}, x.transpose(2, 0, 1))
    check("ConcatD", [x, x], {"concat_dim": 1}, np.concatenate([x, x], 1))
    check("SplitV", [x, ints(1, -1), ints(2)], {}, x[..., :1], x[..., 1:])
    check(
        "Pad",
        [x, np.array([[0, 1], [1, 0], [2, 2]], np.int32)],
        {},
        np.pad(x, [[0, 1], [1, 0], [2, 2]]),
    )
    check(
        "StridedSlice",
        [x, ints(0, 1, 0), ints(2, 3, 4), ints(1, 1, 2)],
        {"shrink_axis_mask": 1, "end_mask": 2},
        x[0, 1:, 0:4:2],
    )
    check("Slice", [x, ints(0, 1, 1), ints(-1, 2, 2)], {}, x[:, 1:3, 1:3])
    values = np.array([1.9, -1.9], np.float32)
    assert compute("Cast", [values], {"dst_type": 3})[0].tolist() == [1, -1]
    check(
        "MaxPool",
        [np.moveaxis(n_ := n(1, 2, 5, 5), 1, -1)],
        {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"},
        F.max_pool2d(torch.tensor(n_).double(), 2).permute(0, 2, 3, 1),
    )
    check(
        "AvgPool",
        [n_],
        {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "padding": "SAME", "data_format": "NCHW"},
        F.avg_pool2d(torch.tensor(n_).double(), 2, ceil_mode=True, count_include_pad=False),
    )


def test_an_adam_step() -> None:
    var, grad = n(7), n(7)
    held = torch.tensor(var).double().requires_grad_()
    optimizer = torch.optim.Adam([held], lr=0.01, eps=1e-8)
    held.grad = torch.tensor(grad).double()
    optimizer.step()
    scalars = [np.array(value) for value in (0.9, 0.999, 0.01, 0.9, 0.999)]
    got = compute(
        "ApplyAdamD",
        [var, np.zeros(7, np.float32), np.zeros(7, np.float32), *scalars, np.array(1e-8), grad],
        {},
    )[0]
    np.testing.assert_allclose(got, held.detach().numpy(), rtol=1e-5)


def test_there_are_many_and_names_are_found() -> None:
    assert len(TABLE) > 200
    assert (find("ReduceSumD"), find("L2Loss"), find("NoSuchOperator")) == (
        "ReduceSumD",
        "L2Loss",
        None,
    )


def test_judging() -> None:
    x = n(40, 50)
    y = (x.astype(np.float64) * 2).astype(np.float16)
    twice = {"value": 2}
    assert judge("Muls", [x], [y], twice, ["float16"]).status == AGREES
    wrong = y.copy()
    wrong[:3] = 0
    judged = judge("Muls", [x], [wrong], twice, ["float16"])
    assert judged.status == DIFFERS
    assert 140 < judged.outputs[0][1] <= 150
    lost = y.copy()
    lost[1, :] = np.nan
    assert judge("Muls", [x], [lost], twice, ["float16"]).status == DIFFERS
    one = y.copy()
    one[0, 0] = 100
    assert (
        judge("Muls", [x], [one], twice, ["float16"]).status == AGREES
    )  # one element in a thousand
    large = np.full(4, 60000, np.float32)
    for limit in (np.inf, 65504):
        assert (
            judge("Muls", [large], [np.full(4, limit, np.float16)], twice, ["float16"]).status
            == AGREES
        )
    assert judge("NoSuchOperator", [x], [y], {}, ["float16"]).status == CANNOT
    assert judge("Muls", [x], [y[:3]], twice, ["float16"]).status == CANNOT
    assert judge("GatherV2", [x, ints(99), ints(0)], [y[:1]], {}, ["float16"]).status == CANNOT


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pooling_with_pads(ceil: bool, layout: str) -> None:
    x = n(2, 3, 7, 8)
    ksize, strides = (
        ((1, 1, 3, 2), (1, 1, 2, 3)) if layout == "NCHW" else ((1, 3, 2, 1), (1, 2, 3, 1))
    )
    attributes = {
        "ksize": ksize,
        "strides": strides,
        "pads": (1, 1, 1, 1),
        "ceil_mode": ceil,
        "data_format": layout,
    }
    given = x if layout == "NCHW" else np.moveaxis(x, 1, -1)

    def shaped(y: Any) -> Any:
        return y if layout == "NCHW" else np.moveaxis(np.asarray(y), 1, -1)

    options = {"kernel_size": (3, 2), "stride": (2, 3), "padding": (1, 1), "ceil_mode": ceil}
    wanted = torch.nn.functional.max_pool2d(torch.from_numpy(x), **options)
    assert np.allclose(
        compute("MaxPoolV3", [given], attributes)[0], shaped(wanted), rtol=1e-4, atol=1e-5
    )
    wanted = torch.nn.functional.avg_pool2d(torch.from_numpy(x), **options, count_include_pad=False)
    assert np.allclose(
        compute("AvgPoolV2", [given], {**attributes, "exclusive": True})[0],
        shaped(wanted),
        rtol=1e-4,
        atol=1e-5,
    )
    whole = compute("AvgPoolV2", [given], {"global_pooling": True, "data_format": layout})[0]
    assert np.allclose(whole, shaped(x.mean((2, 3), keepdims=True)), rtol=1e-4, atol=1e-5)


def test_gradients_of_norms_in_parts() -> None:
    x, dy = torch.from_numpy(n(4, 3, 5, 2)).requires_grad_(), torch.from_numpy(n(4, 3, 5, 2))
    scale, offset = (torch.from_numpy(n(3)).requires_grad_() for _ in range(2))
    torch.nn.functional.batch_norm(x, None, None, scale, offset, training=True, eps=1e-4).backward(
        dy
    )
    assert x.grad is not None
    assert scale.grad is not None
    assert offset.grad is not None
    value, nchw = x.detach().numpy(), {"data_format": "NCHW", "epsilon": 1e-4}
    mean, variance = value.mean((0, 2, 3)), value.var((0, 2, 3))
    dscale, doffset = compute("BNTrainingUpdateGrad", [dy.numpy(), value, mean, variance], nchw)
    assert np.allclose(dscale, scale.grad, rtol=1e-4, atol=1e-5)
    assert np.allclose(doffset, offset.grad, rtol=1e-4, atol=1e-5)
    (dx,) = compute(
        "BNTrainingReduceGrad",
        [dy.numpy(), value, dscale, doffset, scale.detach().numpy(), mean, variance],
        nchw,
    )
    assert np.allclose(dx, x.grad, rtol=1e-4, atol=1e-5)
    y, _, _ = compute(
        "InstanceNorm",
        [value, scale.detach().numpy(), offset.detach().numpy()],
        {"data_format": "NCHW", "epsilon": 1e-5},
    )
    assert np.allclose(
        y,
        torch.nn.functional.instance_norm(x, weight=scale, bias=offset, eps=1e-5).detach(),
        rtol=1e-4,
        atol=1e-5,
    )
    gamma, beta = (torch.from_numpy(n(5, 2)).requires_grad_() for _ in range(2))
    torch.nn.functional.layer_norm(x, (5, 2), gamma, beta, eps=1e-5).backward(dy)
    mean, variance = value.mean((2, 3), keepdims=True), value.var((2, 3), keepdims=True)
    found = compute(
        "LayerNormBetaGammaBackprop",
        [dy.numpy(), value, variance, mean],
        {"shape_gamma": (5, 2), "epsilon": 1e-5},
    )
    normal = (value - mean) / np.sqrt(variance + 1e-5)
    second = compute("LayerNormBetaGammaBackpropV2", [dy.numpy(), normal], {"shape_gamma": (5, 2)})
    for got, wanted in (
        (found[0], gamma.grad),
        (found[1], beta.grad),
        (second[0], gamma.grad),
        (second[1], beta.grad),
    ):
        assert np.allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_more_activations() -> None:
    x, dy = torch.from_numpy(n(6, 8) * 3).requires_grad_(), torch.from_numpy(n(6, 8))
    for name, function in (
        ("SwishGrad", torch.nn.functional.silu),
        ("HardSwishGrad", torch.nn.functional.hardswish),
    ):
        x.grad = None
        function(x).backward(dy)
        assert np.allclose(
            compute(name, [dy.numpy(), x.detach().numpy()], {})[0], x.grad, rtol=1e-4, atol=1e-5
        ), name
    first, second = x.detach().chunk(2, -1)
    assert np.allclose(
        compute("SwiGlu", [x.detach().numpy()], {"dim": -1})[0],
        torch.nn.functional.silu(first) * second,
        rtol=1e-4,
        atol=1e-5,
    )
    assert np.array_equal(
        compute("Roll", [dy.numpy()], {"shifts": [1, 2], "dims": [0, 1]})[0],
        torch.roll(dy, (1, 2), (0, 1)),
    )
    assert np.allclose(
        compute("LinSpace", [np.array(0.0), np.array(1.0), np.array(5)], {})[0],
        torch.linspace(0, 1, 5),
        rtol=1e-4,
        atol=1e-5,
    )
    assert np.array_equal(compute("Eye", [], {"num_rows": 2, "num_columns": 3})[0], torch.eye(2, 3))
    assert compute(
        "ReduceSum",
        [dy.numpy(), np.array([], np.int64)],
        {"noop_with_empty_axes": True, "keep_dims": True},
    )[0].shape == (6, 8)
