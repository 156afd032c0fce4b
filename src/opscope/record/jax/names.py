# SPDX-License-Identifier: Apache-2.0
"""What arrays of a training are: parameters, buffers, gradients, by where they stand in what a
function is given and returns, and by what is computed from what.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from opscope.record.jax.executed import BACKWARD, OPTIMIZER, Executed, State

PARAMETER, BUFFER, GRADIENT = "parameter", "buffer", "gradient"
_TRAINED, _KEPT = "params", "batch_stats"  # as flax calls its collections
# Of a batch norm: the variance of a batch as it is, where torch keeps an estimate of all data's. So
# the two are no state that a port has in common with its original.
_BIASED = "var"
_FAR = 1 << 16


class Leaf(msgspec.Struct, frozen=True):
    """An array that a function is given or returns, and where it stands: of what it is given, the
    argument's name comes first.
    """

    path: tuple[str, ...]
    state: State


class Name(msgspec.Struct, frozen=True):
    """What an array is, and its name."""

    role: str
    path: tuple[str, ...]

    @property
    def text(self) -> str:
        """The name as tables have it."""
        return ".".join(self.path)


def parameters_of(given: Sequence[Leaf], chosen: frozenset[str]) -> dict[int, Name]:
    """The parameters and buffers among what a function is given, by version: the chosen arguments;
    where none is, what stands under `params` and `batch_stats`; else the first argument that holds
    several arrays.
    """
    if chosen:
        return {
            leaf.state.version: Name(PARAMETER, leaf.path[1:] or leaf.path)
            for leaf in given
            if leaf.path[0] in chosen
        }
    named = {
        **_under(_TRAINED, PARAMETER, [leaf for leaf in given if _KEPT not in leaf.path]),
        **_under(_KEPT, BUFFER, [leaf for leaf in given if leaf.path[-1] != _BIASED]),
    }
    if named:
        return named
    first = next((leaf.path[0] for leaf in given if len(leaf.path) > 1 and _is_real(leaf)), None)
    return {
        leaf.state.version: Name(PARAMETER, leaf.path[1:])
        for leaf in given
        if leaf.path[0] == first and len(leaf.path) > 1 and _is_real(leaf)
    }


def _under(word: str, role: str, given: Iterable[Leaf]) -> dict[int, Name]:
    """What stands under a word, as near to the root as any does: an optimizer's states may hold the
    same tree once more.
    """
    within = [leaf for leaf in given if word in leaf.path[:-1]]
    depth = min((leaf.path.index(word) for leaf in within), default=0)
    names = {}
    for leaf in within:
        if leaf.path.index(word) == depth:
            last = len(leaf.path) - 1 - leaf.path[:-1][::-1].index(word)
            names[leaf.state.version] = Name(role, leaf.path[last:])
    return names


def _is_real(leaf: Leaf) -> bool:
    return leaf.state.row is not None and "float" in leaf.state.row.dtype


def names_of(
    calls: Sequence[Executed],
    given: Sequence[Leaf],
    results: Sequence[Leaf],
    known: Mapping[int, Name],
) -> dict[int, Name]:
    """The names of all states of one call of a function, by version; known are those of what it
    was given.
    """
    graph = _Graph(calls)
    names = dict(known)
    for leaf in given:
        name = known.get(leaf.state.version)
        if name is None or name.role == GRADIENT:
            continue
        like = [one for one in results if _may_be(one, leaf, name)]
        made = {one.state.version: graph.phase(one.state.version) for one in like}
        for one in like:
            if made[one.state.version] == BACKWARD:
                names.setdefault(one.state.version, Name(GRADIENT, name.path))
        updated = graph.updated(leaf.state, [one for one in like if made[one.state.version]], name)
        if updated is not None:
            names.setdefault(updated, name)
            for version in graph.gradients(updated, leaf.state):
                names.setdefault(version, Name(GRADIENT, name.path))
    return names


def _may_be(result: Leaf, given: Leaf, name: Name) -> bool:
    one, other = result.state.row, given.state.row
    alike = one is not None and other is not None
    tail = name.path if given.path[-len(name.path) :] == name.path and len(given.path) > 1 else ()
    return (
        alike
        and (one.shape, one.dtype) == (other.shape, other.dtype)  # type: ignore[union-attr]
        and (not tail or result.path[-len(tail) :] == tail)
        and result.state.version != given.state.version
    )


class _Graph:
    """Who made what in one call of a function."""

    def __init__(self, calls: Sequence[Executed]) -> None:
        self._made: dict[int, Executed] = {}
        for call in calls:
            read = {state.version for state in call.states()}
            for state in call.made:
                if state.version not in read:
                    self._made.setdefault(state.version, call)

    def phase(self, version: int) -> str:
        """The phase in which a state was made; "" where no call did."""
        return self._made[version].phase if version in self._made else ""

    def updated(self, before: State, results: Sequence[Leaf], name: Name) -> int | None:
        """The version that a parameter is afterwards: of results that an optimizer computes from it
        (of a buffer, whoever does) the nearest.
        """
        reached = []
        for number, leaf in enumerate(results):
            version = leaf.state.version
            if name.role == PARAMETER and self.phase(version) != OPTIMIZER:
                continue
            distance = self._distance(version, before)
            if distance < _FAR:
                reached.append((distance, len(leaf.path), number, version))
        return min(reached)[-1] if reached else None

    def _distance(self, version: int, before: State) -> int:
        """Through how many calls a state comes from another, along states of its size."""
        for far, above in self._above(version, before.row.size if before.row else None):
            if above == before.version:
                return far
        return _FAR

    def gradients(self, updated: int, before: State) -> list[int]:
        """What a backward pass made, from which an optimizer computes a parameter."""
        size = before.row.size if before.row else None
        return [
            version for _, version in self._above(updated, size) if self.phase(version) == BACKWARD
        ]

    def _above(self, version: int, size: int | None) -> Iterator[tuple[int, int]]:
        """The states of a size from which an optimizer computes another, nearest first."""
        waiting, seen = deque([(0, version)]), {version}
        while waiting:
            far, at = waiting.popleft()
            yield far, at
            call = self._made.get(at)
            if call is None or call.phase == BACKWARD:
                continue
            for state in call.states():
                if state.row is not None and state.row.size == size and state.version not in seen:
                    seen.add(state.version)
                    waiting.append((far + 1, state.version))
