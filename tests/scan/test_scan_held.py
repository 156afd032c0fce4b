# SPDX-License-Identifier: Apache-2.0
"""What ranks hold of parameters and gradients, as columns: rows of calls in their order, and
nothing that nobody can compare.
"""

from __future__ import annotations

from typing import Any

import msgspec
from tests.questions.builder import Builder, state

from opscope.run.keys import key
from opscope.run.memory import MemoryRun
from opscope.scan.held import UNKNOWN, Held, held_by

WEIGHT: dict[str, Any] = {"role": "parameter", "tensor_name": "w", "digest": 7}


def run_of(*tensors: dict[str, Any]) -> MemoryRun:
    """Two ranks that read these, a call in each step for each of them."""
    rows = Builder()
    for rank in range(2):
        for rows.step, tensor in enumerate(tensors):
            rows.call("mm", [tensor], [state(100)], process=rank, rank=rank + 3)
    return rows.run()


def told(held: Held) -> list[tuple[Any, ...]]:
    columns = (held.key, held.rank, held.step, held.version, held.digest)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_rows_have_rank_and_step_of_their_calls() -> None:
    held = held_by(run_of(state(1, **WEIGHT), state(2, **{**WEIGHT, "role": "gradient"})))
    assert told(held) == [
        (key(0, 0), 3, 0, 1, 7),
        (key(0, 1), 3, 1, 2, 7),
        (key(1, 0), 4, 0, 1, 7),
        (key(1, 1), 4, 1, 2, 7),
    ]
    assert held.gradient.tolist() == [False, True] * 2
    assert {held.texts.of[code] for code in held.name.tolist()} == {"w"}
    assert not held.shards


def test_what_cannot_be_compared_is_left_out_or_said() -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"digest": None},
        {"tensor_name": None},
        {"role": "shard"},
        {"shape": None, "min": 1.0},
        {"version": None, "min": None},
    )
    held = held_by(run_of(*({**state(1, **WEIGHT), **change} for change in changes)))
    assert held.step.tolist() == [3, 4] * 2
    assert [what == 0 for what in held.what.tolist()] == [True, False] * 2
    assert held.version.tolist() == [1, UNKNOWN] * 2
    assert not held.telling.any()
    assert held.shards


def test_rows_stand_in_the_order_of_calls_and_those_of_unknown_calls_nowhere() -> None:
    run = run_of(state(1, **WEIGHT), state(2, **WEIGHT), state(3, **WEIGHT))
    tensors = run.access.rows("tensors")
    lost = msgspec.structs.replace(tensors[0], index=50)
    mixed_up = MemoryRun(run.info, run.processes, run.access.rows("calls"), [*tensors[::-1], lost])
    assert told(held_by(mixed_up)) == told(held_by(run))


def test_a_run_without_rows_holds_nothing() -> None:
    assert told(held_by(Builder().run())) == []
