# SPDX-License-Identifier: Apache-2.0
"""Steps of programs in graph mode, from the numbers that MindSpore gives the iterations of their
graphs.
"""

from __future__ import annotations

import pytest

from opscope.record.mindspore.iterations import Iterations

FORWARD, BACK, STEP = "forward", "backward", "optimizer"


@pytest.mark.parametrize(
    ("ran", "steps"),
    [
        # gradients and optimizer compiled one by one, as MindSpore 2.10 numbers them
        (
            [
                (0, (FORWARD, BACK)),
                (1, (STEP,)),
                (1, (FORWARD, BACK)),
                (2, (STEP,)),
                (2, (FORWARD,)),
            ],
            [0, 0, 1, 1, 2],
        ),
        # the gradients of several ranks are put together first
        ([(0, (FORWARD, BACK)), (1, ("communication", STEP)), (1, (FORWARD, BACK))], [0, 0, 1]),
        # two optimizers
        ([(0, (FORWARD, BACK)), (1, (STEP,)), (1, (STEP,)), (1, (FORWARD, BACK))], [0, 0, 0, 1]),
        # all of a step in one graph, and an evaluation behind it
        ([(0, (FORWARD, BACK, STEP)), (1, (FORWARD,)), (1, (FORWARD, BACK, STEP))], [0, 1, 1]),
        # an optimizer behind other work of its iteration
        ([(1, (FORWARD,)), (1, (STEP,))], [1, 1]),
        ([(0, (STEP,))], [0]),
    ],
)
def test_an_optimizer_by_itself_belongs_to_its_gradients(
    ran: list[tuple[int, tuple[str, ...]]], steps: list[int]
) -> None:
    iterations = Iterations()
    assert [iterations.step(number, frozenset(phases)) for number, phases in ran] == steps
