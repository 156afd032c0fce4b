# SPDX-License-Identifier: Apache-2.0
"""Phases, names and what counts of the primitives that a JAX function ran, told from records alone."""

from __future__ import annotations

import itertools

import msgspec

from opscope.record.jax.executed import Executed, State, used
from opscope.record.jax.names import Leaf, names_of, parameters_of
from opscope.record.jax.phases import in_phases, module_of, with_beginnings
from opscope.run.schema import Tensor

NUMBERS = itertools.count(100)


def state(version: int | None = None, *, shape: tuple[int, ...] = (3,)) -> State:
    size = 1
    for each in shape:
        size *= each
    row = Tensor(process=0, index=0, io="input", slot="0", dtype="float32", shape=shape, size=size)
    return State(next(NUMBERS) if version is None else version, row)


def call(primitive: str, read: list[State], made: list[State], scope: str = "") -> Executed:
    frames = (f"/net.py:{len(scope)} in step",)
    return Executed(
        primitive=primitive, read=tuple(read), made=tuple(made), params="{}", scope=scope,
        frames=frames,
    )  # fmt: skip


def training() -> tuple[dict[str, State], list[Executed]]:
    """One step: a loss, its gradient, a rate, an update; and a metric that has no gradient."""
    held = {name: state() for name in ("w", "x", "y", "hit", "g", "u", "new")}
    held["loss"], held["right"] = state(shape=()), state(shape=())
    calls = [
        call("mul", [held["w"], held["x"]], [held["y"]], "jvp(Net)/Dense_0"),
        call("reduce_sum", [held["y"]], [held["loss"]], "jvp()"),
        call("sign", [held["y"]], [held["hit"]], "jvp()"),
        call("reduce_sum", [held["hit"]], [held["right"]], "jvp()"),
        call("mul", [held["x"]], [held["g"]], "transpose(jvp(Net))/Dense_0"),
        call("mul", [held["g"]], [held["u"]]),
        call("add", [held["w"], held["u"]], [held["new"]]),
    ]
    return held, calls


def test_phases_are_told_by_transformations_and_order() -> None:
    _, calls = training()
    phases = [each.phase for each in in_phases(calls, graded=False)]
    assert phases == ["forward"] * 4 + ["backward"] + ["optimizer"] * 2
    again = call("mul", [], [], "transpose(jvp(Net))/rematted_computation/Dense_0")
    assert in_phases([again], graded=False)[0].phase == "recompute"
    assert in_phases(calls[-1:], graded=False)[0].phase == "forward"
    assert in_phases(calls[-1:], graded=True)[0].phase == "optimizer"


def test_modules_are_the_stack_of_names_without_transformations() -> None:
    assert module_of("transpose(jvp(Net))/Dense_0") == "Net.Dense_0"
    assert module_of("jvp(vmap(Net))/rematted_computation/norm") == "Net.norm"
    assert module_of("jvp(Net)/...qd,...kd->...qk") == "Net"
    assert module_of("") == ""


def test_what_nobody_reads_does_not_count() -> None:
    held, calls = training()
    kept = used(calls, [held["new"], held["loss"]])
    assert [each.made[0] for each in kept] == [
        held[name] for name in ("y", "loss", "g", "u", "new")
    ]
    said = msgspec.structs.replace(calls[2], effects=True)
    assert said in used([said], [])


def test_a_backward_pass_begins_with_the_loss_and_not_with_a_metric() -> None:
    held, calls = training()
    results = [held["right"], held["loss"], held["new"]]
    found = with_beginnings(
        in_phases(calls, graded=False), [held["w"]], results, lambda _: state(shape=())
    )
    begun = [(at, each) for at, each in enumerate(found) if each.primitive == "ones_like"]
    ((at, first),) = begun
    assert (at, first.read, first.phase) == (4, (held["loss"],), "backward")
    none = with_beginnings(
        in_phases(calls, graded=False), [held["w"]], [held["new"]], lambda _: state()
    )
    assert all(each.primitive != "ones_like" for each in none)


def test_updates_and_gradients_bear_the_name_of_their_parameter() -> None:
    held, calls = training()
    calls = in_phases(calls, graded=False)
    given = [
        Leaf(("params", "Dense_0", "kernel"), held["w"]),
        Leaf(("x",), held["x"]),
    ]
    results = [
        Leaf(("0", "Dense_0", "kernel"), held["new"]),
        Leaf(("1", "mu", "Dense_0", "kernel"), held["u"]),
        Leaf(("2",), held["loss"]),
    ]
    known = parameters_of(given, frozenset())
    told = {
        version: (name.role, name.text)
        for version, name in names_of(calls, given, results, known).items()
    }
    assert told == {
        held["w"].version: ("parameter", "Dense_0.kernel"),
        held["new"].version: ("parameter", "Dense_0.kernel"),
        held["g"].version: ("gradient", "Dense_0.kernel"),
    }


def test_gradients_that_are_returned_bear_the_name_too() -> None:
    held, calls = training()
    given = [Leaf(("weights", "kernel"), held["w"]), Leaf(("x",), held["x"])]
    results = [Leaf(("1", "kernel"), held["g"])]
    known = parameters_of(given, frozenset())
    found = names_of(in_phases(calls, graded=False), given, results, known)
    assert (found[held["g"].version].role, found[held["g"].version].text) == ("gradient", "kernel")


def test_parameters_are_told_from_an_optimizers_states() -> None:
    mean, var, kept, weight = (state() for _ in range(4))
    given = [
        Leaf(("state", "params", "conv", "kernel"), weight),
        Leaf(("state", "batch_stats", "norm", "mean"), mean),
        Leaf(("state", "batch_stats", "norm", "var"), var),
        Leaf(("state", "opt", "0", "mu", "params", "conv", "kernel"), kept),
    ]
    found = parameters_of(given, frozenset())
    assert {version: (name.role, name.text) for version, name in found.items()} == {
        weight.version: ("parameter", "conv.kernel"),
        mean.version: ("buffer", "norm.mean"),
    }
    chosen = parameters_of(given, frozenset({"state"}))
    assert len(chosen) == 4
    alone = parameters_of([Leaf(("w",), weight)], frozenset({"w"}))
    assert alone[weight.version].text == "w"
