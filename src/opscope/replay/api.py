# SPDX-License-Identifier: Apache-2.0
"""Replays the calls of a run: every one again from its recorded inputs, on its device and on
trusted substitutes.

Calls are made in processes of their own, several at a time. Results are appended to a file as they
come, so that a replay that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import FormatError, UsageError
from opscope.formats.registry import open_run
from opscope.operators.catalogue import declared_rows
from opscope.operators.told import Rows
from opscope.questions.findings import place_of, slot_of
from opscope.replay.calls import call_at
from opscope.repro.answering import AnsweringProcess, ending, environment_without
from opscope.repro.worker import START
from opscope.run.finding import Document, Finding
from opscope.run.hashes import distinct, hash_of, mixed
from opscope.run.keys import NONE, indices_of, keys_at, keys_of, merged, processes_of
from opscope.run.progress import Progress, nobody
from opscope.run.query import calls, columns, records_of, rows_where, tensors_at, tensors_of
from opscope.run.unmatched import unmatched
from opscope.run.whole_tables import read_tables

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor
    from opscope.run.selection import Selection

RESULTS = "replayed.jsonl"
LISTED = 200
LIKE = "like another"
RECORDED = "recorded outputs"
BOOTSTRAP = (
    "import sys; sys.path[:] = {path!r}; from opscope.replay.worker import main; "
    "main(*{arguments!r})"
)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How calls are replayed. device: where, None for the recorded one; repeat: how often; timeout:
    seconds for one call.

    synthesise invents inputs from statistics where values were not kept; limit is the most calls
    replayed. python is the interpreter that has MindSpore, for runs of it; imports are libraries
    whose kernels make the calls, in a process of their own. allowed are patterns of operators that
    are called though they may touch more than their tensors; declared says what operators are.
    """

    device: str | None = None
    repeat: int = 1
    jobs: int = 1
    timeout: float = 300.0
    synthesise: bool = True
    limit: int | None = None
    python: str | None = None
    imports: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    declared: Rows = {}

    @property
    def patience(self) -> float:
        """Seconds for one answer: the other interpreter has to start first, and ends what hangs
        itself.
        """
        return self.timeout if self.python is None else self.timeout + START


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One replayed call; reason says why there is no verdict. The rest is what
    substitute.recorded.Replay holds.

    like: the index of the call of the same signature that was made for it, where inputs are
    invented (signatures.py).
    """

    process: int
    index: int
    rank: int
    step: int
    call: str
    op: str
    phase: str
    reason: str | None = None
    values: str = ""
    device: str = ""
    verdict: dict[str, Any] = {}
    substitute: str = ""
    against: str = ""
    nature: str | None = None
    tried: int = 0
    wrong: int = 0
    distinct: int = 0
    seconds: float = 0.0
    metrics: tuple[dict[str, Any], ...] = ()
    like: int | None = None

    @property
    def word(self) -> str:
        """The verdict in one word; `not replayed` where there is none."""
        return str(self.verdict.get("verdict", "not replayed"))


def replay(
    run: Run | str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    plan: Plan = Plan(),  # noqa: B008 - immutable
    output: Path | None = None,
    progress: Progress = nobody,
) -> Document:
    """Replay the selected operator and API calls of a run, or of what lies at a path; findings are
    those that are wrong or flaky.

    output is a directory in which results are kept and from which an interrupted replay goes on.
    The document's summary counts verdicts, lists ill-conditioned calls and those that could not be
    replayed with the reason. complete is false when none could.
    """
    run = open_run(run)
    lines = list(
        replay_calls(run, selection=selection, plan=plan, output=output, progress=progress)
    )
    return document_of(run, lines, selection)


def replay_calls(
    run: Run,
    *,
    selection: Selection | None,
    plan: Plan,
    output: Path | None,
    progress: Progress = nobody,
) -> Iterator[Line]:
    """One line for each call, in the order of the run."""
    plan = msgspec.structs.replace(plan, declared={**declared_rows(), **plan.declared})
    wanted = [call for call in calls(run, selection) if call.level in ("operator", "api")]
    wanted = wanted[: plan.limit] if plan.limit is not None else wanted
    done = {} if output is None else read_results(output, plan)
    known = {(call.process, call.index) for call in wanted}
    done = {key: line for key, line in done.items() if key in known}
    spoken = spoken_for(run, wanted)
    with contextlib.ExitStack() as opened:
        file = (
            None
            if output is None
            else opened.enter_context(results_file(output, plan, fresh=not done))
        )
        for first in (True, False):
            if not first:  # what was held against recorded results says nothing of the other calls
                spoken = {
                    key: leader
                    for key, leader in spoken.items()
                    if done[leader].against != RECORDED
                }
            waiting = [
                call
                for call in wanted
                if (call.process, call.index) not in done.keys() | spoken.keys()
            ]
            for line in opened.enter_context(contextlib.closing(spread(run, waiting, plan))):
                done[line.process, line.index] = line
                if file is not None:
                    file.write(msgspec.json.encode(line) + b"\n")
                    file.flush()
                progress("replay", len(done), len(wanted) - len(spoken))
    for call in wanted:
        key = call.process, call.index
        yield done[key] if key in done else _after(call, done[spoken[key]])


def _after(call: Call, first: Line) -> Line:
    """The line of a call that another one of its signature speaks for."""
    if first.reason is not None:
        return line_of(call, {"reason": first.reason})
    return line_of(
        call,
        {
            "values": first.values,
            "device": first.device,
            "verdict": {"verdict": LIKE},
            "like": first.index,
        },
    )


# -- results on disk -------------------------------------------------------------------------------


def head_of(plan: Plan) -> dict[str, Any]:
    """What results must have in common to be continued."""
    other = {
        name: value
        for name, value in (
            ("python", plan.python),
            ("imports", list(plan.imports)),
            ("allowed", list(plan.allowed)),
            ("declared", msgspec.to_builtins(plan.declared)),
        )
        if value
    }
    return {
        "opscope": 1,
        "device": plan.device,
        "repeat": plan.repeat,
        "synthesise": plan.synthesise,
        **other,
    }


def read_results(output: Path, plan: Plan) -> dict[tuple[int, int], Line]:
    """Results that are there already; a last line that was torn is left out. UsageError for those
    of another plan.
    """
    path = output / RESULTS
    if not path.exists():
        return {}
    lines: dict[tuple[int, int], Line] = {}
    with path.open("rb") as file:
        try:
            head = msgspec.json.decode(file.readline())
        except msgspec.DecodeError as error:
            raise FormatError(
                path, f"is not a replay's file: {error}; give another directory with -o"
            ) from error
        if head != head_of(plan):
            raise UsageError(f"{path} was made with other options; give another directory with -o")
        for text in file:
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                line = msgspec.json.decode(text, type=Line)
                lines[line.process, line.index] = line
    return lines


def results_file(output: Path, plan: Plan, *, fresh: bool) -> Any:
    """The file of results, to be appended to; it begins with what they have in common."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        if fresh or not (output / RESULTS).exists():
            (output / RESULTS).write_bytes(msgspec.json.encode(head_of(plan)) + b"\n")
        file = (output / RESULTS).open("r+b")
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written ({error.strerror}); give another directory with -o"
        ) from error
    content = file.read()
    file.seek(content.rfind(b"\n") + 1)  # over a line that was torn
    file.truncate()
    return file


