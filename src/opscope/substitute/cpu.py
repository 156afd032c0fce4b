# SPDX-License-Identifier: Apache-2.0
"""Substitute `cpu`: the same operator in the same element types on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import perform

if TYPE_CHECKING:
    from opscope.substitute.perform import Bound, Performed


class Cpu:
    """The operator's CPU kernel; of the same program's CPU kernels it is independent in a process
    of its own.
    """

    name = "cpu"

    def lacks(self, op: str) -> str | None:  # noqa: ARG002 - every operator may have a CPU kernel; calling it tells
        return None

    def run(self, bound: Bound) -> Performed:
        return perform(bound, Conditions(device="cpu"))
