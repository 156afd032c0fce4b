# SPDX-License-Identifier: Apache-2.0
"""Logs -> errors: lines of many files and processes are sorted into the errors they belong to,
first error first.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import BinaryIO

import msgspec

from opscope.ascend import registers
from opscope.ascend.bits import TIMEOUT
from opscope.ascend.events import (
    Allocated,
    Asserted,
    Chip,
    Cleaned,
    Coded,
    DescribedNode,
    Event,
    Failed,
    FailedTask,
    Freed,
    Screen,
    SlogError,
    Tracked,
)
from opscope.ascend.fault import Allocation, Core, Fault, Noted, Returned
from opscope.ascend.lines import events
from opscope.ascend.opened import Open, close, same_core
from opscope.ascend.records import Record, records
from opscope.errors import FormatError

# Events that make an error; every other one belongs to an error that is there.
_OPENING = (Core, Failed, Screen, SlogError)
_HELD = 256  # events that may belong to an error whose first line is still to come
_KEPT_ALLOCATIONS = 1 << 20
_LOOK_BACK = 64  # errors of a process that a line may still belong to
_MOMENT = 5  # seconds that lines of one error may lie before its first
_INFORMED = frozenset(("INFO", "DEBUG"))


class LogReader:
    """Reads logs one after the other; `faults` gives what they hold."""

    def __init__(self) -> None:
        self._faults: list[Open] = []
        self._by_process: dict[int | None, list[Open]] = defaultdict(list)
        self._latest: dict[tuple[int | None, int | None], Open] = {}
        self._held: dict[int | None, deque[tuple[Event, Record]]] = defaultdict(
            lambda: deque(maxlen=_HELD)
        )
        self._memory: dict[int | None, list[tuple[str | None, int, int]]] = defaultdict(list)
        self._cleaned: dict[int | None, set[str]] = defaultdict(set)
        self._informed: set[int | None] = set()
        self._overfull: set[int | None] = set()
        self._processes: dict[tuple[str, int], int] = {}
        self._pids: dict[int, int] = {}
        self._asserts: list[tuple[int | None, str]] = []
        self._soc: str | None = None
        self.codes: dict[str, str] = {}

    def read(self, stream: BinaryIO, name: str) -> int:
        """Read one log to its end; the number of its records that mattered."""
        count = 0
        host = _host(name)
        for read_record in records(stream, name):
            count += 1
            record = msgspec.structs.replace(read_record, pid=self._process(host, read_record.pid))
            if record.level in _INFORMED and record.module in ("RUNTIME", "GE"):
                self._informed.add(record.pid)
            for event in events(record):
                self._take(event, record)
        self._latest = {key: fault for key, fault in self._latest.items() if key[0] is not None}
        return count

    def _process(self, host: str, pid: int | None) -> int | None:
        """A number for a process of one host: containers of several hosts have equal process
        numbers.
        """
        if pid is None:
            return None
        number = self._processes.setdefault((host, pid), len(self._processes))
        self._pids[number] = pid
        return number

    def _take(self, event: Event, record: Record) -> None:
        match event:
            case Allocated():
                self._remember(record, event.address, event.size)
            case Freed():
                self._remember(record, event.address, -1)
            case Cleaned():
                self._cleaned[record.pid].add(event.node)
            case Chip():
                self._soc = self._soc or event.name
            case Coded():
                self.codes.setdefault(event.code, event.text[:400])
            case Asserted():
                if len(self._asserts) < _HELD:
                    self._asserts.append((record.pid, event.text[:400]))
            case _:
                if isinstance(event, Returned) and event.code.isdecimal():
                    self.codes.setdefault(event.code, record.text[:400])
                self._sort(event, record)

    def _remember(self, record: Record, address: int, size: int) -> None:
        """Keep an allocation or a free (size -1); once there are very many, those freed long ago
        go.
        """
        known = self._memory[record.pid]
        if len(known) >= _KEPT_ALLOCATIONS:
            known[:] = _still_needed(known)
        if len(known) < _KEPT_ALLOCATIONS:
            known.append((record.time, address, size))
        else:
            self._overfull.add(record.pid)

    def _sort(self, event: Event, record: Record) -> None:
        """Give an event to the error it belongs to, making that error where it is the first line of
        one.
        """
        fault = self._fault(event, record)
        if fault is None and isinstance(event, _OPENING):
            fault = self._opened(event, record)
        if fault is None or (
            isinstance(event, FailedTask)
            and fault.failed
            and not fault.is_task(event.stream, event.task)
        ):
            self._held[record.pid].append((event, record))
            return
        fault.take(event, record)
        self._latest[record.pid, record.tid] = fault
        self._latest[record.pid, None] = fault

    def _current(self, record: Record) -> Open | None:
        return self._latest.get((record.pid, record.tid)) or self._latest.get((record.pid, None))

    def _fault(self, event: Event, record: Record) -> Open | None:
        current = self._current(record)
        if isinstance(event, Core):
            return self._with_more_cores(event, record, current)
        if isinstance(event, Screen | SlogError):
            return None
        if isinstance(event, Failed):
            return self._failed(event.said, record, current)
        if isinstance(event, DescribedNode | Tracked):
            return self._of_task(record.pid, event.stream, event.task) or current
        return current

    def _with_more_cores(self, core: Core, record: Record, current: Open | None) -> Open | None:
        """The error that a core line goes on with: the thread's own, else one of the process with
        that serial number.
        """
        if current is not None and _goes_on(current, core):
            return current
        if core.serial is None:
            return None
        mine = (
            fault for fault in reversed(self._of_process(record.pid)) if fault.serial is not None
        )
        return next(
            (
                fault
                for fault in islice(mine, _LOOK_BACK)
                if _moment(fault.time, record.time) and _goes_on(fault, core)
            ),
            None,
        )

    def _of_process(self, pid: int | None) -> list[Open]:
        return self._by_process.get(pid, [])

    def _failed(self, said: Mapping[str, str], record: Record, current: Open | None) -> Open | None:
        mine = self._of_process(record.pid)[-_LOOK_BACK:]
        waiting = [fault for fault in mine if not fault.failed and _fits(fault, said)]
        exact = [
            fault
            for fault in waiting
            if fault.is_task(_number(said, "stream_id"), _number(said, "task_id"))
        ]
        if exact:
            return exact[-1]
        same = [fault for fault in mine if fault.failed and _same_failure(fault.failure, said)]
        if same and not any(
            fault.offset > same[-1].offset and not _moment(fault.time, same[-1].time)
            for fault in waiting
        ):
            return same[-1]
        waiting = waiting or _alone(mine, said, record)
        near = [
            fault for fault in waiting if _number(said, "device_id") in fault.likely_devices
        ] or waiting
        return current if current in near else near[-1] if near else None

    def _of_task(self, pid: int | None, stream: int, task: int) -> Open | None:
        return next(
            (fault for fault in reversed(self._of_process(pid)) if fault.is_task(stream, task)),
            None,
        )

    def _opened(self, event: Event, record: Record) -> Open:
        fault = Open(record.pid, record.process, record.time, record.file, record.offset)
        if isinstance(event, Screen | SlogError):
            fault.own_device = event.device
        if isinstance(event, SlogError):
            fault.stream, fault.task = event.stream, event.task
            if event.code:
                fault.returned[Returned(hex(event.code))] = None
        self._faults.append(fault)
        self._by_process[record.pid].append(fault)
        held = self._held[record.pid]
        last = next((past for past, _ in reversed(held) if isinstance(past, FailedTask)), None)
        for past, its in list(held):
            if _moment(its.time, record.time) and (
                not isinstance(past, FailedTask) or past is last
            ):
                fault.take(past, its)
        held.clear()
        return fault

    def faults(self) -> tuple[Fault, ...]:
        """The errors of all logs read so far, merged where several files tell of one, in time
        order.
        """
        whole = _adopted([fault for fault in self._faults if fault.cores or fault.failed])
        memory = {
            pid: _snapshots(known, (fault.time for fault in whole if fault.pid == pid))
            for pid, known in self._memory.items()
            if any(fault.pid == pid for fault in whole)
        }
        merged = _merged([self._closed(fault, memory) for fault in whole])
        return tuple(
            sorted(merged, key=lambda fault: (fault.time or "~", fault.files, fault.offset))
        )

    def _assertions(self, fault: Open) -> list[str]:
        """Assertions of the kernel that its process printed, for an error that may be their trap;
        the print need not name the process.
        """
        trapped = all(
            registers.bit(number, core.numbering).kind == TIMEOUT
            for core in fault.cores
            for number in core.bits
        )
        return [
            text for pid, text in self._asserts if trapped and (pid is None or pid == fault.pid)
        ]

    def _closed(
        self, fault: Open, memory: Mapping[int | None, Mapping[str | None, tuple[Allocation, ...]]]
    ) -> Fault:
        pid = self._pids.get(fault.pid) if fault.pid is not None else None
        for text in self._assertions(fault):
            fault.notes[Noted("assert", text)] = None
        return close(
            fault,
            pid=pid if pid is not None and pid >= 0 else None,
            allocations=memory[fault.pid][fault.time]
            if fault.pid in memory and fault.pid not in self._overfull
            else None,
            soc=self._soc,
            cleaned=tuple(sorted(self._cleaned.get(fault.pid, ()))),
            informed=fault.pid in self._informed,
        )


_INNER = re.compile(
    r"debug|run|plog|slog|logs?|cann|host|dfx|security|device(-\d+)?|dev-os-\d+|.+\.(log|txt)\.(gz|bz2|xz)",
    re.IGNORECASE,
)


def _host(name: str) -> str:
    """The folder that a host's logs lie below: without the folders the logger makes."""
    parts = list(PurePath(name).parent.parts)
    while parts and _INNER.fullmatch(parts[-1]):
        parts.pop()
    return "/".join(parts)


