# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a run hold of parameters and of their gradients, as columns of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.run.hashes import mixed
from opscope.run.vectors import Texts, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opscope.arrays import Array, Bools, Ints, Words
    from opscope.run.protocol import Run
    from opscope.run.vectors import Vectors

UNKNOWN = np.iinfo(np.int64).max  # the version of a state that has none
# A call behind all others, in whose place one is that there is not.
_BEHIND = (np.array([UNKNOWN]), np.zeros(1, np.int32), np.zeros(1, np.int32))
_KINDS = (np.int64, np.bool_, np.uint64, np.uint64, np.int64, np.uint64, np.bool_)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of tensors that are a parameter or a gradient, and have a name and a digest, in the
    order of calls.

    key: of the call; gradient: or else a parameter; name: the hash of it, texts has the name; what:
    one hash of name and shape, 0 without a shape; telling: whether it is not one number everywhere;
    shards: whether any tensor of the run is one.
    """

    key: Ints
    rank: Ints
    step: Ints
    gradient: Bools
    name: Words
    what: Words
    version: Ints
    digest: Words
    telling: Bools
    texts: Texts
    shards: bool

    def at(self, rows: Ints) -> Held:
        """Some of the rows, by their number here."""
        columns: dict[str, Any] = msgspec.structs.asdict(self)
        chosen = {name: each[rows] for name, each in columns.items() if hasattr(each, "dtype")}
        return msgspec.structs.replace(self, **chosen)


def held_by(run: Run) -> Held:
    """All of a run."""
    texts, shards = Texts(), False
    parts = [tuple(np.empty(0, kind) for kind in _KINDS)]
    for batch in vectors(run, "tensors"):
        shards = shards or bool(batch.are("role", "shard").any())
        parts.append(_held(batch, texts))
    key, gradient, name, what, version, digest, telling = _joined(parts)
    calls, ranks, steps = _joined([_BEHIND, *_calls(run)])
    order = np.argsort(calls, kind="stable")
    place = order[np.searchsorted(calls, key, sorter=order)]
    known = calls[place] == key
    held = Held(
        key=key,
        rank=ranks[place],
        step=steps[place],
        gradient=gradient,
        name=name,
        what=what,
        version=version,
        digest=digest,
        telling=telling,
        texts=texts,
        shards=shards,
    )
    if known.all() and (key[1:] >= key[:-1]).all():
        return held
    rows = np.flatnonzero(known)
    return held.at(rows[np.argsort(key[rows], kind="stable")])


def _joined(parts: list[tuple[Array, ...]]) -> list[Array]:
    """Each column of all parts, which are no more then: one after the other, so that none is in
    memory twice.
    """
    columns = [list(column) for column in zip(*parts, strict=True)]
    parts.clear()
    return [np.concatenate(columns.pop(0)) for _ in range(len(columns))]


def _calls(run: Run) -> Iterator[tuple[Array, ...]]:
    """Number, rank and step of all calls."""
    for batch in vectors(run, "calls"):
        yield batch.keys, batch.numbers("rank").copy(), batch.numbers("step").copy()


def _held(batch: Vectors, texts: Texts) -> tuple[Array, ...]:
    """The columns of a batch but for rank and step, which its calls have."""
    gradient = batch.are("role", "gradient")
    chosen = gradient | batch.are("role", "parameter")
    rows = np.flatnonzero(chosen & batch.known("digest") & batch.known("tensor_name"))
    name, shape = texts.learn(batch, "tensor_name", rows), batch.hashes("shape")[rows]
    version, low, high = (batch.numbers(column)[rows] for column in ("version", "min", "max"))
    return (
        batch.keys[rows],
        gradient[rows],
        name,
        np.where(shape == 0, shape, mixed(name, shape)),
        np.where(batch.known("version")[rows], version, UNKNOWN),
        batch.numbers("digest")[rows],
        (batch.known("min") & batch.known("max"))[rows] & (low < high),
    )
