# SPDX-License-Identifier: Apache-2.0
"""One call on several ranks: the same operator, arguments and bits, and results that differ.

Whatever ranks share out among them, what one computes of the same bits the others compute as well.
So it is told only where the peers agree with one another, nothing is drawn or left unwritten, every
input was computed by a recorded call or is a parameter, and the results differ by more than the
order of a sum explains. Operators of a program's own libraries may ask for their rank themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.judge.tolerance import precision_of
from opscope.operators.catalogue import traits_of
from opscope.questions.findings import Accusation
from opscope.questions.rows import whole_calls
from opscope.run.hashes import mixed
from opscope.run.keys import key, processes_of
from opscope.run.query import rows_of
from opscope.run.vectors import begins_of, calls_where, differ, vectors
from opscope.scan.exchanges import between_ranks, odd_ranks

if TYPE_CHECKING:
    from opscope.arrays import Bools, Bytes, Ints, Words
    from opscope.operators.traits import Traits
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor
    from opscope.run.vectors import Vectors

MAX_GROUPS = 256
_UNITS = 256  # of rounding, by which results may differ
_READS, _LEAVES, _BLANK = np.array([1, 2, 4], dtype=np.uint8)  # a call does, or lacks bits
Whole = tuple["Call", "list[Tensor]"]
State = tuple[int, "int | None"]  # process and version


class Flow(msgspec.Struct, frozen=True):
    """What goes into calls and comes out of them: a hash of the bits of both by call."""

    call: Ints
    reads: Words
    leaves: Words

    def at(self, rows: Ints) -> Flow:
        """Some of the calls, by their number here."""
        return Flow(self.call[rows], self.reads[rows], self.leaves[rows])

    def unlike(self) -> Flow:
        """Calls of several processes that read the same, not all of which leave the same."""
        order = np.argsort(self.reads, kind="stable")
        begins = begins_of(self.reads[order])
        unlike = differ(processes_of(self.call[order]), begins)
        unlike &= differ(self.leaves[order], begins)
        chosen = np.repeat(unlike, np.diff(begins, append=len(order)))
        return self.at(np.sort(order[chosen]))


class Same(msgspec.Struct):
    """Calls of one operator with the same arguments and bits; places: process and index of the
    first one of each rank by what it leaves.
    """

    op: str
    step: int
    places: dict[tuple[int, int], tuple[int, int]]  # by rank and what comes out

    @property
    def order(self) -> tuple[int, int]:
        """When the first of them ran."""
        return self.step, min(index for _, index in self.places.values())

    @property
    def parts(self) -> bool:
        """Whether several ranks ran it, and not the same came out."""
        return all(len(set(each)) > 1 for each in zip(*self.places, strict=True))


def unequal_calls(run: Run) -> Iterator[Accusation]:
    """The first call of each operator in which ranks of the same bits make something else."""
    told: set[tuple[int, str]] = set()
    for same in _parting(run)[:MAX_GROUPS]:
        op, traits = same.op, traits_of(same.op)
        if traits.random or traits.allocates or traits.brings or traits.tolerance == "basis":
            continue
        by_rank = {rank: (place, leaves) for (rank, leaves), place in same.places.items()}
        if len(by_rank) < len(same.places):
            continue  # one rank by itself does not always get the same
        odd = odd_ranks({rank: leaves for rank, (_, leaves) in by_rank.items()})
        other = next(rank for rank in sorted(by_rank) if rank not in odd)
        if (odd[0], op) in told:
            continue
        mine, theirs = (_whole(run, *by_rank[rank][0]) for rank in (odd[0], other))
        if _parts(mine, theirs) and _computed(run, [*mine[1], *theirs[1]]):
            told.add((odd[0], op))
            yield _accusation(mine[0], theirs[0], odd)


def _parting(run: Run) -> list[Same]:
    """Calls of PyTorch's operators that make different things of the same, in their order."""
    # By digests alone, which is quick; the rest of a tensor and of a call is asked of few.
    flow = _flow(run, ("slot",), ("slot",)).unlike()
    if len(flow.call):
        named = ("slot", "dtype", "shape", "stride", "device")
        flow = _flow(run, named, ("slot", "shape"), flow.call).unlike()
    bits = zip(flow.reads.tolist(), flow.leaves.tolist(), strict=True)
    known = dict(zip(flow.call.tolist(), bits, strict=True))
    alike: dict[tuple[str, str | None, int], Same] = {}
    names = ("process", "index", "rank", "step", "op", "args", "level", "error")
    for process, index, rank, step, op, args, *rest in rows_of(run, "calls", names, flow.call):
        if rest == ["operator", None] and op.startswith("aten::"):
            reads, leaves = known[key(process, index)]
            same = alike.setdefault((op, args, reads), Same(op, step, {}))
            same.step = min(same.step, step)
            place = same.places.setdefault((rank, leaves), (process, index))
            if index < place[1]:
                same.places[rank, leaves] = (process, index)
    return sorted(
        (same for same in alike.values() if same.parts),
        key=lambda same: (same.order, same.op),
    )