def _number(said: Mapping[str, str], key: str) -> int | None:
    text = said.get(key, "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _same_failure(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    keys = ("device_id", "stream_id", "task_id", "flip_num", "fault kernel_name")
    return all(first.get(key) == second.get(key) for key in keys)


def _fits(fault: Open, said: Mapping[str, str]) -> bool:
    """Whether a kernel's failure may be that of an error whose task is known or not."""
    device = _number(said, "device_id")
    # A chip's number need not be the device's: an A3 has two devices on each chip.
    if (
        fault.device is not None
        and device is not None
        and fault.device != device
        and not fault.on_chip
    ):
        return False
    return fault.assumed or (
        fault.stream in (None, _number(said, "stream_id"))
        and fault.task in (None, _number(said, "task_id"))
    )


def _alone(mine: Sequence[Open], said: Mapping[str, str], record: Record) -> list[Open]:
    """The one error of this moment without a kernel's name, whatever device: cores tell the card's
    number, kernels the process's.
    """
    nameless = [fault for fault in mine if not fault.failed]
    if len(nameless) != 1 or nameless[0].pid is None or not _moment(nameless[0].time, record.time):
        return []
    (one,) = nameless
    return [] if one.assumed or not _fits(one, {**said, "device_id": ""}) else [one]


def _goes_on(fault: Open, core: Core) -> bool:
    """Whether a core line is one more core of this error, not the first of the next."""
    if fault.serial is not None and core.serial is not None:
        if fault.chip != (core.device, core.die) or not (
            fault.serial == core.serial or _other_half(fault, core)
        ):
            return False
        return not any(
            same_core(known, core) and known.registers != core.registers for known in fault.cores
        )
    return not fault.failed and not fault.cores


def _other_half(fault: Open, core: Core) -> bool:
    """Whether a core of Ascend 950 is of the other kind than those before it: a mixed kernel's two
    halves have two serial numbers.
    """
    last = fault.cores[-1]
    halves = {"aiv" in last.kind, "aiv" in core.kind}
    chip950 = last.numbering == registers.ASCEND950 and "su error info" in core.registers
    return (
        chip950
        and len(halves) == 2
        and last.serial is not None
        and core.serial == last.serial + 1
        and not fault.failed
    )


def _moment(first: str | None, second: str | None) -> bool:
    """Whether two times are the same moment, within a few seconds of one day."""
    if first is None or second is None:
        return first == second
    if first[:10] != second[:10]:
        return False
    return abs(_seconds(first) - _seconds(second)) <= _MOMENT


def _seconds(time: str) -> float:
    hours, minutes, seconds = time[11:19].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def _adopted(faults: Sequence[Open]) -> list[Open]:
    """Cores that came after the line that names their kernel go to it, where it has none of its
    own.
    """
    whole: list[Open] = []
    for fault in faults:
        owner = (
            None
            if fault.failed
            else next((one for one in reversed(whole[-_LOOK_BACK:]) if _misses(one, fault)), None)
        )
        if owner is None:
            whole.append(fault)
        else:
            owner.take_cores(fault)
    return whole


def _misses(named: Open, cores: Open) -> bool:
    same = (
        named.pid == cores.pid
        and named.failed
        and not named.cores
        and _moment(named.time, cores.time)
    )
    return same and _fits(cores, named.failure)


def _still_needed(
    known: Sequence[tuple[str | None, int, int]],
) -> list[tuple[str | None, int, int]]:
    """The allocations that are not freed yet, and the last quarter of all: what an error may still
    lie in.
    """
    recent = len(known) - _KEPT_ALLOCATIONS // 4
    live: dict[int, list[int]] = defaultdict(list)
    for number, (_, address, size) in enumerate(known[:recent]):
        if size >= 0:
            live[address].append(number)
        elif live[address]:
            live[address].pop()
    kept = sorted(number for places in live.values() for number in places)
    return [*(known[number] for number in kept), *known[recent:]]


def _snapshots(
    known: Sequence[tuple[str | None, int, int]], times: Iterable[str | None]
) -> dict[str | None, tuple[Allocation, ...]]:
    """Allocations as they were at each of these times; known lies in the order of the files, times
    sort it. None is the end.
    """
    ordered = sorted(known, key=lambda entry: entry[0] or "")
    live: dict[int, list[int]] = defaultdict(list)
    made: list[Allocation] = []
    snapshots: dict[str | None, tuple[Allocation, ...]] = {}
    done = 0
    for until in sorted({*times}, key=lambda time: time or "~"):
        while done < len(ordered) and (until is None or (ordered[done][0] or "") <= until):
            time, address, size = ordered[done]
            done += 1
            if (
                size >= 0
                # given out twice: on two devices, whose addresses are the same, or the line of the
                # free is missing
            ):
                live[address].append(len(made))
                made.append(Allocation(address, size, time))
            elif live[address]:
                number = live[address].pop()
                made[number] = msgspec.structs.replace(made[number], freed_at=time or "earlier")
        snapshots[until] = tuple(made)
    return snapshots


def _merged(faults: Iterable[Fault]) -> list[Fault]:
    """One error for each that happened: the host's and the device's log, the screen and the process
    log, copies of a file.
    """
    merged: list[Fault] = []
    places: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for fault in faults:
        keys = (
            ("moment", fault.pid, fault.time, fault.kernel),
            ("task", fault.device, fault.stream, fault.task),
        )
        near = sorted({at for key in keys for at in places[key]})
        at = next((at for at in near if _same(merged[at], fault)), None)
        if at is None:
            at = len(merged)
            merged.append(fault)
        else:
            merged[at] = _joined(merged[at], fault)
        for key in keys:
            if not places[key] or places[key][-1] != at:
                places[key].append(at)
    return merged


def _same(first: Fault, second: Fault) -> bool:
    if set(first.files) & set(second.files):
        return False  # one file tells of each error once
    if (
        first.pid is not None
        and first.pid == second.pid
        and first.time == second.time
        and first.kernel == second.kernel
    ):
        return True
    ids = [(fault.device, fault.stream, fault.task) for fault in (first, second)]
    if ids[0] != ids[1] or None in ids[0]:
        return False
    if None not in (first.kernel, second.kernel) and first.kernel != second.kernel:
        return False
    if first.time is None or second.time is None:
        return True
    # The device's log has the cores, the host's the kernel's name; two that both name it are two
    # processes', of two hosts perhaps.
    parts = bool(first.cores) != bool(second.cores) and bool(first.failure) != bool(second.failure)
    return parts and first.time[:13] == second.time[:13]


def _joined(first: Fault, second: Fault) -> Fault:
    """The first with what only the second knows."""
    changes = {
        name: getattr(second, name)
        for name in first.__struct_fields__
        if not getattr(first, name) and getattr(first, name) != 0 and getattr(second, name)
    }
    both = tuple(dict.fromkeys((*first.files, *second.files)))
    if first.words_after and second.words_after and first.words_after != second.words_after:
        warning = (
            f"{', '.join(second.files)} tells of the same error with other argument words; "
            f"those of {first.files[0]} are used"
        )
        changes["warnings"] = (*first.warnings, warning)
    return msgspec.structs.replace(first, **{**changes, "files": both})


def read_logs(paths: Iterable[Path], *, named: Callable[[str], str] = str) -> LogReader:
    """A reader that has read these files; named gives the name each is told by. FormatError for one
    that cannot be read.
    """
    reader = LogReader()
    for path in sorted(paths, key=_rank):
        try:
            with path.open("rb") as stream:
                reader.read(stream, named(str(path)))
        except OSError as error:  # noqa: PERF203 - the file is named
            raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    return reader


def read_text(text: bytes, name: str) -> LogReader:
    """A reader that has read this text."""
    reader = LogReader()
    reader.read(io.BytesIO(text), name)
    return reader


def _rank(path: Path) -> tuple[bool, str]:
    """Logs with the logger's own names first: a copy under another name is the copy."""
    known = path.name.startswith(("plog-", "device-", "host-", "plog", "slog"))
    return not known, str(path)
