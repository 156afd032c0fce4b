# SPDX-License-Identifier: Apache-2.0
"""A verdict in which every element beyond its tolerance counts."""

from __future__ import annotations

from typing import Any

from opscope.judge.agreement import Agreement, agrees
from opscope.judge.tolerance import Tolerance
from opscope.kernels.pair import pair


def by_elements(target: Any, golden: Any, tolerance: Tolerance) -> Agreement:
    """The verdict on two arrays, measured once for the scale and once for the elements beyond."""
    scale = pair(target, golden).max_golden
    return agrees(pair(target, golden, allowed=tolerance.allowed(scale)), tolerance)