# -- processes -------------------------------------------------------------------------------------


class Worker:
    """One process that replays calls, and the call it is at."""

    def __init__(self, path: str, plan: Plan) -> None:
        search = [str(Path(__file__).parents[2]), *(entry for entry in sys.path if entry)]
        code = BOOTSTRAP.format(path=search, arguments=(path, msgspec.to_builtins(plan)))
        own = environment_without("OPSCOPE", "PYTHON")
        # A process that is killed in a kernel removes nothing: where it puts its files is ours.
        self._folder = tempfile.TemporaryDirectory(
            prefix="opscope-replay-", ignore_cleanup_errors=True
        )
        self.process = AnsweringProcess(
            [sys.executable, "-I", "-c", code], own | {"TMPDIR": self._folder.name}
        )
        self.call: Call | None = None
        self.since = 0.0

    def fileno(self) -> int:
        return self.process.fileno()

    def ask(self, call: Call) -> None:
        self.call, self.since = call, time.monotonic()
        self.process.send(f"{call.process} {call.index}".encode())

    def answer(self) -> dict[str, Any] | None:
        """The reply to what was asked; None when the process ended instead."""
        line = self.process.receive()
        return msgspec.json.decode(line, type=dict[str, Any]) if line else None

    def end(self) -> str:
        """End the process and say how it ended; it is asked first, so that it ends what it started,
        unless somebody is in a hurry.
        """
        code = self.process.end(1.0)
        self._folder.cleanup()
        return ending(code)


