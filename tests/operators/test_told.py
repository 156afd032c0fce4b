# SPDX-License-Identifier: Apache-2.0
"""What is told of operators counts for one question of a process at a time."""

from __future__ import annotations

import threading

from opscope.operators.catalogue import traits_of
from opscope.operators.told import knowing


def test_two_threads_ask_of_two_runs_one_after_the_other() -> None:
    seen: list[bool] = []
    inside, over = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait()
        with knowing(recorded={}):
            seen.append(over.is_set())

    thread = threading.Thread(target=other)
    thread.start()
    with knowing(recorded={"mylib::own": {"moves": True}}):
        inside.set()
        thread.join(0.2)
        assert traits_of("mylib::own").moves
        over.set()
    thread.join()
    assert seen == [True]