def _flow(run: Run, reads: Sequence[str], leaves: Sequence[str], calls: Ints | None = None) -> Flow:
    """Of all calls, or these, that read and leave something, all of it with its bits; hashed with
    these columns of what they read and leave.
    """
    parts = [tuple(np.empty(0, kind) for kind in (np.int64, np.uint64, np.uint64, np.uint8))]
    for batch in vectors(run, "tensors"):
        rows = np.arange(len(batch)) if calls is None else batch.within(calls)
        if len(rows):
            parts.append(_of_batch(batch, rows, reads, leaves))
    call, read, left, state = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(call, kind="stable")  # a call may lie in two batches
    call, read, left, state = _by_call(call[order], read[order], left[order], state[order])
    return Flow(call, read, left).at(np.flatnonzero(state == _READS | _LEAVES))


def _of_batch(
    batch: Vectors, rows: Ints, reads: Sequence[str], leaves: Sequence[str]
) -> tuple[Ints, Words, Words, Bytes]:
    blank = ~batch.known("digest") | batch.true("partial")
    read, left = batch.are("io", "input"), batch.are("io", "output")
    going_in, coming_out = (
        np.where(there, mixed(batch.numbers("digest"), *map(batch.hashes, names)), 0)[rows]
        for there, names in ((read, reads), (left, leaves))
    )
    state = (read * _READS | left * _LEAVES | blank * _BLANK)[rows]
    return _by_call(batch.keys[rows], going_in, coming_out, state)


def _by_call(
    call: Ints, reads: Words, leaves: Words, state: Bytes
) -> tuple[Ints, Words, Words, Bytes]:
    """The same, once for each stretch of rows of one call."""
    begins = begins_of(call)
    return (
        call[begins],
        np.add.reduceat(reads, begins),
        np.add.reduceat(leaves, begins),
        np.bitwise_or.reduceat(state, begins),
    )


def _whole(run: Run, process: int, index: int) -> Whole:
    number = key(process, index)
    return whole_calls(run, np.array([number], dtype=np.int64))[number]


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


def _computed(run: Run, tensors: Sequence[Tensor]) -> bool:
    """Whether everything that is read is a parameter, or was left by a call that computes and holds
    more than one number: memory that the program fills by other means is not read again for each
    call.
    """
    given = [one for one in tensors if one.io == "input" and one.role != "parameter"]
    if any(one.min is None or one.max is None or one.min == one.max for one in given):
        return False
    makers = _makers(run, {(one.process, one.version) for one in given})
    return all(
        any(
            index < one.index and not (traits.view or traits.allocates or traits.brings)
            for index, traits in makers.get((one.process, one.version), ())
        )
        for one in given
    )


def _makers(run: Run, states: Collection[State]) -> dict[State, list[tuple[int, Traits]]]:
    """The calls that left these states: index, and what is known of the operator."""
    versions = [version for _, version in states if version is not None]

    def left(batch: Vectors) -> Bools:
        there: Bools = batch.known("version") & np.isin(batch.numbers("version"), versions)
        return there & batch.are("io", "output") if there.any() else there

    calls = calls_where(run, "tensors", left)
    names = ("process", "index", "op")
    ops = {key(process, index): op for process, index, op in rows_of(run, "calls", names, calls)}
    columns = ("process", "index", "version", "io")
    makers: dict[State, list[tuple[int, Traits]]] = defaultdict(list)
    for process, index, version, io in rows_of(run, "tensors", columns, calls):
        op = ops.get(key(process, index))
        if io == "output" and version is not None and op is not None:
            makers[process, version].append((index, traits_of(op)))
    return makers


def _accusation(mine: Call, theirs: Call, odd: Sequence[int]) -> Accusation:
    words = (
        f"rank {mine.rank} and rank {theirs.rank} call it with the same bits and arguments, and it "
        "gives something else on each"
    )
    return msgspec.structs.replace(
        between_ranks(mine, theirs, odd, (words,), {}), confidence="suspected"
    )
