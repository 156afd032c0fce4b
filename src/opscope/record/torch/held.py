# SPDX-License-Identifier: Apache-2.0
"""Calls that are kept as they were made, to be checked when the program ends: of every signature
the latest that was not checked.

Copying a call takes a small part of the time that checking it takes, so each signature can have one
of late in the program, however short that is. What goes wrong in the last fifth of a program is
found this way where the budget pays for no sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import torch

    from opscope.record.torch.budget import Signature
    from opscope.substitute.layout import Given

Request = TypeVar("Request")
ROOM = 128 << 20  # bytes of all calls that are held together


@dataclass(eq=False)
class HeldCall(Generic[Request]):
    """A call that waits to be checked: what is asked of it, its memories and those of what it gave,
    copied, and its step.
    """

    request: Request
    pieces: list[torch.Tensor]
    given: Given
    step: int


class Held(Generic[Request]):
    """The latest unchecked call of each signature. keep says how many steps stay in the run, None
    for all: older calls are let go.
    """

    def __init__(self, keep: int | None) -> None:
        self.keep = keep
        self.size = 0
        self.ended = 0
        self.calls: dict[Signature, HeldCall[Request]] = {}

    def put(
        self, signature: Signature, request: Request, pieces: list[torch.Tensor], given: Given
    ) -> None:
        """Copy a call in place of the one that is held of its signature, if there is room."""
        signature.latest = signature.seen
        before = self.calls.get(signature)
        room = before.pieces if before is not None else []
        self.drop(signature)
        size = size_of(pieces)
        if self.size + size <= ROOM:
            self.size += size
            self.calls[signature] = HeldCall(request, copied(pieces, room), given, self.ended)

    def drop(self, signature: Signature) -> None:
        """A later call of this signature has been taken."""
        held = self.calls.pop(signature, None)
        if held is not None:
            self.size -= size_of(held.pieces)

    def step_ends(self) -> None:
        """Let calls go whose step the run will not hold."""
        self.ended += 1
        if self.keep is None:
            return
        for signature in [
            each for each, held in self.calls.items() if held.step < self.ended - self.keep
        ]:
            self.drop(signature)

    def take(self) -> Iterator[HeldCall[Request]]:
        """Every call, each let go when the next is asked for."""
        for signature in list(self.calls):
            yield self.calls[signature]
            self.drop(signature)


def copied(pieces: list[torch.Tensor], room: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies, in the memory of the earlier ones where these are as large: fresh memory takes as
    long as the copying.
    """
    if [form(piece) for piece in pieces] != [form(piece) for piece in room]:
        return [piece.clone() for piece in pieces]
    return [old.copy_(new) for old, new in zip(room, pieces, strict=True)]


def form(piece: torch.Tensor) -> tuple[object, ...]:
    return piece.shape, piece.dtype, piece.device


def size_of(pieces: list[torch.Tensor]) -> int:
    return sum(piece.numel() * piece.element_size() for piece in pieces)
