# SPDX-License-Identifier: Apache-2.0
"""Tensors of which nothing can be said when two runs are compared: memory of a kernel's own, and
by-products that two devices have in forms of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.judge.operators import is_workspace
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import distinct, hash_of, mixed

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.compare.side.columns import Side


def scratch_rows(sides: tuple[Side, Side], mine: Ints, theirs: Ints) -> Ints:
    """Rows of these pairs of places of which nothing can be said, values or not: memory of a
    kernel's own.
    """
    own = np.union1d(_workspaces(sides[0], mine), _unwritten(sides[0], mine))
    return np.union1d(own, _encoded(sides, mine, theirs))


def _workspaces(side: Side, rows: Ints) -> Ints:
    """Rows whose tensors are a library's scratch memory: what it holds depends on what the memory
    held.
    """
    bytes_ = side.which(side.tensors.dtype, lambda dtype: is_workspace("rnn", dtype))
    if not bytes_.any():
        return np.empty(0, dtype=np.int64)
    owners = side.which(side.calls.op, lambda op: is_workspace(op, "uint8"))[side.tensors.call]
    return np.flatnonzero((rows >= 0) & (bytes_ & owners)[np.maximum(rows, 0)])


def _unwritten(side: Side, rows: Ints) -> Ints:
    """Rows of outputs that are for the backward kernel alone and in part never written, and of what
    reads them.
    """
    tensors, ops = side.tensors, distinct(side.calls.op)
    unwritten = np.zeros(len(tensors), dtype=np.bool_)
    for code, op in zip(ops, side.texts(ops), strict=True):
        slots = traits_of(op).scratch.split(",")
        if slots != [""]:
            owned = tensors.output & (side.calls.op[tensors.call] == code)
            codes = np.array([hash_of(slot) for slot in slots], dtype=np.uint64)
            unwritten |= owned & np.isin(tensors.slot, codes)
    if not unwritten.any():
        return np.empty(0, dtype=np.int64)
    process = side.calls.process[tensors.call].astype(np.uint64)
    version = mixed(tensors.version.astype(np.uint64), process)
    unwritten = np.isin(version, version[unwritten]) & (tensors.version >= 0)
    return np.flatnonzero((rows >= 0) & unwritten[np.maximum(rows, 0)])


def _encoded(sides: tuple[Side, Side], mine: Ints, theirs: Ints) -> Ints:
    """Rows of by-products that the two devices have in forms of their own: a mask of bits here,
    indices there.
    """
    left, right = sides[0].tensors, sides[1].tensors
    owners = sides[0].which(sides[0].calls.op, lambda op: traits_of(op).by_products)
    later = left.output & owners[left.call]
    # behind another output of the same call
    later[1:] &= left.output[:-1] & (left.call[1:] == left.call[:-1])
    both = np.flatnonzero((mine > 0) & (theirs >= 0))
    both = both[later[mine[both]]]
    left_rows, right_rows = mine[both], theirs[both]
    apart = (left.shape[left_rows] != right.shape[right_rows]) | (
        left.dtype[left_rows] != right.dtype[right_rows]
    )
    return np.asarray(both[apart], dtype=np.int64)
