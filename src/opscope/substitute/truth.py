# SPDX-License-Identifier: Apache-2.0
"""What a call should have given: the true result in double precision, and how far roundings of the
inputs move it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from opscope.arrays import Array
from opscope.errors import UnavailableError
from opscope.judge.replayed import Terms
from opscope.judge.tolerance import PRECISIONS
from opscope.operators.catalogue import traits_of
from opscope.substitute.arguments import Conditions
from opscope.substitute.cpu import Cpu
from opscope.substitute.decomposition import Decomposition
from opscope.substitute.perform import Bound, Performed
from opscope.substitute.terms import absolute
from opscope.substitute.wider import Float64

FAILURES = (
    RuntimeError,
    NotImplementedError,
    TypeError,
    ValueError,
    IndexError,
    AssertionError,
    LookupError,
    AttributeError,
    OSError,
)


class Attempt:
    """What one substitute gave, or why it gave nothing."""

    def __init__(self, name: str, run: Callable[[], Performed]) -> None:
        self.name = name
        self.reason = ""
        self.performed: Performed | None = None
        try:
            self.performed = run()
        except (UnavailableError, *FAILURES) as error:
            self.reason = (
                f"{name}: {(str(error).strip().splitlines() or [type(error).__name__])[0]}"[:300]
            )

        self._distances: dict[str, tuple[float, float]] = {}

    def output(self, slot: str) -> torch.Tensor | None:
        return None if self.performed is None else self.performed.outputs.get(slot)

    def distance(self, slot: str, tensor: torch.Tensor) -> tuple[float, float]:
        """The largest error of what a kernel gave beside this, and the largest magnitude here; NaN
        where either holds one, or there is no such output. Worked out once for each slot.
        """
        if slot not in self._distances:
            expected = self.output(slot)
            if expected is None:
                return math.nan, math.nan
            wide = expected if expected.is_complex() else expected.to(torch.float64)
            error = float((wide - tensor).abs().max())
            self._distances[slot] = error, float(wide.abs().max())
        return self._distances[slot]


def seeded(bound: Bound) -> Performed:
    """The call on the trusted kernel, from the state of the generator that it had."""
    with drawing_from(bound.call.random):
        return Cpu().run(bound)


@contextlib.contextmanager
def drawing_from(state: bytes | None) -> Iterator[None]:
    """Has the CPU's generator go on from a state, and puts it back; None leaves it as it is."""
    if state is None:
        yield
        return
    before = torch.get_rng_state()
    torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    try:
        yield
    finally:
        torch.set_rng_state(before)


def true_result(bound: Bound) -> Attempt:
    """The call in float64: the operator itself, else its decomposition; nothing where that would be
    another call.
    """
    if traits_of(bound.call.op).typed:
        return Attempt(Float64.name, lambda: refuse(bound))
    first = Attempt("float64", lambda: in_float64(bound))
    if first.performed is not None:
        return first
    second = Attempt(
        "decomposition", lambda: Decomposition(wide=torch.float64, device="cpu").run(bound)
    )
    return second if second.performed is not None else first


def with_filled_memory(run: Callable[[], Performed]) -> Performed:
    """Run with fresh memory filled with NaN and the largest integers."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    # The public function loads torch's compiler first, which takes seconds.
    torch._C._set_deterministic_algorithms(True, warn_only=True)  # noqa: FBT003
    try:
        return run()
    finally:
        torch._C._set_deterministic_algorithms(before[0], warn_only=before[1])


def refuse(bound: Bound) -> Performed:
    raise UnavailableError(f"{bound.call.op} speaks of its element type")


def magnitude(bound: Bound, slot: str, terms: Terms) -> Array | None:
    """The sum of the magnitudes of each element's terms: the operator on absolute values, for
    linear ones and sums.
    """
    if terms.kind != "linear":
        return None
    attempt = Attempt("float64", lambda: absolute(bound))
    sums = attempt.output(slot)
    return None if sums is None else np.abs(as_array(sums))


def in_float64(bound: Bound) -> Performed:
    return Float64(device="cpu").run(bound)


def slack(
    bound: Bound,
    slot: str,
    true: Array | None,
    *,
    unit: float,
    run: Callable[[Bound], Performed] = in_float64,
) -> Array | None:
    """How far changes of the inputs by a unit of them move the true result, made as run does; None
    where it cannot be had.
    """
    moved = []
    for draw in range(DRAWS):
        nudged = Nudged(bound, unit=unit, draw=draw)
        output = Attempt("", lambda: run(nudged)).output(slot)  # noqa: B023 - called at once
        if output is None or true is None or output.shape != true.shape:
            return None
        with np.errstate(all="ignore"):
            moved.append(np.nan_to_num(np.abs(as_array(output) - true), posinf=0.0))
    furthest: Array = np.max(moved, axis=0)
    return furthest


def as_array(tensor: torch.Tensor | None) -> Any:
    """A tensor's elements in float64, complex128, or as the integers they are; None for None."""
    if tensor is None:
        return None
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_complex():
        return tensor.to(torch.complex128).numpy()
    return (tensor.to(torch.float64) if tensor.dtype.is_floating_point else tensor).numpy()


def roundoff(dtype: str) -> float:
    """Unit roundoff of what results of a type are computed in; less than 2**-52 changes no
    double.
    """
    return max(PRECISIONS[dtype].accumulated, 2.0**-52)


# A call with each of its inputs changed by a rounding: what its result changes by then no kernel
# can be blamed for.

DRAWS = 8  # of signs: those of one draw may cancel


class Nudged(Bound):
    """Every element of a call's floating tensors is larger or smaller by `unit` of itself, as a
    draw of that number says.

    Tensors share no memory with each other any more.
    """

    def __init__(self, bound: Bound, *, unit: float, draw: int) -> None:
        super().__init__(bound.call, bound.memories, bound.func, bound.writes)
        self.bound = bound
        self.unit = unit
        self.draw = draw

    def tensors(self, where: Conditions) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.draw)
        return {
            slot: self._nudge(tensor, generator)
            for slot, tensor in self.bound.tensors(where).items()
        }

    def _nudge(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
        return tensor * (1 + self.unit * signs.to(torch.float64))
