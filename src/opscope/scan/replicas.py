# SPDX-License-Identifier: Apache-2.0
"""Parameters that several ranks hold alike, and where one of them goes its own way.

Ranks on which one parameter's gradient has the same bits train one model together: what they hold
of it must be equal. Shards of tensor-parallel layers, experts and stages of a pipeline never have
equal gradients, nor have models that are averaged now and then; buffers are each rank's own. A
gradient of one number everywhere (zeros) says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.judge.operators import is_collective
from opscope.operators.catalogue import traits_of
from opscope.questions.arguments import difference
from opscope.questions.findings import Accusation
from opscope.questions.rows import whole_calls
from opscope.run.keys import key
from opscope.scan.exchanges import between_ranks, odd_ranks

if TYPE_CHECKING:
    from opscope.questions.tables import Tables
    from opscope.run.schema import Call

MAX_NAMES = 64
# A call that writes a tensor nobody had read before has two states of it: the later version holds.
_STATES = """
    SELECT c.rank, c.step, c.op, c.phase, s.* FROM (
        SELECT process, role, tensor_name, shape, version, min("index") AS "index",
        any_value(digest) AS digest,
            any_value(min) < any_value(max) AS telling
        FROM tensors WHERE role IN ('parameter', 'gradient') AND tensor_name IS NOT NULL
        AND version IS NOT NULL AND digest IS NOT NULL
        GROUP BY ALL) s JOIN calls c USING (process, "index")
"""
# One gradient on several ranks, whose parameter they leave unlike at the end of the step; one
# that is shared in other steps but not in this one, in which others are, and which parts a
# parameter that was equal before; and one rank that shares it with these others in another step,
# and with nobody in this one.
_PARTED = f"""
    WITH states AS ({_STATES}),
    kept AS (SELECT rank, step, tensor_name, shape,
        arg_max(digest, ("index", version)) AS after FROM states
        WHERE role = 'parameter' GROUP BY ALL),
    shared AS (SELECT g.step, g.tensor_name, k.shape, list(DISTINCT g.rank) AS ranks,
    count(DISTINCT k.after) AS states
        FROM states g JOIN kept k ON g.rank = k.rank AND g.step = k.step
        AND g.tensor_name = k.tensor_name AND g.shape = k.shape
        WHERE g.role = 'gradient' AND g.telling GROUP BY g.step, g.tensor_name, g.digest, k.shape
        HAVING count(DISTINCT g.rank) > 1),
    alone AS (SELECT k.step, k.tensor_name, k.shape, list(DISTINCT k.rank) AS ranks
        FROM kept k JOIN kept p ON p.rank = k.rank AND p.step = k.step - 1
        AND p.tensor_name = k.tensor_name AND p.shape = k.shape
        WHERE k.tensor_name IN (SELECT tensor_name FROM shared) AND k.step IN (SELECT step
        FROM shared)
            AND (k.step, k.tensor_name) NOT IN (SELECT (step, tensor_name) FROM shared)
        GROUP BY ALL HAVING count(DISTINCT k.rank) > 1 AND count(DISTINCT p.after) = 1
        AND count(DISTINCT k.after) > 1),
    left_out AS (SELECT s.step, s.tensor_name, s.shape, list_append(s.ranks, k.rank) AS ranks
        FROM shared s
        JOIN kept k ON k.step = s.step AND k.tensor_name = s.tensor_name AND k.shape = s.shape
        JOIN kept o ON o.rank = s.ranks[1] AND o.step = s.step
        AND o.tensor_name = s.tensor_name AND o.shape = s.shape AND o.after != k.after
        JOIN kept p ON p.rank = k.rank AND p.step = s.step - 1
        AND p.tensor_name = s.tensor_name AND p.shape = s.shape
        JOIN kept b ON b.rank = s.ranks[1] AND b.step = s.step - 1
        AND b.tensor_name = s.tensor_name AND b.shape = s.shape AND b.after = p.after
        WHERE s.states = 1 AND NOT EXISTS (SELECT 1 FROM shared v WHERE v.step = s.step
            AND v.tensor_name = s.tensor_name AND list_contains(v.ranks, k.rank))
        AND EXISTS (SELECT 1 FROM shared w WHERE w.tensor_name = s.tensor_name
            AND w.step > s.step AND list_has_all(w.ranks, list_append(s.ranks, k.rank))))
    SELECT step, tensor_name, shape, ranks FROM shared WHERE states > 1
    UNION ALL SELECT step, tensor_name, shape, ranks FROM alone
    UNION ALL SELECT step, tensor_name, shape, ranks FROM left_out ORDER BY step, tensor_name
"""  # noqa: S608 - fixed text
_HISTORY = f"""
    SELECT role, rank, step, process, "index", digest, op, phase FROM ({_STATES})
    WHERE tensor_name = ? ORDER BY rank, "index", version
