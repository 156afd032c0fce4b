# SPDX-License-Identifier: Apache-2.0
"""The question of `opscope scan`: where did the first overflow, NaN or infinity come from, what
spread it, what hid it.

The rules are docs/soundness.md; what is assumed of the rows is docs/scan.md.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.formats.registry import open_run
from opscope.questions.findings import Accusation, build, wants_finding
from opscope.questions.rows import Screen, screen
from opscope.questions.tables import Tables, open_tables
from opscope.run.finding import Document
from opscope.run.progress import Progress, nobody, percent
from opscope.run.unmatched import unmatched
from opscope.scan.crashes import crash_accusations
from opscope.scan.dataflow import Flow, Origin
from opscope.scan.equal_calls import unequal_calls
from opscope.scan.exchanges import exchange_accusations
from opscope.scan.finite_overflow import quiet_accusations
from opscope.scan.gradients import gradient_report
from opscope.scan.judged_calls import losses, suspicious_calls
from opscope.scan.near_limit import near_limit_warnings
from opscope.scan.one_program import program_accusations
from opscope.scan.origins import Context, sort_origins
from opscope.scan.peers import mode_accusations
from opscope.scan.reach import Reach, Reached
from opscope.scan.replicas import replica_accusations
from opscope.scan.skipped_steps import Skips
from opscope.scan.summary import counts, first_line, recorded_judgements, slow_disk
from opscope.scan.training.rules import training_report
from opscope.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from opscope.run.protocol import Run
    from opscope.run.selection import Selection


_SCREENED, _FOLLOWED, _ACCUSED = 30, 70, 80  # percent of the time, about


class Soundness(msgspec.Struct, frozen=True):
    """What following the values that are not finite gave."""

    accusations: tuple[Accusation, ...] = ()
    guarded: tuple[Accusation, ...] = ()
    skipped: tuple[tuple[Origin, Reached | None], ...] = ()
    warnings: tuple[str, ...] = ()


def scan(
    run: Run | str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    show_hidden: bool = False,
    progress: Progress = nobody,
) -> Document:
    """Findings of a run, most likely culprit first; the document's verdict is "clean" when there
    are none. run may be the path of one, or of any known dump.

    selection chooses among the findings. The whole run is followed all the same, since the cause of
    what happens in step 5 may lie in step 3; findings outside of the selection are counted in
    summary.warnings, and patterns of it that match nothing named there. Origins that a guard of the
    program removed are counted in summary.hidden, findings only with show_hidden. complete is false
    when the run has problems, or holds no call since all were hidden by compilation. Raises
    FormatError for a table that cannot be read.
    """
    with open_tables(open_run(run)) as tables:
        return _scanned(tables, selection, show_hidden=show_hidden, told=percent(progress, "scan"))


def _scanned(
    tables: Tables, selection: Selection | None, *, show_hidden: bool, told: Callable[[int], None]
) -> Document:
    run = tables.run
    facts = counts(run)
    found = screen(tables, facts.status)
    told(_SCREENED)
    sound = _follow(tables, found, facts.first_steps)
    told(_FOLLOWED)
    recorded = {(rank, step) for _, rank, step in facts.spans}
    apart = _ranks_apart(tables, recorded) if len(facts.ranks) > 1 else []
    training = training_report(tables, facts.spans)
    judged = recorded_judgements(run)
    known = {(one.process, one.index) for one in judged}  # a check says it with its witness
    accusations = [
        *(one for one in training.accusations if (one.process, one.index) not in known),
        *sound.accusations,
        *(sound.guarded if show_hidden else ()),
        *crash_accusations(tables),
        *judged,
        *apart,
    ]
    told(_ACCUSED)
    gradients = gradient_report(tables, facts.spans)
    every = (*build(tables, accusations), *gradients.findings)
    chosen = tuple(finding for finding in every if wants_finding(finding, selection))
    warnings = [
        *sound.warnings,
        *(near_limit_warnings(tables) if found.near else ()),
        *gradients.warnings,
        *training.warnings,
        *slow_disk(run),
        *run.problems,
    ]
    warnings += unmatched(run, selection)
    if len(chosen) < len(every):
        warnings.append(
            f"{len(every) - len(chosen)} findings lie outside of the selection, the first at "
            f"{first_line(every[0])}"
        )
    summary: dict[str, Any] = {
        "steps": facts.steps,
        "steps_seen": max(
            (process.steps for process in run.processes if process.steps is not None),
            default=facts.steps,
        ),
        "calls_per_step": facts.calls_per_step,
        "ranks": facts.ranks,
        "tensors": found.tensors,
        "warnings": warnings,
        "skipped_steps": _skipped(sound),
        "hidden": sum(
            wants_finding(finding, selection) for finding in build(tables, sound.guarded)
        ),
        "first": first_line(chosen[0]) if chosen else None,
        "training": training.notes,
        "hidden_calls": run.info.hidden_calls,
        "overhead": run.info.overhead,
    }
    summary.update(beside_the_program(run))
    return Document(
        opscope=VERSION,
        verb="scan",
        runs=(run.info.path,),
        verdict="found" if chosen else "clean",
        complete=not run.problems and not (run.info.hidden_calls and not facts.spans),
        findings=chosen,
        summary=summary,
    )


def _ranks_apart(tables: Tables, recorded: set[tuple[int, int]]) -> list[Accusation]:
    """What is told of several ranks; recorded: rank and step of all that was recorded."""
    replicas = list(replica_accusations(tables))
    return [
        *mode_accusations(tables),
        *program_accusations(tables),
        *unequal_calls(tables),
        *exchange_accusations(tables, recorded, parted=bool(replicas)),
        *replicas,
    ]


def beside_the_program(run: Run) -> dict[str, Any]:
    """What --check and --substitute did, and what a trainer calls the steps that overflowed, by
    rank; nothing where there was none of it, or the process could not tell any more.
    """
    told = [each for each in run.processes if each.rows]
    found = {
        name: {str(each.rank): getattr(each, name) for each in told if getattr(each, name)}
        for name in ("checked", "substituted")
    }
    named = {
        str(each.rank): each.torch["trainer"] for each in run.processes if each.torch.get("trainer")
    }
    return {name: facts for name, facts in {**found, "trainer": named}.items() if facts}


def _follow(tables: Tables, found: Screen, first_steps: dict[int, int]) -> Soundness:
    """Origins of everything that is not sound; nothing is loaded for a clean run."""
    if found.clean:
        return Soundness()
    judged, left_out = suspicious_calls(tables, found)
    nodes = judged.nodes
    run, flow = tables.run, Flow(nodes)
    reach = Reach(flow, losses(tables, nodes) if flow.written else frozenset())
    skips = Skips(nodes, tables)
    notes = {process.process: process.torch for process in run.processes}
    context = Context(
        whole=not run.problems and not run.info.hidden_calls,
        first_steps=first_steps,
        notes=notes,
        repeated=judged.repeated,
    )
    origins = sort_origins(flow, reach, skips, context)
    warnings = (
        [f"{left_out} later calls that touch values that are not finite were not followed"]
        if left_out
        else []
    )
    if flow.untold:
        warnings.append(f"{flow.untold} more origins were not told apart")
    for process, steps in skips.steps.items():
        stubborn = skips.stubborn(process)
        if stubborn:
            warnings.append(
                f"GradScaler skipped the last {len(stubborn)} steps of {len(steps)} skipped ones: "
                "the scale keeps falling"
            )
    return Soundness(
        (*origins.accusations, *quiet_accusations(nodes, flow)),
        origins.guarded,
        origins.skipped,
        tuple(warnings),
    )


def _skipped(sound: Soundness) -> list[dict[str, Any]]:
    """One record for each step that a GradScaler skipped on purpose, with the first origin in
    it.
    """
    first: dict[tuple[int, int], Origin] = {}
    for origin, _ in sound.skipped:
        place = (origin.node.rank, origin.node.step)
        if place not in first or origin.node.index < first[place].node.index:
            first[place] = origin
    return [
        {
            "rank": rank,
            "step": step,
            "call": origin.node.name,
            "op": origin.node.op,
            "source": origin.node.source,
        }
        for (rank, step), origin in sorted(first.items())
    ]
