# SPDX-License-Identifier: Apache-2.0
"""Floats that NumPy lacks are measured, judged and shown as ml_dtypes' arrays of the same bits are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from opscope import narrow
from opscope.judge.dual import dual_standard
from opscope.judge.mismatch import explain
from opscope.kernels import pair_reference, reference, statistics
from opscope.kernels.metrics import Metric
from opscope.kernels.pair import pair
from opscope.report.values import elements, excerpt
from tests.kernels.kernel_arrays import LAYOUTS, laid_out

NAMES = sorted(narrow.FORMATS)


def theirs(name: str, array: Any) -> Any:
    return array.view(np.dtype(getattr(ml_dtypes, name)))


def content(name: str, layout: str, *, seed: int = 0) -> Any:
    """Any bits, as ours; none of a signalling NaN, of which NumPy warns in any float."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 256, 4200, np.uint8).view(narrow.FORMATS[name].unsigned)
    if name == "bfloat16":
        bits |= np.where(bits & 0x7F80 == 0x7F80, 0x40, 0).astype(bits.dtype)
    return laid_out(bits.view(narrow.dtype(name)), layout, np.random.default_rng(1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_statistics(name: str, layout: str) -> None:
    ours = content(name, layout)
    expected = statistics(theirs(name, ours))
    assert expected.nan
    assert statistics(ours) == expected
    assert reference.statistics(ours) == reference.statistics(theirs(name, ours))


def same(one: Any, other: Any) -> bool:
    return repr(msgspec.structs.astuple(one)) == repr(msgspec.structs.astuple(other))


@pytest.mark.parametrize("name", NAMES)
def test_pairs(name: str) -> None:
    one, other = content(name, "sliced"), content(name, "sliced", seed=1)
    numbers = np.arange(one.size, dtype=np.float32).reshape(one.shape)
    expected = pair(theirs(name, one), theirs(name, other), kl=True)
    assert expected.ulp_max
    for mine in (one, theirs(name, one)):
        assert same(pair(mine, other, kl=True), expected)
        assert same(pair(mine, numbers), pair(theirs(name, one), numbers))
        assert same(pair(numbers, mine), pair(numbers, theirs(name, one)))
        plain = pair_reference.pair(mine, other)
        assert same(plain, pair_reference.pair(theirs(name, one), theirs(name, other)))
    half = narrow.narrowed(numbers, "bfloat16" if name != "bfloat16" else "float8_e5m2")
    assert pair(one, half).ulp_max is None


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_judgements(name: str) -> None:
    rng = np.random.default_rng(3)
    true = rng.standard_normal((8, 16))
    golden, bias = narrow.narrowed(true, name), narrow.narrowed(rng.standard_normal(16), name)
    rounded = explain(narrow.widened(golden), true)
    assert rounded is not None
    assert rounded.words == f"target is golden rounded to {name}"
    target = narrow.narrowed(narrow.widened(golden) + narrow.widened(bias), name)
    told = explain(target, golden, others={"bias": bias})
    assert told is not None
    assert told == explain(
        theirs(name, target), theirs(name, golden), others={"bias": theirs(name, bias)}
    )
    assert dual_standard(target, golden, true) == dual_standard(
        theirs(name, target), theirs(name, golden), true
    )
    assert Metric("sum", lambda a, b: (a - b).sum())(target, golden) == float(
        (narrow.widened(target).astype(float) - narrow.widened(golden)).sum()
    )


@pytest.mark.parametrize("name", NAMES)
def test_excerpts(name: str) -> None:
    ours = content(name, "sliced")
    assert excerpt(ours) == excerpt(theirs(name, ours))
    assert repr(elements(ours)) == repr(elements(theirs(name, ours)))
