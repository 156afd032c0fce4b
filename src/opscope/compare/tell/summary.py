# SPDX-License-Identifier: Apache-2.0
"""What a comparison says as a whole: how much was matched and measured, what is missing, what to
know before trusting it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.compare.cause.inside_graphs import accused_graphs
from opscope.compare.cause.library_draws import library_draws
from opscope.compare.pair.files import beside_files
from opscope.compare.pair.levels import LEVEL_WORDS, apart, recorded
from opscope.compare.pair.meetings import COARSEST, coarse_unit, is_coarse
from opscope.compare.pair.pairing import Pairing
from opscope.compare.pair.tensors import (
    DIFFERS,
    GOLDEN_ONLY,
    SAME,
    SHAPE,
    TARGET_ONLY,
    UNKNOWN,
    WITHIN,
)
from opscope.compare.pair.unpaired import half_compiled, judged_around
from opscope.compare.side.lowering import foreign
from opscope.compare.side.optimizer_calls import optimizing, unrecorded
from opscope.compare.side.records import call_records, tensor_records
from opscope.compare.side.reduced_products import reducing_settings
from opscope.compare.verdict.stored_values import Measured
from opscope.operators.catalogue import is_unknown
from opscope.run.hashes import distinct

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.compare.cause.causes import Cause
    from opscope.compare.side.columns import Side

_COUNTED = (
    (SAME, "same"),
    (WITHIN, "within_tolerance"),
    (DIFFERS, "differ"),
    (SHAPE, "shape_differs"),
    (UNKNOWN, "not_measured"),
    (TARGET_ONLY, "only_target"),
    (GOLDEN_ONLY, "only_golden"),
)
_NAMED = 8  # operators that one line lists
_SHARE = 0.5  # matched calls below which two runs look like two models
_LONGER = 10


def summary_of(pairing: Pairing, warnings: Sequence[str]) -> dict[str, Any]:
    """Counts of calls and tensors by what became of them, ranks and steps of both sides."""
    match, rows = pairing.match, pairing.rows
    status = np.bincount(rows.status, minlength=7)
    return {
        "warnings": list(warnings),
        "two_models": two_models(pairing),
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
    ranks: list[int] = distinct(side.calls.rank).tolist()
    return ranks


def _steps(side: Side) -> int:
    return len(distinct(side.calls.step))


def warnings_of(
    pairing: Pairing, measured: Measured, causes: Sequence[Cause]
) -> tuple[list[str], bool]:
    """Lines worth knowing, and whether the comparison is complete."""
    gaps = list(_gaps(pairing, measured))
    return [*gaps, *_remarks(pairing, measured, causes)], not gaps


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
        yield from _compared_until(pairing)
        yield from _other_levels(pairing)
        yield from _lost_optimizers(pairing)
    for word, rows in zip(("target", "golden"), measured.lost, strict=True):
        if len(rows) and not pairing.by_regions:  # which meet by statistics
            first = _named(pairing, min(rows))
            yield (
                f"{word}: the values of {_many(len(rows), 'tensor')} are missing that the other "
                f"side has, the first: {first}"
            )
    if measured.unreadable:
        first = next(iter(measured.unreadable.values()))
        yield (
            f"{_many(len(measured.unreadable), 'pair')} of values could not be compared, the "
            f"first: {first}"
        )
    both = (pairing.rows.target >= 0) & (pairing.rows.golden >= 0)
    if both.any() and (pairing.rows.status[both] == UNKNOWN).all():
        yield (
            "no tensor has values, statistics or digests on both sides; only the structure was "
            "compared"
        )


def _unpaired(pairing: Pairing) -> Iterator[str]:
    for word, column in (("rank", "rank"), ("step", "step")):
        mine, theirs = (
            set(distinct(getattr(side.calls, column)).tolist())
            for side in (pairing.target, pairing.golden)
        )
        if len(mine) == len(theirs) and not mine & theirs:
            continue  # another numbering: paired in order
        if word == "rank" and pairing.by_wholes:
            continue  # ranks are judged together
        for side, lost in (("target", theirs - mine), ("golden", mine - theirs)):
            if lost and not (word == "step" and _counted_otherwise(pairing, side, lost)):
                listed = ", ".join(map(str, sorted(lost)[:8])) + (", …" if len(lost) > 8 else "")
                yield f"{side} has no {word} {listed}"


def _compared_until(pairing: Pairing) -> Iterator[str]:
    if pairing.until is not None:
        yield pairing.until


def _counted_otherwise(pairing: Pairing, lacking: str, steps: set[int]) -> bool:
    """Whether steps that one side of two programs lacks are none of its own: the other trains in
    none of them, or the two count steps otherwise, as one without modules is.
    """
    if not pairing.by_regions or pairing.recounted:
        return pairing.recounted
    sides = pairing.golden, pairing.target
    side, partner = sides if lacking == "target" else sides[::-1]
    here = np.isin(side.calls.step, list(steps))
    inside = side.calls.leaf & (side.calls.parent < 0)
    return bool(inside[here].all()) or not (~partner.calls.leaf).any()


def _unmatched(pairing: Pairing) -> Iterator[str]:
    counts = None if pairing.by_regions else _few_partners(pairing)
    if counts is not None:
        also = (
            "; nothing is said of where they part"
            if two_models(pairing)
            else ", or have little in common"
        )
        yield (
            f"only {counts[0]} of {counts[1]} calls have a partner: these look like two different "
            f"models{also}"
        )


def two_models(pairing: Pairing) -> bool:
    """Whether two runs have so little in common that what differs between them says nothing of any
    call.
    """
    empty = not len(pairing.target.calls) or not len(pairing.golden.calls)
    return (
        not empty
        and pairing.between is None
        and not pairing.by_regions
        and not half_compiled(pairing)
        and _few_partners(pairing) is not None
    )


def _few_partners(pairing: Pairing) -> tuple[int, int] | None:
    """How many calls have a partner, and of how many, where those are few of the shorter run's
    calls; None elsewhere.

    Few is less than half of those of a level that both recorded, or half where the longer run has
    ten times as many. Optimizers are left
    out: parameters of one shape are updated alike in any model.
    """
    sides = (pairing.target, pairing.golden)
    if pairing.between is None:
        chosen = [recorded(side, other) & ~optimizing(side) for side, other in (sides, sides[::-1])]
    elif foreign(*sides):
        chosen = [np.ones(len(side.calls), dtype=np.bool_) for side in sides]
    else:
        return None  # what was compared with nothing is said anyway
    counts = [int(np.count_nonzero(flags)) for flags in chosen]
    matched = int(np.count_nonzero((pairing.match.target >= 0) & chosen[0]))
    least = _SHARE * max(min(counts), 1)
    few = matched < least or (matched == least and max(counts) >= _LONGER * matched)
    return (matched, counts[0]) if few else None


def _other_levels(pairing: Pairing) -> Iterator[str]:
    """Calls of a level that the other side did not record, as far as nothing that was compared
    speaks for them.
    """
    if pairing.between is not None:
        if not foreign(pairing.target, pairing.golden):
            files = beside_files(pairing.target, pairing.golden)
            why = (
                "the other side has no file or call of that name"
                if files
                else "the runs were recorded at other levels"
            )
            yield from _alone(pairing, f"only {{}} recorded {{}}: {why}")
        return
    if pairing.by_regions:
        return  # by what matters; one of the two may have no modules at all
    sides = (("target", pairing.target), ("golden", pairing.golden))
    for (word, side), (other, partner) in (sides, sides[::-1]):
        lost = apart(side, partner)
        if len(lost):
            levels = " or ".join(_level_words(side, partner, lost))
            named = _counted_words(side, lost)
            yield (
                f"{other} recorded no {levels}: {len(lost)} calls of {word} were compared with "
                f"nothing: {named}"
            )


def _lost_optimizers(pairing: Pairing) -> Iterator[str]:
    """Calls of an optimizer of which the other side's tool recorded none: lists of parameters and
    fused kernels leave no calls there.
    """
    if pairing.between is not None or pairing.by_regions:
        return
    sides = (
        ("target", pairing.target, pairing.match.target),
        ("golden", pairing.golden, pairing.match.golden),
    )
    for (word, side, match), (other, partner, _) in (sides, sides[::-1]):
        lost = np.flatnonzero(unrecorded(side, partner) & (match < 0) & side.calls.leaf)
        if len(lost):
            words = (
                f"{len(lost)} calls of {word} were compared with nothing: "
                f"{_counted_words(side, lost)}"
            )
            yield f"{other} recorded nothing of its optimizer: {words}"


def _level_words(side: Side, partner: Side, lost: Ints) -> list[str]:
    """What the partner recorded none of: modules, or those of some phases where it has modules of
    others.
    """
    known = set(distinct(partner.calls.level).tolist())
    words = set()
    for call in lost.tolist():
        level = int(side.calls.level[call])
        phase = f"{side.words.get(int(side.calls.phase[call]), '')} " if level in known else ""
        words.add(f"{phase}{LEVEL_WORDS[level]}")
    return sorted(words)


def _remarks(pairing: Pairing, measured: Measured, causes: Sequence[Cause]) -> Iterator[str]:
    yield from _statistics_alone(pairing, measured)
    unordered = [
        side
        for side in (pairing.target, pairing.golden)
        if side.run.info.config.get("order") == "names"
    ]
    if unordered and causes:
        yield (
            f"{unordered[0].run.info.path}: nothing in it says which tensor was computed "
            "first; names were taken in order, numbers in them "
            "by their size, so what is named first is suspected alone"
        )
    mine, theirs = pairing.target.run.info, pairing.golden.run.info
    if mine.coverage.seeds and theirs.coverage.seeds:
        if mine.seed != theirs.seed:
            yield (
                f"the runs were not seeded alike: target {_seed(mine.seed)}, golden "
                f"{_seed(theirs.seed)}; opscope run --seed N seeds both"
            )
        elif mine.seed is None and causes and pairing.between is None:
            yield (
                "neither run was seeded by opscope; opscope run --seed N --deterministic makes "
                "runs comparable"
            )
    yield from _unknown(pairing)
    yield from _drawn(pairing)
    yield from _shortened(pairing)
    yield from _reached_nothing(pairing)
    yield from _grown(pairing)
    yield from _other_metric(pairing)
    yield from _beyond(pairing)
    yield from _by_parts(pairing)
    if pairing.by_regions:
        yield from _coarsened(pairing)
        yield from _alone(pairing, "written otherwise, and judged by the values around it: {}'s {}")
    if pairing.between is not None:
        if foreign(pairing.target, pairing.golden):
            yield from _alone(
                pairing, "only {}'s framework runs {}; judged by the values around them"
            )
        return
    if None not in (mine.deterministic, theirs.deterministic) and (
        mine.deterministic != theirs.deterministic
    ):
        yield "one run used deterministic algorithms and the other did not"
    for package in ("torch", "torch_npu", "mindspore", "numpy"):
        a, b = mine.packages.get(package), theirs.packages.get(package)
        if a and b and a != b:
            yield f"{package} is {a} in target, {b} in golden"
    if mine.hidden_calls or theirs.hidden_calls:
        yield (
            f"calls hidden by compilation: {mine.hidden_calls} in target, {theirs.hidden_calls} "
            "in golden; they cannot be compared"
        )
    yield from _alone_in_form(pairing)
    yield from _accused(pairing, causes)


def _accused(pairing: Pairing, causes: Sequence[Cause]) -> Iterator[str]:
    """Graphs of the target that a check accuses and no finding tells: results in place, and others
    that are not held against golden's.
    """
    side = pairing.target
    blamed = {int(side.calls.op[cause.target]) for cause in causes if cause.target >= 0}
    calls = [graph for graph, _ in accused_graphs(side) if int(side.calls.op[graph]) not in blamed]
    if calls and half_compiled(pairing):
        path = side.run.info.path
        named = ", ".join(sorted({side.operator(call) for call in calls})[:_NAMED])
        yield f"--check of target accuses {named}, which does not show here: opscope scan {path}"


def _unknown(pairing: Pairing) -> Iterator[str]:
    """Operators of libraries of which nothing is known, so that other inputs explain any result."""
    calls = pairing.target.calls
    unknown = [op for op in pairing.target.texts(distinct(calls.op[calls.leaf])) if is_unknown(op)]
    if unknown:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        yield (
            f"{', '.join(sorted(unknown)[:_NAMED])}{more}: nothing is known of what this computes, "
            "so it is judged where its inputs are equal; opscope.declare or --operators FILE tells"
        )


def _shortened(pairing: Pairing) -> Iterator[str]:
    """Settings by which one side alone computes products in fewer bits than their type has."""
    settings = [reducing_settings(side) for side in (pairing.target, pairing.golden)]
    if settings[0] != settings[1]:
        for word, names in zip(("target", "golden"), settings, strict=True):
            if names:
                yield (
                    f"{word} lets its device shorten products of float32 "
                    f"({', '.join(f'torch.{name}' for name in names)}); what differs by that is no "
                    "finding"
                )


def _drawn(pairing: Pairing) -> Iterator[str]:
    """Operators of libraries that drew other random numbers, which is nobody's fault."""
    rows, calls = pairing.rows, pairing.target.calls
    unlike = rows.target_call[np.isin(rows.status, (DIFFERS, WITHIN)) & rows.output]
    unlike = unlike[library_draws(pairing.target)[unlike]]
    if len(unlike):
        ops = sorted(pairing.target.texts(distinct(calls.op[unlike])))
        yield (
            f"{', '.join(ops[:_NAMED])}: drew other random numbers than in golden; that is no "
            "finding, nor is what follows from it"
        )


