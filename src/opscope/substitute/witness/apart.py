# SPDX-License-Identifier: Apache-2.0
"""Witness `apart`: every argument contiguous, in fresh memory of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from opscope.operators.catalogue import traits_of
from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import Bound, perform

if TYPE_CHECKING:
    from opscope.substitute.layout import Laid


class Apart:
    """Kernels choose their path by strides; memory that arguments share is no part of the
    mathematics.
    """

    words = "with its arguments contiguous"

    def element(
        self,
        bound: Bound,
        slot: str,
        place: tuple[int, ...],
        shape: tuple[int, ...],  # noqa: ARG002
    ) -> torch.Tensor | None:
        set_apart = apart(bound)
        return (
            None
            if set_apart is None
            else perform(set_apart, Conditions(device="cpu")).outputs[slot][place]
        )


def apart(bound: Bound) -> Bound | None:
    """The call with its arguments contiguous and apart; None where they are so already, and where
    the operator speaks of their memory.
    """
    if bound.name.startswith("as_strided"):
        return None
    laid = list(bound.call.tensors.values())
    if not share_memory(laid) and all(is_dense(each.shape, each.stride) for each in laid):
        return None
    return ApartBound(bound.call, bound.memories, bound.func, bound.writes)


def is_product_of_transposes(bound: Bound) -> bool:
    """Whether the call multiplies matrices that lie by columns where they do not lie by rows, each
    in memory of its own: every library takes such by a flag, in the kernel that it has for others.
    """
    laid = list(bound.call.tensors.values())
    return (
        traits_of(bound.call.op).contraction
        and not share_memory(laid)
        and all(
            is_dense(each.shape, each.stride)
            or (len(each.shape) in (2, 3) and is_dense(swapped(each.shape), swapped(each.stride)))
            for each in laid
        )
    )


def share_memory(laid: Sequence[Laid]) -> bool:
    """Whether several tensors look at one piece of memory."""
    return len({each.memory for each in laid}) < len(laid)


def swapped(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes or strides with the last two dimensions exchanged."""
    return (*numbers[:-2], numbers[-1], numbers[-2])


@dataclass(eq=False)
class ApartBound(Bound):
    """The call on contiguous tensors that share no memory; a tensor that stands in several slots is
    copied for each.
    """

    def tensors(self, where: Conditions) -> dict[str, torch.Tensor]:
        return {
            slot: tensor.clone(memory_format=torch.contiguous_format)
            for slot, tensor in super().tensors(where).items()
        }


def is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether elements lie one after the other in C order, and no step is 0, which libraries take
    amiss even where there is but one element.
    """
    step = 1
    for size, each in zip(reversed(shape), reversed(stride), strict=True):
        if (size > 1 and each != step) or each == 0:
            return False
        step *= size
    return True
