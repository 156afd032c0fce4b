# SPDX-License-Identifier: Apache-2.0
"""Ranks that train one model together, one of which has a module in eval mode.

Of modes the recording knows (process.json). A rank that validates while the others train is none of
it: a module counts where it is called as often on each of these ranks, on one of them in eval mode
alone and on another in training mode alone, in a step in which they have a gradient with the same
bits; and only where the mode shows, in the operators the module itself runs or in their flags.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.questions.findings import Accusation
from opscope.scan.exchanges import between_ranks, odd_ranks
from opscope.scan.training.facts import Facts, facts_of

if TYPE_CHECKING:
    from opscope.questions.tables import Tables

MAX_NAMES = 64
# Ranks that hold a gradient with the same bits in a step; one number everywhere says nothing.
_TOGETHER = """
    SELECT DISTINCT step, ranks FROM (
        SELECT c.step, list_sort(list(DISTINCT c.rank)) AS ranks
        FROM tensors t JOIN calls c USING (process, "index")
        WHERE t.role = 'gradient' AND t.tensor_name IS NOT NULL AND t.digest IS NOT NULL
            AND t.min < t.max
        GROUP BY c.step, t.tensor_name, t.digest HAVING count(DISTINCT c.rank) > 1)
    ORDER BY step, ranks
"""
_CALLED = """
    SELECT step, module, rank, process, "index", name FROM calls
    WHERE level = 'module' AND phase = 'forward' AND list_contains(?, module)
    ORDER BY step, "index"
"""
# What each of these modules runs itself in a step: its operators, and the flags among arguments.
_RUN = """
    SELECT step, module, rank,
        string_agg(op || coalesce(regexp_extract_all(args, '\\b(true|false)\\b')::VARCHAR, ''), ' '
            ORDER BY "index")
    FROM calls WHERE level = 'operator' AND phase = 'forward' AND list_contains(?, module)
    GROUP BY ALL
"""


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


def mode_accusations(tables: Tables) -> Iterator[Accusation]:
    """The first module of each odd rank that is in eval mode there, in training mode elsewhere."""
    facts = {process.process: facts_of(process.torch) for process in tables.run.processes}
    paths = sorted({path for each in facts.values() for path in each.modes})
    together = tables.rows(_TOGETHER) if paths else []
    if not together:
        return
    called = _called(tables, paths, facts)
    ran = {(step, path, rank): text for step, path, rank, text in tables.rows(_RUN, [paths])}
    by_rank: dict[int, list[tuple[Called, Called, list[int]]]] = defaultdict(list)
    for step, ranks in together:
        for path in paths:
            here = {rank: each for rank in ranks if (each := called.get((step, path, rank)))}
            parted = _parted(here, {rank: ran.get((step, path, rank)) for rank in here})
            if parted is not None:
                by_rank[parted[0].rank].append(parted)
    yield from map(_accusation, by_rank.values())


def _called(
    tables: Tables, paths: Sequence[str], facts: Mapping[int, Facts]
) -> dict[tuple[int, str, int], Called]:
    """By step, path and rank the calls that are all of one mode."""
    calls: dict[tuple[int, str, int], list[tuple[int, int, str]]] = defaultdict(list)
    for step, path, rank, *call in tables.stream(_CALLED, [paths]):
        calls[step, path, rank].append((call[0], call[1], call[2]))
    uniform = {}
    for (step, path, rank), places in calls.items():
        modes = {facts[process].trains(path, index) for process, index, _ in places}
        if len(modes) == 1:
            process, index, name = places[0]
            uniform[step, path, rank] = Called(
                process, rank, step, index, name, path, len(places), modes.pop()
            )
    return uniform


def _parted(
    here: Mapping[int, Called], ran: Mapping[int, str | None]
) -> tuple[Called, Called, list[int]] | None:
    """The odd call, another one, and the ranks that are odd, where modes part and it shows."""
    if len({each.times for each in here.values()}) != 1:
        return None
    modes = {rank: each.trains for rank, each in here.items()}
    if len(set(modes.values())) == 1:
        return None
    odd = odd_ranks(modes)
    other = next(rank for rank in sorted(modes) if rank not in odd)
    return (here[odd[0]], here[other], odd) if ran[odd[0]] != ran[other] else None


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
