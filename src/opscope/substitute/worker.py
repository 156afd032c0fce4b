# SPDX-License-Identifier: Apache-2.0
"""The process that makes calls again: a fresh interpreter with torch alone, where no program has
replaced a kernel.

It reads requests from one pipe and answers on another until the first one ends; memories lie in
shared files that it was given as open descriptors.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Sequence

import torch
from torch.autograd import profiler

from opscope.errors import OpscopeError
from opscope.kernels.calls import head_of
from opscope.operators.catalogue import traits_of
from opscope.run.descriptor import Descriptor
from opscope.substitute.arguments import Conditions, dtype_named
from opscope.substitute.callables import function_of
from opscope.substitute.examine import examine, examine_places, not_defined
from opscope.substitute.layout import WRITTEN, Flags, Given
from opscope.substitute.overlay import package, run_substitute
from opscope.substitute.perform import Bound, perform, strided
from opscope.substitute.truth import FAILURES
from opscope.substitute.wire import (
    Reply,
    Request,
    SharedFile,
    encode,
    places,
    read_message,
    write_all,
)


class Worker:
    """Answers requests; the files are the program's slots."""

    def __init__(self, files: Sequence[SharedFile]) -> None:
        self.files = files
        self.flags: Flags | None = None

    def answer(self, request: Request) -> Reply:
        """Examine a call or make it on a substitute; what went wrong stands in the reply."""
        start = time.perf_counter()
        try:
            self._adopt(request.call.flags)
            return self._substituted(request) if request.substitute else self._examined(request)
        except (OpscopeError, MemoryError, *FAILURES) as error:
            told = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return Reply(
                ticket=request.ticket, error=told[:300], seconds=time.perf_counter() - start
            )

    def _adopt(self, flags: Flags) -> None:
        if flags == self.flags:
            return
        if torch.get_num_threads() != flags.threads:
            torch.set_num_threads(flags.threads)
        torch.set_float32_matmul_precision(flags.matmul_precision)
        torch._C._set_mkldnn_enabled(flags.mkldnn)
        torch.set_flush_denormal(flags.flush_denormal)
        self.flags = flags

    def _memories(self, request: Request) -> list[torch.Tensor]:
        sizes = [memory.size for memory in (*request.call.memories, *request.given.memories)]
        return self.files[request.slot].pieces(request.spots, sizes, request.size)

    def _examined(self, request: Request) -> Reply:
        if not request.spots:
            fresh = [
                torch.empty(memory.size, dtype=torch.uint8) for memory in request.call.memories
            ]
            bound = Bound(request.call, fresh, function_of(request.call))
            return Reply.of(request.ticket, examine_places(bound, request.given.outputs))
        memories = self._memories(request)
        bound = Bound(
            request.call,
            memories[: len(request.call.memories)],
            function_of(request.call),
            written(request.given),
        )
        replaced = request.given.replaced
        target = {}
        for slot, laid in request.given.outputs.items():
            memory = memories[replaced.get(laid.memory, laid.memory)]
            target[slot] = strided(memory, laid, dtype_named(laid.dtype))
        answer = examine(
            bound,
            target,
            outputs=request.given.outputs,
            thorough=request.thorough,
            accumulation=request.accumulation,
        )
        inside = called_inside(bound) if answer.verdict.verdict == "wrong" else ()
        unsure = not_defined(bound, request.flaky, request.given.outputs)
        return Reply.of(request.ticket, answer, inside=inside, undefined=unsure)

    def _substituted(self, request: Request) -> Reply:
        start = time.perf_counter()
        bound = Bound(request.call, self._memories(request))
        if request.call.random is not None:
            torch.set_rng_state(torch.frombuffer(bytearray(request.call.random), dtype=torch.uint8))
        given, pieces = package(bound, run_substitute(bound, request.substitute))
        spots, end = places(given.memories, request.size)
        for target, piece in zip(
            self.files[request.slot].pieces(spots, [p.numel() for p in pieces], end),
            pieces,
            strict=True,
        ):
            target.copy_(piece)
        random = (
            bytes(torch.get_rng_state().numpy().tobytes())
            if request.call.random is not None
            else None
        )
        seconds = time.perf_counter() - start
        return Reply(
            ticket=request.ticket,
            given=given,
            spots=tuple(spots),
            size=end,
            seconds=seconds,
            random=random,
        )


def written(given: Given) -> frozenset[str]:
    """The arguments that a call wrote to."""
    return frozenset(
        head_of(slot.removeprefix(WRITTEN)) for slot in given.outputs if slot.startswith(WRITTEN)
    )


def main(requests: int, replies: int, descriptors: Sequence[int]) -> None:
    """Answer until there are no more requests."""
    torch.set_grad_enabled(False)
    worker = Worker(
        [SharedFile(Descriptor(number, "a file of the program")) for number in descriptors]
    )
    if hasattr(os, "nice"):
        os.nice(5)
    while True:
        request = read_message(requests, Request)
        if request is None:
            return
        reply = worker.answer(request)
        worker.files[
            request.slot
        ].forget()  # the program may give the memory back once it has the reply
        gc.collect(0)
        write_all(replies, encode(reply))


# Which operators an operator's own kernel calls: no dispatch mode sees these, torch's profiler
# does.


def called_inside(bound: Bound) -> tuple[str, ...]:
    """Operators without overload that the call's kernel calls, each once; empty where the call
    cannot be made.
    """
    with (
        profiler.profile(use_kineto=False) as made,
        contextlib.suppress(*FAILURES),
        torch.no_grad(),
    ):
        perform(bound, Conditions())
    own = f"aten::{bound.name}"
    names = dict.fromkeys(
        event.name for event in made.function_events or () if event.name.startswith("aten::")
    )
    return tuple(name for name in names if name not in {own, "aten::to"} and not makes_memory(name))


def makes_memory(op: str) -> bool:
    """Whether an operator only makes or views memory; nothing is computed there."""
    known = traits_of(op)
    return known.allocates or known.view
