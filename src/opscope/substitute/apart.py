# SPDX-License-Identifier: Apache-2.0
"""The program's side of the process that makes its calls again: starts it, hands it calls, takes its replies.

The process is started at once and answers when it is ready; a few calls may be under way at a time, each in a shared file of
its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from opscope.errors import UnavailableError
from opscope.substitute.layout import Call, Given, Memory
from opscope.substitute.wire import Reply, Request, SharedFile, encode, places, read_message, write_all

SLOTS = 16
ROOM = 1 << 30  # bytes of calls that may be under way together, before another one begins
BOOTSTRAP = "import sys; sys.path[:] = {path!r}; from opscope.substitute.worker import main; main({requests}, {replies}, {files})"


class Apart:
    """One process that makes calls again. UnavailableError when it cannot be started or has ended."""

    def __init__(self) -> None:
        self.files = [SharedFile() for _ in range(SLOTS)]
        self.free = list(range(SLOTS))
        self._under_way: dict[int, Request] = {}
        self._next = 0
        self.ready = False  # whether it has ever answered: its start takes a second or more
        self._pid = os.getpid()
        there, self._requests = os.pipe()
        self._replies, back = os.pipe()
        path = [entry for entry in sys.path if entry and not entry.endswith(f"record{os.sep}bootstrap")]
        home = str(Path(__file__).resolve().parents[2])
        code = BOOTSTRAP.format(path=[home, *path], requests=there, replies=back, files=[file.descriptor for file in self.files])
        descriptors = (there, back, *(file.descriptor for file in self.files))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", code], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, pass_fds=descriptors, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UnavailableError(f"no process for substitutes: {error}; check that {sys.executable} can be run") from error
        finally:
            os.close(there)
            os.close(back)

    @property
    def full(self) -> bool:
        """Whether a reply has to be taken before another call can be handed over."""
        return not self.free or sum(request.size for request in self._under_way.values()) > ROOM

    def submit(self, call: Call, memories: Sequence[torch.Tensor], given: Given, *, thorough: bool, accumulation: float | None) -> int:
        """Hand a call over to be examined and return its ticket; memories are those of the call, then those of given."""
        slot = self.free.pop()
        spots, size = self._fill(slot, (*call.memories, *given.memories), memories)
        request = Request(
            ticket=self._ticket(), slot=slot, size=size, call=call, spots=spots, given=given, thorough=thorough, accumulation=accumulation
        )
        self._send(request)
        return request.ticket

    def substitute(self, kind: str, call: Call, memories: Sequence[torch.Tensor]) -> tuple[Reply, list[torch.Tensor]]:
        """Make a call on a substitute and wait: the reply, and given's memories, copied. UnavailableError with the reason."""
        slot = self.free.pop()
        spots, size = self._fill(slot, call.memories, memories)
        self._send(Request(ticket=self._ticket(), slot=slot, size=size, call=call, spots=spots, substitute=kind))
        reply = self._read()
        if reply.error or reply.given is None:
            self._release(reply.ticket)
            raise UnavailableError(reply.error or "the substitute gave nothing")
        sizes = [memory.size for memory in reply.given.memories]
        pieces = [piece.clone() for piece in self.files[slot].pieces(reply.spots, sizes, reply.size)]
        self._release(reply.ticket)
        return reply, pieces

    def replies(self, *, wait: bool = False) -> list[Reply]:
        """Replies that have come; with wait at least one, as long as calls are under way. Each call's file is still as it was."""
        found: list[Reply] = []
        while self._under_way and ((wait and not found) or self._ready()):
            found.append(self._read())
            if wait:
                break
        return found

    def memories(self, ticket: int) -> list[torch.Tensor]:
        """Memories of a call whose reply has not been let go."""
        request = self._under_way[ticket]
        sizes = [memory.size for memory in (*request.call.memories, *request.given.memories)]
        return self.files[request.slot].pieces(request.spots, sizes, request.size)

    def done(self, ticket: int) -> None:
        """The reply has been read: its file may serve another call."""
        self._release(ticket)

    def close(self) -> None:
        """End the process."""
        if os.getpid() != self._pid:
            return  # a forked child leaves it to its parent
        with contextlib.suppress(OSError):
            os.close(self._requests)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            os.close(self._replies)
        for file in self.files:
            with contextlib.suppress(OSError):
                file.close()

    # -- inner ------------------------------------------------------------------------------------------------

    def _ticket(self) -> int:
        self._next += 1
        return self._next

    def _fill(self, slot: int, memories: Sequence[Memory], pieces: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], int]:
        spots, size = places(memories)
        targets = self.files[slot].pieces(spots, [memory.size for memory in memories], size)
        for target, piece in zip(targets, pieces, strict=True):
            target.copy_(piece)
        return tuple(spots), size

    def _send(self, request: Request) -> None:
        self._under_way[request.ticket] = request
        try:
            write_all(self._requests, encode(request))
        except OSError as error:
            raise self._ended() from error

    def _ready(self) -> bool:
        return bool(select.select([self._replies], [], [], 0)[0])

    def _read(self) -> Reply:
        found = read_message(self._replies, Reply)
        if found is None:
            raise self._ended()
        self.ready = True
        reply: Reply = found
        return reply

    def _release(self, ticket: int) -> None:
        slot = self._under_way.pop(ticket).slot
        self.files[slot].shrink()
        self.free.append(slot)

    def _ended(self) -> UnavailableError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        return UnavailableError(f"the process for substitutes ended (exit code {self.process.poll()}); the program goes on without it")


def environment() -> dict[str, str]:
    """That of this process, without opscope's own variables and without devices: the process computes on the CPU.

    Its idle threads leave the cores to the program, and memory that it frees stays at hand for the next call.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPSCOPE", "PYTHON"))}
    devices = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": "", "ASCEND_RT_VISIBLE_DEVICES": ""}
    memory = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
    return {**kept, **devices, **memory, "OMP_WAIT_POLICY": "PASSIVE"}
