# SPDX-License-Identifier: Apache-2.0
"""What a scan finds in some processes of a run: all of them, or those that one worker reads. It is
bounded by what is wrong with them, not by their rows, and can be sent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.operators.told import Rows
from opscope.questions.findings import Accusation, Ranked, build, in_order, ranked, wants_finding
from opscope.questions.rows import Node, Screen, screen
from opscope.run.finding import Finding
from opscope.run.selection import Selection
from opscope.run.unmatched import unmatched
from opscope.scan.crashes import crash_accusations
from opscope.scan.dataflow import Flow, Origin
from opscope.scan.ended_ranks import ended_first
from opscope.scan.equal_calls import unequal_calls
from opscope.scan.exchanges import exchange_accusations
from opscope.scan.finite_overflow import quiet_accusations
from opscope.scan.float_status import StatusTold, told_by
from opscope.scan.gradients import gradient_report
from opscope.scan.held import held_by
from opscope.scan.judged_calls import losses, suspicious_calls
from opscope.scan.near_limit import near_limit_warnings
from opscope.scan.one_program import program_accusations
from opscope.scan.origins import Context, got_somewhere, sort_origins
from opscope.scan.peers import mode_accusations
from opscope.scan.reach import Reach, Reached
from opscope.scan.replicas import replica_accusations
from opscope.scan.row_crossings import row_crossings
from opscope.scan.skipped_steps import Skips
from opscope.scan.summary import counts, first_line, recorded_judgements
from opscope.scan.training.rules import training_report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opscope.run.protocol import Run

_SCREENED, _FOLLOWED, _ACCUSED = 30, 70, 80  # percent of the time, about
_LAST = 1 << 20  # the order of what is said of gradients over steps


class Sent(msgspec.Struct, frozen=True):
    """A kind of collective of one step into which these ranks put what is not finite."""

    step: int
    family: str
    ranks: tuple[int, ...]


class Elsewhere(msgspec.Struct, frozen=True):
    """What reaches these processes from ranks that are not among them: collectives that carried
    something unsound, and steps in which something unsound got somewhere.
    """

    sent: tuple[Sent, ...] = ()
    began: tuple[int, ...] = ()


class Asked(msgspec.Struct, frozen=True):
    """What is asked of each part of a run, and what is declared of operators."""

    selection: Selection | None = None
    show_hidden: bool = False
    elsewhere: Elsewhere = Elsewhere()
    declared: Rows = {}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, each finding behind its order, and what the summary says of these processes.

    sizes: how often a step of a process had so many calls; outside: findings outside of the
    selection, first_outside the first of them; received: whether a collective brought something
    unsound that no rank here sent.
    """

    found: tuple[Ranked, ...] = ()
    outside: int = 0
    first_outside: str = ""
    hidden: int = 0
    left_out: int = 0
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    notes: tuple[dict[str, Any], ...] = ()
    skipped: tuple[dict[str, Any], ...] = ()
    sizes: dict[int, int] = {}
    steps: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    tensors: int = 0
    elsewhere: Elsewhere = Elsewhere()
    received: bool = False


class Soundness(msgspec.Struct, frozen=True):
    """What following the values that are not finite gave; skipped and excused: origins, and results
    at the limit, in steps that a GradScaler skipped.
    """

    accusations: tuple[Accusation, ...] = ()
    guarded: tuple[Accusation, ...] = ()
    skipped: tuple[tuple[Origin, Reached | None], ...] = ()
    warnings: tuple[str, ...] = ()
    elsewhere: Elsewhere = Elsewhere()
    received: bool = False
    excused: tuple[Node, ...] = ()


def scan_part(
    run: Run,
    asked: Asked,
    *,
    apart: bool,
    told: Callable[[int], None] = lambda done: None,  # noqa: ARG005
) -> Part:
    """Everything that these processes show; apart: by comparing their ranks, too."""
    facts = counts(run)
    screened = screen(run, facts.status)
    told(_SCREENED)
    status = told_by(run)
    sound = _follow(run, screened, facts.first_steps, asked.elsewhere, status)
    told(_FOLLOWED)
    training = training_report(run, facts.spans)
    judged = recorded_judgements(run)
    known = {(one.process, one.index) for one in judged}  # a check says it with its witness
    accusations = [
        *(one for one in training.accusations if (one.process, one.index) not in known),
        *sound.accusations,
        *(sound.guarded if asked.show_hidden else ()),
        *crash_accusations(run),
        *judged,
        *(ranks_apart(run) if apart and len(facts.ranks) > 1 else ()),
    ]
    told(_ACCUSED)
    gradients = gradient_report(run, facts.spans)
    findings = [
        *ranked(run, accusations),
        *((_LAST, finding) for finding in gradients.findings),
    ]
    chosen, outside = _chosen(findings, asked.selection)
    return Part(
        found=chosen,
        outside=len(outside),
        first_outside=first_line(outside[0]) if outside else "",
        hidden=sum(
            wants_finding(finding, asked.selection) for finding in build(run, sound.guarded)
        ),
        warnings=(
            *sound.warnings,
            *status.unexplained(sound.accusations, facts.spans),
            *(near_limit_warnings(run) if screened.near else ()),
            *gradients.warnings,
            *training.warnings,
        ),
        problems=tuple(run.problems),
        unmatched=unmatched(run, asked.selection),
        notes=training.notes,
        skipped=tuple(_skipped(sound)),
        sizes=facts.sizes,
        steps=tuple(sorted({step for _, _, step in facts.spans})),
        ranks=tuple(facts.ranks),
        tensors=screened.tensors,
        elsewhere=sound.elsewhere,
        received=sound.received,
    )


