# SPDX-License-Identifier: Apache-2.0
"""What error analysis says of a call whose inputs agree: how far its output may be off, from its
operator, types and sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opscope.judge import families
from opscope.judge.agreement import Agreement, agrees
from opscope.judge.terms import magnitude_of, terms_of
from opscope.judge.tolerance import tolerance_of

if TYPE_CHECKING:
    from opscope.kernels.pair import Pair
    from opscope.run.schema import Call, Tensor


def bound_of(call: Call, tensors: Sequence[Tensor], metrics: Pair, dtype: str) -> Agreement | None:
    """The verdict on one output of a call, from all metrics of it; None for an operator without an
    analysis, or without shapes.
    """
    if families.tolerance_kind(call.op) in ("unknown", "unjudged"):
        return None
    inputs = [
        tensor
        for tensor in tensors
        if tensor.io == "input" and tensor.dtype not in ("bool", "unknown")
    ]
    shapes = {
        io: [tensor.shape for tensor in tensors if tensor.io == io and tensor.shape is not None]
        for io in ("input", "output")
    }
    if not shapes["output"]:
        return None
    terms = terms_of(call.op, shapes["input"], shapes["output"])
    return agrees(
        metrics,
        tolerance_of(call.op, dtype, terms=terms, magnitude=magnitude_of(call.op, terms, inputs)),
    )
