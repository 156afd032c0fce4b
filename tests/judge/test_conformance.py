# SPDX-License-Identifier: Apache-2.0
"""One definition of tolerance: other healthy implementations are within it, and the script of a
repro folder allows what checks allow.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.oldest import IS_OLDEST

from opscope.judge.replayed import Sides, Terms, _tolerance, judge_output
from opscope.judge.terms import terms_of
from opscope.judge.tolerance import one_side, tolerance_of

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:Applying the CPU mse kernel")  # torch 2.4


def drawn(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) * 2 + 1


X, W = drawn(32, 200), drawn(200, 64) * 0.1
CASES: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("aten::mm.default", torch.mm, (X, W)),
    ("aten::sum.dim_IntList", lambda x: x.sum(0), (X,)),
    ("aten::cumsum.default", lambda x: x.cumsum(0), (X,)),
    ("aten::var.correction", lambda x: x.var(1), (X,)),
    ("aten::_softmax.default", lambda x: x.softmax(-1), (X * 10,)),
    ("aten::_log_softmax.default", lambda x: x.log_softmax(-1), (X * 10,)),
    ("aten::native_layer_norm.default", lambda x: F.layer_norm(x, (200,)), (X,)),
    ("aten::native_group_norm.default", lambda x: F.group_norm(x, 4), (drawn(2, 8, 6, 6),)),
    ("aten::gelu.default", F.gelu, (X,)),
    ("aten::mish.default", F.mish, (X,)),
    ("aten::tanh.default", torch.tanh, (X,)),
    ("aten::mul.Tensor", torch.mul, (X, X)),
    ("aten::addcmul.default", lambda a, b: torch.addcmul(a, b, b, value=-0.5), (X, X)),
    ("aten::relu.default", torch.relu, (X,)),
    ("aten::clone.default", torch.clone, (X,)),
    ("aten::mse_loss.default", F.mse_loss, (X, X * 0.9)),
]


def array(tensor: Any) -> Any:
    return tensor.double().numpy()


def sides_of(op: str, function: Any, inputs: tuple[Any, ...], dtype: Any) -> tuple[Sides, Terms]:
    """Another healthy kernel: the sum in float32, or in the other order of the first dimension's
    halves, rounded to the type.
    """
    if IS_OLDEST and (op, dtype) == ("aten::mse_loss.default", torch.bfloat16):
        pytest.skip("torch 2.4: no mse_loss of bfloat16")
    low = tuple(each.to(dtype) for each in inputs)
    wide = torch.float32 if dtype is not torch.float32 else torch.float64
    target = function(*(each.to(wide) for each in low)).to(dtype)
    own, true = function(*low), function(*(each.double() for each in low))
    terms = Terms(op, terms_of(op, [tuple(each.shape) for each in low], [tuple(true.shape)]))
    return Sides(
        dtype=str(dtype).removeprefix("torch."),
        target=array(target),
        own=array(own),
        true=array(true),
    ), terms


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("op", "function", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_another_healthy_kernel_is_within_the_tolerance(
    op: str, function: Any, inputs: tuple[Any, ...], dtype: str
) -> None:
    sides, terms = sides_of(op, function, inputs, getattr(torch, dtype))
    assert judge_output("0", sides, terms).verdict != "wrong"


@pytest.mark.parametrize("known", [True, False], ids=["beside a trusted kernel", "alone"])
@pytest.mark.parametrize(("op", "function", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_a_script_allows_what_checks_allow(
    op: str, function: Any, inputs: tuple[Any, ...], known: bool
) -> None:
    from opscope.repro.scripts.judging import allowance

    sides, terms = sides_of(op, function, inputs, torch.bfloat16)
    own = sides.own if known else None
    error = None if own is None else np.abs(own - sides.true)
    rule = msgspec.structs.asdict(one_side(op, "bfloat16", terms=terms.count))
    usual = None if own is None else torch.from_numpy(own)
    found = allowance(torch.bfloat16, torch.from_numpy(sides.true), usual, rule).numpy()
    assert found == pytest.approx(
        _tolerance(sides, np.abs(sides.true), error, terms), rel=1e-6, abs=1e-30
    )


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "complex64"]
)
@pytest.mark.parametrize(
    "op",
    [
        "aten::mm",
        "aten::add",
        "aten::exp",
        "aten::native_layer_norm",
        "aten::my_own",
        "aten::copy_",
    ],
)
def test_one_side_errs_half_of_what_two_may(op: str, dtype: str) -> None:
    both, one = tolerance_of(op, dtype, terms=100), one_side(op, dtype, terms=100)
    assert (one.relative, one.scaled) == (both.relative / 2, both.scaled / 2)
    assert one.absolute <= both.absolute
