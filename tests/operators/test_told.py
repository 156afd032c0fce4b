# SPDX-License-Identifier: Apache-2.0
"""What is told of operators counts for one question of a process at a time."""

from __future__ import annotations

import threading

from opscope.operators.told import Scope, Told


def test_two_threads_ask_of_two_runs_one_after_the_other() -> None:
    scope = Scope()
    seen: list[bool] = []
    inside, over = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait()
        with scope.knowing(recorded={}):
            seen.append(over.is_set())

    thread = threading.Thread(target=other)
    thread.start()
    with scope.knowing(recorded={"mylib::own": {"moves": True}}):
        inside.set()
        thread.join(0.2)
        assert scope.told.recorded_of("mylib::own.default") == {"moves": True}
        over.set()
    thread.join()
    assert seen == [True]


def test_answers_hold_until_something_else_is_told_in_their_scope() -> None:
    scope, other = Scope(), Scope()
    asked: list[str] = []

    @scope.remembered(8)
    def row_of(op: str) -> dict[str, bool | str]:
        asked.append(op)
        return dict(scope.told.declared_of(op))

    scope.declare({"mylib::own": {"moves": True}})
    assert row_of("mylib::own.out") == row_of("mylib::own.out") == {"moves": True}
    other.declare({"mylib::own": {"random": True}})
    with scope.knowing(declared={"mylib::own": {"moves": True}}):  # nothing new
        row_of("mylib::own.out")
    assert asked == ["mylib::own.out"]
    with scope.knowing(declared={"mylib::own.out": {"moves": False}}, recorded={}):
        assert row_of("mylib::own.out") == {"moves": False}
    assert row_of("mylib::own.out") == {"moves": True}
    assert scope.told == Told(declared={"mylib::own": {"moves": True}})
