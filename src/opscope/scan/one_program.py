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

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.operators.catalogue import family, traits_of
from opscope.questions.arguments import difference
from opscope.questions.findings import Accusation
from opscope.scan.exchanges import between_ranks, odd_ranks
from opscope.scan.training.facts import facts_of

if TYPE_CHECKING:
    from opscope.questions.tables import Tables

MIN_STEPS, MAX_STEPS = 3, 16
# Ranks whose gradients all end a step with the same bits; one number everywhere says nothing.
_TOGETHER = """
    WITH last AS (
        SELECT c.step, c.rank, t.tensor_name, bool_or(t.min < t.max) AS telling,
            arg_max(t.digest, (t."index", t.version)) AS digest
        FROM tensors t JOIN calls c USING (process, "index")
        WHERE t.role = 'gradient' AND t.tensor_name IS NOT NULL AND t.digest IS NOT NULL
        GROUP BY ALL),
    held AS (
        SELECT step, rank, hash(list((tensor_name, digest) ORDER BY tensor_name)) AS bits
        FROM last GROUP BY ALL HAVING bool_or(telling))
    SELECT step, list(rank ORDER BY rank) AS ranks FROM held
    WHERE NOT EXISTS (SELECT 1 FROM tensors WHERE role = 'shard')
    GROUP BY step, bits HAVING count(*) > 1 ORDER BY step, ranks
"""
_INSIDE = """
    SELECT DISTINCT op FROM calls
    WHERE level = 'operator' AND parent IS NOT NULL AND phase IN ('forward', 'communication')
"""
_CALLED = """
    SELECT step, rank, hash(list(module ORDER BY "index")) FROM calls
    WHERE level = 'module' AND phase = 'forward' AND list_contains(?, step) GROUP BY ALL
"""
# What a rank read and wrote within modules of a step before a call, and what that call reads where
# it is the same operator.
_SHAPES = """
    SELECT list(t.shape ORDER BY c."index", t.io, t.slot)
    FROM tensors t JOIN calls c USING (process, "index")
    WHERE c.level = 'operator' AND c.phase = 'forward' AND c.parent IS NOT NULL
        AND list_contains($1, c.op) AND c.process = $2 AND c.step = $3
        AND (c."index" < $4 OR ($5 AND c."index" = $4 AND t.io = 'input'))
"""
# Numbers that are no sizes, flags, types, and which keywords are given at all.
_FLAGS = r"""
    regexp_extract_all(c.args,
        '-?\d+\.\d*(?:e[-+]?\d+)?|-?\d+e[-+]?\d+|\b(?:true|false)\b|"dtype": ?"\w+"|"\w+":'
    )::VARCHAR
"""
_SIGNS = f"""
    SELECT c.step, c.rank, hash(list((c.module, c.op, {_FLAGS}) ORDER BY c."index")) FROM calls c
    WHERE c.level = 'operator' AND c.phase = 'forward' AND c.parent IS NOT NULL
        AND list_contains(?, c.op) AND list_contains(?, c.step) GROUP BY ALL
"""  # noqa: S608 - fixed text
_RUN = f"""
    SELECT c.process, c.rank, c.step, c."index", c.name, coalesce(c.module, ''), c.op,
        coalesce(c.args, ''), coalesce({_FLAGS}, '')
    FROM calls c WHERE c.level = 'operator' AND c.phase = 'forward' AND c.parent IS NOT NULL
        AND list_contains(?, c.op) AND c.step = ? AND c.rank = ? ORDER BY c."index"
"""  # noqa: S608 - fixed text


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
    flags: str

    @property
    def sign(self) -> tuple[str, str, str]:
        """What must be equal on every rank."""
        return self.module, self.op, self.flags


def program_accusations(tables: Tables) -> Iterator[Accusation]:
    """The first operator of each odd rank that its peers do not run, or not with its arguments."""
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for step, ranks in tables.rows(_TOGETHER):
        together[tuple(ranks)].append(step)
    groups = {ranks: steps[:MAX_STEPS] for ranks, steps in together.items()}
    groups = {ranks: steps for ranks, steps in groups.items() if len(steps) >= MIN_STEPS}
    computing = _computing(tables) if groups else []
    for ranks, steps in groups.items() if computing else ():
        alike = _alike(tables, ranks, steps)
        if len(alike) < MIN_STEPS:
            continue
        signs = _by_place(tables.rows(_SIGNS, [computing, alike]))
        odd = _odd({rank: {signs.get((step, rank)) for step in alike} for rank in ranks})
        if odd:
            other = next(rank for rank in ranks if rank not in odd)
            mine, theirs = (_ran(tables, computing, alike[0], rank) for rank in (odd[0], other))
            parted = _parting(tables, computing, (mine, theirs))
            if parted is not None:
                yield _accusation(*parted, odd)


def _computing(tables: Tables) -> list[str]:
    """Operators within modules that compute; none where a value goes to Python there, or ranks
    share work out.
    """
    inside = {op: traits_of(op) for (op,) in tables.rows(_INSIDE)}
    for op, traits in inside.items():
        if traits.leaves or (op.startswith(("c10d::", "_c10d")) and family(op) != "broadcast_"):
            return []
    return [
        op
        for op, traits in inside.items()
        if op.startswith("aten::")
        and (traits.cast or not (traits.view or traits.allocates or traits.idle or traits.dropped))
    ]


def _by_place(rows: Sequence[tuple[Any, ...]]) -> dict[tuple[int, int], Any]:
    return {(step, rank): value for step, rank, value in rows}


def _alike(tables: Tables, ranks: Collection[int], steps: Sequence[int]) -> list[int]:
    """Steps in which all these ranks call the same modules."""
    called = _by_place(tables.rows(_CALLED, [list(steps)]))
    return [step for step in steps if len({called.get((step, rank)) for rank in ranks}) == 1]


def _odd(signs: Mapping[int, set[Any]]) -> list[int]:
    """The ranks that run another program than most, where there are two programs and each rank
    keeps to its own.
    """
    if any(len(each) != 1 or None in each for each in signs.values()):
        return []
    own = {rank: next(iter(each)) for rank, each in signs.items()}
    odd = odd_ranks(own) if len(set(own.values())) == 2 else []
    return odd if 2 * len(odd) < len(own) or len(own) == 2 else []


def _ran(tables: Tables, computing: Sequence[str], step: int, rank: int) -> list[Ran]:
    return [Ran(*row) for row in tables.stream(_RUN, [computing, step, rank])]


def _parting(
    tables: Tables, computing: Sequence[str], ran: tuple[Sequence[Ran], Sequence[Ran]]
) -> tuple[Ran, Ran] | None:
    """The first place at which two ranks do not run the same, where all before it has the same
    shapes; of another mode modes tell.
    """
    pairs = ((mine, theirs) for mine, theirs in zip(*ran, strict=False) if mine.sign != theirs.sign)
    parted = next(pairs, None)
    if parted is None:
        return None
    same_op = parted[0].op == parted[1].op
    shapes = [
        tables.rows(_SHAPES, [computing, one.process, one.step, one.index, same_op])
        for one in parted
    ]
    modes = {one.process: facts_of(one.torch).modes for one in tables.run.processes}
    told = shapes[0] == shapes[1] != [(None,)]
    same = told and len({repr(modes.get(one.process)) for one in parted}) == 1
    return parted if same else None


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
