# SPDX-License-Identifier: Apache-2.0
"""The stored values of pairs that are not equal, measured in one pass each, and what error analysis
says of a call whose inputs agree: how far its output may be off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.pairing import Pairing
from opscope.compare.pair.scratch import scratch_rows
from opscope.compare.pair.tensors import DIFFERS, SAME, SHAPE, UNKNOWN, WITHIN, Rows
from opscope.compare.side.records import tensor_records
from opscope.compare.verdict.axis_order import best_pair
from opscope.errors import FormatError, MissingValueError, UsageError
from opscope.judge import families
from opscope.judge.agreement import Agreement, agrees
from opscope.judge.terms import magnitude_of, terms_of
from opscope.judge.tolerance import tolerance_of
from opscope.operators.catalogue import traits_of

if TYPE_CHECKING:
    from opscope.compare.side.columns import Side
    from opscope.kernels.pair import Pair
    from opscope.run.schema import Call, Tensor

_CHUNK = 8  # pairs that a thread takes at once: few, so that none waits for another's at the end
_MATERIAL = (DIFFERS, WITHIN, UNKNOWN)


class Measured(msgspec.Struct, frozen=True):
    """Metrics by row of Rows, one line for each value that could not be read, and the rows whose
    values target, or golden, has lost.
    """

    pairs: dict[int, Pair]
    unreadable: dict[int, str]
    lost: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())


def measure_values(pairing: Pairing) -> tuple[Rows, Measured]:
    """Rows with the errors of their values wherever both sides kept them, and all metrics of those
    pairs.
    """
    rows = pairing.rows
    kept_t, kept_g = pairing.target.tensors.kept, pairing.golden.tensors.kept
    wanted = np.flatnonzero(
        (rows.target >= 0) & (rows.golden >= 0) & np.isin(rows.status, _MATERIAL)
    )
    wanted = wanted[kept_t[rows.target[wanted]] & kept_g[rows.golden[wanted]]]
    if len(wanted):
        sides = pairing.target, pairing.golden
        own = scratch_rows(sides, rows.target[wanted], rows.golden[wanted])
        wanted = np.delete(wanted, own)
    measured = Measured({}, {}, _lost_values(pairing))
    if not len(wanted):
        return rows, measured
    mine = tensor_records(pairing.target, rows.target[wanted])
    theirs = tensor_records(pairing.golden, rows.golden[wanted])
    work = [
        (row, mine[int(rows.target[row])], theirs[int(rows.golden[row])]) for row in wanted.tolist()
    ]
    for row, answer in _measured(pairing, work):
        if isinstance(answer, str):
            measured.unreadable[row] = answer
        else:
            measured.pairs[row] = answer
    return _with_errors(rows, measured.pairs), measured


Work = "tuple[int, Tensor, Tensor]"


def _measured(
    pairing: Pairing, work: Sequence[tuple[int, Tensor, Tensor]]
) -> Iterator[tuple[int, Pair | str]]:
    def chunk(part: Sequence[tuple[int, Tensor, Tensor]]) -> list[tuple[int, Pair | str]]:
        return [(row, _one(pairing, target, golden)) for row, target, golden in part]

    parts = [work[start : start + _CHUNK] for start in range(0, len(work), _CHUNK)]
    if len(parts) == 1:
        yield from chunk(parts[0])
        return
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for part in pool.map(chunk, parts):
            yield from part


def _one(pairing: Pairing, target: Tensor, golden: Tensor) -> Pair | str:
    from opscope.kernels.pair import pair

    try:
        mine, theirs = pairing.target.run.value(target), pairing.golden.run.value(golden)
        if pairing.between is not None:
            best = best_pair(
                mine, theirs, any_order=target.io == "input" or mine.shape != theirs.shape
            )
            if best is not None:
                return best
        if mine.shape != theirs.shape:
            return f"shapes {mine.shape} and {theirs.shape} cannot be compared element by element"
        return pair(mine, theirs)
    except (FormatError, MissingValueError, UsageError, MemoryError) as error:
        return str(error) or type(error).__name__


def _with_errors(rows: Rows, pairs: dict[int, Pair]) -> Rows:
    error, status, least, reordered = (
        rows.error.copy(),
        rows.status.copy(),
        rows.least.copy(),
        rows.reordered.copy(),
    )
    for row, metrics in pairs.items():
        error[row] = error_of(metrics)
        status[row] = SAME if metrics.differing == 0 else DIFFERS
        least[row] = reordered[row] = False
    return msgspec.structs.replace(
        rows, error=error, status=status, least=least, reordered=reordered
    )


def bound_of(call: Call, tensors: Sequence[Tensor], metrics: Pair, dtype: str) -> Agreement | None:
    """The verdict on one output of a call, from all metrics of it; None for an operator without an
    analysis, or without shapes.
    """
    if families.tolerance_kind(call.op) in ("unknown", "unjudged"):
        return None
    inputs = [
        tensor
        for tensor in tensors
        if tensor.io == "input" and tensor.dtype not in ("bool", "unknown")
    ]
    shapes = {
        io: [tensor.shape for tensor in tensors if tensor.io == io and tensor.shape is not None]
        for io in ("input", "output")
    }
    if not shapes["output"]:
        return None
    terms = terms_of(call.op, shapes["input"], shapes["output"])
    return agrees(
        metrics,
        tolerance_of(call.op, dtype, terms=terms, magnitude=magnitude_of(call.op, terms, inputs)),
    )


def error_of(metrics: Pair) -> float:
    """The error by which a pair is judged: of the norm, and of the worst element to the largest
    magnitude; inf where NaN disagree.
    """
    if metrics.nonfinite_mismatch:
        return float("inf")
    if metrics.differing == 0 or metrics.max_abs is None:
        return 0.0
    norm = metrics.relative_euclidean
    reach = metrics.max_golden
    worst = metrics.max_abs / reach if reach else float("inf")
    return max(worst, float("inf") if norm is None else norm)


def _lost_values(pairing: Pairing) -> tuple[frozenset[int], frozenset[int]]:
    """Rows whose values one side kept and the other, which keeps its values, did not: lost in
    target, lost in golden. What memory holds that was not written yet is no loss.
    """
    rows = pairing.rows
    both = (rows.target >= 0) & (rows.golden >= 0) & (rows.status != SAME) & (rows.status != SHAPE)
    lost_rows = []
    sides = (
        (pairing.target, pairing.flows[0], rows.target),
        (pairing.golden, pairing.flows[1], rows.golden),
    )
    for (side, flow, own), (partner, _, other) in (sides, sides[::-1]):
        makers = flow.producer[own[both]]
        allocating = side.which(side.calls.op, lambda op: traits_of(op).allocates)
        unwritten = (makers >= 0) & allocating[makers]
        lost = both.copy()
        lost[both] = ~side.tensors.kept[own[both]] & partner.tensors.kept[other[both]] & ~unwritten
        lost_rows.append(
            frozenset(np.flatnonzero(lost).tolist()) if _keeps_values(side) else frozenset()
        )
    return lost_rows[0], lost_rows[1]


def _keeps_values(side: Side) -> bool:
    """Whether a run was made to keep the values of all its tensors: most are there, or its maker
    says so (msprobe's task).
    """
    return bool(len(side.tensors)) and (
        bool(side.tensors.kept.mean() > 0.5) or side.run.info.config.get("task") == "tensor"
    )
