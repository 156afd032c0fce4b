# SPDX-License-Identifier: Apache-2.0
"""A call with each of its inputs changed by a rounding: what its result changes by then no kernel
can be blamed for.
"""

from __future__ import annotations

import torch

from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import Bound

DRAWS = 8  # of signs: those of one draw may cancel


class Nudged(Bound):
    """Every element of a call's floating tensors is larger or smaller by `unit` of itself, as a
    draw of that number says.

    Tensors share no memory with each other any more.
    """

    def __init__(self, bound: Bound, *, unit: float, draw: int) -> None:
        super().__init__(bound.call, bound.memories, bound.func, bound.writes)
        self.bound = bound
        self.unit = unit
        self.draw = draw

    def tensors(self, where: Conditions) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.draw)
        return {
            slot: self._nudge(tensor, generator)
            for slot, tensor in self.bound.tensors(where).items()
        }

    def _nudge(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
        return tensor * (1 + self.unit * signs.to(torch.float64))
