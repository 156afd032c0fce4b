# SPDX-License-Identifier: Apache-2.0
"""What statistics tell of a tensor whatever the order of its elements, and of several as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.compare.side.columns import Side


FEWEST = 4  # elements that are one factor apart by more than chance


class Sketch(NamedTuple):
    """What is known of a tensor, or of several as one, whatever their order."""

    size: int
    total: float
    squares: float
    least: float
    most: float

    @property
    def filled(self) -> bool:
        """Whether it holds one number everywhere, as biases and norms do at first."""
        return self.least == self.most

    @property
    def reach(self) -> float:
        """The largest magnitude."""
        return max(abs(self.least), abs(self.most))

    def error(self, other: Sketch) -> float:
        """How far two are apart at least, to the scale of the other; inf for another size."""
        if self.size != other.size:
            return float("inf")
        scale = max((other.squares / max(other.size, 1)) ** 0.5, 1e-300)
        reach = max(abs(other.least), abs(other.most), scale)
        norm = abs(self.squares**0.5 - other.squares**0.5) / max(other.squares**0.5, 1e-300)
        mean = abs(self.total - other.total) / max(other.size, 1) / scale
        ends = max(abs(self.least - other.least), abs(self.most - other.most)) / reach
        if not np.isfinite([norm, mean, ends]).all():
            return 0.0 if str(self) == str(other) else float("inf")
        return float(max(norm, mean, ends))

    def factors(self, other: Sketch) -> list[float]:
        """By what norm, least and most are those of the other, as each of them says; 1 where
        another size, too few elements, one number everywhere or a zero tells nothing.
        """
        pairs = ((self.squares**0.5, other.squares**0.5), *zip(self[3:], other[3:], strict=True))
        told = self.size == other.size >= FEWEST and not (self.filled or other.filled)
        told = told and all(theirs for _, theirs in pairs)
        return [mine / theirs if told else 1.0 for mine, theirs in pairs]


def sketch(side: Side, rows: Sequence[int]) -> Sketch:
    """What is known of the tensors of some rows as one."""
    tensors = side.tensors
    return together(
        [
            Sketch(
                int(tensors.size[row]),
                float(tensors.mean[row]) * int(tensors.size[row]),
                float(tensors.l2norm[row]) ** 2,
                float(tensors.min[row]),
                float(tensors.max[row]),
            )
            for row in rows
        ]
    )


def together(sketches: Sequence[Sketch]) -> Sketch:
    """What is known of several as one."""
    return Sketch(
        sum(one.size for one in sketches),
        sum(one.total for one in sketches),
        sum(one.squares for one in sketches),
        min(one.least for one in sketches),
        max(one.most for one in sketches),
    )
