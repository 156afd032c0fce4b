# SPDX-License-Identifier: Apache-2.0
"""Which calls are checked: the first ones of every signature, then as many as a share of the
program's time allows, and one of the last.

A signature is an operator with the types, shapes and strides of its tensors and its other
arguments. Numbers among these may be others in each step (the step size of an optimizer): an
operator whose numbers keep changing is one signature from then on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

FIRST = 5  # calls of each signature that are checked whatever it costs
# elements of the largest tensor from which on only so many are: the budget pays for more
LARGE, FIRST_LARGE = 1 << 20, 2
# part of the share that sampling has for itself, whatever recording and first checks take
FLOOR = 0.25
# times the calls a signature had at its latest check or copy, after which one is copied to be
# checked at the end
LATER = 1.25
VARIANTS = 8  # signatures that differ only in numbers, before numbers count no more
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
SHAPES = 256  # signatures of one operator, before new ones are only sampled


@dataclass(eq=False)
class Signature:
    """Calls seen and checked of one signature; seconds its checks took, sampled those of checks
    beyond the first.

    latest is how many calls had been seen at the latest that was checked or is held; holding
    whether this one is to be held.
    """

    seen: int = 0
    checked: int = 0
    seconds: float = 0.0
    sampled: float = 0.0
    wrong: int = 0
    flaky: int = 0
    first: int = FIRST
    sampling: bool = True  # whether it is sampled after the first calls
    latest: int = 0
    holding: bool = False

    @property
    def closely(self) -> bool:
        """Whether the call that is being checked is also made again here: the first two, and those
        that are sampled.
        """
        return not self.holding and (self.checked < 2 or self.checked >= self.first)

    @property
    def cost(self) -> float:
        """Mean seconds of a check."""
        return self.seconds / max(self.checked, 1)


class Rest(NamedTuple):
    """How long a signature may be left alone: seconds, or until sampling has taken so many in all;
    and no more than so many calls.
    """

    seconds: float
    sampled: float
    calls: float


NEVER = Rest(math.inf, math.inf, math.inf)  # it is checked again


class Budget:
    """Decides by the clock. share is the part of the program's time that checking may take, None
    for no limit.
    """

    def __init__(self, share: float | None) -> None:
        self.share = share
        self.spent = 0.0
        self.sampled = 0.0
        self.checked = 0
        self.seen = 0
        self.signatures: dict[Hashable, Signature] = {}
        self._variants: dict[Hashable, int] = {}
        self._shapes: dict[Any, int] = {}
        self._started = time.perf_counter()

    def signature(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Signature:
        """The signature of a call."""
        try:
            key = (func, key_of(args), key_of(tuple(kwargs.items())) if kwargs else None)
            known = self.signatures.get(key)
        except TypeError:  # an argument without a hash
            key, known = (func, None, None), self.signatures.get((func, None, None))
        return known if known is not None else self._new(key)

    def _new(self, key: tuple[Any, Any, Any]) -> Signature:
        func = key[0]
        general = (func, without_numbers(key[1]), without_numbers(key[2]))
        variants = self._variants[general] = self._variants.get(general, 0) + 1
        if variants > VARIANTS:
            known = self.signatures.get(("general", *general))
            if known is None:
                known = self.signatures[("general", *general)] = Signature()
            return known
        shapes = self._shapes[func] = self._shapes.get(func, 0) + 1
        first = FIRST_LARGE if largest_of(key) > LARGE else FIRST
        signature = self.signatures[key] = Signature(first=first if shapes <= SHAPES else 0)
        return signature

    def wants(self, signature: Signature, now: float, elsewhere: float) -> bool:
        """Whether to check the next call of a signature; elsewhere is the time that recording has
        taken, in seconds.
        """
        signature.seen += 1
        self.seen += 1
        if signature.checked < signature.first or self.share is None:
            return True
        if not signature.sampling:
            return False
        if not self.affords(signature.cost, self.sampled, now, elsewhere):
            return False
        return signature.sampled * len(self.signatures) <= self.sampled

    def affords(self, cost: float, sampled: float, now: float, elsewhere: float) -> bool:
        """Whether there is time for a check that is none of the first, of a kind that has had so
        many seconds sampled; all in seconds.
        """
        if self.share is None:
            return True
        own = now - self._started - self.spent - elsewhere
        within = self.spent + cost <= self.share * own - elsewhere
        return within or sampled + cost <= FLOOR * self.share * own

    def holds(self, signature: Signature) -> bool:
        """Whether to copy this call, which is not checked now, so that it can be checked when the
        program ends.
        """
        return (
            bool(self.share)
            and signature.sampling
            and signature.seen >= int(LATER * signature.latest)
        )

    def rest(self, signature: Signature, now: float, elsewhere: float) -> Rest:
        """The least after which `wants` or `holds` may answer otherwise for a signature that both
        have declined.

        What checks and recording have taken only grows, and the program's own time no faster than
        the clock.
        """
        if not signature.sampling or not self.share:
            return NEVER
        own = now - self._started - self.spent - elsewhere
        within = (self.spent + signature.cost + elsewhere) / self.share
        floor = (self.sampled + signature.cost) / (FLOOR * self.share)
        calls = int(LATER * signature.latest) - signature.seen - 1
        return Rest(
            max(0.0, min(within, floor) - own), signature.sampled * len(self.signatures), calls
        )

    def rested(self, signature: Signature, calls: int) -> None:
        """Count calls that were made unasked."""
        signature.seen += calls
        self.seen += calls

    def affords_truth(self, signature: Signature) -> bool:
        """Whether the next check asks for the true result, and for witnesses, even where the
        trusted kernel gives the same bits.

        The first call of a signature may be the only one that is wrong; by the first that is
        sampled, or held until the end where none was, the program's values have changed.
        """
        return signature.checked in (0, signature.first)

    def beyond(self, elsewhere: float) -> float:
        """Seconds by which recording (elsewhere) and checks together have exceeded their share of
        the program's own time.
        """
        if self.share is None:
            return 0.0
        own = time.perf_counter() - self._started - self.spent - elsewhere
        return max(0.0, self.spent + elsewhere - self.share * own)

    def took(self, signature: Signature, seconds: float, *, new: bool) -> None:
        """Account for time that a check took; a check may take several times, of which one is
        new.
        """
        self.spent += seconds
        if signature.checked >= signature.first:
            signature.sampled += seconds
            self.sampled += seconds
        signature.seconds += seconds
        if new:
            signature.latest = max(signature.latest, signature.seen)
            signature.checked += 1
            self.checked += 1


def key_of(value: Any) -> Hashable:
    """A hashable for an argument: of a tensor its type, shape and strides."""
    kind = type(value)
    if kind in PLAIN or isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_nested:
            return (value.dtype, value.layout, "no plain memory")
        return (value.dtype, value.shape, value.stride())
    if kind is tuple or kind is list:
        return tuple([key_of(each) for each in value])
    if kind is float and math.isnan(value):
        return "nan"
    return (kind, value) if isinstance(value, (bool, int, float)) else value


def largest_of(key: Any) -> int:
    """Elements of the largest tensor of a signature's key."""
    if isinstance(key, torch.Size):
        return key.numel()
    return max(map(largest_of, key), default=0) if isinstance(key, tuple) else 0


def without_numbers(key: Any) -> Hashable:
    """The same key with its plain numbers left out."""
    if isinstance(key, torch.Size):
        return key
    if isinstance(key, tuple):
        key = (
            key[0] if len(key) == 2 and key[0] in (int, float) else tuple(map(without_numbers, key))
        )
    reduced: Hashable = key
    return reduced
