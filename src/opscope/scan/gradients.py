# SPDX-License-Identifier: Apache-2.0
"""Gradients over steps: exploding, vanishing, underflowing. Suspicions, never origins of overflow.

Norms are taken from rows of role gradient. Of a long run a few steps are looked at, the
first and the last ones: a scan of a clean run must not read the texts of every row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from opscope.questions.findings import place_of
from opscope.questions.rows import whole_calls
from opscope.run.finding import Finding
from opscope.run.keys import key, keys_at
from opscope.run.query import columns, rows_of, rows_where, which
from opscope.scan.training.story import Spans, calls_in, sampled_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.arrays import Array, Bools, Ints
    from opscope.run.protocol import Run

MIN_STEPS = 5
EXPLODED = 1e4  # times the first norm, growing in every one of the last steps
VANISHED = 1e-6  # of the first norm, falling in every one of the last steps, while the loss stays
WARNED = 1e2
FLAT_LOSS = 0.2
VANISHING = "gradient-vanishing"
# smallest normal float16: below it digits are lost, below 6e-8 everything
HALF_NORMAL = 6.103515625e-05

Place = tuple[int, int, int]  # process, rank, step


class GradientRow(msgspec.Struct, frozen=True):
    """One output row of role gradient in a sampled step."""

    process: int
    rank: int
    step: int
    index: int
    storage: int | None
    norm: float
    bad: int
    half: bool
    zero: int
    size: int


class Norms(msgspec.Struct, frozen=True):
    """Norm of all gradients of one rank, step by step, of the steps where they are finite; last is
    the last one's largest row.
    """

    rank: int
    steps: tuple[int, ...]
    norms: tuple[float, ...]
    last: GradientRow


class GradientReport(msgspec.Struct, frozen=True):
    """Findings where the case is clear, lines of warning where it is not."""

    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()


def gradient_report(run: Run, spans: Spans) -> GradientReport:
    """What the norms of the gradients over steps say; spans are the calls of each (process, rank,
    step).
    """
    sampled = sampled_steps(spans)
    rows = list(_gradient_rows(run, sampled))
    findings, warnings = [], []
    series = list(_series(rows))
    steps: dict[int, set[int]] = {}
    for _, rank, step in sampled:
        steps.setdefault(rank, set()).add(step)
    wanted = {rank: sorted(own_steps) for rank, own_steps in steps.items() if len(own_steps) > 1}
    of_steps = {
        owner: span for owner, span in spans.items() if owner[2] in wanted.get(owner[1], ())
    }
    warnings += jump_warnings(
        wanted,
        _losses(run, calls_in(run, of_steps)),
        {norms.rank: (norms.steps, norms.norms) for norms in series},
        run,
    )
    judged = [(norms, *judge_norms(norms.steps, norms.norms)) for norms in series]
    vanishing = any(kind == VANISHING for _, kind, _ in judged)
    losses: dict[int, list[float]] = defaultdict(list)
    for (rank, _), values in (_losses(run) if vanishing else {}).items():
        losses[rank].append(max(values))
    for norms, kind, words in judged:
        if kind == VANISHING and not _is_flat(losses[norms.rank]):
            continue  # a loss that fell took its gradients with it: that is what training is for
        if kind is not None and words is not None:
            findings.append(_finding(norms, kind, words, run))
        elif words is not None:
            warnings.append(f"rank {norms.rank}: {words}")
    return GradientReport(tuple(findings), (*warnings, *_underflow(rows)))


def _gradient_rows(run: Run, spans: Spans) -> Iterator[GradientRow]:
    """Rows of role gradient of these calls; texts are decoded only in batches that hold some of
    them.
    """
    if not spans:
        return
    ranges: dict[int, list[tuple[Place, int, int]]] = defaultdict(list)
    for owner, (first, last) in spans.items():
        ranges[owner[0]].append((owner, first, last))
    names = (
        "process",
        "index",
        "io",
        "role",
        "dtype",
        "storage",
        "l2norm",
        "nan",
        "pos_inf",
        "neg_inf",
        "zero",
        "size",
    )
    for batch in columns(run, "tensors", names):
        index = batch["index"]
        low, high = (index.min(), index.max()) if len(index) else (0, -1)
        here = [
            (owner, first, last)
            for process in np.unique(batch["process"]).tolist()
            for owner, first, last in ranges[process]
            if first <= high and last >= low
        ]
        for owner, first, last in here:
            rows = np.flatnonzero(
                (index >= first) & (index <= last) & (batch["process"] == owner[0])
            )
            yield from _of_batch(batch, owner, rows)


def _of_batch(
    batch: Mapping[str, Array], owner: Place, rows: NDArray[np.intp]
) -> Iterator[GradientRow]:
    known = ~np.ma.getmaskarray(batch["l2norm"])
    for row in rows[
        known[rows] & (batch["role"][rows] == "gradient") & (batch["io"][rows] == "output")
    ].tolist():
        storage = batch["storage"][row]
        yield GradientRow(
            process=owner[0],
            rank=owner[1],
            step=owner[2],
            index=int(batch["index"][row]),
            storage=None if storage is np.ma.masked else int(storage),
            norm=float(batch["l2norm"][row]),
            bad=sum(_count(batch[kind][row]) for kind in ("nan", "pos_inf", "neg_inf")),
            half=batch["dtype"][row] == "float16",
            zero=_count(batch["zero"][row]),
            size=0 if batch["zero"][row] is np.ma.masked else int(batch["size"][row]),
        )


def _count(value: Any) -> int:
    """A count, 0 where the dump does not say it (other tools' statistics have no counts)."""
    return 0 if value is np.ma.masked else int(value)


def _series(rows: Sequence[GradientRow]) -> Iterator[Norms]:
    """One series for each rank; a gradient counts once a step, with the largest state it had."""
    largest: dict[tuple[int, int], dict[Any, GradientRow]] = {}
    spoilt: set[tuple[int, int]] = set()
    for row in rows:
        rank_and_step = (row.rank, row.step)
        if row.bad:
            spoilt.add(rank_and_step)
        states = largest.setdefault(rank_and_step, {})
        which = row.index if row.storage is None else (row.process, row.storage)
        if which not in states or row.norm > states[which].norm:
            states[which] = row
    for rank in sorted({rank for rank, _ in largest}):
        steps = sorted(
            step for owner, step in largest if owner == rank and (owner, step) not in spoilt
        )
        if steps:
            norms = tuple(
                sum(row.norm**2 for row in largest[rank, step].values()) ** 0.5 for step in steps
            )
            yield Norms(
                rank,
                tuple(steps),
                norms,
                max(largest[rank, steps[-1]].values(), key=lambda row: row.norm),
            )


def judge_norms(steps: Sequence[int], norms: Sequence[float]) -> tuple[str | None, str | None]:
    """(kind or None, words or None) of a series of gradient norms.

    Clear explosion: at least 10^4 times the first norm and growing in each of the last steps. Clear
    vanishing: below 10^-6 of the first and falling; whether the loss stays where it was is for the
    caller to look at. A hundredfold growth is a warning.
    """
    if len(norms) < MIN_STEPS or norms[0] == 0.0:
        return None, None
    ratio, tail = norms[-1] / norms[0], norms[-MIN_STEPS:]
    growing = all(later > 1.5 * earlier for earlier, later in pairwise(tail))
    falling = all(later < earlier for earlier, later in pairwise(tail))
    words = (
        f"the norm of all gradients went from {norms[0]:.3g} in step {steps[0]} to "
        f"{norms[-1]:.3g} in step {steps[-1]}"
    )
    if ratio >= EXPLODED and growing:
        return "gradient-explosion", words
    if ratio <= VANISHED and falling:
        return VANISHING, words
    if ratio >= WARNED and growing:
        return None, f"gradients grow: {words}"
    return None, None


def _losses(run: Run, calls: Ints | None = None) -> dict[tuple[int, int], list[float]]:
    """The losses of these calls, of all without them, by rank and step in order: what the gradient
    of ones is made like before backward begins.
    """
    names = ("process", "index", "rank", "step", "op")
    begun = {
        (process, index): (rank, step)
        for process, index, rank, step, _ in rows_where(run, "calls", names, _makes_ones, calls)
    }
    losses: dict[tuple[int, int], list[float]] = {}
    names = ("process", "index", "io", "size", "max")
    for process, index, io, size, value in rows_of(run, "tensors", names, keys_at(begun)):
        if io == "input" and size == 1 and value is not None:
            losses.setdefault(begun[process, index], []).append(value)
    return dict(sorted(losses.items()))


def _makes_ones(batch: Mapping[str, Array]) -> Bools:
    return which(batch["op"], lambda op: op.startswith("aten::ones_like"))


def _is_flat(losses: Sequence[float]) -> bool:
    """Whether a loss stayed within a fifth of where it began; a loss nobody saw is not flat."""
    if len(losses) < MIN_STEPS:
        return False
    return all(abs(loss - losses[0]) <= FLAT_LOSS * abs(losses[0]) for loss in losses)


def _finding(norms: Norms, kind: str, words: str, run: Run) -> Finding:
    row = norms.last
    wanted = np.array([key(row.process, row.index)])
    places = [place_of(call) for call, _ in whole_calls(run, wanted, tensors=False).values()]
    evidence = {"steps": list(norms.steps), "norms": list(norms.norms)}
    return Finding(
        kind=kind,
        # a torn table may have lost the call
        **next(iter(places), {"rank": row.rank, "step": row.step, "index": row.index}),
        reasons=(words,),
        confidence="suspected",
        evidence=(evidence,),
    )


def _underflow(rows: Sequence[GradientRow]) -> list[str]:
    """float16 gradients of which many are 0 and the others lie below the smallest normal value."""
    half = [row for row in rows if row.half and not row.bad]
    size, zero = sum(row.size for row in half), sum(row.zero for row in half)
    if not size or zero < 0.3 * size or zero == size:
        return []
    typical = (sum(row.norm**2 for row in half) / (size - zero)) ** 0.5
    if typical >= HALF_NORMAL:
        return []
    share = (
        f"{100 * zero / size:.0f}% of the float16 gradient elements are 0 and the others are "
        f"about {typical:.1g}"
    )
    return [f"{share}: they underflow (smallest normal float16 6.1e-05); scale the loss"]


# A loss, or the norm of all gradients, that leaps in one step, and the call where the growth
# began: warnings, never findings.
#
# A learning rate that is too high leaves everything finite: one update throws the parameters far
# away, and the next step computes with them. So the call is the update that made a parameter
# many times larger, else the first call of the step whose result grew that much.

JUMP = 1e3  # times the largest earlier value, which counts as at least 1
BEGAN = 30.0  # times the norm of before: where the growth began


def jump_of(steps: Sequence[int], values: Sequence[float]) -> int | None:
    """Position of the first value that is JUMP times all earlier ones, in the step after the one
    before it; None when there is none.
    """
    largest = 1.0
    for at in range(1, len(values)):
        largest = max(largest, abs(values[at - 1]))
        if abs(values[at]) >= JUMP * largest and steps[at] == steps[at - 1] + 1:
            return at
    return None


def jump_warnings(
    steps: Mapping[int, Sequence[int]],
    losses: Mapping[tuple[int, int], Sequence[float]],
    norms: Mapping[int, tuple[Sequence[int], Sequence[float]]],
    run: Run,
) -> list[str]:
    """At most one line a rank; steps: those that are looked at, losses: by rank and step, norms: of
    all gradients, by step.
    """
    lines = []
    for rank, own_steps in steps.items():
        seen = [step for step in own_steps if (rank, step) in losses]
        series = {
            "the loss": (seen, [max(map(abs, losses[rank, step])) for step in seen]),
            "the norm of all gradients": norms.get(rank, ((), ())),
        }
        jumps = {what: at for what, each in series.items() if (at := jump_of(*each)) is not None}
        if jumps:
            what, at = min(jumps.items(), key=lambda item: series[item[0]][0][item[1]])
            numbers, values = series[what]
            words = (
                f"{what} leaps from {values[at - 1]:.3g} in step {numbers[at - 1]} to "
                f"{values[at]:.3g} in step {numbers[at]}"
            )
            lines.append(f"rank {rank}: {words}{_beginning(run, rank, numbers[at])}")
    return lines


class _Growth(NamedTuple):
    """A call whose result is many times larger than something before."""

    name: str
    source: str | None
    before: float
    after: float
    parameter: str | None = None


def _beginning(run: Run, rank: int, step: int) -> str:
    """Where the growth began, in words: an update of the step before, else a call of the step
    itself.
    """
    growth = next(_updates(run, rank, step - 1), None)
    began = step if growth is None else step - 1
    growth = growth or next(_grown(run, rank, step), None)
    if growth is None:
        return ""
    whose = f" makes {growth.parameter}" if growth.parameter else " grows"
    line = f" ({growth.source})" if growth.source else ""
    return (
        f"; it began in step {began}: {growth.name}{line}{whose} from norm {growth.before:.3g} to "
        f"{growth.after:.3g}"
    )


def _updates(run: Run, rank: int, step: int) -> Iterator[_Growth]:
    """Calls of a step that make a parameter many times larger, in their order."""
    calls = {
        call: (name, source)
        for call, (phase, name, source) in _calls_of(run, rank, step, "phase", "name", "source")
        if phase in {"optimizer", "forward"}
    }
    before: dict[tuple[int, int, int], float] = {}
    after: list[tuple[int, int, int, str | None, float]] = []
    names = ("process", "index", "io", "role", "storage", "tensor_name", "l2norm")
    for process, index, io, role, storage, tensor, norm in rows_of(
        run, "tensors", names, keys_at(calls)
    ):
        state = (process, index, storage)
        if storage is None or not norm:
            continue
        if io == "input":
            before[state] = min(norm, before.get(state, norm))
        elif role == "parameter":
            after.append((index, process, storage, tensor, norm))
    for index, process, storage, tensor, norm in sorted(after, key=itemgetter(0, 1)):
        was = before.get((process, index, storage), 0.0)
        if norm > BEGAN * was > 0:
            yield _Growth(*calls[process, index], was, norm, tensor)


def _grown(run: Run, rank: int, step: int) -> Iterator[_Growth]:
    """Operators of a step whose result is many times larger than in the step before, in their
    order.
    """
    earlier = {call: name for call, (name,) in _calls_of(run, rank, step - 1, "name")}
    later = {
        call: (name, source)
        for call, (level, name, source) in _calls_of(run, rank, step, "level", "name", "source")
        if level == "operator"
    }
    before: dict[tuple[int, str, str], float] = {}
    for process, index, slot, norm in _results(run, keys_at(earlier)):
        place = (process, earlier[process, index], slot)
        before[place] = min(norm, before.get(place, norm))
    for process, index, slot, norm in sorted(_results(run, keys_at(later)), key=itemgetter(1, 0)):
        name, source = later[process, index]
        was = before.get((process, name, slot), 0.0)
        if norm > BEGAN * was > 0:
            yield _Growth(name, source, was, norm)


def _calls_of(
    run: Run, rank: int, step: int, *names: str
) -> Iterator[tuple[tuple[int, int], tuple[Any, ...]]]:
    """Process and index of the calls of a step, with these columns."""

    def here(batch: Mapping[str, Array]) -> Bools:
        return np.asarray((batch["rank"] == rank) & (batch["step"] == step))

    asked = ("process", "index", *names, "rank", "step")
    for process, index, *cells, _, _ in rows_where(run, "calls", asked, here):
        yield (process, index), tuple(cells)


def _results(run: Run, calls: Ints) -> Iterator[tuple[int, int, str, float]]:
    """Process, index, slot and norm of each result of these calls that has one but 0."""
    names = ("process", "index", "slot", "l2norm", "io")
    for process, index, slot, norm, io in rows_of(run, "tensors", names, calls):
        if io == "output" and norm:
            yield process, index, slot, norm
