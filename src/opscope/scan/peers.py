# SPDX-License-Identifier: Apache-2.0
"""Ranks that train one model together, one of which has a module in eval mode.

Of modes the recording knows (process.json). A rank that validates while the others train is none of
it: a module counts where it is called as often on each of these ranks, on one of them in eval mode
alone and on another in training mode alone, in a step in which they have a gradient with the same
bits; and only where the mode shows, in the operators the module itself runs or in their flags.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.questions.findings import Accusation
from opscope.run.hashes import mixed
from opscope.run.query import rows_of
from opscope.run.vectors import begins_of, calls_where, codes_of, stretches
from opscope.scan.exchanges import between_ranks, odd_ranks
from opscope.scan.training.facts import Facts, facts_of

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.run.protocol import Run
    from opscope.run.vectors import Vectors
    from opscope.scan.held import Held

MAX_NAMES = 64
_FLAGS = re.compile(r"\b(?:true|false)\b", re.ASCII)
Where = tuple[int, str, int]  # step, module, rank
Ran = tuple[str, tuple[str, ...] | None]  # an operator, and the flags among its arguments


class Called(msgspec.Struct, frozen=True):
    """A module's first call in a step on one rank, how many there are, and their one mode."""

    process: int
    rank: int
    step: int
    index: int
    name: str
    module: str
    times: int
    trains: bool

    @property
    def where(self) -> Where:
        return self.step, self.module, self.rank


def mode_accusations(run: Run, held: Held) -> Iterator[Accusation]:
    """The first module of each odd rank that is in eval mode there, in training mode elsewhere."""
    facts = {process.process: facts_of(process.torch) for process in run.processes}
    paths = sorted({path for each in facts.values() for path in each.modes})
    together = _together(held) if paths else []
    if not together:
        return
    called = _called(run, paths, {step for step, _ in together}, facts)
    partings = []
    for step, ranks in together:
        for path in paths:
            here = {rank: each for rank in ranks if (each := called.get((step, path, rank)))}
            apart = _apart(here)
            partings += [] if apart is None else [apart]
    ran = _ran(run, {(one.step, one.module) for one, _, _ in partings}) if partings else {}
    by_rank: dict[int, list[tuple[Called, Called, list[int]]]] = defaultdict(list)
    for mine, theirs, odd in partings:
        if ran.get(mine.where) != ran.get(theirs.where):
            by_rank[mine.rank].append((mine, theirs, odd))
    yield from map(_accusation, by_rank.values())


def _together(held: Held) -> list[tuple[int, tuple[int, ...]]]:
    """Steps, and ranks that hold a gradient with the same bits in them; one number everywhere says
    nothing.
    """
    own = held.at(np.flatnonzero(held.gradient & held.telling))
    gradient = mixed(own.name, own.digest, own.step.astype(np.uint64))
    order = np.lexsort((own.rank, gradient))
    order = order[begins_of(gradient[order], own.rank[order])]
    begins = begins_of(gradient[order])
    steps = own.step[order[begins]].tolist()
    ranks = stretches(own.rank[order], begins)
    every = {(step, tuple(each.tolist())) for step, each in zip(steps, ranks, strict=True)}
    return sorted((step, each) for step, each in every if len(each) > 1)


def _called(
    run: Run, paths: Sequence[str], steps: Collection[int], facts: Mapping[int, Facts]
) -> dict[Where, Called]:
    """The calls that are all of one mode."""
    modules, wanted = codes_of(paths), [*steps]

    def chosen(batch: Vectors) -> Bools:
        there = np.isin(batch.numbers("step"), wanted) & batch.are("level", "module")
        return there & batch.are("phase", "forward") & np.isin(batch.hashes("module"), modules)

    calls: dict[Where, list[tuple[int, int, str]]] = defaultdict(list)
    names = ("index", "process", "step", "module", "rank", "name")
    rows = rows_of(run, "calls", names, calls_where(run, "calls", chosen))
    for index, process, step, path, rank, name in sorted(rows, key=itemgetter(0)):
        calls[step, path, rank].append((process, index, name))
    uniform = {}
    for (step, path, rank), places in calls.items():
        modes = {facts[process].trains(path, index) for process, index, _ in places}
        if len(modes) == 1:
            process, index, name = places[0]
            uniform[step, path, rank] = Called(
                process, rank, step, index, name, path, len(places), modes.pop()
            )
    return uniform


def _ran(run: Run, places: Collection[tuple[int, str]]) -> dict[Where, list[Ran]]:
    """What modules run themselves in steps: operators, and the flags among their arguments."""
    modules, steps = codes_of({path for _, path in places}), [step for step, _ in places]

    def chosen(batch: Vectors) -> Bools:
        there = np.isin(batch.numbers("step"), steps) & batch.are("level", "operator")
        return there & batch.are("phase", "forward") & np.isin(batch.hashes("module"), modules)

    ran: dict[Where, list[Ran]] = defaultdict(list)
    names = ("index", "step", "module", "rank", "op", "args")
    rows = rows_of(run, "calls", names, calls_where(run, "calls", chosen))
    for _, step, path, rank, op, args in sorted(rows, key=itemgetter(0)):
        ran[step, path, rank].append((op, None if args is None else tuple(_FLAGS.findall(args))))
    return ran


def _apart(here: Mapping[int, Called]) -> tuple[Called, Called, list[int]] | None:
    """The odd call, another one, and the ranks that are odd, where modes part."""
    if len({each.times for each in here.values()}) != 1:
        return None
    modes = {rank: each.trains for rank, each in here.items()}
    if len(set(modes.values())) == 1:
        return None
    odd = odd_ranks(modes)
    other = next(rank for rank in sorted(modes) if rank not in odd)
    return here[odd[0]], here[other], odd


def _accusation(partings: Sequence[tuple[Called, Called, list[int]]]) -> Accusation:
    mine, theirs, odd = min(partings, key=lambda each: (each[0].step, each[0].index))
    names = sorted({each.module for each, _, _ in partings})
    mode = {True: "training", False: "eval"}
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    ranks = f"on rank {mine.rank}, in {mode[theirs.trains]} mode on rank {theirs.rank}"
    words = (
        f"{mine.module or 'the model'}{more}: in {mode[mine.trains]} mode {ranks}, which train it "
        "together"
    )
    evidence: dict[str, Any] = {"modules": names[:MAX_NAMES]}
    return msgspec.structs.replace(
        between_ranks(mine, theirs, odd, (words,), evidence), confidence="suspected"
    )
