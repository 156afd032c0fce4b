# SPDX-License-Identifier: Apache-2.0
"""What a call looks like to the alignment: where it stands, and tokens from the strictest to the loosest.

Levels of tokens, strictest first:
0  operator, slots, shapes, types, and the content of every tensor
1  the same without content, parameter names, what produced its inputs and what produced theirs, who reads its outputs
2  the same, what produced its inputs
3  operator, slots, shapes, types, parameter names
4  operator, shapes, types
5  family of the operator (judge.operators), sizes in any order
6  family of the operator; of a view also its sizes
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.analysis.compare_flow import Flow
from opscope.analysis.compare_tables import Side
from opscope.analysis.hashes import mixed
from opscope.judge.operators import VIEWS, family

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS = 7
CROSSING = 1  # up to this level calls may be matched across each other
CERTAIN = 2  # so many levels are certain enough to match calls of different modules
# Wrappers put these components into every path below them (DDP, torch.compile, FSDP, checkpointing, MindSpore's loss cells).
_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module|_backbone)(?:\.|$)"
)


class Tokens(msgspec.Struct, frozen=True):
    """One side for the alignment; part is rank, step and phase, scope is part and module (and level of call)."""

    part: NDArray[np.uint64]
    scope: NDArray[np.uint64]
    levels: tuple[NDArray[np.uint64], ...]
    crossing: int = CROSSING
    certain: int = CERTAIN


class Naming(msgspec.Struct, frozen=True):
    """How words of one side are spelt on the other: operators, module paths, and the places of ranks and steps."""

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
    levels = calls.level.astype(np.uint64) if naming.by_level else np.zeros(len(calls), dtype=np.uint64)
    rank, step = _placed(calls.rank, naming.ranks), _placed(calls.step, naming.steps)
    part = mixed(rank, step, _translated(calls.phase, side.words, naming.phase), levels)
    modules = _translated(calls.module, side.words, naming.module)
    scope = mixed(part, modules) if naming.by_module else part
    return Tokens(part, scope, _levels(side, flow, operators, families))


def _placed(numbers: NDArray[np.int64], places: Mapping[int, int]) -> NDArray[np.uint64]:
    """Ranks or steps by the number their partner has; those without one keep a number nobody else has."""
    found, inverse = np.unique(numbers, return_inverse=True)
    mapped = np.array([places.get(number, -2 - number) for number in found.tolist()], dtype=np.int64)
    return mapped[inverse].view(np.uint64) if len(numbers) else np.zeros(0, dtype=np.uint64)


def _translated(hashes: NDArray[np.uint64], words: Mapping[int, str], spell: Callable[[str], str]) -> NDArray[np.uint64]:
    """Hashes of words as hashes of what they are spelt like on the other side."""
    found, inverse = np.unique(hashes, return_inverse=True)
    spelt = np.array([hash(spell(words.get(value, ""))) & 0xFFFFFFFFFFFFFFFF for value in found.tolist()], dtype=np.uint64)
    return spelt[inverse] if len(hashes) else np.zeros(0, dtype=np.uint64)


def _levels(side: Side, flow: Flow, operators: NDArray[np.uint64], families: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], ...]:
    tensors, count = side.tensors, len(side.calls)
    call, io = tensors.call, tensors.output.astype(np.uint64)
    shapes = _summed(call, mixed(io, tensors.shape, tensors.dtype), count)
    slots = _summed(call, mixed(io, tensors.slot, tensors.shape, tensors.dtype), count)
    sizes = _summed(call, mixed(io, tensors.sorted_shape), count)
    names = _summed(call, mixed(tensors.slot, tensors.named), count, where=tensors.named != 0)
    content = _summed(call, mixed(io, tensors.slot, flow.state), count)
    alike = mixed(families, sizes)
    views = _flagged(side, lambda op: family(op) in VIEWS)
    own = mixed(operators, slots, names)
    near = _around(side, flow, own, own)
    read = _summed(*_readers(side, flow, own), count)
    far = mixed(_around(side, flow, own, near), read)
    loosest = np.where(views, alike, families)
    return mixed(operators, slots, content), far, near, own, mixed(operators, shapes), alike, loosest


def _flagged(side: Side, test: Callable[[str], bool]) -> NDArray[np.bool_]:
    names, inverse = np.unique(side.calls.op, return_inverse=True)
    flags = np.array([test(text) for text in side.texts(names)], dtype=np.bool_)
    return flags[inverse] if len(names) else flags


def _around(side: Side, flow: Flow, own: NDArray[np.uint64], produced: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Tokens of calls and of what produced their inputs."""
    rows = np.flatnonzero(flow.producer >= 0)
    tensors = side.tensors
    output = tensors.slot[flow.source_row[rows]]
    signs = mixed(tensors.slot[rows], output, produced[flow.producer[rows]])
    return mixed(own, _summed(tensors.call[rows], signs, len(side.calls)))


def _readers(side: Side, flow: Flow, own: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """For each read row its producer and a token of the reader; enclosing calls read nothing themselves."""
    rows = np.flatnonzero((flow.producer >= 0) & side.calls.leaf[side.tensors.call])
    tensors = side.tensors
    return flow.producer[rows], mixed(tensors.slot[flow.source_row[rows]], tensors.slot[rows], own[tensors.call[rows]])


def _summed(
    call: NDArray[np.int64], signs: NDArray[np.uint64], count: int, *, where: NDArray[np.bool_] | None = None
) -> NDArray[np.uint64]:
    """Sums of the rows' hashes by call: the order of rows does not matter, how often each stands there does."""
    total = np.zeros(count, dtype=np.uint64)
    if where is not None:
        call, signs = call[where], signs[where]
    np.add.at(total, call, signs)
    return total
