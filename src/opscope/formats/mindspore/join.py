# SPDX-License-Identifier: Apache-2.0
"""Join the kernels of files with the nodes of a graph.

"-opN" in file names is not "-opN" in the .ir and the execution order (CPU back end), and the
numbers overlap, so names must not be joined as they stand. Nor is the k-th number of a scope the
k-th of the other side: among the conversions that the back end puts in, it is not (on fixture
ms_half it contradicts the shapes of 10 kernels). So within one (scope, type) a kernel's files are
compared with the nodes by what both say: element types, numbers of elements, time (no kernel runs
before those whose outputs it reads) and, where these leave several, the bytes of its neighbours'
files. What nothing tells apart is joined k-th to k-th where the numbers can be trusted, or to any
where all read the same bytes, and else not at all: its name is the files' then, without a line.
Held against whole dumps of the same network, dumps of inputs alone or of outputs alone give no
wrong pair (MindSpore 2.10, CPU).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from opscope.formats.mindspore.edges import Tracer
from opscope.formats.mindspore.graph import Graph, Node, TensorType
from opscope.formats.mindspore.names import flat, split_number

Kernel = tuple[str, str]  # op_type and op_name of files
Scope = tuple[str, str]  # op_type and flat name without -opN
Span = tuple[int, int]  # first and last timestamp
_WORK = 5_000_000  # node visits; what is undecided then stays without a node
_CONVERSION = "Cast"
_EXPANDED = "Expand/"
_EARLY, _LATE = -1, 1 << 63


class Facts(msgspec.Struct, frozen=True):
    """What the files of a kernel say: element types by (io, number) from their names, and their
    times in each iteration.
    """

    kernel: Kernel
    dtypes: dict[tuple[str, int], str | None]
    spans: dict[int, Span]  # by iteration


class Files(Protocol):
    """What can be asked of the files of a kernel; asked only where their names leave several
    nodes.
    """

    def sizes(self, kernel: Kernel) -> Mapping[tuple[str, int], int]:
        """Numbers of elements by (io, number), from the headers."""
        ...

    def content(self, kernel: Kernel, io: str, number: int) -> bytes | None:
        """Type, size and a sample of the bytes of one file, None without it."""
        ...


class _Group(msgspec.Struct, frozen=True):
    """The kernels and nodes of one (scope, type), in the order of their numbers; candidates shrink
    as more is known.
    """

    files: list[Facts]
    nodes: list[Node]
    whole: bool


def join(facts: Iterable[Facts], graph: Graph, files: Files) -> dict[Kernel, Node]:
    """Node of every kernel that can be told; facts are of all kernels of one graph."""
    facts = list(facts)
    nodes: dict[Kernel, Node] = {}
    open_groups: list[_Group] = []
    for group in _groups(facts, graph):
        if len(group.files) == 1 and len(group.nodes) == 1:
            nodes[group.files[0].kernel] = group.nodes[0]
        elif group.nodes:
            open_groups.append(group)
    if open_groups:
        _Solver(graph, nodes, {fact.kernel: fact for fact in facts}, files).solve(open_groups)
    return nodes


def _groups(facts: Iterable[Facts], graph: Graph) -> list[_Group]:
    files: dict[Scope, list[tuple[int, Facts]]] = defaultdict(list)
    nodes: dict[Scope, list[tuple[int, Node]]] = defaultdict(list)
    bare: dict[Scope, list[tuple[int, Node]]] = defaultdict(
        list
    )  # by names without their scope, as older versions write files
    for fact in facts:
        scope, number = split_number(fact.kernel[1])
        files[fact.kernel[0], flat(scope)].append((-1 if number is None else number, fact))
    for node in graph.kernels:
        scope, number = split_number(node.name)
        numbered = (-1 if number is None else number, node)
        nodes[node.op, flat(scope)].append(numbered)
        bare[node.op, flat(scope.rpartition("/")[2])].append(numbered)
    return [
        _group(numbered, nodes[key] if key in nodes else bare.get(key, []))
        for key, numbered in files.items()
    ]


def _group(files: list[tuple[int, Facts]], nodes: list[tuple[int, Node]]) -> _Group:
    """Both sides by their numbers; whole where numbers of several scopes, which begin anew in each,
    do not mix.
    """
    ours = sorted(files, key=lambda pair: pair[0])
    theirs = sorted(nodes, key=lambda pair: pair[0])
    scopes = {split_number(node.name)[0] for _, node in theirs}
    mixed = len(scopes) > 1 and len({number for number, _ in theirs}) < len(theirs)
    return _Group(
        [fact for _, fact in ours],
        [node for _, node in theirs],
        len(ours) == len(theirs) and not mixed,
    )


class _Solver:
    """Narrows the candidates of each kernel until nothing more is decided."""

    def __init__(
        self, graph: Graph, nodes: dict[Kernel, Node], facts: dict[Kernel, Facts], files: Files
    ) -> None:
        tracer = Tracer(graph)
        self.kernels = graph.kernels
        self.reads = {node.key: _reads(tracer, node) for node in self.kernels}
        self.readers: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        for key, edges in self.reads.items():
            for position, producer, output in edges:
                self.readers[producer].append((key, position, output))
        self.found = nodes
        self.facts = facts
        self.files = files
        self.candidates: dict[Kernel, list[Node]] = {}
        # found before the first guess; only their times say anything
        self.firm: frozenset[Kernel] | None = None

    def solve(self, groups: list[_Group]) -> None:
        for group in groups:
            for fact in group.files:
                self.candidates[fact.kernel] = _by_signature(fact, group.nodes, self.files)
        for _ in range(_WORK // (len(self.kernels) + 1) + 1):
            if self._settle(groups):
                continue
            if self._compare(groups):
                continue
            self.firm = frozenset(self.found) if self.firm is None else self.firm
            if not self._guess(groups):
                break
        self._withdraw()

    def _withdraw(self) -> None:
        """Take back what was guessed, or followed from a guess, and turns out to hold other bytes
        than its neighbours.
        """
        firm = self.firm if self.firm is not None else frozenset(self.found)
        wrong = list(self.found)
        while wrong:
            kernels = {node.key: kernel for kernel, node in self.found.items()}
            wrong = [
                kernel
                for kernel, node in self.found.items()
                if kernel not in firm and not self._same_bytes(kernel, node.key, kernels)
            ]
            for kernel in wrong:
                del self.found[kernel]

    def _settle(self, groups: list[_Group]) -> bool:
        """One round: drop what time or a settled sibling excludes, join what is left alone; whether
        anything was joined.
        """
        bounds = self._bounds()
        settled = False
        for group in groups:
            taken = {
                self.found[fact.kernel].key for fact in group.files if fact.kernel in self.found
            }
            left = [fact for fact in group.files if fact.kernel not in self.found]
            for fact in left:
                kept = [
                    node
                    for node in self.candidates[fact.kernel]
                    if node.key not in taken and _in_time(fact, bounds, node.key)
                ]
                self.candidates[fact.kernel] = kept
            for fact, node in _forced(left, self.candidates, whole=group.whole):
                if node.key not in taken and fact.kernel not in self.found:
                    self.found[fact.kernel] = node
                    taken.add(node.key)
                    settled = True
        return settled

    def _bounds(self) -> dict[int, tuple[dict[str, int], dict[str, int]]]:
        """By iteration, for each node the latest time of what it reads and the earliest of what
        reads it.
        """
        spans: dict[int, dict[str, Span]] = defaultdict(dict)
        for kernel, node in self.found.items():
            fact = self.facts.get(kernel) if self.firm is None or kernel in self.firm else None
            for iteration, span in (fact.spans if fact is not None else {}).items():
                spans[iteration][node.key] = span
        return {iteration: self._bounds_of(known) for iteration, known in spans.items()}

    def _bounds_of(self, known: dict[str, Span]) -> tuple[dict[str, int], dict[str, int]]:
        earliest: dict[str, int] = {}
        latest: dict[str, int] = {}
        for node in self.kernels:  # producers stand before their consumers in the file
            times = [
                known[key][1] if key in known else earliest.get(key, _EARLY)
                for _, key, _ in self.reads[node.key]
            ]
            earliest[node.key] = max(times, default=_EARLY)
        for node in reversed(self.kernels):
            own = known[node.key][0] if node.key in known else latest.get(node.key, _LATE)
            for _, key, _ in self.reads[node.key]:
                latest[key] = min(latest.get(key, _LATE), own)
        return earliest, latest

    def _compare(self, groups: list[_Group]) -> bool:
        """Drop candidates whose settled neighbours' files hold other bytes; whether any was
        dropped.
        """
        kernels = {node.key: kernel for kernel, node in self.found.items()}
        dropped = False
        for group in groups:
            for fact in group.files:
                before = self.candidates[fact.kernel]
                if fact.kernel in self.found or len(before) < 2:
                    continue
                kept = [node for node in before if self._same_bytes(fact.kernel, node.key, kernels)]
                if kept and len(kept) < len(before):
                    self.candidates[fact.kernel] = kept
                    dropped = True
        return dropped

    def _same_bytes(self, kernel: Kernel, key: str, kernels: dict[str, Kernel]) -> bool:
        """Whether the files of a kernel could be those of a node, by what its settled producers
        wrote and its readers read.
        """
        return all(same for _, same in self._comparisons(kernel, key, kernels))

    def _comparisons(
        self, kernel: Kernel, key: str, kernels: dict[str, Kernel]
    ) -> Iterator[tuple[str, bool]]:
        """Each comparison that the dump allows: whether of an input or an output, and whether the
        bytes are the same.
        """
        pairs = [
            (("input", position), producer, ("output", output))
            for position, producer, output in self.reads[key]
        ]
        pairs += [
            (("output", output), reader, ("input", position))
            for reader, position, output in self.readers[key]
        ]
        for position, producer, output in self.reads[key]:
            others = [
                (reader, at)
                for reader, at, which in self.readers[producer]
                if which == output and reader != key
            ]
            pairs += [(("input", position), reader, ("input", at)) for reader, at in others]
        for own, neighbour, other in pairs:
            if neighbour not in kernels:
                continue
            mine, theirs = (
                self.files.content(kernel, *own),
                self.files.content(kernels[neighbour], *other),
            )
            if mine is not None and theirs is not None and mine[:2] == theirs[:2]:
                yield own[0], mine == theirs

    def _guess(self, groups: list[_Group]) -> bool:
        """Join one kernel that nothing tells from its siblings, where that can do no harm; whether
        there was one.

        Kernels other than conversions are numbered alike on both sides (seen in every whole dump,
        where bytes decide), except in graphs that the back end expands. Conversions are not: of
        them any may stand for another whose input holds the same bytes.
        """
        kernels = {node.key: kernel for kernel, node in self.found.items()}
        for group in groups:
            if not group.whole:
                continue
            for fact, node in (
                self._numbered(group, kernels)
                if _in_order(group, self.found)
                else self._alike(group, kernels)
            ):
                self.found[fact.kernel] = node
                return True
        return False

    def _numbered(self, group: _Group, kernels: dict[str, Kernel]) -> Iterator[tuple[Facts, Node]]:
        for fact, node in zip(group.files, group.nodes, strict=True):
            if (
                fact.kernel not in self.found
                and node.key not in kernels
                and node in self.candidates[fact.kernel]
            ):
                yield fact, node

    def _alike(self, group: _Group, kernels: dict[str, Kernel]) -> Iterator[tuple[Facts, Node]]:
        for fact in group.files:
            left = [node for node in self.candidates[fact.kernel] if node.key not in kernels]
            if (
                fact.kernel not in self.found
                and left
                and all(
                    ("input", True) in self._comparisons(fact.kernel, node.key, kernels)
                    for node in left
                )
            ):
                yield fact, left[0]


def _in_order(group: _Group, settled: Mapping[Kernel, Node]) -> bool:
    """Whether the numbers of this group's kernels can be trusted, and what is settled does not
    speak against it.
    """
    if any(node.op == _CONVERSION or node.name.startswith(_EXPANDED) for node in group.nodes):
        return False
    return all(
        settled.get(fact.kernel, node) is node
        for fact, node in zip(group.files, group.nodes, strict=True)
    )


def _reads(tracer: Tracer, node: Node) -> tuple[tuple[int, str, int], ...]:
    """Operands that are outputs of kernels: position, producer, which output."""
    return tuple(
        (i, source.key, source.output)
        for i, (_, source) in enumerate(tracer.operands(node))
        if source.kind == "output"
    )


def _by_signature(fact: Facts, nodes: list[Node], files: Files) -> list[Node]:
    kept = [node for node in nodes if _types_agree(fact, node)]
    if len(kept) < 2:
        return kept
    counts = files.sizes(fact.kernel)
    return [node for node in kept if _sizes_agree(counts, node)]


def _types_agree(fact: Facts, node: Node) -> bool:
    """Whether each file is named with the host type or the device type of its operand; what is not
    said agrees.
    """
    for (io, number), dtype in fact.dtypes.items():
        said = {kind.dtype for kind in _both(node, io, number) if kind.dtype is not None}
        if dtype is not None and said and dtype not in said:
            return False
    return True


def _sizes_agree(counts: Mapping[tuple[str, int], int], node: Node) -> bool:
    for (io, number), count in counts.items():
        said = {kind.elements for kind in _both(node, io, number) if kind.elements is not None}
        if said and count not in said:
            return False
    return True


def _both(node: Node, io: str, number: int) -> list[TensorType]:
    host, device = (
        (node.host_inputs, node.device_inputs)
        if io == "input"
        else (node.host_outputs, node.device_outputs)
    )
    return [
        types[number]
        for types in (host, device or ())
        if number < len(types) and types[number].kind in {"tensor", "scalar"}
    ]


def _in_time(
    fact: Facts, bounds: dict[int, tuple[dict[str, int], dict[str, int]]], key: str
) -> bool:
    for iteration, (first, last) in fact.spans.items():
        earliest, latest = bounds.get(iteration, ({}, {}))
        if first < earliest.get(key, _EARLY) or last > latest.get(key, _LATE):
            return False
    return True


def _forced(
    left: list[Facts], candidates: dict[Kernel, list[Node]], *, whole: bool
) -> list[tuple[Facts, Node]]:
    """Pairs that are the only choice: of the kernel, or, where all kernels of the scope are there,
    of the node.
    """
    forced = [
        (fact, candidates[fact.kernel][0]) for fact in left if len(candidates[fact.kernel]) == 1
    ]
    if whole:
        takers: dict[str, list[tuple[Facts, Node]]] = defaultdict(list)
        for fact in left:
            for node in candidates[fact.kernel]:
                takers[node.key].append((fact, node))
        forced += [pairs[0] for pairs in takers.values() if len(pairs) == 1]
    return forced
