# SPDX-License-Identifier: Apache-2.0
"""Witnesses against a kernel that every process shares: the same operator in the same element
types, called in another form.

A result far from the true one accuses nobody: the operator may be ill-conditioned, or all its
kernels coarse. It is the kernel's fault where the operator itself, asked in another form, gives the
true result in the same precision. A witness is one module with one class, and one line in WITNESSES
(the cheapest first).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import msgspec
import torch

from opscope.substitute.perform import Bound
from opscope.substitute.witness.alone import FAILURES, Alone
from opscope.substitute.witness.apart import Apart
from opscope.substitute.witness.plain import Plain

Place = tuple[int, ...]
CRUDE = 0.1


class Witness(Protocol):
    """Another form of a call."""

    @property
    def words(self) -> str:
        """How the call was made, as the verdict says it."""
        ...

    def element(self, bound: Bound, slot: str, place: Place, shape: Place) -> torch.Tensor | None:
        """The element at a place of an output of this shape; None where this form says nothing new.
        Errors of the operator pass through.
        """
        ...


WITNESSES: tuple[Witness, ...] = (Alone(), Apart(), Plain())


class Testimony(msgspec.Struct, frozen=True):
    """What a witness gave in place of an element, and how it was asked."""

    words: str
    value: float | complex


def testimony(
    bound: Bound, slot: str, place: Place, shape: Place, *, near: Callable[[float | complex], bool]
) -> Testimony | None:
    """The first witness whose element is near the true one; None where none is."""
    for witness in WITNESSES:
        try:
            element = witness.element(bound, slot, place, shape)
        except FAILURES:
            continue
        if element is not None and near(value := element.item()):
            return Testimony(witness.words, value)
    return None


def near_by(true: float | complex, tolerance: float | None) -> Callable[[float | complex], bool]:
    """Whether a value is as far from the true one as is allowed; where no tolerance is known, of
    the same kind and to a tenth the same.
    """
    allowed = CRUDE * abs(true) if tolerance is None else tolerance

    def near(value: float | complex) -> bool:
        if math.isfinite(abs(true)):
            return abs(value - true) <= allowed
        return str(value) == str(true)

    return near
