# SPDX-License-Identifier: Apache-2.0
"""The verdict of integers that came of integers alone: the operator gives the same ones from
contiguous arguments, and from int64, where that holds them.

Of int64 only what fits the result's own type is compared: what wrapped is scan's to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from opscope.judge.replayed import Replayed
from opscope.operators.catalogue import traits_of
from opscope.substitute.arguments import Conditions, dtype_named
from opscope.substitute.cpu import Cpu
from opscope.substitute.perform import Bound, Performed
from opscope.substitute.truth import Attempt, with_filled_memory
from opscope.substitute.witness.apart import apart

INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "bool"})
NARROW = frozenset({torch.int8, torch.int16, torch.int32, torch.uint8})


@dataclass(frozen=True)
class Form:
    """Another form of a call of integers: how it is made, in words, and how many witnesses it is
    together with the definition of what it makes.
    """

    bound: Bound
    words: str
    witnesses: int


def judge_integers(bound: Bound, slot: str, tensor: torch.Tensor) -> Replayed:
    """The verdict of one output. A choice among equal elements may be another one in another form;
    what shares memory or is written says nothing.
    """
    laid = list(bound.call.tensors.values())
    asked = not (
        traits_of(bound.call.op).chooses
        or bound.writes
        or len({each.memory for each in laid}) < len(laid)
        or any(each.dtype not in INTEGERS for each in laid)
    )
    for form in forms(bound) if asked else ():
        other = agreed(form.bound, slot)
        if other is not None and other.shape == tensor.shape:
            told = contradiction(form, slot, tensor, other)
            if told is not None:
                return told
    return Replayed(verdict="agree", slot=slot, size=tensor.numel())


def forms(bound: Bound) -> Iterator[Form]:
    set_apart = apart(bound)
    if set_apart is not None:
        yield Form(set_apart, "with its arguments contiguous", 2)
    narrow = any(dtype_named(laid.dtype) in NARROW for laid in bound.call.tensors.values())
    if narrow and not traits_of(bound.call.op).typed:
        yield Form(
            InInt64(bound.call, bound.memories, bound.func, bound.writes),
            "in int64, where no argument wraps,",
            1,
        )


def agreed(bound: Bound, slot: str) -> torch.Tensor | None:
    """What a form gives each time, whatever fresh memory holds; None where it is undefined in this
    form as well.
    """
    made = [Attempt(Cpu.name, run).output(slot) for run in of_any_memory(bound)]
    other = made[0]
    if other is None or not all(each is not None and torch.equal(each, other) for each in made):
        return None
    return other


def of_any_memory(bound: Bound) -> Iterator[Callable[[], Performed]]:
    """The call twice, and with fresh memory filled with the largest integers."""
    yield lambda: Cpu().run(bound)
    yield lambda: Cpu().run(bound)
    yield lambda: with_filled_memory(lambda: Cpu().run(bound))


def contradiction(
    form: Form, slot: str, tensor: torch.Tensor, other: torch.Tensor
) -> Replayed | None:
    """The first element that another form gives otherwise, and holds in the element type."""
    if (tensor.dtype is torch.bool) != (other.dtype is torch.bool) or other.is_floating_point():
        return None
    wrong = ((other != tensor) & (other.to(tensor.dtype) == other)).nonzero()
    if not len(wrong):
        return None
    index = tuple(map(int, wrong[0]))
    told = other[index].item()
    return Replayed(
        verdict="wrong",
        slot=slot,
        reason=f"other numbers; {form.words} the operator gives {told!r}",
        size=tensor.numel(),
        elements=len(wrong),
        worst=index,
        got=repr(+tensor[index].item()),  # of a boolean the number that a case can hold
        expected=repr(+told),
        tolerance=0.0,
        witnesses=form.witnesses,
    )


@dataclass(eq=False)
class InInt64(Bound):
    """The call with its narrow integers in int64."""

    def tensors(self, where: Conditions) -> dict[str, torch.Tensor]:
        return {
            slot: tensor.to(torch.int64) if tensor.dtype in NARROW else tensor
            for slot, tensor in super().tensors(where).items()
        }
