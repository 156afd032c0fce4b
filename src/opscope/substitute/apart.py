# SPDX-License-Identifier: Apache-2.0
"""The program's side of the process that makes its calls again: starts it, hands it calls, takes
its replies.

The process is started at once and answers when it is ready; a few calls may be under way at a time,
each in a shared file of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from opscope.errors import UnavailableError
from opscope.run.descriptor import Descriptor
from opscope.substitute.layout import Call, Given, Memory
from opscope.substitute.start import Started, start
from opscope.substitute.wire import (
    Reply,
    Request,
    SharedFile,
    encode,
    places,
    read_message,
    write_all,
)

ROOM = 1 << 30  # bytes of calls that may be under way together, before another one begins


class Apart:
    """One process that makes calls again, a new one or one that was started before.
    UnavailableError when it has ended.
    """

    def __init__(self, started: Started | None = None) -> None:
        started = started or start()
        self.process = started.process
        self.files = [
            SharedFile(Descriptor(number, "a file of the process for substitutes"))
            for number in started.files
        ]
        self.free = list(range(len(self.files)))
        self._requests, self._replies = (
            Descriptor(each, "the process for substitutes")
            for each in (started.requests, started.replies)
        )
        self._under_way: dict[int, Request] = {}
        self._next = 0
        self.ready = False  # whether it has ever answered: its start takes a second or more
        self._pid = os.getpid()

    @property
    def full(self) -> bool:
        """Whether a reply has to be taken before another call can be handed over."""
        return not self.free or sum(request.size for request in self._under_way.values()) > ROOM

    def submit(
        self,
        call: Call,
        memories: Sequence[torch.Tensor],
        given: Given,
        *,
        thorough: bool,
        accumulation: float | None,
        flaky: Mapping[str, float] = MappingProxyType({}),
    ) -> int:
        """Hand a call over to be examined and return its ticket; memories are those of the call,
        then those of given.

        Without memories only where its outputs lie is judged: of views, which compute nothing.
        """
        slot = self.free.pop()
        spots, size = (
            self._fill(slot, (*call.memories, *given.memories), memories) if memories else ((), 0)
        )
        request = Request(
            ticket=self._ticket(),
            slot=slot,
            size=size,
            call=call,
            spots=spots,
            given=given,
            thorough=thorough,
            accumulation=accumulation,
            flaky=dict(flaky),
        )
        self._send(request)
        return request.ticket

    def substitute(
        self, kind: str, call: Call, memories: Sequence[torch.Tensor]
    ) -> tuple[Reply, list[torch.Tensor]]:
        """Make a call on a substitute and wait: the reply, and given's memories, copied.
        UnavailableError with the reason.
        """
        slot = self.free.pop()
        spots, size = self._fill(slot, call.memories, memories)
        self._send(
            Request(
                ticket=self._ticket(), slot=slot, size=size, call=call, spots=spots, substitute=kind
            )
        )
        reply = self._read()
        if reply.error or reply.given is None:
            self.done(reply.ticket)
            raise UnavailableError(reply.error or "the substitute gave nothing")
        sizes = [memory.size for memory in reply.given.memories]
        pieces = [
            piece.clone() for piece in self.files[slot].pieces(reply.spots, sizes, reply.size)
        ]
        self.done(reply.ticket)
        return reply, pieces

    def replies(self, *, wait: bool = False) -> list[Reply]:
        """Replies that have come; with wait at least one, as long as calls are under way. Each
        call's file is still as it was.
        """
        come: list[Reply] = []
        while self._under_way and ((wait and not come) or self._ready()):
            come.append(self._read())
            if wait:
                break
        return come

    def memories(self, ticket: int) -> list[torch.Tensor]:
        """Memories of a call whose reply has not been let go; none where none were handed over."""
        request = self._under_way[ticket]
        if not request.spots:
            return []
        sizes = [memory.size for memory in (*request.call.memories, *request.given.memories)]
        return self.files[request.slot].pieces(request.spots, sizes, request.size)

    def done(self, ticket: int) -> None:
        """The reply has been read: its file may serve another call."""
        slot = self._under_way.pop(ticket).slot
        self.files[slot].shrink()
        self.free.append(slot)

    def close(self) -> None:
        """End the process."""
        if os.getpid() != self._pid:
            return  # a forked child leaves it to its parent
        self._requests.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._replies.close()
        for file in self.files:
            file.close()

    # -- inner -------------------------------------------------------------------------------------

    def _ticket(self) -> int:
        self._next += 1
        return self._next

    def _fill(
        self, slot: int, memories: Sequence[Memory], pieces: Sequence[torch.Tensor]
    ) -> tuple[tuple[int, ...], int]:
        spots, size = places(memories)
        targets = self.files[slot].pieces(spots, [memory.size for memory in memories], size)
        for target, piece in zip(targets, pieces, strict=True):
            target.copy_(piece)
        return tuple(spots), size

    def _send(self, request: Request) -> None:
        self._under_way[request.ticket] = request
        try:
            write_all(self._requests.number(), encode(request))
        except OSError as error:
            raise self._ended() from error

    def _ready(self) -> bool:
        waiting = select.poll()  # select() takes no high numbers
        waiting.register(self._number(), select.POLLIN)
        return bool(waiting.poll(0))

    def _number(self) -> int:
        try:
            return self._replies.number()
        except OSError as error:
            raise self._ended() from error

    def _read(self) -> Reply:
        message = read_message(self._number(), Reply)
        if message is None:
            raise self._ended()
        self.ready = True
        reply: Reply = message
        return reply

    def _ended(self) -> UnavailableError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        return UnavailableError(
            f"the process for substitutes ended (exit code {self.process.poll()}); the "
            "program goes on without it"
        )
