# SPDX-License-Identifier: Apache-2.0
"""Logical tensors: what the ranks and micro-batches of one step hold together.

A call on a shard is a part of a call on a whole. However a tensor is cut (rows, columns, heads, a
batch, tokens), and however often each part is held, the mean, the mean of squares, the minimum and
the maximum over all that ranks hold are those of the whole, and the number of elements is a simple
multiple of its own. So neither mesh nor placements need be known to compare runs of other degrees.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.pair.sketches import Sketch, sketch
from opscope.compare.side.call_rows import computes_nothing, inputs_of, outputs_of
from opscope.compare.side.columns import MODULE
from opscope.compare.side.records import tensor_records
from opscope.compare.side.tokens import bare_module
from opscope.operators.catalogue import family, traits_of
from opscope.run.hashes import distinct, mixed
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opscope.arrays import Bools, Ints, Words
    from opscope.compare.side.columns import Side
    from opscope.compare.side.producers import Flow


class Site(NamedTuple):
    """A call of a micro-batch, whichever rank makes it: the number counts from 0 in its module."""

    module: str
    op: str
    number: int


Held = dict[tuple[int, str], list[int]]  # rows of all ranks, by step and name of the parameter


def distance(mine: Sketch, theirs: Sketch) -> float:
    """How far what ranks hold together is from the whole, to its scale; inf of no elements."""
    if not mine.size or not theirs.size:
        return float("inf")
    share = theirs.size / mine.size
    same = Sketch(theirs.size, mine.total * share, mine.squares * share, mine.least, mine.most)
    return same.error(theirs)


class Wholes:
    """The logical tensors of one side."""

    def __init__(self, side: Side, flow: Flow) -> None:
        self.side, self.flow = side, flow
        self.ranks: list[int] = distinct(side.calls.rank).tolist()

    @cached_property
    def optimizer(self) -> Bools:
        """Calls of optimizers."""
        return self.side.in_phase("optimizer")

    @cached_property
    def backward(self) -> Bools:
        """Calls of backward passes."""
        return self.side.in_phase("backward")

    @cached_property
    def _forward(self) -> Bools:
        phases = {"forward", "communication"}
        return self.side.which(self.side.calls.phase, lambda phase: phase in phases)

    @cached_property
    def _idle(self) -> Bools:
        return self.side.which(self.side.calls.op, lambda op: traits_of(op).idle)

    @cached_property
    def _moved(self) -> Bools:
        """Calls that compute nothing: a gradient of all is cut to the part of a rank so."""
        return self.side.which(self.side.calls.op, computes_nothing)

    @cached_property
    def _view(self) -> Bools:
        return self.side.which(self.side.calls.op, lambda op: traits_of(op).view)

    @cached_property
    def _known(self) -> Bools:
        """Rows of leaf calls whose statistics are known."""
        tensors = self.side.tensors
        leaf = self.side.calls.leaf[tensors.call]
        known: Bools = leaf & np.isfinite(tensors.l2norm) & (tensors.size > 0)
        return known

    @cached_property
    def _named(self) -> Bools:
        """Those of parameters that have a name."""
        tensors = self.side.tensors
        named: Bools = tensors.parameter & (tensors.named != 0) & self._known
        return named

    def of(self, rows: Iterable[int]) -> Sketch:
        """What rows hold together."""
        return sketch(self.side, list(rows))

    def rank(self, row: int) -> int:
        """The rank of a tensor's row."""
        return int(self.side.calls.rank[self.side.tensors.call[row]])

    def of_ranks(self, rows: Iterable[int], others: Iterable[int]) -> list[int]:
        """Rows of the ranks that others are of."""
        ranks = {self.rank(row) for row in others}
        return [row for row in rows if self.rank(row) in ranks]

    def rank_of(self, call: int) -> int:
        """The rank of a call."""
        return int(self.side.calls.rank[call])

    @cached_property
    def names(self) -> dict[int, str]:
        """Names of parameters without what wrappers put into them, by their hashes."""
        hashes, first = np.unique(self.side.tensors.named[self._named], return_index=True)
        records = tensor_records(self.side, np.flatnonzero(self._named)[first])
        texts = [record.tensor_name or "" for _, record in sorted(records.items())]
        order = np.argsort(np.flatnonzero(self._named)[first])
        return {int(hashes[at]): bare_module(text) for at, text in zip(order, texts, strict=True)}

    @property
    def complete(self) -> bool:
        """Whether a model was called, and all ranks are there."""
        worlds = [process.world or 1 for process in self.side.run.processes]
        return bool(len(self.models)) and max(worlds, default=1) <= len(self.ranks)

    # -- models and their calls --------------------------------------------------------------------

    @cached_property
    def models(self) -> Ints:
        """Calls of the model: the outermost module with the most calls inside."""
        calls = self.side.calls
        outermost = np.flatnonzero((calls.level == MODULE) & (calls.parent < 0))
        if not len(outermost):
            return outermost
        extent = np.diff(np.r_[outermost, len(calls)])
        model = calls.module[outermost[np.argmax(extent)]]
        models: Ints = outermost[calls.module[outermost] == model]
        return models

    @cached_property
    def batches(self) -> dict[tuple[int, int], int]:
        """How many micro-batches the model is given, by rank and step."""
        calls = self.side.calls
        batches: dict[tuple[int, int], int] = defaultdict(int)
        for call in self.models.tolist():
            batches[int(calls.rank[call]), int(calls.step[call])] += 1
        return batches

    @cached_property
    def updates(self) -> dict[int, int]:
        """In how many steps each rank runs an optimizer."""
        calls = self.side.calls
        ran = calls.rank[self.optimizer], calls.step[self.optimizer]
        steps = {*zip(*(column.tolist() for column in ran), strict=True)}
        return dict(Counter(rank for rank, _ in steps))

    def most_batches(self, step: int) -> int:
        """The most micro-batches of a rank in a step."""
        return max((self.batches.get((rank, step), 1) for rank in self.ranks), default=1)

    def is_irregular(self, step: int) -> bool:
        """Whether the model is called more or less often than in most steps: a pass for shapes
        alone, a validation.
        """
        return self.most_batches(step) != self._usual_batches

    @cached_property
    def _usual_batches(self) -> int:
        steps = {step for _, step in self.batches}
        times = Counter(self.most_batches(step) for step in steps)
        return min(times, key=lambda number: (-times[number], number), default=1)

    @cached_property
    def _computing(self) -> dict[int, list[int]]:
        """Calls of forward passes that compute, collectives among them, by step."""
        calls = self.side.calls
        computing: dict[int, list[int]] = defaultdict(list)
        chosen = np.flatnonzero(self._forward & calls.leaf & ~self._idle)
        for call, step in zip(chosen.tolist(), calls.step[chosen].tolist(), strict=True):
            computing[step].append(call)
        return computing

    @cached_property
    def trained(self) -> list[int]:
        """Steps with a backward pass."""
        steps: list[int] = np.unique(self.side.calls.step[self.backward]).tolist()
        return steps

    def sites(self, step: int) -> tuple[dict[int, Site], dict[Site, list[int]]]:
        """Calls of a step's forward passes that compute, collectives among them, and where they
        are, once each way.
        """
        calls = self.side.calls
        runs: dict[tuple[int, str, str], list[int]] = defaultdict(list)
        for call in self._computing.get(step, []):
            module, op = (
                self.side.words.get(int(column[call]), "") for column in (calls.module, calls.op)
            )
            runs[int(calls.rank[call]), bare_module(module), family(op)].append(call)
        site_of: dict[int, Site] = {}
        groups: dict[Site, list[int]] = defaultdict(list)
        for (rank, module, op), run in runs.items():
            batches = self.batches.get((rank, step), 1)
            length = len(run) // batches if len(run) % batches == 0 else len(run)
            for number, call in enumerate(run):
                site = site_of[call] = Site(module, op, number % length)
                groups[site].append(call)
        return site_of, groups

    def results(self, calls: Iterable[int]) -> list[int]:
        """The first output of each call, where all of them have one whose statistics are known;
        else none.
        """
        rows = []
        for call in calls:
            row = next(iter(self.outputs(call)), NONE)
            if row < 0 or not self._known[row]:
                return []
            rows.append(row)
        return rows

    def outputs(self, call: int) -> list[int]:
        """Rows of what a call writes."""
        return outputs_of(self.side, call)

    def inputs(self, call: int) -> list[int]:
        """Rows of what a call reads."""
        return inputs_of(self.side, call)

    # -- parameters --------------------------------------------------------------------------------

    @cached_property
    def begun(self) -> dict[str, list[int]]:
        """The rows in which each rank first reads a parameter once its model is called."""
        return _first_steps(self._first_read(~self.optimizer))

    @cached_property
    def before(self) -> Held:
        """The rows in which an optimizer first reads a parameter: shards without what fills them
        up.
        """
        return self._first_read(self.optimizer)

    @cached_property
    def stepped(self) -> dict[str, list[int]]:
        """The same in the first step of each."""
        return _first_steps(self.before)

    def _first_read(self, where: Bools) -> Held:
        calls, tensors = self.side.calls, self.side.tensors
        start = dict[int, int]()
        for call in self.models.tolist():
            start.setdefault(int(calls.rank[call]), call)
        first: dict[tuple[int, str, int], int] = {}
        for row in np.flatnonzero(self._named & ~tensors.output & where[tensors.call]).tolist():
            call = int(tensors.call[row])
            rank = int(calls.rank[call])
            if call >= start.get(rank, 0):
                name = self.names[int(tensors.named[row])]
                first.setdefault((int(calls.step[call]), name, rank), row)
        return _by_place(first)

    @cached_property
    def updated(self) -> Held:
        """What optimizers make of parameters: the last row of each rank and step. A view of a
        parameter, that one rank is to send to the others, is none of it.
        """
        calls, tensors = self.side.calls, self.side.tensors
        written = self.optimizer & ~self._view
        rows = np.flatnonzero(self._named & tensors.output & written[tensors.call])
        last: dict[tuple[int, str, int], int] = {}
        for row in rows.tolist():
            call = int(tensors.call[row])
            name = self.names[int(tensors.named[row])]
            last[int(calls.step[call]), name, int(calls.rank[call])] = row
        return _by_place(last)

    @cached_property
    def written(self) -> dict[tuple[int, int, str], int]:
        """The last call of the backward pass that wrote a gradient, by rank, step and parameter."""
        calls, tensors = self.side.calls, self.side.tensors
        rows = np.flatnonzero(
            (tensors.named != 0)
            & ~tensors.parameter
            & tensors.output
            & self.backward[tensors.call]
            & calls.leaf[tensors.call]
            & ~self._idle[tensors.call]
        )
        return {
            (int(calls.rank[call]), int(calls.step[call]), self.names.get(name, "")): call
            for call, name in zip(
                tensors.call[rows].tolist(), tensors.named[rows].tolist(), strict=True
            )
        }

    @cached_property
    def gradients(self) -> Held:
        """Gradients as optimizers get them: what a parameter's update is computed from and no
        optimizer made.
        """
        gradients: Held = defaultdict(list)
        for key, rows in self.updated.items():
            for row in rows:
                gradients[key].extend(self._gradient(row))
        return gradients

    def _gradient(self, row: int) -> Iterator[int]:
        calls, tensors = self.side.calls, self.side.tensors
        step, waiting, seen = calls.step[tensors.call[row]], [row], set[int]()
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            for read in self._beside(at):
                producer = int(self.flow.producer[read])
                fits = tensors.size[read] == tensors.size[row] and not tensors.parameter[read]
                if producer < 0 or calls.step[producer] != step or not fits:
                    continue
                if self.optimizer[producer] and not self._moved[producer]:
                    waiting.append(int(self.flow.source_row[read]))
                elif self._known[read]:
                    yield read
                    return

    def _beside(self, row: int) -> list[int]:
        """What a call reads for one of its results: of lists, what stands in the same place."""
        call = int(self.side.tensors.call[row])
        written, read = self.outputs(call), self.inputs(call)
        own = [each for each in written if self.side.tensors.parameter[each]] or written
        length = len(own)
        if length < 2 or row not in own or len(read) < length:
            return read
        lists = read[: len(read) // length * length]  # numbers come behind the lists
        return lists[own.index(row) :: length]


def _by_place(rows: dict[tuple[int, str, int], int]) -> Held:
    """Rows by step and name, of those by step, name and rank."""
    held: Held = defaultdict(list)
    for (step, name, _), row in rows.items():
        held[step, name].append(row)
    return held


def _first_steps(held: Held) -> dict[str, list[int]]:
    first: dict[str, list[int]] = {}
    for (_, name), rows in sorted(held.items()):
        first.setdefault(name, rows)
    return first


def shards(side: Side) -> Words:
    """The sizes in which a side's ranks hold parameters, by their names, as numbers."""
    tensors = side.tensors
    rows = np.flatnonzero(tensors.parameter & (tensors.named != 0) & (tensors.size > 0))
    return distinct(mixed(tensors.named[rows], tensors.size[rows].astype(np.uint64)))


def simple(mine: Sketch, theirs: Sketch, most: tuple[int, int]) -> bool:
    """Whether so many elements are a multiple of the whole that these numbers of parts allow."""
    if not mine.size or not theirs.size:
        return False
    times = Fraction(mine.size, theirs.size)
    return not (most[0] % times.numerator or most[1] % times.denominator)
