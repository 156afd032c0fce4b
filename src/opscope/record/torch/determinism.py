# SPDX-License-Identifier: Apache-2.0
"""Whether a call that is made once more gives the same bits."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from opscope.judge.replayed import ROUNDOFF
from opscope.judge.terms import terms_of
from opscope.judge.tolerance import tolerance_of
from opscope.substitute.arguments import Conditions, dtype_name
from opscope.substitute.examine import same_bits
from opscope.substitute.perform import Bound, outputs_of, perform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.record.torch.capture import Captured
    from opscope.substitute.layout import Call

LEAST = 16  # roundings of the largest element that no operator is accused of


@dataclass(frozen=True)
class Difference:
    """How far one output of two results of the same inputs is apart."""

    slot: str
    error: float
    reason: str
    beyond_rounding: bool


def repeat(
    captured: Captured, func: Any, args: Any, kwargs: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """Outputs by slot of the same call made once more; on copies where it writes to its arguments.
    Generators stay as they are.
    """
    with kept_generators(captured):
        if captured.writes:
            return perform(Bound(captured.call, captured.pieces, func), Conditions()).outputs
        return outputs_of(func(*args, **kwargs), captured.tensors, captured.writes)


@contextmanager
def kept_generators(captured: Captured) -> Iterator[None]:
    """Puts the default generators back as they were, for kernels that draw from them."""
    state = torch.get_rng_state()
    device = next(
        (tensor.device for tensor in captured.tensors.values() if tensor.device.type == "cuda"),
        None,
    )
    on_device = torch.cuda.get_rng_state(device) if device is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if device is not None and on_device is not None:
            torch.cuda.set_rng_state(on_device, device)


def differences(
    call: Call, before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]
) -> list[Difference]:
    """The outputs of a call in which two results are not the same bit for bit, the furthest apart
    first.
    """
    apart: list[Difference] = []
    for slot, one in before.items():
        other = after.get(slot)
        if other is None or same_bits(one, other):
            continue
        apart.append(difference(slot, one, other, roundings=roundings(call, one)))
    return sorted(apart, key=lambda each: (each.beyond_rounding, each.error), reverse=True)


def roundings(call: Call, output: torch.Tensor) -> float:
    """How far two results of a healthy kernel may lie apart, as a share of the largest: sums may be
    taken in another order.
    """
    terms = terms_of(call.op, [laid.shape for laid in call.tensors.values()], [tuple(output.shape)])
    rule = tolerance_of(call.op, dtype_name(output), terms=terms)
    return max(LEAST * ROUNDOFF.get(dtype_name(output), 0.0), rule.share if rule.judged else 0.0)


def difference(
    slot: str, one: torch.Tensor, other: torch.Tensor, *, roundings: float
) -> Difference:
    """How far two results are apart that are not the same; roundings as a share of the largest
    element are no difference.
    """
    if one.shape != other.shape or one.dtype is not other.dtype:
        return Difference(
            slot,
            float("inf"),
            f"output {slot} has another shape or type the second time",
            beyond_rounding=True,
        )
    if not (one.dtype.is_floating_point or one.dtype.is_complex):
        return Difference(
            slot,
            float((one != other).sum()),
            f"output {slot} holds other integers the second time",
            beyond_rounding=True,
        )
    wide = torch.complex128 if one.dtype.is_complex else torch.float64
    left, right = one.to(wide), other.to(wide)
    if (left.isnan() != right.isnan()).any() or (left.isinf() != right.isinf()).any():
        return Difference(
            slot,
            float("inf"),
            f"output {slot} has NaN or Inf elsewhere the second time",
            beyond_rounding=True,
        )
    apart = (left - right).abs()
    error = float(apart[apart.isfinite()].max()) if apart.isfinite().any() else 0.0
    size = float(left[left.isfinite()].abs().max()) if left.isfinite().any() else 0.0
    reason = f"output {slot} differs by up to {error:.3g} when the same call is made again"
    return Difference(slot, error, reason, beyond_rounding=error > roundings * size)
