# SPDX-License-Identifier: Apache-2.0
"""A run that functions of JAX are recorded into: versions of arrays, and the rows of calls."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.operators.spelling import JAX
from opscope.record.arrays import bytes_of, measured
from opscope.record.jax.executed import Executed, State
from opscope.record.jax.names import Leaf, Name
from opscope.record.jax.phases import module_of
from opscope.record.operators_met import OperatorsMet, told_row
from opscope.record.own_code import OPSCOPE, inside, is_user
from opscope.run.dtypes import dtype_of_numpy
from opscope.run.schema import Call, Row, Stack, Tensor, dense_strides
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter
from opscope.version import VERSION


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a watched function: what it was given and returned, and the primitives that were
    executed for it.
    """

    function: str
    given: tuple[Leaf, ...]
    results: tuple[Leaf, ...]
    calls: tuple[Executed, ...]
    names: dict[int, Name]


class Book:
    """The rows of one process, and what is known of arrays that may come back."""

    def __init__(self, path: Path, *, values: bool) -> None:
        self.path = create_run(path, command=sys.argv, config={"framework": JAX}, version=VERSION)
        self._writer = ProcessWriter(self.path, process_facts(), keep=None)
        self._operators = OperatorsMet(self._writer.directory)
        self._values = values
        self._versions = itertools.count()
        self._index = itertools.count()
        self._stacks: dict[tuple[str, ...], int] = {}
        self._met: dict[int, tuple[weakref.ref[Any], State]] = {}
        self.names: dict[int, Name] = {}
        self.step = 0

    @property
    def failed(self) -> bool:
        """Whether nothing can be written any more."""
        return self._writer.failed is not None

    # -- arrays ------------------------------------------------------------------------------------

    def state_of(self, array: Any) -> State:
        """The state of what a function is given: the one that it was returned in, if it was."""
        known = self._met.get(id(array))
        if known is not None and known[0]() is array:
            return known[1]
        state = self.measure(array)
        self.meet(array, state)
        return state

    def meet(self, array: Any, state: State) -> None:
        """Remember an array that nobody can write to."""
        if isinstance(array, jax.Array):
            self._met[id(array)] = weakref.ref(array), state

    def measure(self, value: Any) -> State:
        """The state of a new array."""
        return State(next(self._versions), self._row(value))

    def _row(self, value: Any) -> Tensor | None:
        try:
            array = np.ascontiguousarray(np.asarray(value)).reshape(np.shape(value))
            dtype = dtype_of_numpy(array.dtype)
        except (TypeError, UsageError):  # a random key, a derivative by integers
            return None
        devices = value.devices() if isinstance(value, jax.Array) else ()
        row = Tensor(
            process=self._writer.process.process,
            index=0,
            io="input",
            slot="0",
            dtype=dtype.name,
            shape=array.shape,
            stride=dense_strides(array.shape),
            device=next((str(each.platform) for each in devices), "cpu"),
        )
        row = measured(row, array)
        if not self._values:
            return row
        kept = self._writer.keep_value(bytes_of(array), dtype=dtype.name, shape=array.shape)
        return msgspec.structs.replace(row, value=kept)

    # -- rows --------------------------------------------------------------------------------------

    def add(self, whole: Whole) -> None:
        """The rows of one call of a function."""
        self.names |= whole.names
        rows: dict[str, list[Row]] = {"stacks": [], "calls": [], "tensors": []}
        outer = next(self._index)
        given = [{"tensor": str(slot)} for slot in range(len(whole.given))]
        args = msgspec.json.encode({"args": given, "kwargs": {}}).decode()
        rows["calls"].append(
            self._call(outer, None, op=whole.function, name=whole.function, module="", args=args)
        )
        read, made = ([leaf.state for leaf in each] for each in (whole.given, whole.results))
        rows["tensors"] += self._tensors(outer, "input", read)
        rows["tensors"] += self._tensors(outer, "output", made)
        often: Counter[tuple[str, str]] = Counter()
        for call in whole.calls:
            index, module = next(self._index), module_of(call.scope)
            number = often[module, call.primitive]
            often[module, call.primitive] += 1
            rows["calls"].append(
                self._call(
                    index,
                    outer,
                    op=f"{JAX}::{call.primitive}",
                    name=f"{module}:{call.primitive}#{number}",
                    module=module,
                    args=call.params,
                    phase=call.phase,
                    stack=self._stack(call.frames, rows["stacks"]),
                    source=_source(call.frames),
                )
            )
            rows["tensors"] += self._tensors(index, "input", call.read)
            rows["tensors"] += self._tensors(index, "output", call.made)
        for op in {
            f"{JAX}::{call.primitive}" for call in whole.calls
        }:  # of what is declared by now
            self._operators.meet(op, told_row(op, {}))
        self._writer.append_rows(rows, step=self.step)
        self._forget()

    def _call(self, index: int, parent: int | None, *, op: str, name: str, **columns: Any) -> Call:
        return Call(
            process=self._writer.process.process,
            rank=self._writer.process.rank,
            step=self.step,
            index=index,
            level="module" if parent is None else "operator",
            parent=parent,
            op=op,
            name=name,
            **{"phase": "forward", **columns},
        )

    def _tensors(self, index: int, io: str, states: Sequence[Any]) -> list[Row]:
        return [
            msgspec.structs.replace(
                each.row,
                index=index,
                io=io,
                slot=str(slot),
                version=each.version,
                **self._role(each.version),
            )
            for slot, each in enumerate(states)
            if isinstance(each, State) and each.row is not None
        ]

    def _role(self, version: int) -> dict[str, str]:
        name = self.names.get(version)
        return {} if name is None else {"role": name.role, "tensor_name": name.text}

    def _stack(self, frames: tuple[str, ...], rows: list[Row]) -> int | None:
        if not frames:
            return None
        known = self._stacks.get(frames)
        if known is None:
            known = self._stacks[frames] = len(self._stacks)
            rows.append(Stack(process=self._writer.process.process, stack=known, frames=frames))
        return known

    def _forget(self) -> None:
        """Keep only what may come back."""
        self._met = {key: held for key, held in self._met.items() if held[0]() is not None}
        alive = {state.version for _, state in self._met.values()}
        self.names = {version: name for version, name in self.names.items() if version in alive}

    def end_step(self) -> None:
        """Say that a step is over."""
        self._writer.end_step(self.step)
        self.step += 1

    def close(self) -> None:
        """End the run."""
        self._writer.update(steps=self.step)
        self._writer.close(0)
        seal_run(self.path)


def _source(frames: Sequence[str]) -> str | None:
    places = (frame.rpartition(" in ")[0] for frame in frames)
    return next(
        (line for line in places if _is_own(line.rpartition(":")[0])),
        None,
    )


def _is_own(file: str) -> bool:
    return is_user(file) and not inside(file, OPSCOPE)
