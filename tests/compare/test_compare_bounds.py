# SPDX-License-Identifier: Apache-2.0
"""What error analysis allows the output of a call whose inputs agree: told with a finding, and its
doubt where it would allow it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope.compare.verdict.stored_values import bound_of
from opscope.kernels import statistics
from opscope.kernels.pair import pair
from opscope.run.schema import Call, Tensor

RNG = np.random.default_rng(0)
A, B = (
    RNG.standard_normal((16, 256)).astype(np.float32),
    RNG.standard_normal((256, 16)).astype(np.float32),
)
TRUE = A.astype(np.float64) @ B.astype(np.float64)


def row(io: str, slot: str, values: np.ndarray[Any, Any]) -> Tensor:
    known = statistics(values)
    columns = {name: getattr(known, name) for name in ("size", "min", "max", "l2norm")}
    return Tensor(
        process=1, index=1, io=io, slot=slot, dtype=values.dtype.name, shape=values.shape, **columns
    )


def judged(
    op: str,
    target: np.ndarray[Any, Any],
    golden: np.ndarray[Any, Any],
    inputs: list[np.ndarray[Any, Any]],
) -> Any:
    call = Call(
        process=1, rank=0, step=0, index=1, level="operator", phase="forward", op=op, name="c"
    )
    tensors = [row("input", str(place), values) for place, values in enumerate(inputs)]
    return bound_of(
        call, [*tensors, row("output", "0", target)], pair(target, golden), golden.dtype.name
    )


def test_a_product_is_bounded_by_its_terms() -> None:
    golden = TRUE.astype(np.float32)
    assert judged("aten::mm.default", A @ B, golden, [A, B]).verdict in ("equal", "agree")
    found = judged("aten::mm.default", golden * np.float32(1.01), golden, [A, B])
    assert (found.verdict, "of a sum of products of 256 terms" in found.words) == ("differ", True)


def test_what_a_call_only_moves_is_exact() -> None:
    assert judged("aten::view.default", np.nextafter(A, np.float32(9)), A, [A]).verdict == "differ"


@pytest.mark.parametrize("op", ["mine::kernel", "aten::native_dropout.default"])
def test_nothing_is_said_without_an_analysis(op: str) -> None:
    assert judged(op, A * 2, A, [A]) is None
