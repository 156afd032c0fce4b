# SPDX-License-Identifier: Apache-2.0
"""A comparison by many workers: each holds some ranks of the target against the same ranks of
golden, where they lie, and sends back what it found, in the order of the program.

A difference reaches other ranks through collectives alone. So a rank that accuses a collective is
asked a second time, once it is known into which of them ranks of other workers put what differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.compare.api import Policy, compare
from opscope.compare.cause.collectives import Collectives, Place
from opscope.compare.cause.flags import Signs
from opscope.compare.tell.findings import MAX_FINDINGS, once
from opscope.engine.executors import Task, parts
from opscope.errors import OpscopeError, UsageError
from opscope.judge.operators import is_collective
from opscope.operators.catalogue import declared_rows, knowing
from opscope.operators.told import Rows
from opscope.run.finding import Document, Finding
from opscope.run.hashes import distinct
from opscope.run.progress import nobody, percent
from opscope.run.selection import Selection
from opscope.run.store.reader import NativeRun, read_by_workers
from opscope.run.store.remote import open_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from opscope.compare.tell.comparison import Comparison
    from opscope.run.progress import Progress
    from opscope.run.protocol import Run

MAX_TOGETHER = 16  # ranks that one task reads
MOST_ROWS = 400_000  # of tensors, that one task reads where it has several ranks
MAX_WARNINGS = 32

Order = tuple[bool, int, int, int]  # structural, step, collectives before it, index


class Work(msgspec.Struct, frozen=True):
    """Some ranks of both runs, by the directories of their processes."""

    runs: tuple[str, str]
    ranks: tuple[int, ...]
    directories: tuple[tuple[str, ...], tuple[str, ...]]


class Asked(msgspec.Struct, frozen=True):
    """What is asked of each worker, and what is declared of operators."""

    values: bool = True
    selection: Selection | None = None
    elsewhere: tuple[Place, ...] = ()
    declared: Rows = {}


class Answer(msgspec.Struct, frozen=True):
    """What a worker sends: its document, where each finding stands, and into which collectives its
    ranks put what differs.
    """

    document: Document
    orders: tuple[Order, ...] = ()
    sent: tuple[Place, ...] = ()
    received: bool = False


def compare_by(
    executor: Executor,
    target: Run,
    golden: Run,
    policy: Policy | None = None,
    *,
    progress: Progress = nobody,
) -> Document:
    """The document of a comparison of the same ranks of two runs.

    UsageError for runs that are not opscope's own, have other ranks, or are to be compared by a
    mapping or beside a third run.
    """
    chosen = Policy() if policy is None else policy
    sides = read_by_workers(target), read_by_workers(golden)
    works = list(_works(*sides))
    if chosen.mapping is not None or chosen.reference is not None or chosen.noise is not None:
        raise UsageError("--executor takes no mapping and no third run: leave it out for them")
    asked, report = (
        Asked(chosen.values, chosen.selection, declared=declared_rows()),
        percent(progress, "compare"),
    )
    task = Task(compare_work, Answer, _lost)
    answers = parts(executor, task, works, asked, report)
    sent = frozenset(collective for answer in answers.values() for collective in answer.sent)
    again = [work for work, answer in answers.items() if answer.received]
    if again and sent and len(works) > 1:
        known = msgspec.structs.replace(asked, elsewhere=tuple(sorted(sent)))
        answers |= parts(executor, task, again, known, report)
    return _together(sides, list(answers.values()))


def _works(target: NativeRun, golden: NativeRun) -> Iterator[Work]:
    """All ranks, some for each task."""
    sides = target.directories_by_rank, golden.directories_by_rank
    both = sorted(sides[0].keys() & sides[1].keys())
    sizes = [
        max((process.world or 1 for process in run.processes), default=0)
        for run in (target, golden)
    ]
    if sizes[0] != sizes[1] or not both:
        raise UsageError(
            f"--executor holds each rank against golden's own; {target.info.path} is of "
            f"{sizes[0]} ranks, {golden.info.path} of {sizes[1]}: compare them without it"
        )
    rows = {
        process.directory: process.rows.get("tensors", MOST_ROWS) for process in target.processes
    }
    most = max(1, min(MAX_TOGETHER, len(both) // 64))
    chosen: list[int] = []
    for rank in both:
        held = sum(rows[name] for member in (*chosen, rank) for name in sides[0][member])
        if chosen and (len(chosen) == most or held > MOST_ROWS):
            yield _work(target, golden, chosen)
            chosen = []
        chosen.append(rank)
    if chosen:
        yield _work(target, golden, chosen)


def _work(target: NativeRun, golden: NativeRun, ranks: Sequence[int]) -> Work:
    def directories(by_rank: Mapping[int, Sequence[str]]) -> tuple[str, ...]:
        return tuple(name for rank in ranks for name in by_rank[rank])

    return Work(
        (target.info.path, golden.info.path),
        tuple(ranks),
        (directories(target.directories_by_rank), directories(golden.directories_by_rank)),
    )


def compare_work(task: bytes, asked: bytes) -> bytes:
    """The task of a worker: a Work and what is asked, as msgpack; answers an Answer."""
    work = msgspec.msgpack.decode(task, type=Work)
    wanted = msgspec.msgpack.decode(asked, type=Asked)
    policy = Policy(
        values=wanted.values, selection=wanted.selection, elsewhere=frozenset(wanted.elsewhere)
    )
    try:
        target, golden = map(open_part, work.runs, work.directories)
        with knowing(declared=wanted.declared):
            comparison = compare(target, golden, policy)
        findings = comparison.document.findings
        answer = Answer(
            comparison.document,
            _orders(comparison),
            _sent(comparison),
            any(finding.op is not None and is_collective(finding.op) for finding in findings),
        )
    except (OpscopeError, OSError) as error:
        answer = _lost(work, str(error))
    return msgspec.msgpack.encode(answer)


def _sent(comparison: Comparison) -> tuple[Place, ...]:
    """Collectives into which a rank put what differs, in the first step in which it did."""
    pairing = comparison.pairing
    rows, calls = pairing.rows, pairing.target.calls
    unequal = Signs(pairing, comparison.measures).unequal & ~rows.output & (rows.target_call >= 0)
    differing = distinct(rows.target_call[unequal])
    leaves = differing[calls.leaf[differing]].tolist()
    return tuple(sorted(Collectives(pairing.target).first_of_each_rank(leaves)))


def _orders(comparison: Comparison) -> tuple[Order, ...]:
    """Where findings stand among those of all ranks, which have their collectives for a clock."""
    findings, pairing = comparison.document.findings, comparison.pairing
    sides = {"target": pairing.target, "golden": pairing.golden}
    wanted = [finding.evidence[0].get("side", "target") for finding in findings]
    clocks = {word: Collectives(sides[word]).before for word in {*wanted}}

    def order(finding: Finding, word: str) -> Order:
        calls = sides[word].calls
        index = -1 if finding.index is None else finding.index
        rows = np.flatnonzero((calls.rank == finding.rank) & (calls.index == index))
        met = int(clocks[word][rows[0]]) if len(rows) else 0
        return finding.kind == "structural-difference", finding.step, met, index

    return tuple(map(order, findings, wanted))


def _lost(work: Work, why: str) -> Answer:
    named = ", ".join(map(str, work.ranks[:8])) + (", …" if len(work.ranks) > 8 else "")
    line = f"{work.runs[0]}: rank {named} was not compared: {why}"
    return Answer(Document(verb="compare", complete=False, summary={"warnings": [line]}))


def _gaps(sides: tuple[NativeRun, NativeRun]) -> Iterator[str]:
    """Ranks that only one side has, and processes that are missing."""
    for word, side, other in (("target", *sides), ("golden", *sides[::-1])):
        yield from (f"{word}: {line}" for line in side.gaps)
        lost = sorted(other.directories_by_rank.keys() - side.directories_by_rank.keys())
        if lost:
            named = ", ".join(map(str, lost[:8])) + (", …" if len(lost) > 8 else "")
            yield f"{word} has no rank {named}"


def _together(sides: tuple[NativeRun, NativeRun], answers: Sequence[Answer]) -> Document:
    """Several ranks' documents as one."""
    gaps = list(_gaps(sides))
    ordered = sorted(
        (
            pair
            for answer in answers
            for pair in zip(answer.orders, answer.document.findings, strict=True)
        ),
        key=lambda pair: (*pair[0], pair[1].rank),
    )
    findings = once([finding for _, finding in ordered])[:MAX_FINDINGS]
    summaries = [answer.document.summary for answer in answers]
    reported = (line for summary in summaries for line in summary["warnings"])
    lines = dict.fromkeys((*gaps, *reported))
    warnings = list(lines)[:MAX_WARNINGS]
    if len(lines) > MAX_WARNINGS:
        warnings.append(f"{len(lines) - MAX_WARNINGS} more warnings were left out")
    return Document(
        verb="compare",
        runs=(sides[0].info.path, sides[1].info.path),
        verdict="found" if findings else "clean",
        complete=not gaps and all(answer.document.complete for answer in answers),
        findings=findings,
        summary={"warnings": warnings, **_counted(summaries)},
    )


def _counted(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of all ranks together."""
    counted = [summary for summary in summaries if "calls" in summary]
    sides = ("target", "golden")
    return {
        "two_models": any(summary["two_models"] for summary in counted),
        **{
            word: {key: sum(summary[word][key] for summary in counted) for key in counted[0][word]}
            for word in ("calls", "tensors")
            if counted
        },
        "ranks": {
            side: sorted({rank for summary in counted for rank in summary["ranks"][side]})
            for side in sides
        },
        "steps": {
            side: max((summary["steps"][side] for summary in counted), default=0) for side in sides
        },
    }
