# SPDX-License-Identifier: Apache-2.0
"""What calls do to values, as rules over the catalogue of operators."""

from __future__ import annotations

from functools import lru_cache

from opscope.operators.catalogue import family, remembered, traits_of, works_in_place
from opscope.operators.spelling import COLLECTIVE, world_of


@remembered(8192)
def removes(op: str, *, masked: bool) -> bool:
    """Whether a call leaves out what is not finite on purpose, picks other elements, bounds it or
    puts something else there; masked: it reads a mask of bools.
    """
    known = traits_of(op)
    return (
        known.masks
        or known.picks
        or (known.guards and (masked or known.places or family(op).startswith("nan")))
    )


@lru_cache(maxsize=8192)
def is_collective(op: str, phase: str | None = None) -> bool:
    """Whether the call exchanges values with other ranks."""
    return phase == "communication" or world_of(op) == COLLECTIVE


HANDS_ON = frozenset(
    {"wait_tensor", "_wrap_tensor_autograd"}
)  # give what a functional collective began as their result


@remembered(65536)
def is_overwritten(op: str, slot: str) -> bool:
    """Whether what this input held before the call cannot show in the result: out= arguments,
    destinations of copy_ and fill_.
    """
    if slot == "kwargs.out" or slot.startswith("kwargs.out."):
        return True
    head = slot.partition(".")[0]
    return traits_of(op).overwrites == head and (is_collective(op) or works_in_place(op))


@lru_cache(maxsize=8192)
def is_per_element(op: str) -> bool:
    """Whether the operator runs over lists of tensors, the i-th result depending on the i-th of
    each list only.
    """
    name = family(op)
    return (
        name.startswith(("_foreach_", "_fused_"))
        or name == "_amp_foreach_non_finite_check_and_unscale"
    )


@lru_cache(maxsize=65536)
def element_of(slot: str) -> int | None:
    """Position in its list of a slot of an operator over lists ("1.3" -> 3); None for an argument
    all share.
    """
    head, dot, last = slot.rpartition(".")
    if not dot or head == "kwargs" or not last.isdigit():
        return None
    return int(last)


def is_workspace(op: str, dtype: str) -> bool:
    """Whether a tensor of a call is a library's own scratch memory, which is handed to the backward
    kernel and means nothing else.
    """
    return dtype == "uint8" and any(word in op for word in ("rnn", "cudnn", "miopen", "mkldnn"))
