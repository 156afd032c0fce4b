# SPDX-License-Identifier: Apache-2.0
"""Averages of numbers that cancel each other: rounding is all that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.operators.catalogue import traits_of

if TYPE_CHECKING:
    from opscope.arrays import Bools
    from opscope.compare.side.columns import Side

CANCELLED = 2.0**-22  # of what is averaged: a few of float32's roundings


def cancelled_means(side: Side) -> Bools:
    """Rows of averages, and of what a norm keeps of them, that are next to nothing beside what they
    are made of (root mean squares of the largest input of their call).
    """
    tensors = side.tensors
    averages = side.which(side.calls.op, lambda op: traits_of(op).error in {"mean", "norm"})
    rows = np.flatnonzero(averages[tensors.call])
    call, output, size = tensors.call[rows], tensors.output[rows], tensors.size[rows]
    height = tensors.l2norm[rows] / np.sqrt(np.maximum(size, 1))
    most = np.zeros(len(side.calls), dtype=np.int64)
    np.maximum.at(most, call[~output], size[~output])
    averaged = np.zeros(len(side.calls))
    largest = ~output & (size == most[call])
    np.fmax.at(averaged, call[largest], height[largest])
    flags = np.zeros(len(tensors), dtype=np.bool_)
    flags[rows] = output & (size < most[call]) & (height <= CANCELLED * averaged[call])
    return flags
