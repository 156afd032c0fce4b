# SPDX-License-Identifier: Apache-2.0
"""Substitutes `float64` and `float32`: the same operator with every floating argument in a wider
type, on the same device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import perform

if TYPE_CHECKING:
    from opscope.substitute.perform import Bound, Performed


class Float64:
    """The operator in double precision; device overrules where it runs."""

    name = "float64"
    wide = torch.float64

    def __init__(self, *, device: str | None = None) -> None:
        self.device = device

    def lacks(self, op: str) -> str | None:  # noqa: ARG002 - calling it tells
        return None

    def run(self, bound: Bound) -> Performed:
        return perform(bound, Conditions(device=self.device, wide=self.wide))


class Float32(Float64):
    """The operator in single precision."""

    name = "float32"
    wide = torch.float32
