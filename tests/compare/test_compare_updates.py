# SPDX-License-Identifier: Apache-2.0
"""An optimizer's step in two frameworks: another rate is told by how far parameters move, and
gradients of rounding accuse nobody.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.questions.builder import Builder, state

from opscope.compare.api import compare
from opscope.run.finding import Finding

NAMES = ("one.weight", "two.weight", "three.weight", "four.weight")
MOVES = dict(zip(NAMES, (0.01, -0.004, 0.007, 0.0002), strict=True))


def tensor(version: int, mean: float, *, error: float = 0.0, **changes: Any) -> dict[str, Any]:
    """A square matrix by its statistics; error is what the largest element alone is off."""
    return state(
        version,
        shape=(8, 8),
        **{
            "size": 64,
            "min": -3.0,
            "max": 3.0 + error,
            "mean": mean,
            "l2norm": 8.0 + mean,
            **changes,
        },
    )


def trained(
    *,
    graph: bool,
    moves: dict[str, float],
    error: float = 0.0,
    gradient: float = 0.5,
    updates: tuple[str, str] = ("Adam", "addcdiv_"),
) -> Builder:
    """Four products, their gradients, and one step of Adam as either framework runs it."""
    built, phases = Builder(), {"phase": "backward"}
    product, update = ("MatMul", updates[0]) if graph else ("mm", updates[1])
    for place, name in enumerate(NAMES):
        read = tensor(10 + place, 0.1 * place, tensor_name=name, role="parameter")
        built.call(
            product,
            [tensor(1, 0.3), read],
            [tensor(20 + place, 0.2 + 0.1 * place)],
            module=name[:-7],
        )
    for place, name in enumerate(NAMES):
        read = [tensor(1, 0.3), tensor(20 + place, 0.2 + 0.1 * place)]
        built.call(
            product, read, [tensor(30 + place, gradient + 0.05 * place)], module=name[:-7], **phases
        )
    for place, name in enumerate(NAMES):
        known = {"tensor_name": name, "role": "parameter"}
        written = tensor(40 + place, 0.1 * place + moves[name], error=error * (place + 1), **known)
        read = [
            tensor(10 + place, 0.1 * place, **known),
            tensor(30 + place, gradient + 0.05 * place),
        ]
        built.call(
            update,
            read,
            [{"slot": "input.0" if graph else "0", **written}],
            module="",
            phase="optimizer",
        )
    return built


def first(moves: dict[str, float], **changes: float) -> Finding | None:
    return compare(
        trained(graph=True, moves=moves, **changes).run(), trained(graph=False, moves=MOVES).run()
    ).first()


def test_single_elements_that_move_otherwise_accuse_nobody() -> None:
    assert first(MOVES, error=0.04) is None


def test_one_parameter_that_moves_at_random_accuses_nobody() -> None:
    assert first({**MOVES, NAMES[3]: -0.005}) is None


@pytest.mark.parametrize("rate", [0.5, 1.1, 2.0])
def test_another_rate_is_told(rate: float) -> None:
    finding = first({name: rate * moved for name, moved in MOVES.items()})
    assert finding is not None
    assert (finding.op, finding.phase) == ("Adam", "optimizer")
    assert (
        finding.reasons[0]
        == f"parameters move {rate:g} times as far as golden's: another learning rate, or gradients that are scaled"
    )


def test_moves_that_follow_no_single_rate_are_told_so() -> None:
    finding = first(dict(zip(NAMES, (0.02, -0.001, 0.003, 0.001), strict=True)))
    assert finding is not None
    assert "another rate, momentum, decay or epsilon" in finding.reasons[0]


def test_a_rate_that_is_off_a_little_is_told_where_all_move_alike() -> None:
    finding = first({name: 1.015 * moved for name, moved in MOVES.items()})
    assert finding is not None
    assert "move 1.015 times as far" in finding.reasons[0]
    assert first({name: 1.005 * moved for name, moved in MOVES.items()}) is None


def test_moves_that_are_off_a_little_each_otherwise_accuse_nobody() -> None:
    apart = dict(zip(NAMES, (1.015, 0.985, 1.018, 0.99), strict=True))
    assert first({name: apart[name] * moved for name, moved in MOVES.items()}) is None


def test_an_optimizer_that_only_adds_is_held_by_how_far_parameters_move() -> None:
    updates = ("ApplyMomentum", "add_")
    further = {name: 1.9 * moved for name, moved in MOVES.items()}
    theirs = trained(graph=False, moves=MOVES, updates=updates).run()
    assert compare(trained(graph=True, moves=MOVES, updates=updates).run(), theirs).findings == ()
    finding = compare(trained(graph=True, moves=further, updates=updates).run(), theirs).first()
    assert finding is not None
    assert (
        "parameters move 1.9 times as far as golden's: another learning rate, or gradients that are scaled"
        in finding.reasons
    )