def spread(run: Run, waiting: Sequence[Call], plan: Plan) -> Generator[Line]:
    """Lines of calls as they are done, by several processes."""
    rest = list(reversed(waiting))
    workers = [Worker(run.info.path, plan) for _ in range(min(plan.jobs, len(rest)))]
    try:
        for worker in workers:
            worker.ask(rest.pop())
        while any(worker.call is not None for worker in workers):
            for number, worker in ready(workers, plan.patience):
                call, answer = (
                    worker.call,
                    worker.answer() if time.monotonic() - worker.since < plan.patience else None,
                )
                if call is None:
                    continue
                if answer is None:
                    slow = time.monotonic() - worker.since >= plan.patience
                    ended = worker.end()
                    answer = {
                        "reason": f"no answer after {plan.patience:g} s"
                        if slow
                        else f"the process died in it ({ended})"
                    }
                    worker = workers[number] = Worker(run.info.path, plan)  # noqa: PLW2901 - takes its place
                worker.call = None
                yield line_of(call, answer)
                if rest:
                    worker.ask(rest.pop())
    finally:
        for worker in workers:
            worker.end()


def ready(workers: Sequence[Worker], timeout: float) -> list[tuple[int, Worker]]:
    """Workers that have answered, died, or taken too long."""
    busy = [worker for worker in workers if worker.call is not None]
    first = min((worker.since for worker in busy), default=0.0)
    readable, _, _ = select.select(busy, [], [], max(0.0, first + timeout - time.monotonic()))
    late = time.monotonic() - timeout
    return [
        (number, w)
        for number, w in enumerate(workers)
        if w.call is not None and (w in readable or w.since <= late)
    ]


def line_of(call: Call, answer: dict[str, Any]) -> Line:
    facts = {"process": call.process, "index": call.index, "rank": call.rank, "step": call.step}
    return msgspec.convert(
        {**facts, "call": call.name, "op": call.op, "phase": call.phase, **answer}, Line
    )


# -- what it says ----------------------------------------------------------------------------------


def document_of(run: Run, lines: Sequence[Line], selection: Selection | None = None) -> Document:
    """Findings of the wrong and the flaky, counts of the others; incomplete when no call was
    replayed.
    """
    counts: dict[str, int] = {}
    for line in lines:
        counts[line.word] = counts.get(line.word, 0) + 1
    suspects = [line for line in lines if line.word in ("wrong", "flaky")]
    left_out = [line for line in lines if line.reason is not None]
    reasons: dict[str, int] = {}
    for line in left_out:
        reasons[line.reason or ""] = reasons.get(line.reason or "", 0) + 1
    warnings = [*run.problems, *unmatched(run, selection)]
    if not lines:
        warnings.append("no operator or API call of the run was selected; see opscope show")
    invented = sum(line.values == "synthesised" and line.like is None for line in lines)
    if invented:
        told = (
            "they judge this machine's kernels, not the recorded results, each kernel once for "
            "the shapes and types it was called with"
        )
        warnings.append(
            f"{invented} calls were made with inputs SYNTHESISED from statistics: {told}"
        )
    if left_out:
        warnings.append(
            f"{len(left_out)} of {len(lines)} calls could not be replayed; the reasons are in "
            "the summary"
        )
    summary = {
        "calls": len(lines),
        "verdicts": counts,
        "warnings": warnings,
        "first": suspects[0].call if suspects else None,
        "ill_conditioned": [facts_of(line) for line in lines if line.word == "ill-conditioned"][
            :LISTED
        ],
        "not_replayed": [
            {"call": line.call, "op": line.op, "step": line.step, "reason": line.reason}
            for line in left_out
        ][:LISTED],
        "reasons": reasons,
    }
    return Document(
        verb="replay",
        runs=(run.info.path,),
        verdict="found" if suspects else "clean",
        complete=not run.problems and len(left_out) < len(lines),
        findings=tuple(finding_of(run, line) for line in suspects),
        summary=summary,
    )


