# SPDX-License-Identifier: Apache-2.0
"""Writes calls as CANN dump files, so that a recording of any source can be given to tools that
read those.

    {YYYYmmddHHMMSS}/{rank}/opscope/0/{step}/{op}.{name}.{task}.{stream}.{µs}  one file for each call
    … /Opdebug.Node_OpDebug.{task}.{stream}.{µs}                    for each call with overflow bits

The header has the call's full name; in file names every character the readers do not take is an
underscore. Tensors lie in host order, format ND or their plain layout. A call without a task gets
its index as task, in stream 0. The time of call n is the process's start plus n microseconds, so
order survives. A tensor whose value is not kept has its size and a null address, and no bytes, as
the device writes it.
"""  # noqa: E501

from __future__ import annotations

import re
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import OpscopeError, UsageError
from opscope.formats import opdebug
from opscope.formats.cann import dumpfile, elements, names
from opscope.formats.cann.dtypes import BY_NAME, FORMAT_NUMBERS, ElementType
from opscope.formats.cann.message import DumpData, OriginalOp, Shape, TensorEntry
from opscope.formats.layouts import plain
from opscope.narrow import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from opscope.arrays import Array
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor

MAX_NAME = 255
# where the run does not say when it began; readers want sixteen digits
_EPOCH = 1_600_000_000_000_000
_ND = FORMAT_NUMBERS["ND"]
_FIRST_ADDRESS = 0x10000
_AHEAD = 4  # calls waiting for each thread


class Outcome(msgspec.Struct):
    """What was written, and one line for each tensor or file that could not be."""

    files: int = 0
    tensors: int = 0
    failures: list[str] = []


def write_run(
    run: Run,
    calls: Iterable[tuple[Call, Sequence[Tensor]]],
    out: Path,
    *,
    jobs: int = 1,
    done: Callable[[int], None] | None = None,
) -> Outcome:
    """Write calls that have at least one tensor value, or overflow bits; done is called with the
    number of calls finished.
    """
    writer = DumpWriter(run, out)
    outcome = Outcome()
    finished = 0
    waiting: deque[Future[Outcome]] = deque()

    def take() -> None:
        nonlocal finished
        part = waiting.popleft().result()
        outcome.files += part.files
        outcome.tensors += part.tensors
        outcome.failures += part.failures
        finished += 1
        if done is not None:
            done(finished)

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        for call, tensors in calls:
            waiting.append(pool.submit(writer.write, call, tensors))
            if len(waiting) >= max(1, jobs) * _AHEAD:
                take()
        while waiting:
            take()
    return outcome


