# SPDX-License-Identifier: Apache-2.0
"""What a cause is: the call at which a difference begins, and of which kind it is."""

from __future__ import annotations

from typing import Any

import msgspec

from opscope.run.keys import NONE

COMPUTED, ARRIVED, REWIRED, EXTRA, MISSING, ARGUMENT, AMPLIFIED, SHAPED, OTHERWISE, UNCOMPARED = (
    "computed",
    "arrived",
    "rewired",
    "extra",
    "missing",
    "argument",
    "amplified",
    "shaped",
    "otherwise",
    "uncompared",
)


class Cause(msgspec.Struct, frozen=True):
    """One call where a difference begins: target and golden are places in Calls, NONE where that
    side has none; row in Rows. region: the calls of either side of which it is one. more: further
    facts for its evidence.
    """

    kind: str
    target: int
    golden: int
    row: int = NONE
    sure: bool = True
    words: tuple[str, ...] = ()
    region: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    more: dict[str, Any] = {}
