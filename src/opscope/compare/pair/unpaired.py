# SPDX-License-Identifier: Apache-2.0
"""Calls that only one side has, told as blocks: an insertion of three calls is one difference, and
so is one in every step.

Left out, as consequences or as nothing that computes: gradients of such calls, recomputations,
views, changes of type and allocations, modules that give what they were given; and calls in whose
place the other side has others with the same effect (fused and unfused, matched by what goes in and
out).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.pair.pairing import Pairing
from opscope.compare.side.columns import OPERATOR
from opscope.compare.side.optimizer_calls import unrecorded
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import distinct, mixed
from opscope.run.keys import NONE
from opscope.run.schema import EXPORTED

if TYPE_CHECKING:
    from opscope.arrays import Bools, Ints, Words
    from opscope.compare.side.columns import Calls, Side
    from opscope.compare.side.producers import Flow


class Block(msgspec.Struct, frozen=True):
    """Neighbouring calls of one side without a partner; first is the place of the first of them,
    length how many stand together.

    calls are those of every place and step where the block is found. module: the path of a module
    of which the other side runs nothing;
    places: how many single blocks were gathered in this one.
    """

    target: bool
    first: int
    length: int
    calls: frozenset[int]
    steps: frozenset[int]
    module: str = ""
    places: int = 1


def half_compiled(pairing: Pairing) -> bool:
    """Whether only one side was compiled: its graph is made of other operators, which is no
    difference of its own.
    """
    return _is_compiled(pairing.target) != _is_compiled(pairing.golden)


def _is_compiled(side: Side) -> bool:
    """Whether a program compiles, or calls what was compiled before and loaded."""
    if side.run.info.hidden_calls:
        return True
    return bool(side.graphs().any())


def judged_around(pairing: Pairing) -> bool:
    """Whether calls of one side alone are judged by the values around them: one side was compiled,
    or the two are written differently, or the target is an exported model and nothing beside it.
    """
    return pairing.by_regions or half_compiled(pairing) or _is_exported(pairing.target)


def _is_exported(side: Side) -> bool:
    return any(EXPORTED in process.torch for process in side.run.processes)


def blocks_of(pairing: Pairing) -> list[Block]:
    """All blocks of both sides, those of the target first, in the order of calls; none where the
    two are made of other operators.
    """
    if pairing.between is not None or judged_around(pairing):
        return []  # these part in their calls, not only in their values
    match = pairing.match
    sides = (
        (pairing.target, match.target, pairing.flows[0]),
        (pairing.golden, match.golden, pairing.flows[1]),
    )
    lonely = [_telling(side, partners, flow) for side, partners, flow in sides]
    lonely = [
        calls[~unrecorded(side, other)[calls]] if len(calls) else calls
        for calls, side, other in zip(
            lonely, (pairing.target, pairing.golden), (pairing.golden, pairing.target), strict=True
        )
    ]
    replaced = _replaced(pairing, lonely)
    blocks, match_of = [], (match.target, match.golden)
    for number, (side, calls) in enumerate(
        zip((pairing.target, pairing.golden), lonely, strict=True)
    ):
        alone = [call for call in calls.tolist() if call not in replaced[number]]
        blocks.extend(_gathered(side, match_of[number], _merged(side, alone, target=number == 0)))
    return blocks


def _telling(side: Side, match: Ints, flow: Flow) -> Ints:
    """Leaf calls without a partner, in steps and ranks that were compared at all, that do more than
    view, convert, allocate or repeat.
    """
    calls = side.calls
    if (match >= 0).all():
        return np.empty(0, dtype=np.int64)
    compared = np.zeros(len(calls), dtype=np.bool_)
    for column in (calls.rank, calls.step):
        names, inverse = np.unique(column, return_inverse=True)
        met = np.zeros(len(names), dtype=np.bool_)
        np.logical_or.at(met, inverse, match >= 0)
        compared = met[inverse] if column is calls.rank else compared & met[inverse]
    counts = side.which(calls.op, lambda op: not traits_of(op).idle) & side.which(
        calls.phase, lambda phase: phase != "recompute"
    )
    counts &= calls.leaf & ~_hands_on(side)
    alone = np.flatnonzero(compared & counts & (match < 0) & ~_follows(side, match))
    return alone[~_repeats(side, match, flow, alone)] if len(alone) else alone


def _hands_on(side: Side) -> Bools:
    """Which modules give nothing but what they were given, as a dropout of rate 0 does."""
    tensors, modules = side.tensors, side.calls.level != OPERATOR
    gives, makes = (np.zeros(len(modules), dtype=np.bool_) for _ in range(2))
    rows = np.flatnonzero(modules[tensors.call])
    call, version, output = tensors.call[rows], tensors.version[rows], tensors.output[rows]
    held = mixed(call.astype(np.uint64), version.astype(np.uint64))
    given = np.isin(held, held[~output]) & (version >= 0)
    gives[call[output]] = True
    makes[call[output & ~given]] = True
    return np.asarray(gives & ~makes)


def _repeats(side: Side, match: Ints, flow: Flow, alone: Ints) -> Bools:
    """Which calls without a partner write, amid the backward pass, what a matched call of their
    operator and step did, or were stopped after they read that.

    That is recomputation which its recorder did not tell as such.
    """
    calls = side.calls
    step = mixed(calls.step.astype(np.uint64), calls.process.astype(np.uint64))
    amid = _amid_backward(side, step)[alone]
    if not amid.any():
        return amid
    site = mixed(calls.op, step)
    written, read = (
        _contents(side, flow, side.tensors.output == output) for output in (True, False)
    )
    repeats = np.zeros(len(alone), dtype=np.bool_)
    for content, telling in ((written, written != 0), (read, (written == 0) & (read != 0))):
        sign = mixed(content, site)
        repeats |= telling[alone] & np.isin(sign[alone], sign[match >= 0])
    return repeats & amid


def _amid_backward(side: Side, step: Words) -> Bools:
    """Calls that come after the first one of the backward pass of their step, step being a hash of
    it for each call.
    """
    _, step_number = np.unique(step, return_inverse=True)
    backward = side.in_phase("backward")
    first = np.full(int(step_number.max(initial=-1)) + 1, len(step_number))
    np.minimum.at(first, step_number[backward], np.flatnonzero(backward))
    return np.arange(len(step_number)) > first[step_number]


def _contents(side: Side, flow: Flow, rows: Bools) -> Words:
    """One hash of the contents of some rows of each call, 0 where none is known."""
    chosen = np.flatnonzero(rows & (flow.state != 0))
    total = np.zeros(len(side.calls), dtype=np.uint64)
    np.add.at(
        total, side.tensors.call[chosen], mixed(side.tensors.slot[chosen], flow.state[chosen])
    )
    return total


def _follows(side: Side, match: Ints) -> Bools:
    """Gradients of calls that have no partner themselves."""
    calls = side.calls
    keys = calls.key[(match < 0)]
    forward = np.where(calls.forward >= 0, (calls.process << 40) | calls.forward, NONE)
    return (calls.forward >= 0) & np.isin(forward, keys)


def _replaced(pairing: Pairing, lonely: list[Ints]) -> tuple[set[int], set[int]]:
    """Calls of either side that stand between the same two matched calls as lonely ones of the
    other side.
    """
    gaps = []
    for calls, match in zip(lonely, (pairing.match.target, pairing.match.golden), strict=True):
        matched = np.flatnonzero(match >= 0)
        before = np.searchsorted(matched, calls) - 1
        own = (
            np.where(before >= 0, matched[np.maximum(before, 0)], NONE)
            if len(matched)
            else np.full(len(calls), NONE)
        )
        gaps.append(own)
    after = gaps[1].copy()
    after[gaps[1] >= 0] = pairing.match.golden[gaps[1][gaps[1] >= 0]]
    shared = np.intersect1d(gaps[0], after)
    steps = [
        _optimizer_steps(side, calls)
        for side, calls in zip((pairing.target, pairing.golden), lonely, strict=True)
    ]
    replaced = []
    for number, (calls, between) in enumerate(zip(lonely, (gaps[0], after), strict=True)):
        other = {
            at
            for at, step in enumerate(steps[number])
            if step is not None and step in set(steps[1 - number])
        }
        replaced.append(
            {call for at, call in enumerate(calls.tolist()) if at in other}
            | set(calls[np.isin(between, shared)].tolist())
        )
    return replaced[0], replaced[1]


def _optimizer_steps(side: Side, calls: Ints) -> list[tuple[int, int] | None]:
    """Rank and step of each call of an optimizer: its loops over parameters, lists of them and
    fused kernels do one and the same.
    """
    table = side.calls
    return [
        (int(table.rank[call]), int(table.step[call]))
        if side.words.get(int(table.phase[call])) == "optimizer"
        else None
        for call in calls.tolist()
    ]


def _merged(side: Side, calls: Iterable[int], *, target: bool) -> list[Block]:
    """Neighbours of one module and phase together, and the same block of later steps with the
    first.
    """
    spans: list[list[int]] = []
    table = side.calls
    for call in calls:
        last = spans[-1][-1] if spans else None
        joined = (
            last is not None
            and call - last <= 3
            and table.module[call] == table.module[last]
            and table.phase[call] == table.phase[last]
        )
        if joined and table.step[call] == table.step[last] and table.rank[call] == table.rank[last]:
            spans[-1].append(call)
        else:
            spans.append([call])
    blocks: dict[tuple[object, ...], Block] = {}
    for span in spans:
        first = span[0]
        site = (
            int(table.rank[first]),
            int(table.module[first]),
            int(table.phase[first]),
            tuple(table.op[np.array(span)].tolist()),
        )
        known = blocks.get(site)
        step = int(table.step[first])
        if known is None:
            blocks[site] = Block(target, first, len(span), frozenset(span), frozenset([step]))
        else:
            blocks[site] = msgspec.structs.replace(
                known, calls=known.calls | set(span), steps=known.steps | {step}
            )
    return list(blocks.values())


def _gathered(side: Side, match: Ints, blocks: Sequence[Block]) -> list[Block]:
    """The blocks of a module that only one side runs as one, and so those of one backward pass and
    of one optimizer.
    """
    paths = distinct(side.calls.module[(match >= 0) & side.calls.leaf])
    shared = {prefix for path in side.texts(paths) for prefix in _prefixes(path)}
    groups: dict[tuple[object, ...], list[Block]] = {}
    for block in blocks:
        module = next(
            (
                prefix
                for prefix in _prefixes(side.words.get(int(side.calls.module[block.first]), ""))
                if prefix not in shared
            ),
            "",
        )
        phase, rank = (
            side.words.get(int(side.calls.phase[block.first]), ""),
            int(side.calls.rank[block.first]),
        )
        alone = block.first if not module and phase not in {"backward", "optimizer"} else NONE
        groups.setdefault((rank, module, "" if module else phase, alone), []).append(
            msgspec.structs.replace(block, module=module)
        )
    return [_one_block(group) for group in groups.values()]


def _prefixes(path: str) -> list[str]:
    """`a.b.c` as `a`, `a.b`, `a.b.c`."""
    parts = path.split(".") if path else []
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _one_block(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    calls = frozenset[int]().union(*(block.calls for block in blocks))
    steps = frozenset[int]().union(*(block.steps for block in blocks))
    first = min(block.first for block in blocks)
    return Block(blocks[0].target, first, len(calls), calls, steps, blocks[0].module, len(blocks))


def enclosing(calls: Calls, inner: Ints) -> set[int]:
    """These calls and all that enclose them."""
    call_of = {key: at for at, key in enumerate(calls.key.tolist())}
    known: set[int] = set()
    for call in inner.tolist():
        at: int | None = call
        while at is not None and at not in known:
            known.add(at)
            parent = int(calls.parent[at])
            at = call_of.get((int(calls.process[at]) << 40) | parent) if parent >= 0 else None
    return known