class DumpWriter:
    """Writes the dump files of single calls; may be used from several threads."""

    def __init__(self, run: Run, out: Path) -> None:
        self._run = run
        self._out = out
        self._starts = {process.process: _microseconds(process.start) for process in run.processes}
        self._lock = Lock()

    def write(self, call: Call, tensors: Sequence[Tensor]) -> Outcome:
        """Write one call; what cannot be written is told in the outcome."""
        outcome = Outcome()
        pieces = [self._piece(call, tensor, outcome) for tensor in tensors]
        try:
            if any(len(payload) or not entry.size for _, entry, payload in pieces):
                self._write(
                    call,
                    self._name(call),
                    self._header(call, pieces),
                    [payload for _, _, payload in _ordered(pieces)],
                )
                outcome.files += 1
            if call.status:
                self._write_record(call)
                outcome.files += 1
        except OSError as error:
            outcome.failures.append(f"{call.name}: {error.strerror or error}")
        return outcome

    def _piece(self, call: Call, tensor: Tensor, outcome: Outcome) -> Piece:
        try:
            if tensor.value is not None:
                values = self._run.value(tensor)
                entry, payload = _encoded(tensor, values)
                outcome.tensors += 1
                return tensor.io, entry, payload
        except (OpscopeError, OSError, ValueError, TypeError, MemoryError) as error:
            outcome.failures.append(
                f"{call.name} {tensor.io} {tensor.slot}: {error or type(error).__name__}"
            )
        return tensor.io, _absent(tensor), b""

    def _header(self, call: Call, pieces: Sequence[Piece]) -> DumpData:
        address = _FIRST_ADDRESS
        placed: dict[str, list[TensorEntry]] = {"input": [], "output": []}
        for io, entry, payload in _ordered(pieces):
            missing = entry.size and not len(payload)
            placed[io].append(msgspec.structs.replace(entry, address=0 if missing else address))
            address += entry.size + -entry.size % 512
        return DumpData(
            version="2.0",
            dump_time=self._time(call),
            op_name=call.name,
            input=tuple(placed["input"]),
            output=tuple(placed["output"]),
        )

    def _write_record(self, call: Call) -> None:
        task, stream = _ids(call)
        payload = opdebug.encode(task=task, stream=stream, status=call.status or 0)
        original = OriginalOp(name="Node_OpDebug", data_type=BY_NAME["uint8"].proto, format=_ND)
        entry = TensorEntry(
            data_type=BY_NAME["uint8"].proto,
            format=_ND,
            shape=Shape(dim=(len(payload),)),
            original_shape=Shape(),
            size=len(payload),
            original_op=original,
        )
        header = DumpData(
            version="2.0", dump_time=self._time(call), op_name="Node_OpDebug", output=(entry,)
        )
        self._write(
            call, f"Opdebug.Node_OpDebug.{task}.{stream}.{self._time(call)}", header, [payload]
        )

    def _write(self, call: Call, name: str, header: DumpData, payloads: list[Any]) -> None:
        began = time.strftime("%Y%m%d%H%M%S", time.gmtime(self._start(call) / 1e6))
        folder = self._out / began / str(call.rank) / "opscope" / "0" / str(call.step)
        folder.mkdir(parents=True, exist_ok=True)
        if len(name.encode("utf-8", "surrogateescape")) > MAX_NAME:
            stored = names.stored_name(name)
            with self._lock, (folder / names.MAPPING).open("a", encoding="utf-8") as file:
                file.write(f"{stored},{name}\n")
            name = stored
        dumpfile.write(folder / name, header, payloads)

    def _name(self, call: Call) -> str:
        task, stream = _ids(call)
        return f"{_plain(call.op)}.{_plain(call.name)}.{task}.{stream}.{self._time(call)}"

    def _start(self, call: Call) -> int:
        return self._starts.get(call.process, _EPOCH)

    def _time(self, call: Call) -> int:
        return self._start(call) + call.index


Piece = tuple[str, TensorEntry, Any]


def _ordered(pieces: Sequence[Piece]) -> list[Piece]:
    """Inputs, then outputs, as payloads lie in a dump file."""
    return [piece for io in ("input", "output") for piece in pieces if piece[0] == io]


def _microseconds(start: float | None) -> int:
    micro = int(start * 1e6) if start is not None and start > 0 else 0
    return micro if micro >= 10**15 else _EPOCH


def _ids(call: Call) -> tuple[int, int]:
    if call.task is None:
        return call.index, 0
    return call.task, names.UNKNOWN_ID if call.stream is None else call.stream


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text) or "_"


def _encoded(tensor: Tensor, values: Array) -> tuple[TensorEntry, Any]:
    """Header entry and bytes of a tensor's values. Raises UsageError for a type CANN does not
    have.
    """
    kind = _kind(tensor, values)
    layout = tensor.layout or "ND"
    number = (
        FORMAT_NUMBERS[layout] if plain.is_plain(layout) and len(layout) == values.ndim else _ND
    )
    payload = elements.encode(values, kind)
    shape = Shape(dim=values.shape)
    return TensorEntry(
        data_type=kind.proto, format=number, shape=shape, original_shape=shape, size=payload.nbytes
    ), payload


def _kind(tensor: Tensor, values: Array) -> ElementType:
    """CANN's type of a row: its own where the values are decoded, else that of the values."""
    announced = BY_NAME.get(tensor.dtype)
    if announced is not None and announced.numpy is None and announced.bits:
        return announced
    name = name_of(values.dtype)
    kind = BY_NAME.get(name)
    if kind is None:
        raise UsageError(f"CANN has no type for {name}")
    return kind


def _absent(tensor: Tensor) -> TensorEntry:
    """Entry of a tensor whose bytes are not there."""
    kind = BY_NAME.get(tensor.dtype)
    dims = tensor.shape or ()
    count = 1
    for dim in dims:
        count *= dim
    shape = Shape(dim=dims)
    nbytes = kind.nbytes(count) if kind is not None else count
    return TensorEntry(
        data_type=kind.proto if kind is not None else 0,
        format=_ND,
        shape=shape,
        original_shape=shape,
        size=nbytes,
    )