def scan_apart(run: Run, asked: Asked, among: frozenset[int]) -> Part:
    """What only several ranks beside each other show; among: those of a job that are here."""
    chosen, outside = _chosen(ranked(run, ranks_apart(run, among)), asked.selection)
    return Part(
        found=chosen,
        outside=len(outside),
        first_outside=first_line(outside[0]) if outside else "",
    )


def ranks_apart(run: Run, among: frozenset[int] | None = None) -> list[Accusation]:
    """What is told of several ranks; among: the only ones that are looked at, where others are of
    the job too.
    """
    recorded = {(rank, step) for _, rank, step in counts(run).spans}
    replicas, programs = _by_parameters(run)
    return [
        *ended_first(run),
        *programs,
        *unequal_calls(run),
        *exchange_accusations(run, recorded, parted=bool(replicas), among=among),
        *replicas,
    ]


def _by_parameters(run: Run) -> tuple[list[Accusation], list[Accusation]]:
    """Where parameters of ranks part, and ranks that run something else with equal gradients."""
    held = held_by(run)
    replicas = list(replica_accusations(run, held))
    return replicas, [*mode_accusations(run, held), *program_accusations(run, held)]


def _chosen(
    findings: Sequence[Ranked], selection: Selection | None
) -> tuple[tuple[Ranked, ...], list[Finding]]:
    """Findings that the selection wants, and the others."""
    wanted = tuple(one for one in findings if wants_finding(one[1], selection))
    return wanted, [one for _, one in findings if not wants_finding(one, selection)]


def _follow(
    run: Run,
    screened: Screen,
    first_steps: dict[int, int],
    elsewhere: Elsewhere,
    status: StatusTold,
) -> Soundness:
    """Origins of everything that is not sound; nothing is loaded for a clean run."""
    if screened.clean:
        return Soundness()
    judged, left_out = suspicious_calls(run, screened)
    nodes = judged.nodes
    edges = run.info.coverage.reads and run.info.coverage.writes
    flow = Flow(nodes, edges=edges)
    reach = Reach(flow, losses(run, nodes) if flow.written else frozenset())
    flow.began_elsewhere = frozenset(elsewhere.began)
    for one in elsewhere.sent:
        flow.sending[one.step, one.family].update(one.ranks)
    skips = Skips(nodes, run)
    notes = {process.process: process.torch for process in run.processes}
    context = Context(
        whole=edges and not run.problems and not run.info.hidden_calls,
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
    quiet, excused = status.weighed(quiet_accusations(nodes, flow, status.raised_for), nodes, skips)
    return Soundness(
        (*origins.accusations, *quiet, *row_crossings(nodes, notes)),
        origins.guarded,
        origins.skipped,
        tuple(warnings),
        _for_others(flow, reach),
        any(origin.cause == "received" for origin in flow.origins),
        tuple(excused),
    )


def _for_others(flow: Flow, reach: Reach) -> Elsewhere:
    """What the other ranks have to know of these; two ranks that send are as good as all."""
    sent = sorted((step, name, ranks) for (step, name), ranks in flow.sending.items() if ranks)
    return Elsewhere(
        tuple(Sent(step, name, tuple(sorted(ranks)[:2])) for step, name, ranks in sent),
        tuple(sorted({origin.node.step for origin in got_somewhere(flow, reach)})),
    )


def shared(parts: Sequence[Part]) -> Elsewhere:
    """What all parts tell each other."""
    ranks: dict[tuple[int, str], set[int]] = defaultdict(set)
    for part in parts:
        for one in part.elsewhere.sent:
            ranks[one.step, one.family].update(one.ranks)
    return Elsewhere(
        tuple(
            Sent(*step_and_family, tuple(sorted(senders)[:2]))
            for step_and_family, senders in sorted(ranks.items())
        ),
        tuple(sorted({step for part in parts for step in part.elsewhere.began})),
    )


def together(parts: Sequence[Part]) -> Part:
    """Several parts as one."""
    return Part(
        found=tuple(in_order(one for part in parts for one in part.found)),
        outside=sum(part.outside for part in parts),
        first_outside=next((part.first_outside for part in parts if part.outside), ""),
        hidden=sum(part.hidden for part in parts),
        left_out=sum(part.left_out for part in parts),
        warnings=tuple(dict.fromkeys(line for part in parts for line in part.warnings)),
        problems=tuple(line for part in parts for line in part.problems),
        unmatched=tuple(
            line
            for line in next((part.unmatched for part in parts), ())
            if all(line in part.unmatched for part in parts)
        ),
        notes=tuple(note for part in parts for note in part.notes),
        skipped=tuple(step for part in parts for step in part.skipped),
        sizes=dict(sum((Counter(part.sizes) for part in parts), Counter())),
        steps=tuple(sorted({step for part in parts for step in part.steps})),
        ranks=tuple(sorted({rank for part in parts for rank in part.ranks})),
        tensors=sum(part.tensors for part in parts),
    )


def _skipped(sound: Soundness) -> list[dict[str, Any]]:
    """One record for each step that a GradScaler skipped on purpose, with the first origin in
    it.
    """
    first: dict[tuple[int, int], Node] = {}
    for node in (*(origin.node for origin, _ in sound.skipped), *sound.excused):
        rank_and_step = (node.rank, node.step)
        if rank_and_step not in first or node.index < first[rank_and_step].index:
            first[rank_and_step] = node
    return [
        {
            "rank": rank,
            "step": step,
            "call": node.name,
            "op": node.op,
            "source": node.source,
        }
        for (rank, step), node in sorted(first.items())
    ]
