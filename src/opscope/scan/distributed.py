# SPDX-License-Identifier: Apache-2.0
"""A scan by many workers: each reads some processes of a run where they lie and sends back what it
found (scan.part); the rules that compare ranks are asked of few ranks at a time.

Which ranks: those that exchange anything, by the process groups that collectives name, in blocks of
BLOCK beside the first rank of their group, so that all of a group are held against one. In a job of
no more ranks than that all are beside each other, as in one process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from opscope.engine.executors import Task, parts
from opscope.errors import OpscopeError
from opscope.questions.findings import Ranked, site
from opscope.questions.told_operators import knowing_of
from opscope.run.progress import percent
from opscope.run.store.reader import NativeRun, read_by_workers
from opscope.run.store.remote import open_part
from opscope.scan.exchanges import BETWEEN_RANKS, process_groups
from opscope.scan.part import Asked, Part, scan_apart, scan_part, shared, together

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from opscope.run.progress import Progress
    from opscope.run.protocol import Run

BLOCK = 16  # ranks beside the first one of their group
MAX_TOGETHER = 16  # processes that one task reads
MAX_FINDINGS = 64  # of one process; what is sent back is bounded


class Work(msgspec.Struct, frozen=True):
    """Some process directories of a run; among: compare these ranks, and nothing else."""

    run: str
    directories: tuple[str, ...]
    among: tuple[int, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """What a worker sends: its part, and ranks of process groups as first, last and step."""

    part: Part
    groups: tuple[tuple[int, ...], ...] = ()


def scan_by(executor: Executor, run: Run, asked: Asked, progress: Progress) -> Part:
    """What every worker found, as one part. UsageError for a run that is not opscope's own."""
    run = read_by_workers(run)
    told = percent(progress, "scan")
    answers = _asked(executor, list(_chunks(run)), asked, told)
    elsewhere = shared([answer.part for answer in answers.values()])
    again = [work for work, answer in answers.items() if answer.part.received]
    if again and (elsewhere.sent or elsewhere.began):
        known = msgspec.structs.replace(asked, elsewhere=elsewhere)
        answers |= _asked(executor, again, known, told)
    groups = {_spread(one) for answer in answers.values() for one in answer.groups}
    apart = _asked(executor, list(_blocks(run, groups)), asked, told)
    whole = together([answer.part for answer in (*answers.values(), *apart.values())])
    problems = dict.fromkeys((*whole.problems, *run.gaps))
    return msgspec.structs.replace(whole, problems=tuple(problems), found=_once(whole.found))


def _asked(
    executor: Executor, works: Sequence[Work], asked: Asked, told: Callable[[int], None]
) -> dict[Work, Answer]:
    return parts(executor, Task(scan_work, Answer, _lost), works, asked, told)


def scan_work(task: bytes, asked: bytes) -> bytes:
    """The task of a worker: a Work and what is asked, as msgpack; answers an Answer."""
    work = msgspec.msgpack.decode(task, type=Work)
    wanted = msgspec.msgpack.decode(asked, type=Asked)
    try:
        run = open_part(work.run, work.directories)
        with knowing_of(run, declared=wanted.declared):
            if work.among:
                answer = Answer(scan_apart(run, wanted, frozenset(work.among)))
            else:
                part = scan_part(run, wanted, apart=False)
                groups = tuple(sorted(map(_told, process_groups(run))))
                answer = Answer(_bounded(part, MAX_FINDINGS * len(work.directories)), groups)
    except (OpscopeError, OSError) as error:
        answer = _lost(work, str(error))
    return msgspec.msgpack.encode(answer)


def blocks_of(groups: Iterable[tuple[int, ...]], ranks: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Ranks to compare with one another; no block that another one holds."""
    there = set(ranks)
    if len(ranks) <= BLOCK:
        yield from [tuple(ranks)] if len(ranks) > 1 else []
        return
    known = {tuple(rank for rank in group if rank in there) for group in groups} or {tuple(ranks)}
    within: dict[int, set[int]] = defaultdict(set)
    number = 0
    for group in sorted(known, key=lambda one: (-len(one), one)):
        for start in range(0, len(group), BLOCK):
            block = tuple(dict.fromkeys((group[0], *group[start : start + BLOCK])))
            if len(block) > 1 and not set.intersection(*(within[rank] for rank in block)):
                for rank in block:
                    within[rank].add(number)
                number += 1
                yield block


def _chunks(run: NativeRun) -> Iterator[Work]:
    """All processes, some for each task."""
    names = [process.directory for process in run.processes]
    size = max(1, min(MAX_TOGETHER, len(names) // 64))
    for start in range(0, len(names), size):
        yield Work(run.info.path, tuple(names[start : start + size]))


def _blocks(run: NativeRun, groups: Iterable[tuple[int, ...]]) -> Iterator[Work]:
    """Ranks to compare with one another, a task each; how a job ended its launchers know."""
    by_rank = run.directories_by_rank
    launchers = [process.directory for process in run.processes if process.world is None]
    for ranks in blocks_of(groups, sorted(by_rank)):
        names = [name for rank in ranks for name in by_rank[rank]]
        yield Work(run.info.path, tuple(dict.fromkeys((*names, *launchers[:BLOCK]))), ranks)


def _bounded(part: Part, most: int) -> Part:
    left = max(0, len(part.found) - most)
    return msgspec.structs.replace(
        part,
        found=part.found[:most],
        left_out=left,
        warnings=part.warnings[:most],
        notes=part.notes[:most],
        skipped=part.skipped[:most],
    )


def _told(ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Ranks of a group as first, last and step where they are that."""
    if len(ranks) > 3:
        step = ranks[1] - ranks[0]
        if step > 0 and ranks == tuple(range(ranks[0], ranks[-1] + 1, step)):
            return (-1, ranks[0], ranks[-1], step)
    return ranks


def _spread(told: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(told[1], told[2] + 1, told[3])) if told[:1] == (-1,) else told


def _lost(work: Work, why: str) -> Answer:
    names = ", ".join(work.directories[:3]) + (", …" if len(work.directories) > 3 else "")
    line = f"{work.run}: {len(work.directories)} processes were not read ({names}): {why}"
    return Answer(Part(problems=(line,)))


def _once(findings: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Findings in which several blocks, or a block and a part, name one place are one."""
    kept: dict[object, Ranked] = {}
    for number, (order, finding) in enumerate(findings):
        shared = finding.kind in {BETWEEN_RANKS, "crash"}
        kept.setdefault(site(order, finding) if shared else number, (order, finding))
    return tuple(kept.values())
