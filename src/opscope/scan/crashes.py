# SPDX-License-Identifier: Apache-2.0
"""Calls in which a process died."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.operators.catalogue import traits_of
from opscope.questions.findings import Accusation, listed
from opscope.run.access import access_of
from opscope.run.finding import Forward
from opscope.run.query import columns, rows_of, tensors_at
from opscope.run.vectors import calls_where
from opscope.scan.device_errors import Launched, Suspects, suspects_of
from opscope.scan.ended_ranks import is_exchange

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Process

UNFINISHED = "unfinished"
# What CUDA, torch_npu and CANN say when a device has stopped; the call that raises is the first
# that heard of it.
DEVICE_ERROR = re.compile(
    r"CUDA error|CUDNN_STATUS_EXECUTION_FAILED|CUBLAS_STATUS_EXECUTION_FAILED|device-side "
    r"assert|illegal memory access|unspecified launch"
    r"|HIP error|NPU error|ACL error|AI ?Core|vector "
    r"core|507\d{3}|\bE[EZ]9999|ERR\d\d[1-3]00|aclrtSynchronize|npuSynchronize|HCCL",
    re.IGNORECASE,
)
LATE = "a device error that was asynchronous: the kernel that failed may be an earlier one"
TO_KNOW = "record with --sync, which makes launches blocking, to know"
_ON_PURPOSE = ("SystemExit", "KeyboardInterrupt", "GeneratorExit")
HUNG = 5.0  # seconds without a new call after which a process that was stopped stood still
_INTERRUPTED = 130
_STOPPED_BY_SOMEONE = frozenset({int(signal.SIGINT), int(signal.SIGTERM)})
_COLUMNS = ("process", "index", "parent", "error", "level", "phase", "op")


class _Failed(msgspec.Struct, frozen=True):
    process: int
    index: int
    parent: int | None
    error: str
    level: str
    op: str
    exchanges: bool

    @property
    def order(self) -> int:
        """Behind what else there is where other ranks have to answer."""
        return int(self.exchanges)


def crash_accusations(run: Run) -> list[Accusation]:
    """One for each process that died in a call: unfinished calls, or an exception that the program
    did not survive.

    An exception that the program caught is none: only one in the last call of a process that ended
    with a failure counts.
    """
    if run.processes and all(process.exit_code == 0 for process in run.processes):
        return []
    failed: dict[int, list[_Failed]] = defaultdict(list)
    raised = calls_where(run, "calls", lambda batch: batch.known("error"))
    for process, index, parent, error, level, phase, op in rows_of(run, "calls", _COLUMNS, raised):
        exchanges = is_exchange(phase, op)
        failed[process].append(_Failed(process, index, parent, error, level, op, exchanges))
    last = _last_calls(run) if failed else {}
    processes = {process.process: process for process in run.processes}
    accused = (
        _crash(run, calls, last[number], processes.get(number)) for number, calls in failed.items()
    )
    return [_with_inputs(run, accusation) for accusation in accused if accusation is not None]


def _last_calls(run: Run) -> dict[int, tuple[int, int | None]]:
    """The last call of each process, and the parent of the last one that has a parent."""
    last: dict[int, int] = {}
    inside: dict[int, tuple[int, int]] = {}  # the last call with a parent, and that
    for batch in columns(run, "calls", ("process", "index", "parent")):
        index, parent = batch["index"], batch["parent"]
        within = ~np.ma.getmaskarray(parent)
        for process in np.unique(batch["process"]).tolist():
            rows = np.flatnonzero(batch["process"] == process)
            last[process] = max(last.get(process, -1), int(index[rows].max()))
            rows = rows[within[rows]]
            if len(rows):
                at = rows[np.argmax(index[rows])]
                inside[process] = max(
                    inside.get(process, (-1, -1)), (int(index[at]), int(parent[at]))
                )
    return {
        process: (index, inside[process][1] if process in inside else None)
        for process, index in last.items()
    }


def _with_inputs(run: Run, accusation: Accusation) -> Accusation:
    """The accusation with whether the call's inputs were kept, by the journal or since it raised:
    then it can be cut out.
    """
    inputs = [
        row for row in tensors_at(run, accusation.process, accusation.index) if row.io == "input"
    ]
    if not inputs or any(row.value is None and row.size != 0 for row in inputs):
        return accusation
    return msgspec.structs.replace(
        accusation, evidence={**accusation.evidence, "inputs_kept": True}
    )


def is_asynchronous(error: str) -> bool:
    """Whether a device says in this text that something went wrong, which may be an earlier kernel
    than the call that hears of it.
    """
    return DEVICE_ERROR.search(error) is not None


def is_synchronous(run: Run) -> bool:
    """Whether launches were blocking: recorded with --sync, or the program's own variables said
    so.
    """
    if run.info.config.get("sync"):
        return True
    return any(
        run.info.environment.get(name) == "1"
        for name in ("CUDA_LAUNCH_BLOCKING", "ASCEND_LAUNCH_BLOCKING")
    )


def forward_of(run: Run, process: int, index: int) -> Forward | None:
    """The forward call of an unfinished gradient, found among the recent calls of the black box by
    line, module and name.

    Its row may never have been written. None when several operators of the line may be meant.
    """
    read = access_of(run).blackbox
    box = None if read is None else read(process)
    call = None if box is None else next((call for call in box.open if call.index == index), None)
    if box is None or call is None or call.phase != "backward" or call.source is None:
        return None
    same = [
        other
        for other in box.recent
        if other.phase == "forward"
        and other.level == "operator"
        and (other.source, other.module) == (call.source, call.module)
    ]
    stem = _stem(call.op)
    meant = [other for other in same if _stem(other.op) == stem] or [
        other for other in same if not traits_of(other.op).view
    ]
    if not meant or len({other.op for other in meant}) > 1:
        return None
    return Forward(call=meant[-1].name, op=meant[-1].op, source=meant[-1].source)


def forward_named(run: Run, process: int, op: str) -> Forward | None:
    """The last call of the operator whose own gradient formula has this name
    (`mine::act_backward`); None for any other.
    """
    space, separator, rest = op.partition("::")
    forward = f"{space}::{rest.replace('_backward.', '.', 1)}"
    read = access_of(run).blackbox
    box = (
        read(process)
        if read is not None and separator and "_backward." in rest and space != "aten"
        else None
    )
    call = (
        None
        if box is None
        else next((call for call in reversed(box.recent) if call.op == forward), None)
    )
    return None if call is None else Forward(call=call.name, op=call.op, source=call.source)


def _stem(op: str) -> str:
    """`group_norm` for aten::native_group_norm_backward.default."""
    name = op.rpartition("::")[2].partition(".")[0]
    return re.sub(r"^native_|^_+|_for_cpu|_backward(_data)?$", "", name)


def _crash(
    run: Run, calls: list[_Failed], last: tuple[int, int | None], process: Process | None
) -> Accusation | None:
    if process is not None and process.exit_code == 0:
        return None
    open_calls = [call for call in calls if call.error == UNFINISHED]
    stopped = process is not None and (
        process.signal in _STOPPED_BY_SOMEONE or process.exit_code == _INTERRUPTED
    )
    if process is not None and stopped:
        return _hang(
            run,
            open_calls or [call for call in calls if call.error.startswith("KeyboardInterrupt")],
            process,
        )
    if open_calls:
        innermost = max(open_calls, key=lambda call: call.index)
        words = f"the process died in this call{_how(process)}"
        return Accusation(
            process=innermost.process,
            index=innermost.index,
            kind="crash",
            reasons=(words,),
            confidence="likely",
            evidence=_ending(process),
            order=innermost.order,
            judged=False,
            forward=forward_of(run, innermost.process, innermost.index)
            or forward_named(run, innermost.process, innermost.op),
        )
    if process is None or not (process.exit_code or process.signal):
        return None
    fatal = [
        call for call in calls if call.index in last and not call.error.startswith(_ON_PURPOSE)
    ]
    if not fatal:
        return None
    innermost = _first_to_raise(max(fatal, key=lambda call: call.index), calls)
    crash = Accusation(
        process=innermost.process,
        index=innermost.index,
        kind="crash",
        reasons=(_first_line(innermost.error),),
        evidence=_ending(process),
        order=innermost.order,
        judged=False,
        forward=forward_named(run, innermost.process, innermost.op),
    )
    if not is_asynchronous(innermost.error) or is_synchronous(run):
        return crash
    return _late(crash, suspects_of(run, innermost.index, innermost.error, process))


def _late(crash: Accusation, suspects: Suspects) -> Accusation:
    """The accusation of the call that the device's error means, as far as that is known: one that
    alone computes what the failed kernel does, else the first of several, else the one that raised.
    """
    launched, named = suspects.launched, suspects.named
    count = f"{len(launched)} calls launched since the last one that waited for the device"
    kernel = f"the device names the kernel {suspects.kernel}"
    unknown = {**crash.evidence, "asynchronous": True}
    alone = len({(call.op, call.source) for call in named}) == 1
    if named:
        places = "such an operator" if alone else f"such operators: {listed([*map(_place, named)])}"
        words = f"{kernel}; of {count} {len(named)} {'is' if len(named) == 1 else 'are'} {places}"
        return msgspec.structs.replace(
            crash,
            index=named[0].index,
            order=0,
            forward=None,
            confidence="likely" if alone else "suspected",
            evidence={**crash.evidence, "late": True} if alone else unknown,
            reasons=(*crash.reasons, words if alone else f"{words}; {TO_KNOW}"),
        )
    known = [LATE]
    if suspects.kernel is not None:
        known.append(f"{kernel}, which none of these is by its name")
    if launched:
        known.append(f"{count}: {listed([*map(_place, launched)])}")
    reasons = (*crash.reasons, "; ".join([*known, TO_KNOW]))
    return msgspec.structs.replace(crash, confidence="suspected", evidence=unknown, reasons=reasons)


def _place(call: Launched) -> str:
    """`_softmax (train.py:12)`."""
    file = (call.source or "").rpartition("/")[2]
    return f"{call.op.rpartition('::')[2].partition('.')[0]}{f' ({file})' if file else ''}"


def _first_to_raise(last: _Failed, calls: list[_Failed]) -> _Failed:
    """The call that raised what the last one passed on: a gradient formula in Python has its row
    when it is left.
    """
    before = next(
        (call for call in calls if call.index == last.index - 1 and call.level == "operator"), None
    )
    return before if before is not None and before.error == last.error else last


def _hang(run: Run, calls: list[_Failed], process: Process) -> Accusation | None:
    """The operator call in which a process stood still when somebody stopped it; None for one that
    was busy.
    """
    innermost = max(
        (call for call in calls if call.level == "operator"),
        key=lambda call: call.index,
        default=None,
    )
    if innermost is None or process.idle is None or process.idle < HUNG:
        return None
    words = f"this call had not returned for {process.idle:.0f} s when the process was stopped"
    return Accusation(
        process=innermost.process,
        index=innermost.index,
        kind="crash",
        reasons=(words,),
        confidence="suspected",
        evidence={**_ending(process), "idle": process.idle},
        order=0,
        judged=False,
        forward=forward_of(run, innermost.process, innermost.index),
    )


def _ending(process: Process | None) -> dict[str, Any]:
    return {} if process is None else {"exit_code": process.exit_code, "signal": process.signal}


def _how(process: Process | None) -> str:
    if process is None:
        return ""
    if process.signal:
        return f" of signal {process.signal}"
    return f" with exit code {process.exit_code}" if process.exit_code else ""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:500]
