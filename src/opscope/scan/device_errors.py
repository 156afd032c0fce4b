# SPDX-License-Identifier: Apache-2.0
"""Which call a device's error means, where a later one was the first to hear of it.

A launch returns before its kernel has run. What can have failed are the calls that were launched
since the last one that waited for the device; which of them, the error's own text may say, or the
log that CANN wrote of the process: they name the kernel.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.ascend.analysis import operator_type
from opscope.ascend.log import LogReader, read_logs, read_text
from opscope.errors import OpscopeError
from opscope.operators.catalogue import kin, traits_of
from opscope.run.query import call_at, rows_of
from opscope.run.vectors import calls_where

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.run.protocol import Run
    from opscope.run.schema import Process
    from opscope.run.vectors import Vectors

MAX_LAUNCHED = 4096
_KERNEL = re.compile(r"\bkernel[ _]name\s*[=:]\s*(?:aclnn)?(?:Inplace)?([A-Za-z]\w*)")
_LISTS = re.compile(r"(?<=^foreach)(\w+?)(scalarlist|scalar|list|tensor)$")  # ForeachAddScalar
_LOGS = ("debug/plog", "run/plog", "plog", ".")  # where CANN writes below its folder of logs


class Launched(msgspec.Struct, frozen=True):
    """A call whose kernel may not have run when it returned."""

    index: int
    op: str
    source: str | None


class Suspects(msgspec.Struct, frozen=True):
    """What may have failed: launched since the last wait, in order; the kernel that the device
    names, and those calls that are such an operator.
    """

    launched: tuple[Launched, ...]
    kernel: str | None
    named: tuple[Launched, ...]


def suspects_of(run: Run, index: int, error: str, process: Process) -> Suspects:
    """Those of an error that this call of a process raised."""
    launched = tuple(_launched(run, process.process, index))[::-1]
    told = process.torch.get("device errors", {}).values()  # to the recorder, which asked first
    kernel = _kernel_in("\n".join([error, *told])) or _kernel_logged(process)
    word = None if kernel is None else plain(kernel)
    return Suspects(launched, kernel, tuple(call for call in launched if plain(call.op) == word))


def plain(op: str) -> str:
    """One word for an operator and for the kernels that compute it."""
    return _LISTS.sub(r"\1", kin(op).replace("_", "").lower().removeprefix("native"))


def _launched(run: Run, process: int, index: int) -> Iterator[Launched]:
    """Calls before this one back to the last that waited, the last first."""
    calls = _before(run, process, index)
    devices = {
        (number, io)
        for number, io, device in rows_of(run, "tensors", ("index", "io", "device"), calls)
        if device not in {None, "cpu"}
    }
    last_first = sorted(rows_of(run, "calls", ("index", "op", "source"), calls), reverse=True)
    for number, op, source in last_first:
        on_device = (number, "output") in devices
        if (number, "input") in devices and not on_device:
            return  # what it gave lies with the host: it waited
        traits = traits_of(op)
        if on_device and not (traits.view or traits.allocates):
            yield Launched(number, op, source)


def _before(run: Run, process: int, index: int) -> Ints:
    """The last operators before a call, from the step before its own on, at whose beginning the
    recorder had waited.
    """
    failed = call_at(run, process, index)

    def before(batch: Vectors) -> Bools:
        earlier = (batch.numbers("process") == process) & (batch.numbers("index") < index)
        late = batch.numbers("step") >= (0 if failed is None else failed.step - 1)
        return np.asarray(earlier & late & batch.are("level", "operator"))

    return calls_where(run, "calls", before)[-MAX_LAUNCHED:]


def _kernel_in(error: str) -> str | None:
    """The type of operator, else the kernel, that an error's text names."""
    failed = _failed(read_text(error.encode(errors="replace"), "error"))
    if failed is not None:
        return failed
    named = _KERNEL.search(error)
    return None if named is None else named[1]


def _kernel_logged(process: Process) -> str | None:
    """The same from what CANN logged of the process, on the machine where it ran."""
    if process.host != socket.gethostname():
        return None
    folder = Path(os.environ.get("ASCEND_PROCESS_LOG_PATH") or Path.home() / "ascend" / "log")
    try:
        files = [
            path
            for below in _LOGS
            for path in (folder / below).glob(f"plog-{process.pid}_*.log")
            if process.start is None or path.stat().st_mtime >= process.start
        ]
        return _failed(read_logs(files)) if files else None
    except (OSError, OpscopeError):
        return None  # whose log it is, nobody else has to mind


def _failed(log: LogReader) -> str | None:
    """The operator's type, else the kernel, of the first error that has one."""
    names = (operator_type(fault) or fault.kernel for fault in log.faults())
    return next((name for name in names if name), None)
