# SPDX-License-Identifier: Apache-2.0
"""Sessions of ONNX Runtime: each `run` is the call of a graph, of which nothing is known but the
arrays that it is given and gives.

An array that a tensor gave (`x.numpy()`) is that tensor's memory; what a session gives is the
program's own until `torch.from_numpy` makes a tensor of it, which is a call then. ONNX Runtime is
watched where the program imports it, and never imported for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
import torch

from opscope.arrays import Array
from opscope.record.exits import restore
from opscope.record.torch.aside import aside
from opscope.record.torch.imports import once_imported
from opscope.record.torch.uncompiled import leave_uncompiled

MODULE = "onnxruntime.capi.onnxruntime_inference_collection"
OWNER = "Session"
COMPILER = "torch._dynamo"  # which would find another function in the place of torch.from_numpy
MOST_BYTES = 64 << 20  # of one session's results that are kept until its next call
MOST_SESSIONS = 16  # of which they are


class Watcher(Protocol):
    """Who makes the calls of sessions."""

    @property
    def watching(self) -> bool: ...

    def call_session(
        self, session: object, given: Mapping[str, Any], call: Callable[[], Any]
    ) -> Any:
        """Make a call of a session with these inputs by name; call gives its results."""
        ...

    def call_taken(self, made: torch.Tensor, call: Callable[[], Any]) -> Any:
        """Make the call that takes what a session made for a tensor of its own."""
        ...


class Results:
    """What sessions made last, as tensors, by the arrays that the program has of them."""

    def __init__(self) -> None:
        self._of: dict[int, dict[int, torch.Tensor]] = {}  # by session, by array
        self._lock = threading.Lock()

    def keep(self, session: object, arrays: list[Any], tensors: list[torch.Tensor | None]) -> None:
        """Remember what a session made, in the place of what it made before."""
        made = {
            id(array): tensor
            for array, tensor in zip(arrays, tensors, strict=True)
            if tensor is not None
        }
        small = sum(tensor.nbytes for tensor in made.values()) <= MOST_BYTES
        with self._lock:  # a tensor keeps its array alive, so no other has its identity
            self._of.pop(id(session), None)
            self._of[id(session)] = made if small else {}
            for oldest in list(self._of)[:-MOST_SESSIONS]:
                del self._of[oldest]

    def find(self, array: Any) -> torch.Tensor | None:
        """The result that an array is, or lies in; None where it is another's."""
        with self._lock:
            while isinstance(array, np.ndarray):
                for made in self._of.values():
                    if id(array) in made:
                        return made[id(array)]
                array = array.base
        return None


def watch_sessions(stack: ExitStack, watcher: Watcher, results: Results) -> None:
    """Have a watcher make the calls of sessions from now on, until the stack is closed."""

    def begin() -> None:
        owner = getattr(sys.modules[MODULE], OWNER, None)
        previous = getattr(owner, "run", None)
        if owner is None or previous is None:
            return

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = kwargs.get("input_feed", args[1] if len(args) > 1 else None)
            if not watcher.watching or not isinstance(given, Mapping):
                return previous(self, *args, **kwargs)
            return watcher.call_session(self, given, lambda: previous(self, *args, **kwargs))

        owner.run = run
        stack.callback(restore, owner, "run", run, previous)
        if COMPILER not in sys.modules:
            _watch_taken(stack, watcher, results)

    once_imported(MODULE, begin, stack)


def _watch_taken(stack: ExitStack, watcher: Watcher, results: Results) -> None:
    previous = torch.from_numpy

    def from_numpy(ndarray: Any) -> torch.Tensor:
        made = results.find(ndarray) if watcher.watching else None
        if made is None:
            return previous(ndarray)
        taken: torch.Tensor = watcher.call_taken(made, lambda: previous(ndarray))
        return taken

    leave_uncompiled(from_numpy)
    torch.from_numpy = from_numpy
    stack.callback(restore, torch, "from_numpy", from_numpy, previous)


def tensor_of(array: Any) -> torch.Tensor | None:
    """An array as a tensor of the same memory, that of the tensor it came from if it came from one;
    a copy where it may not be written to, None where torch has no such type.
    """
    if not isinstance(array, np.ndarray):
        return None
    with aside():
        base: Any = array
        while isinstance(base, np.ndarray):
            base = base.base
        try:
            if isinstance(base, torch.Tensor):
                return _within(base, array)
            return torch.from_numpy(array if array.flags.writeable else array.copy())
        except (TypeError, ValueError, RuntimeError):  # texts, other byte orders, turned around
            return None


def _within(base: torch.Tensor, array: Array) -> torch.Tensor:
    """An array as a part of a tensor's memory."""
    storage = base.untyped_storage()
    dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
    start = array.__array_interface__["data"][0] - storage.data_ptr()
    places = [stride // array.itemsize for stride in array.strides]
    return torch.empty(0, dtype=dtype).set_(storage, start // array.itemsize, array.shape, places)
