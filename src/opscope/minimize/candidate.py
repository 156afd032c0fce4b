# SPDX-License-Identifier: Apache-2.0
"""A case in memory, with its values, that can be cut smaller and written again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.minimize.minimized import Size
from opscope.repro.buffers import kept_shape
from opscope.repro.build import Material
from opscope.repro.case import FILE, Buffer, Case, CaseTensor, encode_case, read_case
from opscope.repro.tensorfile import Entry, read_tensors, write_tensors
from opscope.run.dtypes import dtype_of
from opscope.run.schema import dense_strides

if TYPE_CHECKING:
    from opscope.arrays import Array


INPUTS = "inputs.safetensors"


class Part(msgspec.Struct, frozen=True):
    """One tensor of the call and its elements in kept shape (dimensions of stride 0 once); None:
    uninitialised memory.
    """

    row: CaseTensor
    values: Array | None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A case and its values. bound: tensors keep the strides, offsets and shared memory of the
    record; else each has its own.
    """

    case: Case
    parts: tuple[Part, ...]
    states: Mapping[str, Array]
    bound: bool = True

    def with_part(self, number: int, **changed: Any) -> Candidate:
        """The same with one part's row or values changed."""
        parts = list(self.parts)
        parts[number] = msgspec.structs.replace(parts[number], **changed)
        return msgspec.structs.replace(self, parts=tuple(parts))

    def with_args(self, args: dict[str, Any]) -> Candidate:
        """The same with another argument tree."""
        return msgspec.structs.replace(self, case=msgspec.structs.replace(self.case, args=args))


def load_candidate(directory: Path) -> Candidate:
    """The case of a repro folder with its values; FormatError for files that are not what they
    should be.
    """
    case = read_case(directory)
    stored = read_tensors(directory / INPUTS)
    parts = tuple(
        # Each under a key of its own: tensors that shared one may be cut differently.
        Part(row, None)
        if row.key is None
        else Part(
            msgspec.structs.replace(row, key=row.slot), stored.array(row.key, row.dtype, row.kept)
        )
        for row in case.tensors
    )
    states = {key: stored.array(key, "uint8", None) for key in case.random.states.values()}
    return Candidate(case=case, parts=parts, states=states)


def freed(candidate: Candidate) -> Candidate:
    """Each tensor in memory of its own, without gaps, its dimensions in the order of memory they
    had.
    """
    return settled(msgspec.structs.replace(candidate, bound=False))


def settled(candidate: Candidate) -> Candidate:
    """Strides, offsets and buffers made to fit the shapes, where tensors are not bound to the
    recorded ones.
    """
    if candidate.bound:
        return candidate
    parts, buffers = [], {}
    for number, part in enumerate(candidate.parts):
        row = part.row
        stride = strides_like(row.shape, row.stride)
        kept = kept_shape(row.shape, stride)
        size = (
            1 + sum((length - 1) * step for length, step in zip(row.shape, stride, strict=True))
            if 0 not in row.shape
            else 0
        )
        buffers[str(number)] = Buffer(size=size, dtype=row.dtype)
        key = None if part.values is None else row.slot
        row = msgspec.structs.replace(
            row, stride=stride, offset=0, buffer=str(number), key=key, kept=kept
        )
        parts.append(Part(row, None if part.values is None else part.values.reshape(kept)))
    case = msgspec.structs.replace(
        candidate.case, buffers=buffers, tensors=tuple(part.row for part in parts)
    )
    return msgspec.structs.replace(candidate, case=case, parts=tuple(parts))


def strides_like(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps for a shape, its dimensions in the order of these strides, those of
    stride 0 still repeated.
    """
    repeated = {axis for axis, step in enumerate(stride) if step == 0 and shape[axis] > 1}
    order = sorted(
        (axis for axis in range(len(shape)) if axis not in repeated),
        key=lambda axis: (-stride[axis], axis),
    )
    dense = dict(zip(order, dense_strides([shape[axis] for axis in order]), strict=True))
    return tuple(dense.get(axis, 0) for axis in range(len(shape)))


def write_trial(candidate: Candidate, directory: Path) -> None:
    """Write what a worker reads, over what the last trial left there."""
    case, entries = _stored(candidate)
    (directory / FILE).write_bytes(encode_case(case))
    (directory / INPUTS).unlink(missing_ok=True)
    write_tensors(directory / INPUTS, entries)


def material(candidate: Candidate) -> Material:
    """The candidate as a folder is written from it."""
    case, entries = _stored(candidate)
    return Material(case, tuple(entries), ())


def _stored(candidate: Candidate) -> tuple[Case, list[Entry]]:
    import numpy as np

    candidate = settled(candidate)
    rows = tuple(part.row for part in candidate.parts)
    arrays = {part.row.key: part for part in candidate.parts if part.row.key is not None}
    entries = [
        _entry(key, part.row.dtype, part.row.kept, part.values)
        for key, part in arrays.items()
        if part.values is not None
    ]
    entries += [
        _entry(key, "uint8", tuple(state.shape), np.asarray(state))
        for key, state in candidate.states.items()
    ]
    return msgspec.structs.replace(candidate.case, tensors=rows), entries


def _entry(key: str, dtype: str, shape: tuple[int, ...], values: Array) -> Entry:
    return Entry(key=key, dtype=dtype_of(dtype), shape=shape, load=lambda: values.reshape(shape))


def size_of(candidate: Candidate) -> Size:
    """The sizes that minimising wants to bring down."""
    from opscope.narrow import widened

    telling = 0
    for part in candidate.parts:
        if part.values is not None and part.values.size:
            wide = widened(part.values)
            telling += int(((wide != 0) & (wide != 1)).sum())
    rows = [part.row for part in candidate.parts]
    return Size(
        elements=sum(math.prod(row.shape) for row in rows),
        telling=telling,
        bytes=sum(math.prod(row.kept) * dtype_of(row.dtype).itemsize for row in rows),
        shapes={row.slot: row.shape for row in rows},
    )
