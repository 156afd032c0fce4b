# SPDX-License-Identifier: Apache-2.0
"""Parameters that several ranks hold alike, and where one of them goes its own way.

Ranks on which one parameter's gradient has the same bits train one model together: what they hold
of it must be equal. Shards of tensor-parallel layers, experts and stages of a pipeline never have
equal gradients, nor have models that are averaged now and then; buffers are each rank's own. A
gradient of one number everywhere (zeros) says nothing.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.judge.operators import is_collective
from opscope.operators.catalogue import traits_of
from opscope.questions.arguments import difference
from opscope.questions.findings import Accusation
from opscope.questions.rows import whole_calls
from opscope.run.hashes import distinct, hash_of, mixed
from opscope.run.keys import NONE, indices_of, key, keys_at, keys_of, place_of, processes_of
from opscope.run.query import chosen_columns
from opscope.run.vectors import begins_of, differ, stretches
from opscope.scan.exchanges import between_ranks, odd_ranks
from opscope.scan.held import UNKNOWN

if TYPE_CHECKING:
    from opscope.arrays import Array, Bools, Ints, Words
    from opscope.run.protocol import Run
    from opscope.run.schema import Call
    from opscope.scan.held import Held

MAX_NAMES = 64
ROLES = ("parameter", "gradient")
Found = tuple[int, str, tuple[int, ...]]  # step, name, ranks


class Kept(msgspec.Struct, frozen=True):
    """What each rank's parameters hold at the end of each step, and before, at the end of the step
    before this one, where that is known.

    place: a hash of the step, the name and the shape; owned: one with the rank.
    """

    place: Words
    owned: Words
    rank: Ints
    step: Ints
    name: Words
    after: Words
    before: Words
    known: Bools


class Place(msgspec.Struct, frozen=True):
    """A parameter in a step, and what each rank holds of it before and after."""

    step: int
    name: str
    held: dict[int, tuple[int, int]]


class Shared(msgspec.Struct, frozen=True):
    """A gradient that has the same bits on these ranks; alike: whether they leave its parameter
    alike at the end of the step.
    """

    step: int
    name: str
    place: int
    ranks: tuple[int, ...]
    alike: bool


class State(msgspec.Struct, frozen=True):
    """One content of a tensor on one rank, and the first call that has it."""

    rank: int
    step: int
    process: int
    index: int
    digest: int
    op: str
    phase: str


History = dict[str, dict[int, list[State]]]  # by role and rank


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


def replica_accusations(run: Run, held: Held) -> Iterator[Accusation]:
    """Where replicas of parameters part, those that part at one line together."""
    states = _states(held)
    first = dict(list(_parted(states).items())[:MAX_NAMES])
    partings = [
        parting
        for name, history in _histories(run, states, first)
        if (parting := _located(name, history)) is not None
    ]
    if not partings:
        return
    places = keys_at(
        (state.process, state.index)
        for parting in partings
        for state in (parting.mine, parting.theirs)
    )
    whole = whole_calls(run, places, tensors=False)
    calls = {number: call for number, (call, _) in whole.items()}
    sites: dict[tuple[Any, ...], list[Parting]] = defaultdict(list)
    for parting in partings:
        call = calls[key(parting.mine.process, parting.mine.index)]
        sites[
            (call.rank, "never") if parting.never else (call.rank, call.step, call.op, call.source)
        ].append(parting)
    for together in sites.values():
        yield _accusation(together, calls)


def _states(held: Held) -> Held:
    """The first row of each state. A call that writes a tensor nobody had read before has two
    states of it: the later version holds.
    """
    what = mixed(held.name, held.what)
    state = _hashed(what, held.gradient, processes_of(held.key), held.version)
    order = np.argsort(state, kind="stable")
    order = order[held.version[order] != UNKNOWN]
    begins = begins_of(state[order])
    telling = np.logical_or.reduceat(held.telling[order], begins)
    return msgspec.structs.replace(held.at(order[begins]), telling=telling)


def _hashed(what: Words, *numbers: Array) -> Words:
    return mixed(what, *(column.astype(np.uint64) for column in numbers))


def _kept(states: Held) -> Kept:
    own = states.at(np.flatnonzero(~states.gradient & (states.what != 0)))
    place = _hashed(own.what, own.step)
    order = np.lexsort((-own.version, -indices_of(own.key), own.rank, place))
    last = order[begins_of(place[order], own.rank[order])]
    own, place = own.at(last), place[last]
    owned, before = (_hashed(own.what, own.rank, own.step - ago) for ago in (0, 1))
    at = place_of(before, owned)
    return Kept(place, owned, own.rank, own.step, own.name, own.digest, own.digest[at], at != NONE)


def _parted(states: Held) -> dict[str, tuple[int, ...]]:
    """By name of what parts the ranks that do, where that is first seen, in this order.

    They share a gradient and leave its parameter unlike at the end of the step, or share it in
    other steps and not in this one (_alone), or one of them does not (_left_out).
    """
    kept, names = _kept(states), states.texts.of
    rows, begins = _sharing(states, kept)
    unlike, places = differ(kept.after[rows], begins), _parting(kept, names)
    if not unlike.any() and not places:
        return {}
    shared = [
        Shared(
            int(kept.step[one[0]]),
            names[int(kept.name[one[0]])],
            int(kept.place[one[0]]),
            tuple(kept.rank[one].tolist()),
            not apart,
        )
        for one, apart in zip(stretches(rows, begins), unlike.tolist(), strict=True)
    ]
    apart = ((one.step, one.name, one.ranks) for one in shared if not one.alike)
    first: dict[str, tuple[int, ...]] = {}
    for _, name, ranks in sorted([*apart, *_alone(places, shared), *_left_out(places, shared)]):
        first.setdefault(name, ranks)
    return first


def _sharing(states: Held, kept: Kept) -> tuple[Ints, Ints]:
    """Rows of what is kept by each rank of each gradient that several ranks share, those of one
    gradient together, and where each begins.
    """
    own = states.at(np.flatnonzero(states.gradient & (states.what != 0) & states.telling))
    rows = place_of(_hashed(own.what, own.rank, own.step), kept.owned)
    known = rows != NONE
    rows = rows[known]
    gradient = mixed(kept.place[rows], own.digest[known])
    order = np.lexsort((kept.rank[rows], gradient))
    order = order[begins_of(gradient[order], kept.rank[rows[order]])]
    begins = begins_of(gradient[order])
    counts = np.diff(begins, append=len(order))
    several = counts[counts > 1]
    return rows[order[np.repeat(counts > 1, counts)]], np.cumsum(several) - several


def _parting(kept: Kept, names: Mapping[int, str]) -> dict[int, Place]:
    """The places at which ranks part that held the same in the step before."""
    rows = np.flatnonzero(kept.known)
    order = rows[np.lexsort((kept.before[rows], kept.place[rows]))]
    begins = begins_of(kept.place[order], kept.before[order])
    apart = kept.place[order[begins[differ(kept.after[order], begins)]]]
    places: dict[int, Place] = {}
    for row in rows[np.isin(kept.place[rows], apart)].tolist() if len(apart) else ():
        here = Place(int(kept.step[row]), names[int(kept.name[row])], {})
        held = places.setdefault(int(kept.place[row]), here).held
        held[int(kept.rank[row])] = int(kept.before[row]), int(kept.after[row])
    return places


def _alone(places: Mapping[int, Place], shared: Sequence[Shared]) -> Iterator[Found]:
    """Where nobody shares a gradient that is shared in other steps, in a step in which others are,
    and what all held alike parts.
    """
    names, steps = {one.name for one in shared}, {one.step for one in shared}
    known = {(one.step, one.name) for one in shared}
    for place in places.values():
        before, after = map(set, zip(*place.held.values(), strict=True))
        if (
            place.name in names
            and place.step in steps
            and (place.step, place.name) not in known
            and len(before) == 1 < len(after)
        ):
            yield place.step, place.name, tuple(sorted(place.held))


def _left_out(places: Mapping[int, Place], shared: Sequence[Shared]) -> Iterator[Found]:
    """Where a rank parts from others that it held the same with, and shares no gradient in this
    step, but one with all of them in a later one.
    """
    of_name: dict[str, list[Shared]] = defaultdict(list)
    for one in shared:
        of_name[one.name].append(one)
    for one in shared:
        held = places[one.place].held if one.alike and one.place in places else {}
        before, after = held.get(one.ranks[0], (None, None))
        for rank, own in held.items():
            with_it = [other for other in of_name[one.name] if rank in other.ranks]
            if (
                own[0] == before
                and own[1] != after
                and all(other.step != one.step for other in with_it)
                and any(
                    other.step > one.step and {*one.ranks} <= {*other.ranks} for other in with_it
                )
            ):
                yield one.step, one.name, tuple(sorted({*one.ranks, rank}))


def _histories(
    run: Run, states: Held, ranks: Mapping[str, Collection[int]]
) -> Iterator[tuple[str, History]]:
    """By name the states of what is named, of its ranks that are given, in the order of calls."""
    codes = {name: np.uint64(hash_of(name)) for name in ranks}
    wanted = np.isin(states.name, np.array([*codes.values()], dtype=np.uint64))
    own = states.at(np.flatnonzero(wanted))
    calls = distinct(own.key)
    op, phase = _words_of(run, calls)
    for name, code in codes.items():
        history: History = {role: {rank: [] for rank in ranks[name]} for role in ROLES}
        rows = np.flatnonzero((own.name == code) & np.isin(own.rank, [*ranks[name]]))
        one = own.at(rows[np.lexsort((own.version[rows], indices_of(own.key[rows])))])
        at = np.searchsorted(calls, one.key)
        places = (one.rank, one.step, processes_of(one.key), indices_of(one.key), one.digest)
        columns = (column.tolist() for column in (one.gradient, *places, op[at], phase[at]))
        for gradient, rank, *state in zip(*columns, strict=True):
            history[ROLES[gradient]][rank].append(State(rank, *state))
        yield name, history


def _words_of(run: Run, calls: Ints) -> tuple[Array, Array]:
    """Operator and phase of each of these calls."""
    op, phase = (np.empty(len(calls), dtype=object) for _ in range(2))
    names = ("process", "index", "op", "phase")
    for process, index, *words in chosen_columns(run, "calls", names, calls):
        at = np.searchsorted(calls, keys_of(process, index))
        op[at], phase[at] = ([sys.intern(word) for word in column] for column in words)
    return op, phase


def _located(name: str, history: History) -> Parting | None:
    """The first state in which the ranks differ, of the parameter, or of its gradient when that is
    what differed before.
    """
    values = {rank: _changes(states) for rank, states in history["parameter"].items()}
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
