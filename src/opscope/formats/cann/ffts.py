# SPDX-License-Identifier: Apache-2.0
"""FFTS+ operators: the graph engine cut them into slices, and every slice has its own dump file.

The first attribute of the header is JSON:

    threadMode          1 automatic (one name, threads 0…n-1), 0 manual (names end in _lxslice0 …
                        _lxslice{n-1})
    slice_instance_num  n
    outputCutList       [output][dimension] into how many pieces that dimension was cut
    input_tensor_slice, output_tensor_slice  [thread][tensor][dimension]{lower, higher}, automatic
                                             mode

A whole tensor is its slices laid side by side along the first dimension that was cut.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.formats.cann.wire import MAX_RANK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.arrays import Array
    from opscope.formats.cann.message import DumpData

MAX_SLICES = 4096
Ranges = tuple[tuple[int, int], ...]


class Slicing(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator was cut; inputs and outputs are [thread][tensor] ranges of each dimension,
    empty in manual mode.
    """

    auto: bool
    count: int
    cuts: tuple[tuple[int, ...], ...] = ()
    inputs: tuple[tuple[Ranges, ...], ...] = ()
    outputs: tuple[tuple[Ranges, ...], ...] = ()

    def shape(self, io: str, index: int, thread: int) -> tuple[int, ...] | None:
        """Shape of one thread's slice of a tensor; None where the file does not say (manual mode:
        the header's own).
        """
        threads = self.inputs if io == "input" else self.outputs
        if not self.auto or thread >= len(threads) or index >= len(threads[thread]):
            return None
        return tuple(higher - lower for lower, higher in threads[thread][index])

    def axis(self, io: str, index: int) -> int | None:
        """First dimension along which a tensor was cut; None when it was not cut or nothing says
        so.
        """
        if io == "output":
            cuts = self.cuts[index] if index < len(self.cuts) else ()
            return next((axis for axis, pieces in enumerate(cuts) if pieces != 1), None)
        tensors = [thread[index] for thread in self.inputs if index < len(thread)]
        return next(
            (
                axis
                for axis, ranges in enumerate(zip(*tensors, strict=False))
                if len(set(ranges)) > 1
            ),
            None,
        )


def slicing(header: DumpData) -> Slicing | None:
    """How the operator of this header was cut, or None when nothing readable says that it was."""
    if not header.attr or not header.attr[0].value.lstrip().startswith("{"):
        return None
    try:
        attribute = json.loads(header.attr[0].value)
        auto, count = attribute.get("threadMode"), attribute.get("slice_instance_num")
        if auto not in (0, 1) or not isinstance(count, int) or not 1 <= count <= MAX_SLICES:
            return None
        return Slicing(
            auto=bool(auto),
            count=count,
            cuts=tuple(
                tuple(int(pieces) for pieces in output[:MAX_RANK])
                for output in attribute.get("outputCutList") or ()
            ),
            inputs=_threads(attribute.get("input_tensor_slice")),
            outputs=_threads(attribute.get("output_tensor_slice")),
        )
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None


def _threads(threads: Any) -> tuple[tuple[Ranges, ...], ...]:
    return tuple(tuple(_ranges(tensor) for tensor in thread) for thread in threads or ())


def _ranges(tensor: Any) -> Ranges:
    ranges = tuple((int(dim["lower"]), int(dim["higher"])) for dim in tensor[:MAX_RANK])
    if any(lower < 0 or higher < lower for lower, higher in ranges):
        raise ValueError("a range that is none")
    return ranges


def merge(slices: Sequence[Array], axis: int | None) -> Array:
    """The whole tensor from all its slices, in order; without an axis they are all the whole.

    Raises UsageError when the slices do not fit together.
    """
    if axis is None:
        return slices[0]
    try:
        return np.concatenate(slices, axis)
    except ValueError as error:
        raise UsageError(
            f"slices of shapes {[list(piece.shape) for piece in slices]} do not join along "
            f"dimension {axis}"
        ) from error
