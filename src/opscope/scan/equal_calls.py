# SPDX-License-Identifier: Apache-2.0
"""One call on several ranks: the same operator, arguments and bits, and results that differ.

Whatever ranks share out among them, what one computes of the same bits the others compute as well.
So it is told only where the peers agree with one another, nothing is drawn or left unwritten, every
input was computed by a recorded call or is a parameter, and the results differ by more than the
order of a sum explains. Operators of a program's own libraries may ask for their rank themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.judge.tolerance import precision_of
from opscope.operators.catalogue import traits_of
from opscope.questions.findings import Accusation
from opscope.questions.rows import whole_calls
from opscope.run.keys import key
from opscope.scan.exchanges import between_ranks, odd_ranks

if TYPE_CHECKING:
    from opscope.questions.tables import Tables
    from opscope.run.schema import Call, Tensor

MAX_GROUPS = 256
_UNITS = 256  # of rounding, by which results may differ
# First by digests alone, which is quick; the rest of a tensor and of a call is asked of few.
_UNLIKE = """
    WITH seen AS MATERIALIZED (
        SELECT process, "index",
            bit_xor(hash(xor(digest, hash(slot)))) FILTER (io = 'input') AS reads,
            bit_xor(hash(xor(digest, hash(slot)))) FILTER (io = 'output') AS leaves
        FROM tensors GROUP BY ALL
        HAVING bool_and(digest IS NOT NULL AND partial IS NOT TRUE)
            AND reads IS NOT NULL AND leaves IS NOT NULL),
    shared AS (
        SELECT reads FROM seen GROUP BY reads
        HAVING min(process) < max(process) AND min(leaves) < max(leaves)),
    near AS (SELECT process, "index" FROM seen SEMI JOIN shared USING (reads)),
    told AS (
        SELECT process, "index",
            bit_xor(hash(xor(digest, hash(slot, dtype, shape, stride, device))))
                FILTER (io = 'input') AS reads,
            bit_xor(hash(xor(digest, hash(slot, shape)))) FILTER (io = 'output') AS leaves
        FROM tensors SEMI JOIN near USING (process, "index") GROUP BY ALL),
    kept AS (
        SELECT c.op, hash(c.args) AS args, reads, leaves, c.rank, min(c.step) AS step,
            arg_min((c.process, c."index"), c."index") AS place
        FROM told JOIN calls c USING (process, "index")
        WHERE c.level = 'operator' AND c.op LIKE 'aten::%' AND c.error IS NULL
        GROUP BY c.op, hash(c.args), reads, leaves, c.rank)
    SELECT op, list((rank, place[1], place[2], leaves) ORDER BY rank) FROM kept
    GROUP BY op, args, reads HAVING count(DISTINCT leaves) > 1 AND count(DISTINCT rank) > 1
    ORDER BY min(step), min(place[2])
"""
_PRODUCERS = """
    SELECT DISTINCT c.op FROM tensors t JOIN calls c USING (process, "index")
    WHERE t.process = ? AND t.version = ? AND t.io = 'output' AND t."index" < ?
"""
Whole = tuple["Call", "list[Tensor]"]


def unequal_calls(tables: Tables) -> Iterator[Accusation]:
    """The first call of each operator in which ranks of the same bits make something else."""
    told: set[tuple[int, str]] = set()
    for number, (op, places) in enumerate(tables.stream(_UNLIKE)):
        if number == MAX_GROUPS:
            return
        traits = traits_of(op)
        if traits.random or traits.allocates or traits.brings or traits.tolerance == "basis":
            continue
        by_rank: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for rank, *call_id in places:
            by_rank[rank].append((call_id[0], call_id[1], call_id[2]))
        if any(len(calls) > 1 for calls in by_rank.values()):
            continue  # one rank by itself does not always get the same
        odd = odd_ranks({rank: calls[0][2] for rank, calls in by_rank.items()})
        other = next(rank for rank in sorted(by_rank) if rank not in odd)
        if (odd[0], op) in told:
            continue
        mine, theirs = (
            _whole(tables, by_rank[rank][0][0], by_rank[rank][0][1]) for rank in (odd[0], other)
        )
        if _parts(mine, theirs) and _computed(tables, mine) and _computed(tables, theirs):
            told.add((odd[0], op))
            yield _accusation(mine[0], theirs[0], odd)


def _whole(tables: Tables, process: int, index: int) -> Whole:
    number = key(process, index)
    return whole_calls(tables, np.array([number], dtype=np.int64))[number]


def _read(call: Whole) -> list[tuple[str, int | None]] | None:
    """Slots and digests of all that a call reads; None where its arguments name more tensors."""
    inputs = sorted((one.slot, one.digest) for one in call[1] if one.io == "input")
    return inputs if (call[0].args or "").count('"tensor":') == len(inputs) else None


def _parts(mine: Whole, theirs: Whole) -> bool:
    """Whether some result differs by more than rounding, beside what goes in and comes out."""
    if _read(mine) is None or _read(mine) != _read(theirs):
        return False
    scratch = set(traits_of(mine[0].op).scratch.split(","))
    slack = _scale(mine[1])
    others = {one.slot: one for one in theirs[1] if one.io == "output"}
    return any(
        one.slot.partition(".")[0] not in scratch and _unlike(one, others.get(one.slot), slack)
        for one in mine[1]
        if one.io == "output"
    )


def _scale(tensors: Sequence[Tensor]) -> float:
    """A bound of what is summed up: the product of the norms that go in, or the largest of them."""
    norms = [one.l2norm for one in tensors if one.io == "input" and one.l2norm is not None]
    return max(float(np.prod(norms)), *norms) if norms else 0.0


def _unlike(mine: Tensor, theirs: Tensor | None, slack: float) -> bool:
    precision = precision_of(mine.dtype)
    if theirs is None or precision is None or mine.l2norm is None or theirs.l2norm is None:
        return False
    if (mine.nan, mine.pos_inf, mine.neg_inf) != (theirs.nan, theirs.pos_inf, theirs.neg_inf):
        return True
    allowed = min(_UNITS * precision.unit, 0.05) * max(slack, mine.l2norm, theirs.l2norm)
    apart = max(
        abs(mine.l2norm - theirs.l2norm),
        abs((mine.mean or 0.0) - (theirs.mean or 0.0)) * max(mine.size or 1, 1) ** 0.5,
    )
    return bool(apart > allowed)


def _computed(tables: Tables, call: Whole) -> bool:
    """Whether every input is a parameter, or was left by a call that computes and holds more than
    one number: memory that the program fills by other means is not read again for each call.
    """
    return all(
        one.role == "parameter" or _written(tables, one) for one in call[1] if one.io == "input"
    )


def _written(tables: Tables, tensor: Tensor) -> bool:
    if tensor.min is None or tensor.max is None or tensor.min == tensor.max:
        return False
    state = [tensor.process, tensor.version, tensor.index]
    producers = [traits_of(op) for (op,) in tables.rows(_PRODUCERS, state)]
    return any(not (each.view or each.allocates or each.brings) for each in producers)


def _accusation(mine: Call, theirs: Call, odd: Sequence[int]) -> Accusation:
    words = (
        f"rank {mine.rank} and rank {theirs.rank} call it with the same bits and arguments, and it "
        "gives something else on each"
    )
    return msgspec.structs.replace(
        between_ranks(mine, theirs, odd, (words,), {}), confidence="suspected"
    )
