# SPDX-License-Identifier: Apache-2.0
"""Collectives of several ranks beside each other: the same ones in the same order, and what each
must leave equal everywhere.

Only collectives whose process group is known are judged: ranks of different groups may do what they
like.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from opscope.judge.tolerance import precision_of
from opscope.operators.catalogue import family, traits_of
from opscope.questions.findings import Accusation
from opscope.run.keys import key
from opscope.run.query import rows_of
from opscope.run.vectors import Texts, calls_where

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints
    from opscope.run.protocol import Run
    from opscope.run.vectors import Vectors

BETWEEN_RANKS = "rank-mismatch"
_STATE = ("digest", "l2norm", "mean", "size")
_DEPTH = 6
_MAX_RANKS = 1 << 20


class Told(Protocol):
    """A call of one rank, as it is told."""

    @property
    def process(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...


class Group(msgspec.Struct, frozen=True):
    """A process group by those of its ranks that are looked at; partial: it has others."""

    name: str
    members: tuple[int, ...]
    partial: bool


class Exchange(msgspec.Struct, frozen=True):
    """One collective as one rank ran it; outputs are (dtype, digest, l2norm, mean, size) by
    slot.
    """

    process: int
    rank: int
    step: int
    index: int
    op: str
    name: str
    group: Group
    shapes: tuple[tuple[int, ...], ...]
    outputs: Mapping[str, tuple[Any, ...]]

    @property
    def sign(self) -> tuple[Any, ...]:
        """What must be equal on every rank of the group."""
        word = family(self.op)
        return (word, self.shapes) if traits_of(self.op).shaped else (word,)

    @property
    def words(self) -> str:
        """ "allreduce_ of [16]" """
        sizes = ", ".join(str(list(shape)) for shape in self.shapes)
        return (
            f"{self.op.rpartition('::')[2].partition('.')[0]}"
            f"{f' of {sizes}' if sizes and traits_of(self.op).shaped else ''}"
        )


def exchange_accusations(
    run: Run,
    recorded: Set[tuple[int, int]],
    *,
    parted: bool,
    among: frozenset[int] | None = None,
) -> Iterator[Accusation]:
    """The first collective of each process group in which its ranks do not do the same, or do not
    get the same.

    recorded: rank and step of all that was recorded; parted: whether parameters went apart; among:
    the ranks that are looked at, where the tables hold some of a job's.
    """
    groups: dict[Group, dict[int, dict[int, list[Exchange]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for one in _exchanges(run, among):
        groups[one.group][one.step].setdefault(one.rank, []).append(one)
    ended = {process.rank for process in run.processes if process.exit_code == 0}
    ended_well = _ended_well(run)
    lasts = dict(sorted(recorded))  # the last step of each rank
    for group, steps in groups.items():
        members = group.members
        whole = _sequences(steps, members)
        if not parted and ended_well and _unseen(whole):
            continue
        # Of a job that did not end well a member that is looked at elsewhere may have gone: nothing
        # has arrived of what that one did not send.
        unsure = group.partial and not ended_well
        first_end = min(lasts.get(one, 0) for one in members)
        if len({lasts.get(one) for one in members}) > 1 and _same(whole) and not unsure:
            accused = _first_unlike(whole, whole=True)
            if accused is not None:
                yield accused
            continue
        last = max(steps)
        for step, by_rank in sorted(steps.items()):
            if unsure and step >= first_end:
                break
            ranks = {rank: by_rank.get(rank, []) for rank in members if (rank, step) in recorded}
            accused = _first_unlike(ranks, whole=step < last or ended >= set(ranks))
            if accused is not None:
                yield accused
                break


def _sequences(
    steps: Mapping[int, Mapping[int, Sequence[Exchange]]], members: Sequence[int]
) -> dict[int, list[Exchange]]:
    """What each rank ran in all steps, one after another."""
    return {
        rank: [one for step in sorted(steps) for one in steps[step].get(rank, ())]
        for rank in members
    }


def _same(whole: Mapping[int, Sequence[Exchange]]) -> bool:
    """Whether all ranks ran the same: of those that count unlike many steps, one ran out of data
    and keeps the others company (torch's Join).
    """
    signs = [[one.sign for one in each] for each in whole.values()]
    return all(each == signs[0] for each in signs)


def _ended_well(run: Run) -> bool:
    """Whether the program is known to have ended well, and was recorded to its end. A rank's own
    process seldom knows its code; its launcher's does.
    """
    codes = {process.exit_code for process in run.processes}
    killed = any(process.signal is not None for process in run.processes)
    return 0 in codes and codes <= {0, None} and not killed and not run.problems


def _unseen(whole: Mapping[int, Sequence[Exchange]]) -> bool:
    """Whether ranks lack collectives of the one that has the most, and nothing else differs.

    A program that leaves one out does not end well, or its parameters part. These were begun where
    nobody records, such as callbacks of futures on a thread of the backend (PowerSGD), which change
    what had arrived, too.
    """
    signs = [[one.sign for one in each] for each in whole.values()]
    most = max(signs, key=len)
    for each in signs:
        rest = iter(most)
        if not all(sign in rest for sign in each):
            return False
    return min(map(len, signs)) < len(most)


def exchange_calls(run: Run) -> Ints:
    """Operators that exchange values with other ranks."""
    texts = Texts()

    def chosen(batch: Vectors) -> Bools:
        ops = texts.learn(batch, "op")
        exchange = batch.are("phase", "communication") | texts.told(ops, _is_c10d, bool)
        return exchange & batch.are("level", "operator")

    return calls_where(run, "calls", chosen)


def _is_c10d(op: str) -> bool:
    return "c10d" in op


def _exchanges(run: Run, among: frozenset[int] | None) -> Iterator[Exchange]:
    keys = exchange_calls(run)
    names = ("rank", "index", "process", "step", "op", "name", "args")
    calls = sorted(rows_of(run, "calls", names, keys), key=itemgetter(0, 1))
    ops = {key(process, index): op for _, index, process, _, op, *_ in calls}
    inputs: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    outputs: dict[int, dict[str, tuple[Any, ...]]] = defaultdict(dict)
    columns = ("process", "index", "io", "slot", "dtype", "shape", *_STATE)
    for process, index, io, slot, dtype, shape, *state in rows_of(run, "tensors", columns, keys):
        number = key(process, index)
        if io == "input":
            inputs[number].append(shape or ())
        elif slot.partition(".")[0] == "0" or ops.get(number, "").startswith("_c10d"):
            # c10d's first argument is what it fills, the others are sent
            outputs[number][slot] = (dtype, *state)
    groups: dict[str | None, Group | None] = {}  # by the words of a call, which name all ranks
    for rank, index, process, step, op, name, args in calls:
        if args not in groups:
            groups[args] = _looked_at(args, among)
        group = groups[args]
        if group is not None and rank in group.members and not traits_of(op).alone:
            number = key(process, index)
            yield Exchange(
                process,
                rank,
                step,
                index,
                op,
                name,
                group,
                tuple(inputs[number]),
                outputs[number],
            )


def _looked_at(args: str | None, among: frozenset[int] | None) -> Group | None:
    """The group that the arguments of a call name; among: the ranks that are looked at."""
    named = group_of(args)
    if named is None:
        return None
    name, every = named
    members = tuple(one for one in every if among is None or one in among)
    return Group(name, members, len(members) < len(every))


def _first_unlike(ranks: Mapping[int, Sequence[Exchange]], *, whole: bool) -> Accusation | None:
    """The first place of one step at which the ranks of a group part; whole: all of them ended the
    step.
    """
    lengths = {rank: len(exchanges) for rank, exchanges in ranks.items()}
    for number in range(max(lengths.values(), default=0)):
        here = {
            rank: exchanges[number] for rank, exchanges in ranks.items() if number < len(exchanges)
        }
        if len(here) < len(ranks) and not whole:
            return None
        if len({exchanges.sign for exchanges in here.values()}) > 1:
            return _other_call(here)
        if len(here) < len(ranks):
            return _absent(here, sorted(set(ranks) - set(here)))
        unequal = _unequal(here)
        if unequal is not None:
            return unequal
    return None


def odd_ranks(values: Mapping[int, Any]) -> list[int]:
    """The ranks that hold another value than most; of two parties of one size those without the
    lowest rank.
    """
    counts = Counter(values.values())
    most = max(counts.values())
    usual = next(values[rank] for rank in sorted(values) if counts[values[rank]] == most)
    return [rank for rank in sorted(values) if values[rank] != usual]


def _other_call(here: Mapping[int, Exchange]) -> Accusation:
    odd = odd_ranks({rank: exchange.sign for rank, exchange in here.items()})
    mine, theirs = here[odd[0]], here[next(rank for rank in sorted(here) if rank not in odd)]
    words = (
        f"rank {mine.rank} runs {mine.words} where rank {theirs.rank} runs {theirs.words}: "
        "one of them left a collective out"
    )
    return _accusation(mine, theirs, words, odd)


def _absent(here: Mapping[int, Exchange], absent: Sequence[int]) -> Accusation:
    there = here[min(here)]
    words = (
        f"rank {absent[0]} does not run this collective in step {there.step}; rank "
        f"{there.rank} does"
    )
    return _accusation(there, there, words, absent)


def _unequal(here: Mapping[int, Exchange]) -> Accusation | None:
    """What a collective left unlike on its ranks, by more than the order of a sum explains."""
    first = here[min(here)]
    if not traits_of(first.op).alike or len(here) < len(first.group.members):
        return None
    for slot in first.outputs:
        states = {
            rank: exchange.outputs[slot]
            for rank, exchange in here.items()
            if slot in exchange.outputs
        }
        digests = {rank: state[1] for rank, state in states.items() if state[1] is not None}
        if len(digests) == len(here) and len(set(digests.values())) > 1:
            odd = odd_ranks(digests)
            other = next(rank for rank in sorted(digests) if rank not in odd)
            if not _close(states[odd[0]], states[other]):
                words = (
                    f"its result differs between rank {odd[0]} and rank {other}, though all "
                    "ranks of the group get the same"
                )
                return _accusation(here[odd[0]], here[other], words, odd)
    return None


def _close(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    dtype, _, norm, mean, size = mine
    precision = precision_of(dtype)
    if precision is None or norm is None or theirs[2] is None:
        return False
    slack = min(64 * precision.unit, 0.02) * max(norm, theirs[2])
    return bool(
        abs(norm - theirs[2]) <= slack
        and abs((mean or 0.0) - (theirs[3] or 0.0)) * max(size or 1, 1) ** 0.5 <= slack
    )


def _accusation(mine: Exchange, theirs: Exchange, words: str, odd: Sequence[int]) -> Accusation:
    group, ranks = mine.group.name, mine.group.members
    return between_ranks(mine, theirs, odd, (words,), {"group": group, "ranks": list(ranks)[:64]})


def between_ranks(
    mine: Told,
    theirs: Told,
    odd: Sequence[int],
    reasons: tuple[str, ...],
    evidence: dict[str, Any],
) -> Accusation:
    """The accusation of a call of one rank by that of another; odd: the ranks that stand apart."""
    other = {
        "rank": theirs.rank,
        "step": theirs.step,
        "index": theirs.index,
        "call": theirs.name,
    }
    return Accusation(
        process=mine.process,
        index=mine.index,
        kind=BETWEEN_RANKS,
        reasons=reasons,
        evidence={**evidence, "odd_ranks": list(odd)[:64], "other": other},
        judged=False,
    )


def process_groups(run: Run) -> set[tuple[int, ...]]:
    """Ranks of every process group that a collective names."""
    texts = {args for (args,) in rows_of(run, "calls", ("args",), exchange_calls(run))}
    return {group[1] for args in texts if (group := group_of(args)) is not None}


def group_of(args: str | None) -> tuple[str, tuple[int, ...]] | None:
    """Name and ranks of the process group in column args; None where it is not known."""
    try:
        tree = msgspec.json.decode(args) if args else None
    except (msgspec.DecodeError, RecursionError):
        return None
    return _found_group(tree, _DEPTH)


def _found_group(node: Any, depth: int) -> tuple[str, tuple[int, ...]] | None:
    if isinstance(node, dict):
        name, ranks = (
            node.get("process_group", node.get("group_id")),
            node.get("ranks", node.get("group_ranks")),
        )
        if name is not None and ranks is not None:
            known = ranks_of(ranks)
            return (str(name), known) if known else None
    if depth > 0 and isinstance(node, dict | list):
        for inner in node.values() if isinstance(node, dict) else node:
            group = _found_group(inner, depth - 1)
            if group is not None:
                return group
    return None


def ranks_of(given: Any) -> tuple[int, ...]:
    """Ranks of a list, or of the words that a recording has for them ("0-7", "0-6:2", "0,3");
    nothing where they are malformed.
    """
    if isinstance(given, list):
        return (
            tuple(rank for rank in given if type(rank) is int) if len(given) <= _MAX_RANKS else ()
        )
    ranks: list[int] = []
    for part in str(given).split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        if (
            not low.isdecimal()
            or not (high or low).isdecimal()
            or not (step or "1").isdecimal()
            or int(step or 1) < 1
        ):
            return ()
        wide = range(int(low), int(high or low) + 1, int(step or 1))
        if len(ranks) + len(wide) > _MAX_RANKS:
            return ()
        ranks.extend(wide)
    return tuple(ranks)
