# SPDX-License-Identifier: Apache-2.0
"""A call with each of its inputs changed by a rounding: what its result changes by then no kernel can be blamed for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import Bound

DRAWS = 8  # of signs: those of one draw may cancel


@dataclass(eq=False)
class Nudged(Bound):
    """Every element of its floating tensors is larger or smaller by `unit` of itself, as a draw of that number says.

    Tensors share no memory with each other any more.
    """

    unit: float = 0.0
    draw: int = 0

    def tensors(self, where: Conditions) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.draw)
        return {slot: self._nudge(tensor, generator) for slot, tensor in super().tensors(where).items()}

    def _nudge(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
        return tensor * (1 + self.unit * signs.to(torch.float64))
