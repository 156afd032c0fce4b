# SPDX-License-Identifier: Apache-2.0
"""What a comparison says of drift: a target that goes away from golden faster than rounding takes
another run, though its operators agree one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.compare.cause.causes import ARRIVED, COMPUTED
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
from opscope.run.keys import NONE

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
    drifted = drift(*runs)
    document = _without_noise(document, (pairing, noise), drifted)
    summary = dict(document.summary)
    if drifted.alike or not len(drifted.steps):
        words = ALIKE if drifted.alike else UNSEEN
        summary["warnings"] = [*summary.get("warnings", ()), words]
        return msgspec.structs.replace(document, summary=summary, complete=False)
    if drifted.judged < len(drifted.steps):
        summary["warnings"] = [*summary.get("warnings", ()), _parted(drifted)]
    summary["drift"] = _curves(drifted)
    if drifted.leaves == NONE:
        return msgspec.structs.replace(document, summary=summary)
    findings = (*document.findings, _finding(pairing, drifted, runs))
    return msgspec.structs.replace(document, findings=findings, verdict="found", summary=summary)


def _parted(drifted: Drift) -> str:
    """That the noise run has become a training of its own, and what was judged."""
    step = int(drifted.steps[drifted.judged])
    judged = "drift was judged until then" if drifted.judged else "drift was not judged"
    return f"--noise-run: from step {step} on it is another training than golden, so {judged}"


def _without_noise(
    document: Document, pairings: tuple[Pairing, Pairing], drifted: Drift
) -> Document:
    """The document without calls that are no further from golden than rounding took the noise run
    there: parameters at the first step that a run kept, which drifted in those before.
    """
    findings = tuple(
        finding
        for finding in document.findings
        if not (
            finding.kind == "divergence-origin"
            and finding.evidence
            and finding.evidence[0].get("cause") in (ARRIVED, COMPUTED)
            and explained(
                *pairings,
                call_of(pairings[0].target, finding),
                least=drifted.noise_at(finding.step),
            )
        )
    )
    count = len(document.findings) - len(findings)
    if not count:
        return document
    summary = {**document.summary, "warnings": [*document.summary.get("warnings", ()), CLEARED]}
    verdict = "found" if findings else "clean"
    return msgspec.structs.replace(document, findings=findings, verdict=verdict, summary=summary)


def _curves(drifted: Drift) -> dict[str, Any]:
    """The curves at up to so many steps, evenly spread, and what they come to."""
    shown = np.unique(np.linspace(0, len(drifted.steps) - 1, POINTS).round().astype(np.int64))
    return {
        "steps": drifted.steps[shown].tolist(),
        "target": drifted.target[shown].tolist(),
        "noise": drifted.noise[shown].tolist(),
        "most": drifted.most,
        "allowed": FACTOR,
        "leaves": None if drifted.leaves == NONE else int(drifted.steps[drifted.leaves]),
    }


def _finding(pairing: Pairing, drifted: Drift, runs: tuple[Written, Written]) -> Finding:
    """The finding, at the write of the parameter that strayed most in the step of leaving."""
    side, step = pairing.target, int(drifted.steps[drifted.leaves])
    most = strayed(*runs, step, most=NAMED)
    rows = np.array([row for row, _ in most], dtype=np.int64)
    tensors = tensor_records(side, rows)
    owner = int(side.tensors.call[rows[0]])
    call = call_records(side, [owner])[owner]
    times = drifted.ratio[drifted.leaves : drifted.leaves + LASTING]
    before = lasting(drifted.ratio[: drifted.leaves])
    until = f", until then at most {before.max():.3g} times" if len(before) else ""
    names = ", ".join(f"{tensors[row].tensor_name} ({ratio:.3g} times)" for row, ratio in most)
    reached = (
        f"from step {step} on, {LASTING} steps at least, the parameters are {times.min():.3g} to "
        f"{times.max():.3g} times as far from golden as rounding took the noise run{until}"
    )
    there = (
        f"there they are {drifted.target[drifted.leaves]:.3g} of their size off, the noise run "
        f"{drifted.noise[drifted.leaves]:.3g}"
    )
    return Finding(
        kind="drift",
        **place_of(call),
        reasons=(reached, there, f"furthest beyond the noise: {names}"),
        confidence="suspected",
        evidence=({"side": "target", "parameters": [tensors[row].tensor_name for row, _ in most]},),
        outputs=tuple(slot_of(tensors[row]) for row, _ in most),
    )
