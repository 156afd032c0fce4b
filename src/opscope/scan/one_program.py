# SPDX-License-Identifier: Apache-2.0
"""Ranks that train one whole model together, one of which runs other operators in it, or the same
with other arguments: another eps, another activation, another element type.

Ranks may well do different things, so little is taken for one program: all their gradients have the
same bits at the end of each step, they call the same modules, and on the same shapes until they
part; nothing is shared out within the model (no shards, no exchange but broadcasts in its forward),
no value goes back to Python there, and each rank does the same in every step. Sizes are a batch's
own and are not read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.operators.catalogue import family, traits_of
from opscope.questions.arguments import difference
from opscope.questions.findings import Accusation
from opscope.run.hashes import mixed
from opscope.run.keys import indices_of
from opscope.run.query import rows_of
from opscope.run.vectors import Texts, begins_of, calls_where, codes_of, stretches, vectors
from opscope.scan.exchanges import between_ranks, odd_ranks
from opscope.scan.training.facts import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from opscope.arrays import Bools, Ints, Words
    from opscope.run.protocol import Run
    from opscope.run.vectors import Vectors
    from opscope.scan.held import Held

MIN_STEPS, MAX_STEPS = 3, 16
# Numbers that are no sizes, flags, types, and which keywords are given at all.
_FLAGS = re.compile(
    r"-?\d+\.\d*(?:e[-+]?\d+)?|-?\d+e[-+]?\d+|\b(?:true|false)\b|\"dtype\": ?\"\w+\"|\"\w+\":",
    re.ASCII,
)
Place = tuple[int, int]  # step, rank


class Ran(msgspec.Struct, frozen=True):
    """One operator that a rank ran inside of a module; flags: its scalars that are no sizes."""

    process: int
    rank: int
    step: int
    index: int
    name: str
    module: str
    op: str
    args: str
    flags: tuple[str, ...] | None

    @property
    def sign(self) -> tuple[str, str, object]:
        """What must be equal on every rank."""
        return self.module, self.op, self.flags


def program_accusations(run: Run, held: Held) -> Iterator[Accusation]:
    """The first operator of each odd rank that its peers do not run, or not with its arguments."""
    groups = {ranks: steps[:MAX_STEPS] for ranks, steps in _together(held).items()}
    groups = {ranks: steps for ranks, steps in groups.items() if len(steps) >= MIN_STEPS}
    computing = _computing(run) if groups else []
    for ranks, steps in groups.items() if computing else ():
        alike = _alike(run, ranks, steps)
        if len(alike) < MIN_STEPS:
            continue
        signs = _signs(run, computing, alike)
        odd = _odd({rank: {signs.get((step, rank)) for step in alike} for rank in ranks})
        if odd:
            other = next(rank for rank in ranks if rank not in odd)
            mine, theirs = (_ran(run, computing, alike[0], rank) for rank in (odd[0], other))
            apart = _parting(run, computing, (mine, theirs))
            if apart is not None:
                yield _accusation(*apart, odd)


def _together(held: Held) -> dict[tuple[int, ...], list[int]]:
    """Steps by the ranks whose gradients all end them with the same bits; one number everywhere
    says nothing, and in a run with shards no rank has the whole model.
    """
    own = held.at(np.flatnonzero(held.gradient & (not held.shards)))
    of_rank = mixed(own.name, own.step.astype(np.uint64), own.rank.astype(np.uint64))
    order = np.lexsort((-own.version, -indices_of(own.key), of_rank))
    begins = begins_of(of_rank[order])
    telling = np.logical_or.reduceat(own.telling[order], begins)
    last = own.at(order[begins])
    order = np.lexsort((last.rank, last.step))
    begins = begins_of(last.step[order], last.rank[order])
    bits = np.add.reduceat(mixed(last.name, last.digest)[order], begins)
    telling, first = np.logical_or.reduceat(telling[order], begins), last.at(order[begins])
    by_bits: dict[tuple[int, int], list[int]] = defaultdict(list)
    columns = (first.step[telling], bits[telling], first.rank[telling])
    for step, content, rank in zip(*(column.tolist() for column in columns), strict=True):
        by_bits[step, content].append(rank)
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for (step, _), ranks in by_bits.items():
        if len(ranks) > 1:
            together[tuple(ranks)].append(step)
    return together


def _computing(run: Run) -> list[str]:
    """Operators within modules that compute; none where a value goes to Python there, or ranks
    share work out.
    """
    texts = Texts()
    for batch in vectors(run, "calls"):
        shown = batch.are("phase", "forward") | batch.are("phase", "communication")
        rows = np.flatnonzero(shown & batch.known("parent") & batch.are("level", "operator"))
        texts.learn(batch, "op", rows)
    inside = {op: traits_of(op) for op in texts.of.values() if op}
    for op, traits in inside.items():
        if traits.leaves or (op.startswith(("c10d::", "_c10d")) and family(op) != "broadcast_"):
            return []
    return [
        op
        for op, traits in inside.items()
        if op.startswith("aten::")
        and (traits.cast or not (traits.view or traits.allocates or traits.idle or traits.dropped))
    ]


def _sequences(
    run: Run,
    steps: Sequence[int],
    chosen: Callable[[Vectors], Bools],
    signs: Callable[[Vectors, Ints], Words],
) -> dict[Place, int]:
    """A hash of the signs of the chosen calls of steps in their order, by step and rank; signs are
    those of some rows.
    """
    parts = [tuple(np.empty(0, kind) for kind in (np.int32, np.int32, np.int64, np.uint64))]
    for batch in vectors(run, "calls"):
        here = np.isin(batch.numbers("step"), steps)
        if not here.any():
            continue
        rows = np.flatnonzero(here & chosen(batch))
        numbers = (batch.numbers(name)[rows] for name in ("step", "rank", "index"))
        parts.append((*numbers, signs(batch, rows)))
    step, rank, index, sign = map(np.concatenate, zip(*parts, strict=True))
    order = np.lexsort((index, rank, step))
    begins = begins_of(step[order], rank[order])
    places = zip(step[order[begins]].tolist(), rank[order[begins]].tolist(), strict=True)
    each = stretches(sign[order], begins)
    return {place: hash(part.tobytes()) for place, part in zip(places, each, strict=True)}


def _alike(run: Run, ranks: Collection[int], steps: Sequence[int]) -> list[int]:
    """Steps in which all these ranks call the same modules."""

    def modules(batch: Vectors) -> Bools:
        return batch.are("level", "module") & batch.are("phase", "forward")

    called = _sequences(run, steps, modules, lambda batch, rows: batch.hashes("module")[rows])
    return [step for step in steps if len({called.get((step, rank)) for rank in ranks}) == 1]


def _signs(run: Run, computing: Sequence[str], steps: Sequence[int]) -> dict[Place, int]:
    """What each rank runs within modules of these steps: modules, operators and flags."""
    ops, texts = codes_of(computing), Texts()

    @cache
    def flags(args: str) -> int:
        return hash(_flags(args))

    def signs(batch: Vectors, rows: Ints) -> Words:
        args = texts.told(texts.learn(batch, "args", rows), flags, np.int64)
        return mixed(batch.hashes("module")[rows], batch.hashes("op")[rows], args.view(np.uint64))

    return _sequences(run, steps, partial(_runs, computing=ops), signs)


def _flags(args: str | None) -> tuple[str, ...] | None:
    return tuple(_FLAGS.findall(args)) if args else None


def _runs(batch: Vectors, computing: Words) -> Bools:
    """Which calls run these operators within modules, going forward."""
    within: Bools = batch.known("parent") & np.isin(batch.hashes("op"), computing)
    return within & batch.are("level", "operator") & batch.are("phase", "forward")


def _odd(signs: Mapping[int, set[Any]]) -> list[int]:
    """The ranks that run another program than most, where there are two programs and each rank
    keeps to its own.
    """
    if any(len(each) != 1 or None in each for each in signs.values()):
        return []
    own = {rank: next(iter(each)) for rank, each in signs.items()}
    odd = odd_ranks(own) if len(set(own.values())) == 2 else []
    return odd if 2 * len(odd) < len(own) or len(own) == 2 else []


def _ran(run: Run, computing: Sequence[str], step: int, rank: int) -> list[Ran]:
    """What a rank runs in a step."""
    ops = codes_of(computing)

    def chosen(batch: Vectors) -> Bools:
        here: Bools = (batch.numbers("step") == step) & (batch.numbers("rank") == rank)
        return here & _runs(batch, ops) if here.any() else here

    names = ("process", "index", "name", "module", "op", "args")
    ran = [
        Ran(process, rank, step, index, name, module or "", op, args or "", _flags(args))
        for process, index, name, module, op, args in rows_of(
            run, "calls", names, calls_where(run, "calls", chosen)
        )
    ]
    return sorted(ran, key=lambda one: one.index)


def _parting(
    run: Run, computing: Sequence[str], ran: tuple[Sequence[Ran], Sequence[Ran]]
) -> tuple[Ran, Ran] | None:
    """The first place at which two ranks do not run the same, where all before it has the same
    shapes; of another mode modes tell.
    """
    pairs = ((mine, theirs) for mine, theirs in zip(*ran, strict=False) if mine.sign != theirs.sign)
    apart = next(pairs, None)
    if apart is None:
        return None
    same_op = apart[0].op == apart[1].op
    mine, theirs = (_shapes(run, computing, one, same_op=same_op) for one in apart)
    modes = {one.process: facts_of(one.torch).modes for one in run.processes}
    same = mine == theirs != [] and len({repr(modes.get(one.process)) for one in apart}) == 1
    return apart if same else None


def _shapes(run: Run, computing: Sequence[str], last: Ran, *, same_op: bool) -> list[Any]:
    """What a rank read and wrote within modules of a step before a call, and what that one reads
    where it is the same operator.
    """
    ops = codes_of(computing)

    def chosen(batch: Vectors) -> Bools:
        here: Bools = batch.numbers("process") == last.process
        here &= (batch.numbers("step") == last.step) & (batch.numbers("index") <= last.index)
        return here & _runs(batch, ops) if here.any() else here

    names = ("index", "io", "slot", "shape")
    rows = rows_of(run, "tensors", names, calls_where(run, "calls", chosen))
    before = [row for row in rows if row[0] < last.index or (same_op and row[1] == "input")]
    return [shape for *_, shape in sorted(before, key=lambda row: row[:3])]


def _accusation(mine: Ran, theirs: Ran, odd: Sequence[int]) -> Accusation:
    ranks = f"rank {mine.rank} and rank {theirs.rank}"
    words = [f"{mine.module or 'the model'}: {ranks} train it together, and run different calls"]
    if (mine.module, mine.op) != (theirs.module, theirs.op):
        words.append(
            f"rank {mine.rank} runs {mine.op}, rank {theirs.rank} {theirs.op} ({theirs.name})"
        )
    else:
        unlike = difference(mine.op, mine.args, theirs.args)
        words.append(
            unlike.replace("golden has", f"rank {theirs.rank} has") or "their types differ"
        )
    accusation = between_ranks(mine, theirs, odd, tuple(words), {"module": mine.module})
    return msgspec.structs.replace(accusation, confidence="suspected")
