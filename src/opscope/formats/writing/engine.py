# SPDX-License-Identifier: Apache-2.0
"""Goes through the calls of a run, loads their values on several threads, and hands them to a
writer; bad files are left out and told.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import msgspec

from opscope.arrays import Array
from opscope.errors import OpscopeError
from opscope.run.access import access_of
from opscope.run.schema import Call, Tensor, ValueRef
from opscope.run.selection import Selection

if TYPE_CHECKING:
    from opscope.run.protocol import Run

_AHEAD = 4  # calls waiting for each thread; bounds what is held in memory


class Writer(Protocol):
    """Where tensors go."""

    def write(self, call: Call, tensor: Tensor, values: Array) -> ValueRef | None:
        """Write one tensor; where it lies, None when its value is kept elsewhere. Called from
        several threads.
        """
        ...

    def close(self) -> None:
        """Finish what was held back."""
        ...


class Written(msgspec.Struct):
    """What was written: the calls with their rows, now pointing into the output, and a line for
    each failure.
    """

    calls: list[tuple[Call, list[Tensor]]] = []
    tensors: int = 0
    failures: list[str] = []


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which tensors are meant: a selection of calls, and slots by number (None: all)."""

    selection: Selection = Selection()
    inputs: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None

    def wants(self, tensor: Tensor) -> bool:
        """Whether this tensor is meant; naming slots of one side leaves out the other."""
        if not self.selection.wants_io(tensor.io):
            return False
        if self.inputs is None and self.outputs is None:
            return True
        numbers = self.inputs if tensor.io == "input" else self.outputs
        return numbers is not None and tensor.slot.isdigit() and int(tensor.slot) in numbers


def rows_of(run: Run, wanted: Wanted) -> Iterator[tuple[Call, list[Tensor]]]:
    """The calls that are meant with their tensor rows, each call's files read only when it is its
    turn.
    """
    from opscope.run.query import calls as calls_of
    from opscope.run.query import records, tensors_of

    if access_of(run).tensors_of is not None:
        for call in calls_of(run, wanted.selection):
            yield call, [row for row in tensors_of(run, call) if wanted.wants(row)]
        return
    chosen = {(call.process, call.index): call for call in calls_of(run, wanted.selection)}
    for key, rows in itertools.groupby(
        records(run, "tensors"), key=lambda row: (row.process, row.index)
    ):
        if key in chosen:
            yield chosen.pop(key), [row for row in rows if wanted.wants(row)]
    for call in chosen.values():
        yield call, []


def write_rows(
    run: Run, wanted: Wanted, writer: Writer, *, jobs: int, done: Callable[[int], None]
) -> Written:
    """Write every value that is kept. done is called with the number of calls finished."""
    written = Written()
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        waiting: list[Future[tuple[Call, list[Tensor], list[str]]]] = []
        for call, rows in rows_of(run, wanted):
            waiting.append(pool.submit(_write_call, run, writer, call, rows))
            if len(waiting) >= max(1, jobs) * _AHEAD:
                _take(waiting.pop(0), written, done)
        for future in waiting:
            _take(future, written, done)
    writer.close()
    return written


def _take(
    future: Future[tuple[Call, list[Tensor], list[str]]],
    written: Written,
    done: Callable[[int], None],
) -> None:
    call, rows, failures = future.result()
    written.calls.append((call, rows))
    written.tensors += sum(row.value is not None for row in rows)
    written.failures += failures
    done(len(written.calls))


def _write_call(
    run: Run, writer: Writer, call: Call, rows: Sequence[Tensor]
) -> tuple[Call, list[Tensor], list[str]]:
    written, failures = [], []
    for row in rows:
        value, failure = _write_one(run, writer, call, row)
        written.append(msgspec.structs.replace(row, value=value))
        if failure is not None:
            failures.append(failure)
    return call, written, failures


def _write_one(
    run: Run, writer: Writer, call: Call, row: Tensor
) -> tuple[ValueRef | None, str | None]:
    if row.value is None:
        return None, None
    try:
        return writer.write(call, row, run.value(row)), None
    except (OpscopeError, OSError, TypeError, ValueError, MemoryError) as error:
        return None, f"{call.name} {row.io} {row.slot}: {error or type(error).__name__}"
