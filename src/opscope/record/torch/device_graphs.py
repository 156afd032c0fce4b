# SPDX-License-Identifier: Apache-2.0
"""Graphs that a device captured of a stream's work (torch.cuda.CUDAGraph and its like): each replay
is the call of a graph, which reads what the captured operators read from outside and writes what
they wrote and the program still holds.

Operators that are captured are rows without statistics, since they run later. A graph that was
captured before the recording began is not known; one that is replayed inside of a compiled graph's
call is that graph's own.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from opscope.kernels.calls import writes_to
from opscope.record.exits import restore
from opscope.record.torch.imports import once_imported
from opscope.record.torch.mode import WatchingMode
from opscope.record.torch.modules import tensors_in
from opscope.record.torch.operators import describe

# The classes of such graphs by the modules that have them.
OWNERS = {
    "torch.cuda.graphs": "CUDAGraph",
    "torch.xpu.graphs": "XPUGraph",
    "torch.accelerator.graphs": "Graph",
    "torch_npu.npu.graphs": "NPUGraph",
}
MOST = 512  # tensors of one graph


class Watcher(Protocol):
    """Who makes the calls of captured graphs."""

    @property
    def captures(self) -> bool:
        """Whether what is captured now is the program's, and watched."""
        ...

    def call_replay(self, captured: CapturedWork, call: Callable[[], Any]) -> Any:
        """Make the call that replays a graph; call gives its result."""
        ...

    def contain(self, action: Callable[..., Any], *given: Any) -> Any:
        """What an action gives; None where it fails, which is said."""
        ...


class CapturedWork:
    """Tensors that the operators of one capture met, held weakly: by storage those that were read
    before anything was written there, and those that were written.
    """

    def __init__(self) -> None:
        self._read: dict[int, list[weakref.ref[torch.Tensor]]] = {}
        self._written: dict[int, list[weakref.ref[torch.Tensor]]] = {}

    def meet(self, tensor: torch.Tensor, *, writes: bool) -> None:
        """Take note of a tensor that an operator reads or writes."""
        if not torch._C._has_storage(tensor) or len(self._read) + len(self._written) > MOST:
            return
        storage = tensor.untyped_storage()._cdata
        if not writes and storage in self._written:
            return
        (self._written if writes else self._read).setdefault(storage, []).append(
            weakref.ref(tensor)
        )

    def tensors(self) -> tuple[list[torch.Tensor], int]:
        """Those that the program still holds, one of each storage, read ones first, and how many of
        these are only read.
        """
        read = list(_alive({key: self._read[key] for key in self._read.keys() - self._written}))
        return [*read, *_alive(self._written)], len(read)


def _alive(
    by_storage: Mapping[int, list[weakref.ref[torch.Tensor]]],
) -> Iterator[torch.Tensor]:
    """Of each storage the tensor that covers most; a storage at an address that another has now is
    left out by what its tensors say.
    """
    for storage, references in by_storage.items():
        alive = [
            tensor
            for reference in references
            if (tensor := reference()) is not None and tensor.untyped_storage()._cdata == storage
        ]
        if alive:
            yield max(alive, key=lambda tensor: tensor.numel())


class _Meeting(WatchingMode):  # type: ignore[no-untyped-call] # torch's
    """Takes note of what the operators of a capture read and write."""

    def __init__(self, work: CapturedWork, watcher: Watcher) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's
        self._work, self._watcher = work, watcher
        self.handle(self._call)

    def _call(
        self,
        func: Any,
        _types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        self._watcher.contain(self._given, func, args, named)
        result = func(*args, **named)
        self._watcher.contain(self._made, result)
        return result

    def _given(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        writes = describe(func).writes
        for slot, tensor in (*tensors_in(args, ""), *tensors_in(kwargs, "kwargs")):
            self._work.meet(tensor, writes=writes_to(writes, slot))

    def _made(self, result: Any) -> None:
        for _, tensor in tensors_in(result, ""):
            self._work.meet(tensor, writes=True)


def watch_device_graphs(stack: ExitStack, watcher: Watcher) -> None:
    """Have a watcher make the calls that replay captured graphs from now on, until the stack is
    closed. What captures is not imported for it.
    """
    for module, name in OWNERS.items():

        def begin(module: str = module, name: str = name) -> None:
            owner = getattr(sys.modules[module], name, None)
            if all(hasattr(owner, each) for each in ("capture_begin", "capture_end", "replay")):
                _watch(owner, stack, watcher)

        once_imported(module, begin, stack)


def _watch(owner: Any, stack: ExitStack, watcher: Watcher) -> None:
    captures = _Captures(watcher)
    begins, ends, replays = owner.capture_begin, owner.capture_end, owner.replay

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = begins(self, *args, **kwargs)
        if watcher.captures:
            watcher.contain(captures.begin, self)
        return result

    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        watcher.contain(captures.end, self)
        return ends(self, *args, **kwargs)

    def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
        work = captures.works.get(self) if watcher.captures else None
        if work is None:
            return replays(self, *args, **kwargs)
        return watcher.call_replay(work, lambda: replays(self, *args, **kwargs))

    for name, own, previous in (
        ("capture_begin", capture_begin, begins),
        ("capture_end", capture_end, ends),
        ("replay", replay, replays),
    ):
        setattr(owner, name, own)
        stack.callback(restore, owner, name, own, previous)


class _Captures:
    """Captures on their way, and what was captured, by the graphs of one class."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._modes: weakref.WeakKeyDictionary[Any, _Meeting] = weakref.WeakKeyDictionary()
        self.works: weakref.WeakKeyDictionary[Any, CapturedWork] = weakref.WeakKeyDictionary()

    def begin(self, graph: Any) -> None:
        work = CapturedWork()
        self.works[graph], mode = work, _Meeting(work, self._watcher)
        self._modes[graph] = mode
        mode.__enter__()  # type: ignore[no-untyped-call] # torch's

    def end(self, graph: Any) -> None:
        """Leave the mode, unless the program put another on top of it, which leaving would take."""
        mode = self._modes.pop(graph, None)
        if mode is not None and _get_current_dispatch_mode() is mode:
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call] # torch's
