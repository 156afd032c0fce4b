# SPDX-License-Identifier: Apache-2.0
"""What a call looks like to the alignment: where it stands, and tokens from the strictest to the
loosest.

Levels of tokens, strictest first:
0  operator, slots, shapes, types, and the content of every tensor
1  the same without content, parameter names, what produced its inputs and what produced theirs, who
   reads its outputs
2  the same, what produced its inputs
3  operator, slots, shapes, types, parameter names
4  operator, shapes, types
5  family of the operator (judge.operators), sizes in any order
6  family of the operator; of a view also its sizes
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, overload

import msgspec
import numpy as np

from opscope.compare.side.columns import Side
from opscope.compare.side.producers import Flow
from opscope.operators.catalogue import family, traits_of
from opscope.run.hashes import distinct, mixed

if TYPE_CHECKING:
    from opscope.arrays import Array, Ints, Words

LEVELS = 7
CROSSING = 1  # up to this level calls may be matched across each other
CERTAIN = 2  # so many levels are certain enough to match calls of different modules
# Wrappers put these components into every path below them (DDP, torch.compile, FSDP, checkpointing,
# MindSpore's loss cells).
_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module|_backbone)(?:\.|$)"
)


class Tokens(msgspec.Struct, frozen=True):
    """One side for the alignment; part is rank, step and phase, scope is part and module (and level
    of call).

    signed tells calls by what only they read, in dumps without names; 0 for the others. structure
    is what all levels but the first are made of, as columns: sides of one structure have the same
    tokens there.
    """

    part: Words
    scope: Words
    levels: Sequence[Words]
    structure: Sequence[Array]
    signed: Words
    crossing: int = CROSSING
    certain: int = CERTAIN

    def structured_as(self, other: Tokens) -> bool:
        """Whether the other side runs the same calls in the same places, call by call."""
        mine, theirs = ((tokens.scope, *tokens.structure) for tokens in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


class Naming(msgspec.Struct, frozen=True):
    """How words of one side are spelt on the other: operators, module paths, and the places of
    ranks and steps.
    """

    operator: Callable[[str], str]
    module: Callable[[str], str]
    ranks: Mapping[int, int]
    steps: Mapping[int, int]
    phase: Callable[[str], str] = str
    by_level: bool = True
    by_module: bool = True


def bare_module(path: str) -> str:
    """A module path without what wrappers put into it."""
    return _WRAPPERS.sub("", path).rstrip(".")


def tokens_of(side: Side, flow: Flow, naming: Naming) -> Tokens:
    """Places and tokens of all calls of a side."""
    calls = side.calls
    families = _translated(calls.op, side.words, lambda op: family(naming.operator(op)))
    operators = _translated(calls.op, side.words, naming.operator)
    levels = (
        calls.level.astype(np.uint64) if naming.by_level else np.zeros(len(calls), dtype=np.uint64)
    )
    rank, step = _placed(calls.rank, naming.ranks), _placed(calls.step, naming.steps)
    part = mixed(rank, step, _translated(calls.phase, side.words, naming.phase), levels)
    modules = _translated(calls.module, side.words, naming.module)
    scope = mixed(part, modules) if naming.by_module else part
    columns = [
        getattr(side.tensors, name)
        for name in ("call", "output", "slot", "shape", "dtype", "named")
    ]
    structure = [operators, calls.leaf, flow.producer, flow.source_row, *columns]
    return Tokens(
        part,
        scope,
        _levels(side, flow, operators, families),
        structure,
        _signed(side, flow, operators),
    )


def _placed(numbers: Ints, partners: Mapping[int, int]) -> Words:
    """Ranks or steps by the number their partner has; those without one keep a number nobody else
    has.
    """
    known = distinct(numbers)
    mapped = np.array(
        [partners.get(number, -2 - number) for number in known.tolist()], dtype=np.int64
    )
    return (
        mapped[np.searchsorted(known, numbers)].view(np.uint64)
        if len(numbers)
        else np.zeros(0, dtype=np.uint64)
    )


def _translated(hashes: Words, words: Mapping[int, str], spell: Callable[[str], str]) -> Words:
    """Hashes of words as hashes of what they are spelt like on the other side."""
    known = distinct(hashes)
    spelt = np.array(
        [hash(spell(words.get(value, ""))) & 0xFFFFFFFFFFFFFFFF for value in known.tolist()],
        dtype=np.uint64,
    )
    return spelt[np.searchsorted(known, hashes)] if len(hashes) else np.zeros(0, dtype=np.uint64)


class Levels(Sequence["Words"]):
    """Tokens by level, each worked out when it is first asked for: runs of one structure never ask
    for most of them.
    """

    def __init__(self, *makers: Callable[[], Words]) -> None:
        self._made = [cache(maker) for maker in makers]

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, number: int) -> Words: ...
    @overload
    def __getitem__(self, number: slice) -> list[Words]: ...
    def __getitem__(self, number: int | slice) -> Words | list[Words]:
        return (
            self._made[number]()
            if isinstance(number, int)
            else [make() for make in self._made[number]]
        )


def _levels(side: Side, flow: Flow, operators: Words, families: Words) -> Levels:
    tensors, count = side.tensors, len(side.calls)
    call, io = tensors.call, tensors.output.astype(np.uint64)
    around = cache(lambda: _Around(side, flow))

    @cache
    def slots() -> Words:
        return _summed(call, mixed(io, tensors.slot, tensors.shape, tensors.dtype), count)

    @cache
    def own() -> Words:
        named = np.flatnonzero(tensors.named)
        return mixed(
            operators,
            slots(),
            _summed(call[named], mixed(tensors.slot[named], tensors.named[named]), count),
        )

    @cache
    def near() -> Words:
        return mixed(own(), around().produced(own()))

    @cache
    def alike() -> Words:
        return mixed(families, _summed(call, mixed(io, tensors.sorted_shape), count))

    return Levels(
        lambda: mixed(
            operators, slots(), _summed(call, mixed(io, tensors.slot, flow.state), count)
        ),
        lambda: mixed(own(), around().produced(near()), around().read(own())),
        near,
        own,
        lambda: mixed(operators, _summed(call, mixed(io, tensors.shape, tensors.dtype), count)),
        alike,
        lambda: np.where(
            side.which(side.calls.op, lambda op: traits_of(op).view), alike(), families
        ),
    )


def _signed(side: Side, flow: Flow, operators: Words) -> Words:
    """For calls of a dump without names the operator and the contents that no call produced, as a
    parameter's are; 0 for other calls.
    """
    tensors = side.tensors
    chosen = np.flatnonzero(
        ~tensors.output & (flow.producer < 0) & (flow.state != 0) & (tensors.size > 1)
    )
    if tensors.named.any() or not len(chosen):
        return np.zeros(len(side.calls), dtype=np.uint64)
    read = _summed(
        tensors.call[chosen], mixed(tensors.slot[chosen], flow.state[chosen]), len(side.calls)
    )
    return np.where(read != 0, mixed(operators, read), np.uint64(0))


class _Around:
    """Tokens of what produced the inputs of calls, and of what reads their outputs."""

    def __init__(self, side: Side, flow: Flow) -> None:
        rows = np.flatnonzero(flow.producer >= 0)
        self._count = len(side.calls)
        self._call, self._producer = side.tensors.call[rows], flow.producer[rows]
        self._read, self._written = (
            side.tensors.slot[rows],
            side.tensors.slot[flow.source_row[rows]],
        )
        self._leaf = side.calls.leaf

    def produced(self, tokens: Words) -> Words:
        """For each call the tokens of its inputs' producers."""
        return _summed(
            self._call, mixed(self._read, self._written, tokens[self._producer]), self._count
        )

    def read(self, tokens: Words) -> Words:
        """For each call the tokens of its outputs' readers; enclosing calls read nothing
        themselves.
        """
        signs = mixed(self._written, self._read, tokens[self._call])
        if self._leaf.all():
            return _summed(self._producer, signs, self._count)
        inside = np.flatnonzero(self._leaf[self._call])
        return _summed(self._producer[inside], signs[inside], self._count)


def _summed(call: Ints, signs: Words, count: int) -> Words:
    """Sums of the rows' hashes by call: the order of rows does not matter, how often each stands
    there does.
    """
    total = np.zeros(count, dtype=np.uint64)
    np.add.at(total, call, signs)
    return total
