# SPDX-License-Identifier: Apache-2.0
"""Who is told how far a long question is: what is done, how much of it, and of how much (0 where
nobody knows).
"""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def percent(progress: Progress, what: str) -> Callable[[int], None]:
    """Tells the share of a whole that is done."""
    return lambda done: progress(what, done, 100)


def nobody(what: str, done: int, total: int) -> None:
    """Progress where nobody watches."""
    del what, done, total
