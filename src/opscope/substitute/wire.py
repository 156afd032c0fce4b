# SPDX-License-Identifier: Apache-2.0
"""Messages between a program and the process that makes its calls again: length, then msgpack;
memories lie in shared files.

Both ends are started by opscope; nothing here is read from a file or a network.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from opscope.judge.replayed import Replayed
from opscope.run.descriptor import Descriptor
from opscope.substitute.examine import Answer
from opscope.substitute.layout import Call, Given, Memory

ALIGNMENT = 64
KEEP = 64 << 20  # bytes that a shared file keeps for the next call


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call to examine (what it gave stands in given) or to make on the substitute of that name.

    spots: byte of the shared file of `slot` at which each memory begins, those of the call first;
    empty where the call moves no values (given has no memories of its own): then the places of its
    outputs are judged. flaky are outputs that came out otherwise when the program made the call
    again, and by how much.
    """

    ticket: int
    slot: int
    size: int
    call: Call
    spots: tuple[int, ...]
    given: Given = Given(outputs={})
    substitute: str = ""
    thorough: bool = True
    accumulation: float | None = None
    flaky: dict[str, float] = {}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of an examined call, or what the substitute gave: given.memories lie at spots; error
    says why there is neither.

    inside names the operators that the kernel of a wrong call calls; undefined those outputs among
    the flaky ones that a healthy kernel may give otherwise the second time.
    """

    ticket: int
    verdict: Replayed | None = None
    substitute: str = ""
    seconds: float = 0.0
    inside: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    given: Given | None = None
    spots: tuple[int, ...] = ()
    size: int = 0
    random: bytes | None = None
    error: str = ""

    @classmethod
    def of(
        cls,
        ticket: int,
        answer: Answer,
        *,
        inside: tuple[str, ...] = (),
        undefined: tuple[str, ...] = (),
    ) -> Reply:
        return cls(
            ticket=ticket,
            verdict=answer.verdict,
            substitute=answer.substitute,
            seconds=answer.seconds,
            inside=inside,
            undefined=undefined,
        )


def encode(message: Request | Reply) -> bytes:
    """The message with its length in front."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(8, "little") + body


def places(memories: Sequence[Memory], start: int = 0) -> tuple[list[int], int]:
    """Where memories lie one after the other, each aligned as its original was, and where the last
    one ends.
    """
    spots = []
    for memory in memories:
        start += (memory.skew - start) % ALIGNMENT
        size = memory.size
        spots.append(start)
        start += size
    return spots, start


class SharedFile:
    """A file without a name that two processes map; it grows as it is asked to, and is given back
    when it was large.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None

    def view(self, size: int) -> torch.Tensor:
        """Its first bytes as a tensor."""
        if self._map is None or len(self._map) < size:
            room = max(size, mmap.PAGESIZE)
            if self.descriptor.stat().st_size < room:
                os.ftruncate(self.descriptor.number(), room)
            self._map = mmap.mmap(self.descriptor.number(), self.descriptor.stat().st_size)
        return torch.frombuffer(self._map, dtype=torch.uint8)

    def pieces(self, spots: Sequence[int], sizes: Sequence[int], total: int) -> list[torch.Tensor]:
        """The memories that lie there."""
        whole = self.view(total)
        return [whole[spot : spot + size] for spot, size in zip(spots, sizes, strict=True)]

    def shrink(self) -> None:
        """Give memory back when the file is large; tensors of it must be gone."""
        if self._large():
            self._map = None
            os.ftruncate(self.descriptor.number(), 0)

    def forget(self) -> None:
        """Drop the mapping where the other side will shrink the file."""
        if self._large():
            self._map = None

    def _large(self) -> bool:
        return self.descriptor.stat().st_size > KEEP

    def close(self) -> None:
        self._map = None
        self.descriptor.close()


def read_exactly(descriptor: int, size: int) -> bytes:
    """So many bytes of a pipe; fewer only at its end."""
    parts: list[bytes] = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_message(descriptor: int, kind: Any) -> Any:
    """The next message of a pipe, None at its end."""
    head = read_exactly(descriptor, 8)
    size = int.from_bytes(head, "little")
    body = read_exactly(descriptor, size) if len(head) == 8 else b""
    return msgspec.msgpack.decode(body, type=kind) if len(head) == 8 and len(body) == size else None


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything to a pipe."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
