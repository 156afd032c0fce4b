# SPDX-License-Identifier: Apache-2.0
"""What a comparison says as a whole: how much was matched and measured, what is missing, what to know before trusting it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.analysis.compare_judge import Pairing
from opscope.analysis.compare_pairs import DIFFERS, GOLDEN_ONLY, SAME, SHAPE, TARGET_ONLY, UNKNOWN, WITHIN
from opscope.analysis.compare_values import Measured, missing_values

if TYPE_CHECKING:
    from opscope.analysis.compare_causes import Cause
    from opscope.analysis.compare_tables import Side

_COUNTED = (
    (SAME, "same"), (WITHIN, "within_tolerance"), (DIFFERS, "differ"), (SHAPE, "shape_differs"), (UNKNOWN, "not_measured"),
    (TARGET_ONLY, "only_target"), (GOLDEN_ONLY, "only_golden"),
)  # fmt: skip
_NAMED = 8  # operators that one line lists
_SHARE = 0.5  # matched calls below which two runs look like two models


def summary_of(pairing: Pairing, warnings: Sequence[str]) -> dict[str, Any]:
    """Counts of calls and tensors by what became of them, ranks and steps of both sides."""
    match, rows = pairing.match, pairing.rows
    status = np.bincount(rows.status, minlength=7)
    return {
        "warnings": list(warnings),
        "calls": {
            "target": len(pairing.target.calls),
            "golden": len(pairing.golden.calls),
            "matched": int(np.count_nonzero(match.target >= 0)),
            "only_target": int(np.count_nonzero(match.target < 0)),
            "only_golden": int(np.count_nonzero(match.golden < 0)),
        },
        "tensors": {word: int(status[code]) for code, word in _COUNTED},
        "ranks": {"target": _ranks(pairing.target), "golden": _ranks(pairing.golden)},
        "steps": {"target": _steps(pairing.target), "golden": _steps(pairing.golden)},
    }


def _ranks(side: Side) -> list[int]:
    found: list[int] = np.unique(side.calls.rank).tolist()
    return found


def _steps(side: Side) -> int:
    return len(np.unique(side.calls.step))


def warnings_of(pairing: Pairing, measured: Measured, causes: Sequence[Cause]) -> tuple[list[str], bool]:
    """Lines worth knowing, and whether the comparison is complete."""
    gaps = list(_gaps(pairing, measured))
    return [*gaps, *_remarks(pairing, causes)], not gaps


def _gaps(pairing: Pairing, measured: Measured) -> Iterator[str]:
    """What is missing: each line makes the comparison incomplete."""
    for word, side in (("target", pairing.target), ("golden", pairing.golden)):
        for problem in side.run.problems:
            yield f"{word}: {problem}"
        if not len(side.calls):
            yield f"{word}: {side.run.info.path} holds no calls; nothing can be compared"
    if len(pairing.target.calls) and len(pairing.golden.calls):
        yield from _unpaired(pairing)
        yield from _unmatched(pairing)
    for word, rows in zip(("target", "golden"), missing_values(pairing), strict=True):
        if len(rows):
            yield f"{word}: the values of {len(rows)} tensors are missing that the other side has"
    if measured.unreadable:
        first = next(iter(measured.unreadable.values()))
        yield f"{len(measured.unreadable)} pairs of values could not be compared, the first: {first}"
    both = (pairing.rows.target >= 0) & (pairing.rows.golden >= 0)
    if both.any() and (pairing.rows.status[both] == UNKNOWN).all():
        yield "no tensor has values, statistics or digests on both sides; only the structure was compared"


def _unpaired(pairing: Pairing) -> Iterator[str]:
    for word, column in (("rank", "rank"), ("step", "step")):
        mine, theirs = (set(np.unique(getattr(side.calls, column)).tolist()) for side in (pairing.target, pairing.golden))
        if len(mine) == len(theirs) and not mine & theirs:
            continue  # another numbering: paired in order
        for side, lost in (("target", theirs - mine), ("golden", mine - theirs)):
            if lost:
                listed = ", ".join(map(str, sorted(lost)[:8])) + (", …" if len(lost) > 8 else "")
                yield f"{side} has no {word} {listed}"


def _unmatched(pairing: Pairing) -> Iterator[str]:
    matched = np.count_nonzero(pairing.match.target >= 0)
    share = matched / max(min(len(pairing.target.calls), len(pairing.golden.calls)), 1)
    if share < _SHARE:
        yield f"only {matched} of {len(pairing.target.calls)} calls have a partner: these look like two different models"


def _remarks(pairing: Pairing, causes: Sequence[Cause]) -> Iterator[str]:
    mine, theirs = pairing.target.run.info, pairing.golden.run.info
    if mine.format == theirs.format == "opscope":
        if mine.seed != theirs.seed:
            yield f"the runs were not seeded alike: target {_seed(mine.seed)}, golden {_seed(theirs.seed)}; opscope run --seed N seeds both"
        elif mine.seed is None and causes and pairing.between is None:
            yield "neither run was seeded by opscope; opscope run --seed N --deterministic makes runs comparable"
    if pairing.between is not None:
        yield from _alone(pairing)
        return
    if mine.deterministic != theirs.deterministic:
        yield "one run used deterministic algorithms and the other did not"
    for package in ("torch", "torch_npu", "mindspore", "numpy"):
        a, b = mine.packages.get(package), theirs.packages.get(package)
        if a and b and a != b:
            yield f"{package} is {a} in target, {b} in golden"
    if mine.hidden_calls or theirs.hidden_calls:
        yield f"calls hidden by compilation: {mine.hidden_calls} in target, {theirs.hidden_calls} in golden; they cannot be compared"


def _seed(seed: int | None) -> str:
    return "none" if seed is None else str(seed)


def _alone(pairing: Pairing) -> Iterator[str]:
    """What only one framework runs, in one line each: no difference of its own, since values tell whether it matters."""
    for word, side, match in (("target", pairing.target, pairing.match.target), ("golden", pairing.golden, pairing.match.golden)):
        alone = Counter(side.texts(side.calls.op[np.flatnonzero(match < 0)]))
        if alone:
            named = ", ".join(f"{op} x{count}" if count > 1 else op for op, count in alone.most_common(_NAMED))
            yield f"only {word}'s framework runs {named}{', …' if len(alone) > _NAMED else ''}; judged by the values around them"
