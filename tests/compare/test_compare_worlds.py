# SPDX-License-Identifier: Apache-2.0
"""A training as MindSpore shows it in PyNative mode, row by row, beside the same in torch: no call
has a partner, and of some gradients no call is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compare.told_lines import told_lines
from tests.questions.builder import Builder, state

from opscope.compare.api import compare
from opscope.compare.cause.results import losses_of
from opscope.compare.side.bridges import bridged
from opscope.compare.side.columns import Side, side_of
from opscope.compare.side.producers import Flow, follow
from opscope.compare.side.trained_tensors import with_trained_names
from opscope.run.memory import MemoryRun
from opscope.run.protocol import Coverage
from opscope.run.whole_tables import read_tables

MS, PT = "/home/me/net_ms.py", "/home/me/net_pt.py"
KNOWN = Coverage(versions=True, inputs=True, phases=True, statistics=True)
SIZES = {"dense.weight": (6, 5), "norm.gamma": (5,)}
STEPS, RATE, EPSILON = 3, 1e-2, 1e-5


class Training:
    """The numbers of a dense layer, a norm and a mean of squares, trained by Adam."""

    def __init__(self, *, rate: float = RATE, epsilon: float = EPSILON, times: float = 1.0) -> None:
        drawn = np.random.RandomState(0)
        self.held = {name: drawn.randn(*shape) for name, shape in SIZES.items()}
        self.data = drawn.randn(STEPS, 8, 6)
        self._rate, self._epsilon, self._times = rate, epsilon, times
        self._moments = {name: [0.0, 0.0] for name in SIZES}

    def step(self, number: int) -> dict[str, Any]:
        """Everything that a step computes, by name; parameters are what they are behind it."""
        x, weight, gamma = self.data[number], self.held["dense.weight"], self.held["norm.gamma"]
        dense = x @ weight
        mean, variance = dense.mean(1, keepdims=True), dense.var(1, keepdims=True)
        root = np.sqrt(variance + self._epsilon)
        normal = (dense - mean) / root
        out = normal * gamma * self._times
        square = out**2
        into = 2 * out / out.size
        inner = into * gamma * self._times
        back = inner - inner.mean(1, keepdims=True)
        back = (back - normal * (inner * normal).mean(1, keepdims=True)) / root
        gradients = {
            "dense.weight": x.T @ back,
            "norm.gamma": (into * self._times * normal).sum(0),
        }
        before = dict(self.held)
        for name, gradient in gradients.items():
            first, second = self._moments[name]
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            self._moments[name] = [first, second]
            root_of = np.sqrt(second / (1 - 0.999 ** (number + 1))) + 1e-8
            self.held[name] = (
                self.held[name] - self._rate * first / (1 - 0.9 ** (number + 1)) / root_of
            )
        return {
            "x": x, "dense": dense, "mean": mean, "variance": variance, "root": 1 / root, "out": out,
            "square": square, "loss": square.mean(), "into": into, "back": back, "before": before,
            "gradients": gradients, "after": dict(self.held),
        }  # fmt: skip


class Rows:
    """Rows with the statistics of arrays; what is equal is one version."""

    def __init__(self) -> None:
        self.built = Builder()
        self._versions: dict[bytes, int] = {}

    def of(self, array: Any, **changes: Any) -> dict[str, Any]:
        array = np.asarray(array, np.float32)
        version = self._versions.setdefault(array.tobytes(), len(self._versions))
        return state(
            changes.pop("version", version),
            shape=array.shape,
            size=array.size,
            min=float(array.min()),
            max=float(array.max()),
            mean=float(array.astype(np.float64).mean()),
            l2norm=float(np.linalg.norm(array.astype(np.float64))),
            digest=hash(array.tobytes()) & (1 << 62) - 1,
            **{"storage": None, **changes},
        )


def mindspore(training: Training) -> MemoryRun:
    rows = Rows()
    of, call = rows.of, rows.built.call

    def held(name: str, array: Any, **changes: Any) -> dict[str, Any]:
        return of(array, role="parameter", tensor_name=name, **changes)

    for number in range(STEPS):
        rows.built.step, made = number, training.step(number)
        weight, gamma = (made["before"][name] for name in SIZES)
        call(
            "MatMul",
            [of(made["x"]), held("dense.weight", weight)],
            [of(made["dense"])],
            source=f"{MS}:1",
        )
        outputs = [of(made[name]) for name in ("out", "mean", "variance")]
        call("LayerNorm", [of(made["dense"]), held("norm.gamma", gamma)], outputs, source=f"{MS}:2")
        call("Square", [of(made["out"])], [of(made["square"])], source=f"{MS}:3")
        call("ReduceMean", [of(made["square"])], [of(made["loss"])], source=f"{MS}:3")
        call(
            "Mul",
            [of(made["out"]), of(2 / 40)],
            [of(made["into"])],
            phase="backward",
            source=f"{MS}:3",
        )
        # LayerNormGrad is not shown: nobody made what this reads, nor the gradient of gamma
        slope = of(made["gradients"]["dense.weight"])
        call(
            "MatMul", [of(made["back"]), of(made["x"])], [slope], phase="backward", source=f"{MS}:1"
        )
        call(
            "Mul", [of(0.9**number)], [of(0.9 ** (number + 1))], phase="optimizer", source=f"{MS}:9"
        )
        for name in SIZES:
            after = made["after"][name]
            read = [held(name, after, version=None), of(0.9 ** (number + 1))]
            read.append(of(made["gradients"][name], role="input data", tensor_name="_47"))
            call(
                "Adam",
                read,
                [held(name, after, slot="input.0")],
                phase="optimizer",
                source=f"{MS}:9",
            )
    return rows.built.run(config={"framework": "mindspore"}, coverage=KNOWN)


def torch(training: Training) -> MemoryRun:
    rows = Rows()
    of, call = rows.of, rows.built.call

    def held(name: str, array: Any) -> dict[str, Any]:
        return of(array, role="parameter", tensor_name=name, storage=[*SIZES].index(name))

    for number in range(STEPS):
        rows.built.step, made = number, training.step(number)
        weight, gamma = (made["before"][name] for name in SIZES)
        call(
            "mm",
            [of(made["x"]), held("dense.weight", weight)],
            [of(made["dense"])],
            source=f"{PT}:1",
        )
        outputs = [of(made[name]) for name in ("out", "mean", "root")]
        call(
            "native_layer_norm",
            [of(made["dense"]), held("norm.gamma", gamma)],
            outputs,
            source=f"{PT}:2",
        )
        call("pow", [of(made["out"])], [of(made["square"])], source=f"{PT}:3")
        call("mean", [of(made["square"])], [of(made["loss"])], source=f"{PT}:3")
        call("ones_like", [of(made["loss"])], [of(1.0)], phase="backward", source=f"{PT}:3")
        call(
            "mul",
            [of(made["out"]), of(1.0)],
            [of(made["into"])],
            phase="backward",
            source=f"{PT}:3",
        )
        grads = {
            name: of(array, role="gradient", tensor_name=name)
            for name, array in made["gradients"].items()
        }
        norm = [of(made["back"]), grads["norm.gamma"]]
        call(
            "native_layer_norm_backward",
            [of(made["into"]), of(made["dense"])],
            norm,
            phase="backward",
            source=f"{PT}:2",
        )
        call(
            "mm",
            [of(made["back"]), of(made["x"])],
            [grads["dense.weight"]],
            phase="backward",
            source=f"{PT}:1",
        )
        for name in SIZES:
            read = [held(name, made["before"][name]), grads[name]]
            call(
                "addcdiv_",
                read,
                [held(name, made["after"][name])],
                phase="optimizer",
                source=f"{PT}:9",
            )
    return rows.built.run(config={"framework": "pytorch"}, coverage=KNOWN)


def side(run: MemoryRun) -> tuple[Side, Flow]:
    made = side_of(run, *read_tables(run))
    return made, follow(made.calls, made.tensors)


def test_what_is_trained_alike_agrees() -> None:
    document = compare(mindspore(Training()), torch(Training())).document
    assert document.findings == ()
    assert document.complete


@pytest.mark.parametrize(
    ("fault", "line"), [({"epsilon": 0.1}, 2), ({"times": 1.001}, 2), ({"rate": 1.02 * RATE}, 9)]
)
def test_a_fault_is_told_at_the_lines_of_both(fault: dict[str, float], line: int) -> None:
    first = compare(mindspore(Training(**fault)), torch(Training())).first()
    assert first is not None
    assert (first.step, first.source) == (0, f"{MS}:{line}")
    assert line in told_lines(first, "golden")


def test_a_gradient_that_nobody_made_comes_of_what_nobody_reads() -> None:
    made, flow = side(mindspore(Training()))
    across = bridged(made, flow)
    backward = [call for call in range(len(made.calls)) if made.operator(call) == "MatMul"][1]
    (row, data) = (
        row for row in np.flatnonzero(made.tensors.call == backward) if not made.tensors.output[row]
    )
    assert flow.producer[row] < 0
    assert made.operator(int(across.producer[row])) == "Mul"
    assert across.producer[data] == flow.producer[data]
    other, its_flow = side(torch(Training()))
    assert bridged(other, its_flow) is its_flow


def test_gradients_bear_the_names_of_what_is_updated_with_them() -> None:
    made, flow = side(mindspore(Training()))
    named = with_trained_names(made, flow).tensors
    gradients = np.flatnonzero(~named.parameter & (named.named != 0))
    assert {made.operator(int(call)) for call in named.call[gradients]} == {"MatMul", "Adam"}
    parameters = set(named.named[named.parameter].tolist())
    assert set(named.named[gradients].tolist()) <= parameters


def test_a_loss_is_what_no_call_of_the_forward_pass_reads() -> None:
    made, flow = side(mindspore(Training()))
    losses = losses_of(made, flow.source_row)
    assert [made.operator(int(call)) for call in made.tensors.call[losses]] == [
        "ReduceMean"
    ] * STEPS
