# SPDX-License-Identifier: Apache-2.0
"""The question of `opscope compare`: where do two runs part, and which call made them.

    comparison = opscope.compare("runs/npu", "runs/gpu")
    comparison.first()          the finding to begin with
    comparison.worst(20)        the pairs of tensors that are furthest apart

docs/compare.md has the rules.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from opscope.compare.cause.batch_size import without_batch
from opscope.compare.cause.causes import ARRIVED, Cause
from opscope.compare.cause.compiled_graphs import with_graphs
from opscope.compare.cause.degrees import across_degrees
from opscope.compare.cause.levels import sure_of_levels
from opscope.compare.cause.library_draws import without_library_draws
from opscope.compare.cause.origins import Search
from opscope.compare.cause.two_programs import judged
from opscope.compare.cause.unkept_steps import without_unkept
from opscope.compare.pair.across_frameworks import in_words_alone, pair_frameworks
from opscope.compare.pair.alignment import Match, align
from opscope.compare.pair.arguments import Arguments
from opscope.compare.pair.files import beside_files, same_files
from opscope.compare.pair.levels import at_common_levels, other_leaves
from opscope.compare.pair.pairing import Pairing
from opscope.compare.pair.renaming import naming
from opscope.compare.pair.tensors import pair_rows
from opscope.compare.side.columns import Side, side_of
from opscope.compare.side.contents import dump_beside_run
from opscope.compare.side.l1_norms import norms_alone, with_norms
from opscope.compare.side.lowering import foreign
from opscope.compare.side.opened_graphs import opened
from opscope.compare.side.producers import Flow, follow, without_enclosing
from opscope.compare.side.tokens import Naming, tokens_of
from opscope.compare.tell.comparison import Comparison
from opscope.compare.tell.drifting import with_drift
from opscope.compare.tell.findings import findings_of
from opscope.compare.tell.reference import decide
from opscope.compare.tell.summary import summary_of, two_models, warnings_of
from opscope.compare.verdict.allowance import graded, measure
from opscope.compare.verdict.stored_values import Measured, measure_values
from opscope.formats.registry import open_run
from opscope.questions.findings import wants_finding
from opscope.questions.told_operators import knowing_of
from opscope.run.finding import Document
from opscope.run.progress import Progress, nobody, percent
from opscope.run.protocol import Run
from opscope.run.unmatched import unmatched
from opscope.run.whole_tables import read_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.compare.cause.collectives import Place
    from opscope.compare.pair.mapping import Mapping
    from opscope.run.selection import Selection


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How to compare: a user's mapping of names, whether to read stored values, a third run of
    higher precision, one that differs from golden in rounding alone (noise), and collectives into
    which ranks that are in neither run put what differs (elsewhere).
    """

    mapping: Mapping | None = None
    values: bool = True
    reference: Run | None = None
    noise: Run | None = None
    selection: Selection | None = None
    elsewhere: frozenset[Place] = frozenset()


_READ, _FOLLOWED, _ALIGNED, _MEASURED, _SEARCHED = 5, 55, 65, 80, 95  # percent of the time, about


def compare(
    target: Run | str | os.PathLike[str],
    golden: Run | str | os.PathLike[str],
    policy: Policy | None = None,
    *,
    progress: Progress = nobody,
) -> Comparison:
    """Align two runs, measure their tensors, and say which call made the difference.

    target is the side under suspicion, golden the trusted one: runs, or paths of runs or of any
    known dump. Raises FormatError for what cannot be read and UsageError for a mapping that fits
    neither.
    """
    chosen = Policy() if policy is None else policy
    sides = open_run(target), open_run(golden)
    with knowing_of(*sides) as remarks:
        return _compared(sides, chosen, remarks, percent(progress, "compare"))


def _compared(
    sides: tuple[Run, Run],
    chosen: Policy,
    remarks: Sequence[str],
    report: Callable[[int], None],
    *,
    alone: bool = False,
) -> Comparison:
    pairing = pair_runs(*sides, chosen, report, alone=alone)
    measured = Measured({}, {})
    if chosen.values:
        rows, measured = measure_values(pairing)
        pairing = msgspec.structs.replace(pairing, rows=rows)
    report(_MEASURED)
    measures = measure(pairing)
    search = Search(pairing, measures, Arguments(pairing).differing, chosen.elsewhere)
    causes = without_library_draws(pairing, search.run())
    if causes and not alone and pairing.between and _beside_run(pairing, chosen):
        return _compared(sides, chosen, remarks, report, alone=True)
    causes = without_batch(pairing, sure_of_levels(pairing, causes))
    if chosen.noise is None:  # else that tells what steps which were not kept may have left
        pairing, causes = without_unkept(pairing, causes)
    pairing = msgspec.structs.replace(pairing, dead=search.dead)
    pairing, causes = across_degrees(
        *judged(pairing, causes, measures.exceeds, values=chosen.values)
    )
    causes = with_graphs(pairing, causes)
    report(_SEARCHED)
    pairing = msgspec.structs.replace(
        pairing, rows=graded(pairing, measures, _first_causes(pairing, causes))
    )
    document = _document(pairing, causes, measured, chosen, remarks)
    if chosen.reference is not None:
        document = decide(
            document, pairing, pair_runs(pairing.golden.run, chosen.reference, Policy())
        )
    if chosen.noise is not None:
        document = with_drift(
            document, pairing, pair_runs(chosen.noise, pairing.golden.run, Policy())
        )
    return Comparison(pairing, measures, causes, measured, document)


