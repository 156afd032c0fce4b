# SPDX-License-Identifier: Apache-2.0
"""Witness `alone`: the element, else its row, without the others, so that another part of a vector kernel computes it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import Bound, Performed, perform

FAILURES = (RuntimeError, IndexError, ValueError, TypeError)


class Alone:
    """Whether the operator treats elements or rows alike need not be known: the answer counts only where it is the true one."""

    words = "alone"

    def element(self, bound: Bound, slot: str, place: tuple[int, ...], shape: tuple[int, ...]) -> torch.Tensor | None:
        """The element alone, where all tensors of its shape can be cut to it; else its part along the first dimension."""
        for cut in (place, place[:1]):
            if all(size == 1 for size in shape[: len(cut)]):
                continue
            try:
                performed = perform(
                    Cut(bound.call, bound.memories, bound.func, bound.writes, shape=shape, cut=cut), Conditions(device="cpu")
                )
            except FAILURES:
                continue
            found = taken(performed, slot, cut, place)
            if found is not None:
                return found
        return None


def taken(performed: Performed, slot: str, cut: tuple[int, ...], place: tuple[int, ...]) -> torch.Tensor | None:
    """The element in what the cut call gave; None where the output was not cut with it."""
    output = performed.outputs.get(slot)
    if output is None or output.dim() != len(place) or tuple(output.shape[: len(cut)]) != (1,) * len(cut):
        return None
    rest = place[len(cut) :]
    if any(index >= size for index, size in zip(rest, output.shape[len(cut) :], strict=True)):
        return None
    return output[(0,) * len(cut) + rest]


@dataclass(eq=False)
class Cut(Bound):
    """The call with every tensor of a shape cut to one index of its first dimensions, copied; others as they are."""

    shape: tuple[int, ...] = ()
    cut: tuple[int, ...] = field(default=())

    def tensors(self, where: Conditions) -> dict[str, torch.Tensor]:
        part = tuple(slice(index, index + 1) for index in self.cut)
        return {
            slot: tensor[part].clone() if tuple(tensor.shape[: len(part)]) == self.shape[: len(part)] else tensor
            for slot, tensor in super().tensors(where).items()
        }