def facts_of(line: Line) -> dict[str, Any]:
    return {
        "call": line.call,
        "op": line.op,
        "step": line.step,
        "error": line.verdict.get("error"),
        "own_error": line.verdict.get("own_error"),
    }


NATURES = {
    "persistent": "the same wrong bits come every time: the kernel itself, or hardware that "
    "always fails in this way",
    "transient": "making it again gives the right result: a fault of that moment, one that needs "
    "the calls before it, or another kernel"
    " than this machine has",
    "intermittent": "wrong in some runs and right in others: a race in the kernel, or unstable "
    "hardware",
    "unstable": "wrong every time, with other bits: a race in the kernel, memory that it does not "
    "write, or unstable hardware",
}


def finding_of(run: Run, line: Line) -> Finding:
    """The finding of a wrong or flaky call."""
    row = call_at(run, line.process, line.index)
    told = line.verdict
    wrong = line.word == "wrong"
    where = (
        f"element {list(told['worst'])} of output {told.get('slot')}: {told.get('got')}, "
        f"{told.get('expected')} expected"
        if told.get("worst")
        else ""
    )
    again = f"{line.wrong} of {line.tried} times wrong when made again: " if line.tried > 1 else ""
    nature = again + NATURES[line.nature] if line.nature in NATURES else ""
    old = stale(run, row, str(told.get("slot"))) if wrong and line.against == RECORDED else ""
    reasons = [str(told.get("reason", "")), where, old or nature]
    tensors = tensors_of(run, row)
    slots = {
        io: tuple(
            msgspec.structs.replace(slot_of(tensor), stats={})
            for tensor in tensors
            if tensor.io == io
        )
        for io in ("input", "output")
    }
    return Finding(
        kind="replay-mismatch" if wrong else "nondeterminism",
        **place_of(row),
        reasons=tuple(filter(None, reasons)),
        confidence="proven" if not wrong or line.against == RECORDED else "likely",
        evidence=(msgspec.to_builtins(msgspec.structs.replace(line, metrics=())),),
        inputs=slots["input"],
        outputs=slots["output"],
    )


# Whether a wrong result is that of an earlier call: a kernel that left its output as it found it
# does not fail alone.

_RESULT = ("io", "slot", "digest", "dtype", "shape")


def stale(run: Run, call: Call, slot: str) -> str:
    """In words: the last earlier call of the operator, of other inputs, whose output has the same
    bits; empty where there is none.
    """
    mine = _inputs(run, call.process, call.index)
    for earlier in _alike(run, call, slot):
        if _inputs(run, earlier.process, earlier.index) != mine:
            told = (
                f"it is bit for bit the result of {earlier.name} in step {earlier.step}, whose "
                "inputs were others"
            )
            return f"{told}: memory that the kernel did not write, which no call shows alone"
    return ""


