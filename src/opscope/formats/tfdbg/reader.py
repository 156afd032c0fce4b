# SPDX-License-Identifier: Apache-2.0
"""The run that a dump of TensorFlow Debugger V2 is: a process for each set of files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.formats.foreign import ForeignRun
from opscope.formats.run_builder import RunBuilder
from opscope.formats.tfdbg.events import Events, read_events
from opscope.formats.tfdbg.files import dump_prefixes, file_of
from opscope.formats.tfdbg.tensors import load_value
from opscope.formats.tfdbg.timeline import Draft, State, Timeline
from opscope.run.protocol import Coverage, RunInfo
from opscope.run.schema import Call, Tensor, ValueRef

if TYPE_CHECKING:
    from opscope.run.protocol import Run

# Attributes of operators and what an argument of a function holds are in no such dump.
WRITTEN = Coverage(versions=True, phases=True, keywords=False)


def open_dump(path: Path) -> Run:
    """The dump as a run; FormatError when nothing in it can be read."""
    builder = _Builder(path)
    version = ""
    for rank, prefix in enumerate(dump_prefixes(path)):
        events = read_events(prefix)
        version = version or events.version
        builder.add(prefix, rank, events)
    return ForeignRun(
        RunInfo(
            path=str(path),
            format="tfdbg",
            coverage=WRITTEN,
            packages={"tensorflow": version} if version else {},
        ),
        path,
        builder.rows.tables(path, "no operator of TensorFlow below it"),
        builder.draft,
        load=load_value,
    )


def _device(name: str | None) -> str | None:
    """A device of TensorFlow as others call it: cpu of /job:localhost/…/device:CPU:0."""
    kind, _, number = (name or "").rpartition("/device:")[2].partition(":")
    if not kind:
        return None
    return "cpu" if kind == "CPU" else f"{kind.lower()}:{number}"


class _Builder:
    """Collects the calls of a dump, and the rows of each."""

    def __init__(self, root: Path) -> None:
        self.rows = RunBuilder()
        self._root = root
        self._tensors: dict[tuple[int, int], list[Tensor]] = {}
        self._prefix = ""

    def add(self, prefix: Path, rank: int, events: Events) -> None:
        """All calls of one set of files."""
        self._prefix = os.path.relpath(prefix, self._root)
        self.rows.start_process(str(prefix.parent), rank)
        self.rows.problems += events.problems
        drafts = Timeline(events).drafts
        self.rows.read |= bool(drafts)
        numbers: dict[int, int] = {}
        for draft in drafts:
            call = self._call(draft, numbers)
            numbers[id(draft)] = call.index
            self._tensors[call.process, call.index] = [
                *self._side(call, "input", draft.inputs),
                *self._side(call, "output", draft.outputs),
            ]
        self._tell_unsound(drafts)

    def _call(self, draft: Draft, numbers: dict[int, int]) -> Call:
        args = [{"tensor": slot} for slot, _ in draft.inputs]
        return self.rows.add_call(
            name=draft.name,
            step=draft.step,
            level="operator",
            phase=draft.phase,
            op=draft.op,
            module=draft.module,
            forward_index=numbers.get(id(draft.forward)),
            stack=self.rows.add_stack(draft.frames),
            source=draft.source,
            device=_device(draft.device),
            args=msgspec.json.encode({"args": args, "kwargs": {}}).decode(),
        )

    def _side(self, call: Call, io: str, states: Iterable[tuple[str, State]]) -> list[Tensor]:
        return [
            Tensor(process=call.process, index=call.index, io=io, slot=slot, **self._columns(state))
            for slot, state in states
        ]

    def _columns(self, state: State) -> dict[str, Any]:
        columns = {
            "version": state.version,
            "role": state.role,
            "tensor_name": state.name,
            **state.kept.columns,
        }
        if state.kept.place is not None:
            shard = file_of(Path(self._prefix), state.kind).as_posix()
            offset, length = state.kept.place
            columns["value"] = ValueRef(shard, f"{offset}+{length}")
        return columns

    def _tell_unsound(self, drafts: Iterable[Draft]) -> None:
        """Say the first result of mode CURT_HEALTH that is not finite, since it has no counts."""
        for draft in drafts:
            if any(state.kept.unsound for _, state in draft.outputs):
                source = f" ({draft.source})" if draft.source else ""
                self.rows.problems.append(
                    f"{draft.name}{source} is the first whose result holds a NaN or an infinity; "
                    "mode CURT_HEALTH does not tell which, CONCISE_HEALTH does"
                )
                return

    def draft(self, call: Call) -> list[Tensor]:
        """The rows of one call."""
        return self._tensors[call.process, call.index]
