# SPDX-License-Identifier: Apache-2.0
"""Overflow bits of a MindSpore primitive, worked out in software as for PyTorch's operators."""

from __future__ import annotations

from collections.abc import Sequence

from opscope.judge.arguments import parse_arguments
from opscope.judge.overflow import status_of
from opscope.judge.reading import is_read
from opscope.run.schema import Tensor


def unsound(row: Tensor) -> bool:
    """Whether a tensor holds NaN or infinities."""
    return bool(row.nan or row.pos_inf or row.neg_inf)


def is_origin(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Whether something unsound was made of sound inputs."""
    return any(map(unsound, outputs)) and not any(map(unsound, inputs))


def overflow_bits(
    op: str, args: str | None, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> int | None:
    """The status word of a call, None where nothing overflowed.

    Only an origin is asked about: a call whose inputs were all read and sound. Of an input that the
    dump holds only a part of nobody knows what it held.
    """
    if not is_origin(inputs, outputs) or not all(map(is_read, inputs)):
        return None
    return status_of(op, parse_arguments(args), inputs, outputs).bits or None
