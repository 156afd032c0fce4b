# SPDX-License-Identifier: Apache-2.0
"""What a comparison says of drift: a target that goes away from golden faster than rounding takes
another run, though its operators agree one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.compare.cause.causes import ARRIVED, COMPUTED
from opscope.compare.side.columns import NONE
from opscope.compare.side.records import call_of, call_records, tensor_records
from opscope.compare.verdict.drift import (
    FACTOR,
    LASTING,
    drift,
    explained,
    lasting,
    strayed,
    written,
)
from opscope.questions.findings import place_of, slot_of
from opscope.run.finding import Document, Finding

if TYPE_CHECKING:
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.verdict.drift import Drift, Written

ALIKE = (
    "--noise-run: it hardly differs from golden, so it does not round otherwise and drift was not "
    "judged; give it other threads, another library or another processor"
)
POINTS = 200  # of the curves, in the document
NAMED = 3  # parameters
CLEARED = "calls that differ from golden by no more than rounding takes the noise run are left out"
UNSEEN = (
    "--noise-run: the runs share no step in which parameters are written, so drift was not judged"
)


def with_drift(document: Document, pairing: Pairing, noise: Pairing) -> Document:
    """The document with the curves of both runs beside golden, and a finding where the target
    leaves the noise; noise pairs the noise run with golden.
    """
    runs = written(pairing), written(noise)
    found = drift(*runs)
    document = _without_noise(document, (pairing, noise), found)
    summary = dict(document.summary)
    if found.alike or not len(found.steps):
        words = ALIKE if found.alike else UNSEEN
        summary["warnings"] = [*summary.get("warnings", ()), words]
        return msgspec.structs.replace(document, summary=summary, complete=False)
    if found.judged < len(found.steps):
        summary["warnings"] = [*summary.get("warnings", ()), _parted(found)]
    summary["drift"] = _curves(found)
    if found.leaves == NONE:
        return msgspec.structs.replace(document, summary=summary)
    findings = (*document.findings, _finding(pairing, found, runs))
    return msgspec.structs.replace(document, findings=findings, verdict="found", summary=summary)


def _parted(found: Drift) -> str:
    """That the noise run has become a training of its own, and what was judged."""
    step = int(found.steps[found.judged])
    judged = "drift was judged until then" if found.judged else "drift was not judged"
    return f"--noise-run: from step {step} on it is another training than golden, so {judged}"


def _without_noise(document: Document, pairings: tuple[Pairing, Pairing], found: Drift) -> Document:
    """The document without calls that are no further from golden than rounding took the noise run
    there: parameters at the first step that a run kept, which drifted in those before.
    """
    kept = tuple(
        finding
        for finding in document.findings
        if not (
            finding.kind == "divergence-origin"
            and finding.evidence
            and finding.evidence[0].get("cause") in (ARRIVED, COMPUTED)
            and explained(
                *pairings,
                call_of(pairings[0].target, finding),
                least=found.noise_at(finding.step),
            )
        )
    )
    count = len(document.findings) - len(kept)
    if not count:
        return document
    summary = {**document.summary, "warnings": [*document.summary.get("warnings", ()), CLEARED]}
    verdict = "found" if kept else "clean"
    return msgspec.structs.replace(document, findings=kept, verdict=verdict, summary=summary)


def _curves(found: Drift) -> dict[str, Any]:
    """The curves at up to so many steps, evenly spread, and what they come to."""
    shown = np.unique(np.linspace(0, len(found.steps) - 1, POINTS).round().astype(np.int64))
    return {
        "steps": found.steps[shown].tolist(),
        "target": found.target[shown].tolist(),
        "noise": found.noise[shown].tolist(),
        "most": found.most,
        "allowed": FACTOR,
        "leaves": None if found.leaves == NONE else int(found.steps[found.leaves]),
    }


def _finding(pairing: Pairing, found: Drift, runs: tuple[Written, Written]) -> Finding:
    """The finding, at the write of the parameter that strayed most in the step of leaving."""
    side, step = pairing.target, int(found.steps[found.leaves])
    most = strayed(*runs, step, most=NAMED)
    rows = np.array([row for row, _ in most], dtype=np.int64)
    tensors = tensor_records(side, rows)
    owner = int(side.tensors.call[rows[0]])
    call = call_records(side, [owner])[owner]
    times = found.ratio[found.leaves : found.leaves + LASTING]
    before = lasting(found.ratio[: found.leaves])
    until = f", until then at most {before.max():.3g} times" if len(before) else ""
    names = ", ".join(f"{tensors[row].tensor_name} ({ratio:.3g} times)" for row, ratio in most)
    reached = (
        f"from step {step} on, {LASTING} steps at least, the parameters are {times.min():.3g} to "
        f"{times.max():.3g} times as far from golden as rounding took the noise run{until}"
    )
    there = (
        f"there they are {found.target[found.leaves]:.3g} of their size off, the noise run "
        f"{found.noise[found.leaves]:.3g}"
    )
    return Finding(
        kind="drift",
        **place_of(call),
        reasons=(reached, there, f"furthest beyond the noise: {names}"),
        confidence="suspected",
        evidence=({"side": "target", "parameters": [tensors[row].tensor_name for row, _ in most]},),
        outputs=tuple(slot_of(tensors[row]) for row, _ in most),
    )