def _alone_in_form(pairing: Pairing) -> Iterator[str]:
    """Calls of one side alone of programs that are compiled, or written, differently."""
    if judged_around(pairing) and not pairing.by_regions:
        yield from _alone(
            pairing, "only {}'s form of the program runs {}; judged by the values around them"
        )


def _reached_nothing(pairing: Pairing) -> Iterator[str]:
    """Initialisations of which a difference is nobody's cause."""
    count = max(len(calls) for calls in pairing.dead)
    if count:
        yield (
            f"{_many(count, 'initialising call')} differed and reached nothing: what they wrote "
            "was overwritten or never read"
        )


def _grown(pairing: Pairing) -> Iterator[str]:
    if pairing.grown:
        yield (
            "what matters drifts apart: rounding grows from call to call, and no call makes much "
            "more of it than it reads; --noise-run judges such runs by how fast it grows"
        )


def _coarsened(pairing: Pairing) -> Iterator[str]:
    if is_coarse(coarse_unit((pairing.target, pairing.golden))):
        yield (
            "one of the two computes in bfloat16 or a type as coarse: what is "
            f"{COARSEST:.0%} apart passes, and more behind the first update, which hides faults; "
            "record both in float32 to see them"
        )


def _beyond(pairing: Pairing) -> Iterator[str]:
    if pairing.beyond:
        yield (
            "neither trains, and the numbers that they read out are not one for one the other's: "
            "what is made of the models' results was not compared"
        )