def _beside_run(pairing: Pairing, policy: Policy) -> bool:
    """Whether a dump and a run, in which some calls part, may only be written differently, since
    nobody said which calls are partners.
    """
    return policy.mapping is None and dump_beside_run(pairing.target, pairing.golden)


def _first_causes(pairing: Pairing, causes: Sequence[Cause]) -> dict[int, int]:
    """For each rank the target call at which its first cause stands, or was read."""
    first: dict[int, int] = {}
    for cause in causes:
        read = int(pairing.rows.target_call[cause.row]) if cause.kind == ARRIVED else cause.target
        rank = int(pairing.target.calls.rank[cause.target])
        first[rank] = min(first.get(rank, cause.target), cause.target, read)
    return first


def _followed(side: Side, norms: bool) -> tuple[Side, Flow]:  # noqa: FBT001 - mapped over both sides
    side = without_enclosing(with_norms(side) if norms else side)
    return side, follow(side.calls, side.tensors)


def pair_runs(
    target: Run,
    golden: Run,
    policy: Policy,
    told: Callable[[int], None] = lambda done: None,  # noqa: ARG005
    *,
    alone: bool = False,
) -> Pairing:
    """Both runs as columns, their calls matched and their tensors side by side; told how far that
    is, in percent. alone: each in its own words, also where those of both are others.
    """
    read = read_tables(target), read_tables(golden)
    told(_READ)
    with ThreadPoolExecutor(max_workers=2) as pool:
        made = pool.map(lambda run, tables: side_of(run, *tables), (target, golden), read)
        (target_side, flow), (golden_side, golden_flow) = pool.map(
            _followed, opened([*made]), [norms_alone(target, golden)] * 2
        )
    sides, flows = (target_side, golden_side), (flow, golden_flow)
    told(_FOLLOWED)
    if foreign(*sides) or other_leaves(*sides) or beside_files(*sides):
        across = pair_frameworks(sides, flows, policy.mapping)
        if policy.mapping is not None or not (alone or in_words_alone(across)):
            return across
    common = sides if alone else at_common_levels(*sides)
    again = [
        flow if side is was else follow(side.calls, side.tensors)
        for side, was, flow in zip(common, sides, flows, strict=True)
    ]
    sides, flows = common, (again[0], again[1])
    named = naming(*sides, policy.mapping)
    given = [*([] if policy.mapping is None else policy.mapping.pairs(*sides))]
    given += same_files(*sides, given, None if policy.mapping is None else policy.mapping.originals)
    match = _aligned(sides, flows, named, given)
    told(_ALIGNED)
    fixed = None if policy.mapping is None else policy.mapping.rows(*sides, match)
    return Pairing(*sides, flows, match, pair_rows(*sides, flows, match, fixed))


def _aligned(
    sides: tuple[Side, Side],
    flows: tuple[Flow, Flow],
    named: tuple[Naming, Naming],
    given: Sequence[tuple[int, int]],
) -> Match:
    """Which call is which; what calls look like takes as much memory as a side and is gone
    afterwards.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        tokens = tuple(pool.map(tokens_of, sides, flows, named))
    return align(*tokens, given=given)


def _document(
    pairing: Pairing,
    causes: Sequence[Cause],
    measured: Measured,
    policy: Policy,
    remarks: Sequence[str],
) -> Document:
    every = () if two_models(pairing) else findings_of(pairing, causes, measured)
    chosen = tuple(finding for finding in every if wants_finding(finding, policy.selection))
    warnings, complete = warnings_of(pairing, measured, causes)
    warnings = [*warnings, *remarks]
    if policy.mapping is not None:
        warnings = [*warnings, *policy.mapping.unused(pairing.target, pairing.golden)]
    warnings = [*warnings, *unmatched(pairing.target.run, policy.selection)]
    if len(chosen) < len(every):
        warnings = [*warnings, f"{len(every) - len(chosen)} findings lie outside of the selection"]
    return Document(
        verb="compare",
        runs=(pairing.target.run.info.path, pairing.golden.run.info.path),
        verdict="found" if chosen else "clean",
        complete=complete,
        findings=chosen,
        summary=summary_of(pairing, warnings),
    )
