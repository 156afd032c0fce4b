# SPDX-License-Identifier: Apache-2.0
"""`--journal PATTERN`: inputs of chosen calls are written before the call begins, so that they
outlive the process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from opscope.kernels.arguments import Tree
from opscope.record.torch.aside import PLAIN, aside
from opscope.record.torch.capture import LEAVES
from opscope.record.torch.memory import block_bytes, compact
from opscope.record.torch.mode import WatchingMode
from opscope.record.torch.operators import describe, unhindered
from opscope.run.contain import contain, reason, tell
from opscope.run.selection import parse_pattern
from opscope.run.store.journal import ALIGNMENT, HEADER, NAME, RAISED, RETURNED, JournalFile

if TYPE_CHECKING:
    from opscope.run.selection import Pattern

HEAD_ROOM = 4096  # what a head grows to before the elements are moved further back


class Journal:
    """The journals of one process. index says which call of the run is being made, module in which
    module.

    A failure of the disk ends the journal with one line, never the program.
    """

    def __init__(
        self,
        pattern: str,
        directory: Path,
        *,
        index: Callable[[], int | None],
        module: Callable[[], str],
    ) -> None:
        self.pattern: Pattern = parse_pattern(pattern)
        self.text = pattern
        self.directory = directory
        self.index = index
        self.module = module
        self.active = True
        self.matched = 0
        self._files: list[JournalFile] = []
        self._mine = threading.local()
        self._plain: dict[Any, bool | None] = {}

    def wants(self, func: Any) -> bool:
        """Whether a call of this operator is journalled; the module is asked for only where the
        operator alone does not decide.
        """
        known = self._plain.get(func, False)
        if known is False:
            op = describe(func).op
            known = self._plain[func] = True if self.pattern.matches(op, None, None) else None
        return bool(known) or self.pattern.matches(describe(func).op, None, self.module())

    def enter(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> JournalFile | None:
        """Write what a call reads; None when it cannot be, or when there is no room for it."""
        return contain(self.fail, self._write, func, args, kwargs)

    def _write(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> JournalFile:
        with aside():
            head, blocks, _keep = content(describe(func).op, args, kwargs)
            file = self._file()
            index = self.index()
            file.write(-1 if index is None else index, head, blocks)
        self.matched += 1
        return file

    def fail(self, error: BaseException) -> None:
        """The journal ends with one line, the program goes on."""
        if self.active:
            self.active = False
            tell(f"the journal ended: {reason(error)}; the program goes on")

    def _file(self) -> JournalFile:
        own: JournalFile | None = getattr(self._mine, "file", None)
        if own is None:
            own = self._mine.file = JournalFile(
                self.directory / f"{NAME}{len(self._files)}", threading.get_ident()
            )
            self._files.append(own)
        return own

    def close(self, *, whole: bool = True) -> None:
        """No more calls are journalled; the files stay as they are. whole: recording lasted until
        its end.
        """
        if self.active and not self.matched and whole:
            tell(f"--journal {self.text!r} matched no call that was made")
        self.active = False


def content(
    op: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[bytes, list[tuple[int, Any]], list[torch.Tensor]]:
    """Head and blocks of a call, and the tensors whose memory the blocks are; what has no plain
    memory is left without elements.
    """
    tree = Tree(LEAVES)
    text = tree.encode(args, kwargs)
    blocks: list[tuple[int, Any]] = []
    places: dict[object, tuple[int, int]] = {}
    held, keep = [], []
    at = HEADER.size + max(HEAD_ROOM, 2 * len(text) + 1024 * len(tree.tensors))
    at += -at % ALIGNMENT
    for slot, tensor in tree.tensors:
        row = facts(slot, tensor)
        key = (
            row["storage"],
            row["offset"],
            row["dtype"],
            tuple(row["shape"]),
            tuple(row["stride"] or ()),
        )
        block = (
            compact(tensor)
            if type(tensor) in PLAIN and key not in places and tensor.numel()
            else None
        )
        if block is not None:
            keep.append(block)
            data = block_bytes(block)
            places[key] = (at, len(data))
            blocks.append((at, data))
            at += len(data) + -len(data) % ALIGNMENT
        if key in places:
            row["at"], row["bytes"] = places[key]
        held.append(row)
    head = json.dumps({"op": op, "args": text, "tensors": held}).encode()
    return head, blocks, keep


def facts(slot: str, tensor: torch.Tensor) -> dict[str, Any]:
    """A tensor as the head describes it."""
    dense = (
        tensor.layout is torch.strided and not tensor.is_nested and torch._C._has_storage(tensor)
    )
    return {
        "slot": slot,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(map(int, tensor.shape)) if dense else [],
        "stride": list(map(int, tensor.stride())) if dense else None,
        "storage": tensor.untyped_storage()._cdata if dense else None,
        "offset": int(tensor.storage_offset()) if dense else 0,
        "device": str(tensor.device),
        "requires_grad": tensor.requires_grad,
    }


class JournalMode(WatchingMode):
    """Lies directly below the recorder's mode, so that the black box knows the call already."""

    def __init__(self, journal: Journal, watched: Callable[[], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.journal = journal
        self.watched = watched
        self.handle(self.dispatch)

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The mode's handler."""
        journal = self.journal
        if (
            types
            or not journal.active
            or not self.watched()
            or not contain(journal.fail, journal.wants, func)
        ):
            return unhindered(func)(*args, **(kwargs or {}))
        file = journal.enter(func, args, kwargs or {})
        try:
            result = unhindered(func)(*args, **(kwargs or {}))
        except BaseException:
            if file is not None:
                contain(journal.fail, file.mark, RAISED)
            raise
        if file is not None:
            contain(journal.fail, file.mark, RETURNED)
        return result