def _other_metric(pairing: Pairing) -> Iterator[str]:
    """A number that both read out: an evaluation behind the model, where nothing tells a fault from
    another metric.
    """
    if pairing.metric is None:
        return
    said = []
    for side, row in zip((pairing.target, pairing.golden), pairing.metric, strict=True):
        call = int(side.tensors.call[row])
        said.append(f"{side.tensors.max[row]:.6g} at {call_records(side, [call])[call].source}")
    yield (
        f"both read out a number that is not the same, {said[0]}, golden {said[1]}; what "
        "models compute agrees, so it may be another metric, and was not judged"
    )


def _by_parts(pairing: Pairing) -> Iterator[str]:
    kept = all(side.tensors.kept.any() for side in (pairing.target, pairing.golden))
    if pairing.by_parts and not kept:
        yield (
            "the two hold data of other sizes where they part (packed, padded, cut): recorded with "
            "--values full on both sides, parts are held against their wholes"
        )


def _statistics_alone(pairing: Pairing, measured: Measured) -> Iterator[str]:
    """Pairs of which one side never kept the values: their statistics were compared, which a
    difference may leave as they are.
    """
    rows, stored = pairing.rows, [side.tensors.kept for side in (pairing.target, pairing.golden)]
    both = np.flatnonzero(
        (rows.target >= 0) & (rows.golden >= 0) & (rows.status != SAME) & (rows.status != UNKNOWN)
    )
    held = [
        flags[column[both]]
        for flags, column in zip(stored, (rows.target, rows.golden), strict=True)
    ]
    alone = int(np.count_nonzero(held[0] != held[1])) - sum(len(lost) for lost in measured.lost)
    if alone > 0:
        side = "golden" if np.count_nonzero(held[0]) > np.count_nonzero(held[1]) else "target"
        yield (
            f"{_many(alone, 'pair')} of tensors were compared by statistics alone: {side} has no "
            "values of them"
        )


