# SPDX-License-Identifier: Apache-2.0
"""How long a call may take before it counts as hanging."""

from __future__ import annotations

from opscope.minimize.oracle import LEAST, SURE, Patience


def test_the_number_of_elements_tells_while_no_call_came_back() -> None:
    patience = Patience(20.0)
    assert patience.limit(0) < patience.limit(1_000_000) < 20.0
    assert patience.limit(10**9) == 20.0
    assert patience.sure == 20.0


def test_healthy_calls_shorten_the_wait_and_old_ones_are_forgotten() -> None:
    patience = Patience(20.0)
    patience.learn(1.0)
    assert patience.limit(10**9) == 10.0
    for _ in range(20):
        patience.learn(0.001)
    assert patience.limit(10**9) == LEAST
    assert patience.sure == SURE


def test_nobody_waits_longer_than_the_user_wants() -> None:
    patience = Patience(0.2)
    patience.learn(60.0)
    assert patience.limit(1) == patience.sure == 0.2