def _alike(run: Run, call: Call, slot: str) -> Iterator[Call]:
    """Earlier calls of the operator, the last one first, whose output has the same bits, not all of
    them one number.
    """
    for row in tensors_of(run, call, io="output"):
        if row.slot != slot or row.digest is None or row.shape is None or not _varies(row):
            continue
        names = ("index", "process", *_RESULT)
        rows = rows_where(run, "tensors", names, partial(_earlier, row=row))
        same = [getattr(row, name) for name in _RESULT]
        before = keys_at((process, index) for index, process, *result in rows if result == same)
        known = [each for each in records_of(run, "calls", before) if each.op == call.op]
        yield from sorted(known, key=lambda each: each.index, reverse=True)


def _varies(row: Tensor) -> bool:
    return row.min is not None and row.max is not None and row.min < row.max


def _earlier(batch: Mapping[str, Array], row: Tensor) -> Bools:
    """Which rows of calls before a tensor's have its digest."""
    before = (batch["process"] == row.process) & (batch["index"] < row.index)
    alike: Bools = before & (batch["digest"] == row.digest)
    return alike


def _inputs(run: Run, process: int, index: int) -> list[tuple[str, int | None]]:
    rows = (row for row in tensors_at(run, process, index) if row.io == "input")
    return sorted(((row.slot, row.digest) for row in rows), key=itemgetter(0))


# Calls that one call speaks for: of what is made with invented inputs, one of each signature
# judges the kernel.
#
# A signature is the operator, its arguments (floats by sign and by whether they are 0 or 1) and,
# of each tensor, slot, type, shape, strides and device.

Key = tuple[int, int]
_FLOAT = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?|-?\d+e[+-]?\d+", re.IGNORECASE)
_CALL = ("process", "index")
_FORM = ("io", "slot", "dtype", "shape", "stride", "device", "layout", "tensor_class")


def spoken_for(run: Run, calls: Sequence[Call]) -> dict[Key, Key]:
    """For each call whose inputs would be invented the earlier call of the same signature; the
    first of each is not in it.
    """
    forms = _invented(run)
    whole = {(call.process, call.index): call for call in calls}
    first: dict[object, Key] = {}
    leaders: dict[Key, Key] = {}
    for key, call in whole.items():
        form = forms.get(key)
        if form is None:
            continue
        forward = (
            None if call.forward_index is None else whole.get((call.process, call.forward_index))
        )
        beneath = (
            None
            if forward is None or call.level == "operator"
            else (_said(forward), forms.get((forward.process, forward.index)))
        )
        leader = first.setdefault((call.op, call.phase, _said(call), form, beneath), key)
        if leader != key:
            leaders[key] = leader
    return leaders


def _invented(run: Run) -> dict[Key, int]:
    """Of each call, judged by nobody, that reads what the run keeps nowhere, a hash of its tensors
    but for what they hold.
    """
    _, tensors = read_tables(run)
    process, index, version = (
        tensors.numbers(name, np.int64, NONE) for name in ("process", "index", "version")
    )
    call, known = keys_of(process, index), version != NONE
    state = mixed(process.astype(np.uint64), version.astype(np.uint64))
    kept = tensors.placed("value")
    lacking = ~kept & (tensors.hashes("io") == hash_of("input"))
    lacking &= ~(known & np.isin(state, distinct(state[kept & known])))
    judged = [keys_of(each["process"], each["index"]) for each in columns(run, "judgements", _CALL)]
    wanted = np.setdiff1d(call[lacking], merged(judged))
    forms = np.zeros(len(wanted), np.uint64)
    if len(wanted):
        rows = np.flatnonzero(np.isin(call, wanted))
        form = mixed(*(tensors.hashes(name) for name in _FORM))
        np.add.at(forms, np.searchsorted(wanted, call[rows]), form[rows])
    tensors.release()
    places = zip(processes_of(wanted).tolist(), indices_of(wanted).tolist(), strict=True)
    return dict(zip(places, forms.tolist(), strict=True))


def _said(call: Call) -> str:
    return _FLOAT.sub(lambda number: _kind(float(number[0])), call.args or "")


def _kind(number: float) -> str:
    return f"{number:g}." if number in (0.0, 1.0, -1.0) else "-x" if number < 0 else "x"