def _named(pairing: Pairing, row: int) -> str:
    """A row by its call and slot, in the target's words."""
    side, rows = pairing.target, pairing.rows
    target_row, call = int(rows.target[row]), int(rows.target_call[row])
    tensor = tensor_records(side, np.array([target_row], dtype=np.int64))[target_row]
    return f"{call_records(side, [call])[call].name}, {tensor.io} {tensor.slot}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _seed(seed: int | None) -> str:
    return "none" if seed is None else str(seed)


def _alone(pairing: Pairing, line: str) -> Iterator[str]:
    """What only one side of two frameworks or levels has, in one line each: no difference of its
    own, since values tell if it matters.
    """
    for word, side, match in (
        ("target", pairing.target, pairing.match.target),
        ("golden", pairing.golden, pairing.match.golden),
    ):
        alone = np.flatnonzero(match < 0)
        if len(alone):
            yield line.format(word, _counted_words(side, alone))


def _counted_words(side: Side, calls: Ints) -> str:
    """Operators of calls with how often each is there, the most frequent first."""
    counted = Counter(side.texts(side.calls.op[calls]))
    named = ", ".join(
        f"{op} x{count}" if count > 1 else op for op, count in counted.most_common(_NAMED)
    )
    return named + (", …" if len(counted) > _NAMED else "")
