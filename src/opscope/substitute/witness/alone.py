# SPDX-License-Identifier: Apache-2.0
"""Witness `alone`: the element, else its row, without the others, so that another part of a vector
kernel computes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from opscope.judge.families import tolerance_kind
from opscope.operators.catalogue import family
from opscope.substitute.arguments import Conditions, dtype_named
from opscope.substitute.perform import Bound, Performed, perform

FAILURES = (RuntimeError, IndexError, ValueError, TypeError)


class Alone:
    """Whether the operator treats elements or rows alike need not be known: the answer counts only
    where it is the true one.
    """

    words = "alone"

    def element(
        self, bound: Bound, slot: str, place: tuple[int, ...], shape: tuple[int, ...]
    ) -> torch.Tensor | None:
        """The element alone, where all tensors have its shape; else its part along the first
        dimension, where they agree on that.

        Not every kernel looks whether its arguments fit: what is cut must make a call that a
        program could make.
        """
        for cut in (place, place[:1]):
            if all(size == 1 for size in shape[: len(cut)]) or not fits(bound, shape, len(cut)):
                continue
            try:
                performed = perform(
                    Cut(bound.call, bound.memories, bound.func, bound.writes, shape=shape, cut=cut),
                    Conditions(device="cpu"),
                )
            except FAILURES:
                continue
            element = taken(performed, slot, cut, place)
            if element is not None:
                return element
        return None


def fits(bound: Bound, shape: tuple[int, ...], depth: int) -> bool:
    """Whether so many first dimensions of a shape can be cut to one index in every tensor alike,
    and the rest of the call still fits.

    A product's operands agree in dimensions that mean different things, and indices name places of
    what would be cut away. An optimizer's operator takes lists of tensors, and treats those of each
    place by themselves, element by element.
    """
    kind = tolerance_kind(family(bound.call.op))
    if kind == "optimizer":
        return depth == len(shape)
    shapes = [laid.shape for laid in bound.call.tensors.values() if laid.shape]
    if depth == len(shape) != 1:
        indexed = any(not is_number(laid.dtype) for laid in bound.call.tensors.values())
        return not indexed and all(each in (shape, (1,)) for each in shapes)
    rows = [each for each in shapes if len(each) == len(shape)]
    others = [each for each in shapes if len(each) != len(shape)]
    apart = kind not in ("product", "attention")
    return (
        apart
        and all(each[0] == shape[0] for each in rows)
        and all(each[0] != shape[0] for each in others)
    )


def is_number(dtype: str) -> bool:
    """Whether elements of a type are numbers that count or measure, not places."""
    return dtype_named(dtype).is_floating_point or dtype_named(dtype).is_complex or dtype == "bool"


def taken(
    performed: Performed, slot: str, cut: tuple[int, ...], place: tuple[int, ...]
) -> torch.Tensor | None:
    """The element in what the cut call gave; None where the output was not cut with it."""
    output = performed.outputs.get(slot)
    if (
        output is None
        or output.dim() != len(place)
        or tuple(output.shape[: len(cut)]) != (1,) * len(cut)
    ):
        return None
    rest = place[len(cut) :]
    if any(index >= size for index, size in zip(rest, output.shape[len(cut) :], strict=True)):
        return None
    return output[(0,) * len(cut) + rest]


@dataclass(eq=False)
class Cut(Bound):
    """The call with every tensor of a shape cut to one index of its first dimensions, copied;
    others as they are.
    """

    shape: tuple[int, ...] = ()
    cut: tuple[int, ...] = field(default=())

    def tensors(self, where: Conditions) -> dict[str, torch.Tensor]:
        part = tuple(slice(index, index + 1) for index in self.cut)
        return {
            slot: tensor[part].clone()
            if tuple(tensor.shape[: len(part)]) == self.shape[: len(part)]
            else tensor
            for slot, tensor in super().tensors(where).items()
        }
