# SPDX-License-Identifier: Apache-2.0
"""Group the files of a data folder into executions of kernels.

The timestamp belongs to the tensor, not to the call: a call is keyed by (rank, graph, iteration,
op_type, op_name), its time is the smallest. A kernel that ran several times in one iteration (a
loop) has several files for one slot; the k-th file by time belongs to the k-th run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from opscope.formats.mindspore.join import Kernel
from opscope.formats.mindspore.layout import Listing
from opscope.formats.mindspore.names import RawFile, TensorFile, flat, split_number
from opscope.formats.mindspore.statistic import StatisticRow

SlotKey = tuple[str, str]  # io and slot
PARAMETER = "Parameter"


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a kernel: its files, statistics without files, or CANN dump file; occurrence
    counts from 0 within a folder.
    """

    kernel: Kernel
    occurrence: int = 0
    time: int
    task: int
    stream: int
    files: dict[SlotKey, TensorFile] = {}
    statistics: dict[SlotKey, StatisticRow] = {}
    raw: RawFile | None = None
    full_name: str | None = None


def executions(listing: Listing, statistics: Sequence[StatisticRow]) -> list[Execution]:
    """Executions in one folder, in the order of their time; files of parameters are among them,
    under type "Parameter".
    """
    by_kernel: dict[Kernel, list[TensorFile]] = defaultdict(list)
    rows_by_kernel: dict[Kernel, list[StatisticRow]] = defaultdict(list)
    for file in listing.tensors:
        by_kernel[file.type, file.name].append(file)
    by_kernel = {
        kernel: files for named in by_kernel.items() for kernel, files in _told_apart(*named)
    }
    for row in statistics:
        rows_by_kernel[row.type, flat(row.name)].append(row)
    runs = [
        run
        for kernel in by_kernel.keys() | rows_by_kernel.keys()
        for run in _runs(kernel, by_kernel.get(kernel, ()), rows_by_kernel.get(kernel, ()))
    ]
    runs += _raw_runs(listing.raw)
    return sorted(runs, key=lambda run: (run.time, run.kernel, run.occurrence))


def _told_apart(
    kernel: Kernel, files: list[TensorFile]
) -> Iterator[tuple[Kernel, list[TensorFile]]]:
    """Kernels of several scopes that have one name where files carry no scope: a slot that comes
    again begins the next of them.
    """
    if split_number(kernel[1])[0] != kernel[0]:
        yield kernel, files
        return
    parts: list[list[TensorFile]] = [[]]
    seen: set[tuple[str, int, int | None]] = set()
    for file in sorted(files, key=lambda file: file.time):
        slot = (file.io, file.index, file.slot)
        if slot in seen:
            parts.append([])
            seen.clear()
        seen.add(slot)
        parts[-1].append(file)
    for number, part in enumerate(parts, 1):
        yield (kernel[0], kernel[1] if number == 1 else f"{kernel[1]}#{number}"), part


def _runs(
    kernel: Kernel, files: Sequence[TensorFile], rows: Sequence[StatisticRow]
) -> list[Execution]:
    names = _slot_names(files)
    slots: dict[SlotKey, list[TensorFile]] = defaultdict(list)
    for file in files:
        slots[file.io, names[file.io, file.index, file.slot]].append(file)
    row_slots: dict[SlotKey, list[StatisticRow]] = defaultdict(list)
    for row in rows:
        row_slots[row.io, str(row.slot)].append(row)
    for same_files in slots.values():
        same_files.sort(key=lambda file: file.time)
    for same_rows in row_slots.values():
        same_rows.sort(key=lambda row: row.time)
    count = max([len(same) for same in slots.values()] + [len(same) for same in row_slots.values()])
    return [
        _run(
            kernel,
            k,
            {key: same[k] for key, same in slots.items() if k < len(same)},
            {key: same[k] for key, same in row_slots.items() if k < len(same)},
        )
        for k in range(count)
    ]


def _run(
    kernel: Kernel,
    occurrence: int,
    files: dict[SlotKey, TensorFile],
    rows: dict[SlotKey, StatisticRow],
) -> Execution:
    parts: list[TensorFile | StatisticRow] = [*files.values(), *rows.values()]
    first = min(parts, key=lambda part: part.time)
    name = next((row.name for row in rows.values() if "/" in row.name), None)
    return Execution(
        kernel=kernel,
        occurrence=occurrence,
        time=first.time,
        task=first.task or 0,
        stream=first.stream or 0,
        files=files,
        statistics=rows,
        full_name=name,
    )


def _slot_names(files: Iterable[TensorFile]) -> dict[tuple[str, int, int | None], str]:
    """Slot of each (io, number, second number): the first number, with the second where one operand
    has several.
    """
    seconds: dict[tuple[str, int], set[int | None]] = defaultdict(set)
    for file in files:
        seconds[file.io, file.index].add(file.slot)
    return {
        (io, index, slot): str(index) if len(slots) == 1 or slot is None else f"{index}.{slot}"
        for (io, index), slots in seconds.items()
        for slot in slots
    }


def _raw_runs(raw: Sequence[RawFile]) -> list[Execution]:
    seen: dict[Kernel, int] = defaultdict(int)
    runs = []
    for file in sorted(raw, key=lambda part: part.time):
        kernel = (file.type, file.name)
        runs.append(
            Execution(
                kernel=kernel,
                occurrence=seen[kernel],
                time=file.time,
                task=file.task,
                stream=file.stream,
                raw=file,
            )
        )
        seen[kernel] += 1
    return runs


def in_order(runs: Sequence[Execution], position: dict[Kernel, int]) -> list[Execution]:
    """Executions in execution order where the graph says one; those it does not know stand where
    their time puts them.
    """
    latest, keys = -1.0, {}
    for run in runs:  # by time
        turn = position.get(run.kernel)
        if turn is not None:
            latest = max(latest, float(turn))
        keys[id(run)] = (
            float(turn) if turn is not None else latest + 0.5,
            run.occurrence,
            run.time,
        )
    # a loop: a whole graph order for each turn is not known, time is
    if any(run.occurrence for run in runs):
        return list(runs)
    return sorted(runs, key=lambda run: keys[id(run)])
