# SPDX-License-Identifier: Apache-2.0
"""What the bookkeeping remembers of a step is bounded."""

from __future__ import annotations

from opscope.kernels.calls import forget_oldest


def test_the_older_half_goes_when_there_are_more() -> None:
    remembered = {number: str(number) for number in range(9)}
    forget_oldest(remembered, most=9)
    assert len(remembered) == 9
    forget_oldest(remembered, most=8)
    assert sorted(remembered) == [4, 5, 6, 7, 8]