"""  # noqa: S608 - fixed text


class State(msgspec.Struct, frozen=True):
    """One content of a tensor on one rank, and the first call that has it."""

    rank: int
    step: int
    process: int
    index: int
    digest: int
    op: str
    phase: str


class Parting(msgspec.Struct, frozen=True):
    """Where one parameter or its gradient goes its own way: the state on the odd rank and on
    another.

    never: it was never alike; unexchanged: only on the other rank did a collective write the
    gradient; unused: the odd rank computed its next gradient before it used this one.
    """

    name: str
    mine: State
    theirs: State
    odd: tuple[int, ...]
    gradient: bool = False
    unused: bool = False
    never: bool = False
    unexchanged: bool = False


def replica_accusations(tables: Tables) -> Iterator[Accusation]:
    """Where replicas of parameters part, those that part at one line together."""
    first: dict[str, tuple[int, ...]] = {}
    for _, name, _, ranks in tables.rows(_PARTED):
        first.setdefault(name, tuple(sorted(ranks)))
    partings = [
        parting
        for name in list(first)[:MAX_NAMES]
        if (parting := _located(tables, name, first[name])) is not None
    ]
    if not partings:
        return
    places = [
        (state.process, state.index)
        for parting in partings
        for state in (parting.mine, parting.theirs)
    ]
    calls = {
        call_id: call
        for call_id, (call, _) in whole_calls(
            tables, np.unique([key(*call_id) for call_id in places]), tensors=False
        ).items()
    }
    sites: dict[tuple[Any, ...], list[Parting]] = defaultdict(list)
    for parting in partings:
        call = calls[key(parting.mine.process, parting.mine.index)]
        sites[
            (call.rank, "never") if parting.never else (call.rank, call.step, call.op, call.source)
        ].append(parting)
    for together in sites.values():
        yield _accusation(together, calls)


def _located(tables: Tables, name: str, ranks: Sequence[int]) -> Parting | None:
    """The first state in which the ranks differ, of the parameter, or of its gradient when that is
    what differed before.
    """
    history: dict[str, dict[int, list[State]]] = {
        "parameter": defaultdict(list),
        "gradient": defaultdict(list),
    }
    for role, *state in tables.rows(_HISTORY, [name]):
        history[role][state[0]].append(State(*state))
    values = {rank: _changes(history["parameter"][rank]) for rank in ranks}
    parted = _first_unlike(values)
    if parted is None:
        return None
    number, odd, other = parted
    mine, theirs = values[odd[0]][number], values[other][number]
    if number == 0:
        return Parting(name, mine, theirs, tuple(odd), never=True)
    gradients = {
        rank: _changes([state for state in history["gradient"][rank] if state.step == mine.step])
        for rank in (odd[0], other)
    }
    return _by_gradient(name, gradients, (mine, theirs), odd) or Parting(
        name, mine, theirs, tuple(odd)
    )


def _by_gradient(
    name: str, gradients: Mapping[int, list[State]], states: tuple[State, State], odd: Sequence[int]
) -> Parting | None:
    """Where the gradient left its common state in the step; None when both updates read the same
    one.
    """
    mine, theirs = (
        [state for state in gradients[one.rank] if state.index <= one.index] for one in states
    )
    if not mine or not theirs or mine[-1].digest == theirs[-1].digest:
        return None
    common = {state.digest for state in mine} & {state.digest for state in theirs}
    if not common:
        lost = any(is_collective(state.op) for state in theirs) and not any(
            is_collective(state.op) for state in mine
        )
        return Parting(name, states[0], states[1], tuple(odd), gradient=True, unexchanged=lost)
    after = _after(mine, common)
    if theirs[-1].digest in common and after.phase == "backward":
        kept = next(state for state in mine if state.digest == theirs[-1].digest)
        return Parting(name, kept, theirs[-1], tuple(odd), unused=True)
    return Parting(name, after, _after(theirs, common), tuple(odd), gradient=True)


def _after(states: Sequence[State], common: set[int]) -> State:
    """The state after the last common one, that one itself where it is the last."""
    last = max(number for number, state in enumerate(states) if state.digest in common)
    return states[min(last + 1, len(states) - 1)]


def _changes(states: Sequence[State]) -> list[State]:
    """States in order, each content once in a row; parts of a tensor that a view shows are no
    states of their own.
    """
    told = [
        state for number, state in enumerate(states) if number == 0 or not traits_of(state.op).view
    ]
    return [next(same) for _, same in groupby(told, key=lambda state: state.digest)]


def _first_unlike(values: Mapping[int, Sequence[State]]) -> tuple[int, list[int], int] | None:
    """The first place at which sequences differ, the ranks that are odd there, and one that is
    not.
    """
    for number in range(min(map(len, values.values()), default=0)):
        digests = {rank: states[number].digest for rank, states in values.items()}
        if len(set(digests.values())) > 1:
            odd = odd_ranks(digests)
            return number, odd, next(rank for rank in sorted(digests) if rank not in odd)
    return None


def _accusation(partings: Sequence[Parting], calls: Mapping[int, Call]) -> Accusation:
    first = min(partings, key=lambda parting: parting.mine.index)
    names = sorted({parting.name for parting in partings})
    mine, theirs = (calls[key(state.process, state.index)] for state in (first.mine, first.theirs))
    words = tuple(_words(first, (mine, theirs), names))
    return between_ranks(mine, theirs, first.odd, words, {"parameters": names})


def _words(parting: Parting, calls: tuple[Call, Call], names: Sequence[str]) -> Iterator[str]:
    mine, theirs = calls
    named = names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
    ranks = f"rank {mine.rank} and rank {theirs.rank}"
    if parting.never:
        yield (
            f"{named}: {ranks} train it together and never held the same: not broadcast, not "
            "seeded alike, or changed before it was read"
        )
        return
    if parting.unused:
        yield (
            f"{named}: {ranks} train it together; this gradient updates it on rank {theirs.rank}, "
            f"and rank {mine.rank} computes the next one before it has used it"
        )
        return
    what = "its gradient differs" if parting.gradient else "it differs"
    yield f"{named}: {ranks} train it together; {what} from here on"
    if parting.unexchanged:
        yield f"on rank {theirs.rank} a collective wrote its gradient, on rank {mine.rank} none did"
    elif mine.op != theirs.op:
        yield (
            f"rank {mine.rank} writes it by {mine.op}, rank {theirs.rank} by {theirs.op} "
            f"({theirs.name})"
        )
    elif not is_collective(mine.op):
        unlike = difference(mine.op, mine.args, theirs.args)
        if unlike:
            yield unlike.replace("golden has", f"rank {theirs.rank} has")
