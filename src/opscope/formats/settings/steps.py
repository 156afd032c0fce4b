# SPDX-License-Identifier: Apache-2.0
"""Step ranges as settings files spell them, "0|5-8|100-120"."""

from __future__ import annotations

import re

_RANGE = re.compile(r"[0-9]{1,10}(-[0-9]{1,10})?")
MOST_RANGES = 100


def wrong_steps(text: str) -> str | None:
    """What is wrong with a text of step ranges, or None; "all" is for the caller to know."""
    for part in text.split("|"):
        if _RANGE.fullmatch(part) is None:
            return f"{part!r} in {text!r} is neither a step nor a range; write 0|5-8|100-120"
        first, _, last = part.partition("-")
        if last and int(first) > int(last):
            return f"{part!r} runs backwards; write {last}-{first}"
    return None


def step_and_before(step: int) -> str:
    """The step in question and the one before it, which is enough for most analyses."""
    return str(step) if step == 0 else f"{step - 1}|{step}"
