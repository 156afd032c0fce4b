# SPDX-License-Identifier: Apache-2.0
"""The verdict as the page shows it: findings, and of each the path from its origin to where it
got, never the whole model.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.judge.limits import largest_finite
from opscope.report.oneline import one_line
from opscope.report.terminal import keeping_command, kind_words, next_command, source_of
from opscope.view.layout import lay_out, shown
from opscope.view.references import Place, reference

if TYPE_CHECKING:
    from opscope.run.finding import Document, Finding, Slot
    from opscope.view.all_calls import AllCalls
    from opscope.view.sources import Sources

MOST_FINDINGS = 50  # with all that is known of them; the others are counted
MOST_BESIDE = 3  # calls drawn beside one of the path


class Path(msgspec.Struct, frozen=True):
    """Calls from a finding's origin to where it got; hider: what left no trace of it, the last of
    them then.
    """

    calls: tuple[Place, ...] = ()
    hider: Place | None = None


def path_of(calls: AllCalls, finding: Finding) -> Path:
    """The calls that a finding's evidence names, found backwards from the last."""
    origin = _origin_of(calls, finding)
    evidence = finding.evidence[0] if finding.evidence else {}
    names = [str(name) for name in evidence.get("path") or ()]
    hidden = evidence.get("hidden_by")
    if origin is None:
        return Path()
    if not names:
        names = [finding.call or "", *([str(hidden)] if hidden else [])]
    last = (evidence.get("reached_at") or {}).get("step", finding.step)
    by_name = _places_by_name(calls, finding, last, frozenset(names))
    path: list[Place] = []
    for name in reversed(names[1:]):
        before = [
            candidate
            for candidate in by_name.get(name, ())
            if (candidate < path[-1] if path else True) and candidate > origin
        ]
        if before:
            path.append(before[0] if hidden else before[-1])
    found = (origin, *reversed(path))
    return Path(found, found[-1] if hidden and path else None)


def _origin_of(calls: AllCalls, finding: Finding) -> Place | None:
    if finding.index is None:
        return None
    here = calls.numbers("index") == finding.index
    here &= (calls.numbers("rank") == finding.rank) & (calls.numbers("step") == finding.step)
    rows = np.flatnonzero(here)
    processes = calls.numbers("process")[rows].tolist()
    named = zip(processes, calls.texts("name").at(rows), strict=True)
    return next(((each, finding.index) for each, name in named if name == finding.call), None)


def _places_by_name(
    calls: AllCalls, finding: Finding, last: int, names: frozenset[str]
) -> dict[str, list[Place]]:
    """Calls of these names in the finding's rank, from its step to the last, in their order."""
    steps = calls.numbers("step")
    here = (calls.numbers("rank") == finding.rank) & (steps >= finding.step) & (steps <= last)
    rows = np.flatnonzero(here & calls.texts("name").which(names.__contains__))
    process, index = calls.numbers("process")[rows], calls.numbers("index")[rows]
    order = np.argsort(index, kind="stable")
    places: dict[str, list[Place]] = {}
    found = zip(process[order].tolist(), index[order].tolist(), strict=True)
    for name, place in zip(calls.texts("name").at(rows[order]), found, strict=True):
        places.setdefault(name, []).append(place)
    return places


def verdict_document(
    document: Document, paths: Sequence[Path], calls: dict[str, Any], sources: Sources
) -> dict[str, Any]:
    """Findings with their graphs; calls has the documents of the paths' calls, by reference."""
    run = document.runs[0] if document.runs else ""
    return {
        "verb": document.verb,
        "runs": document.runs,
        "verdict": document.verdict,
        "complete": document.complete,
        "summary": document.summary,
        "count": len(document.findings),
        "findings": [
            _finding(finding, path, calls, sources, run)
            for finding, path in zip(document.findings, paths, strict=False)
        ],
    }


def _finding(
    finding: Finding, path: Path, calls: dict[str, Any], sources: Sources, run: str
) -> dict[str, Any]:
    references = [reference(*call_id) for call_id in path.calls]
    known = [call for call in references if call in calls]
    beside = {call: _beside(calls[call], set(known)) for call in known}
    graph = lay_out(shown(known), beside)
    source = source_of(finding)
    return {
        **msgspec.structs.asdict(finding),
        "words": kind_words(finding),
        "inputs": [_slot(slot) for slot in finding.inputs],
        "outputs": [_slot(slot) for slot in finding.outputs],
        "id": known[0] if known else None,
        "path": references,
        "hider": None if path.hider is None else reference(*path.hider),
        "graph": graph,
        "code": sources.context(source),
        "commands": commands_of(finding, run),
    }


def _slot(slot: Slot) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(slot),
        "line": one_line(slot.dtype, slot.shape, slot.stats, full=True),
        "limit": largest_finite(slot.dtype),
    }


def _beside(call: dict[str, Any], path: set[str]) -> list[str]:
    """Who made what a call of the path reads, but for those of the path."""
    makers = [
        reference(call["process"], tensor["maker"])
        for tensor in call["tensors"]
        if tensor["io"] == "input" and tensor.get("maker") is not None
    ]
    return [maker for maker in dict.fromkeys(makers) if maker not in path][:MOST_BESIDE]


def commands_of(finding: Finding, run: str) -> list[str]:
    """What to type next, best first."""
    first = next_command(finding, run)
    quoted = shlex.quote(run)
    named = f"r{finding.rank}/s{finding.step}/{finding.call}" if finding.call else None
    commands = [each for each in (first, keeping_command(finding)) if each is not None]
    if named is not None:
        commands.append(f"opscope show {quoted} {shlex.quote(named)}")
    if finding.kind == "overflow-origin" and finding.op is not None:
        commands.append(f"opscope replay {quoted} --ops {shlex.quote(finding.op)}")
    return commands
