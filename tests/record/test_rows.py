# SPDX-License-Identifier: Apache-2.0
"""Rows are as docs/schema.md has them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opscope
from opscope.narrow import widened
from opscope.run.database import sql
from tests.record import programs
from tests.record.recorded import Recorded, record


def test_worked_rows(tmp_path: Path) -> None:
    """`y = F.linear(x, w, b)` in module fc, then backward."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x)

    net, x = Net(), torch.randn(4, 3, requires_grad=True)
    found = record(tmp_path, lambda: net(x).sum().backward())
    product = found.named("fc:addmm#1")
    module = found.named("fc:Linear#1")
    assert (product.level, product.op, product.module, product.parent) == (
        "operator",
        "aten::addmm.default",
        "fc",
        module.index,
    )
    assert (module.op, module.level) == ("torch.nn.Linear", "module")
    assert found.named("<root>:Net#1").index == module.parent
    inputs, transposed = found.inputs(product), found.named("fc:t#1")
    assert (inputs["0"].role, inputs["0"].tensor_name) == ("parameter", "fc.bias")
    assert (
        inputs["2"].version
        == found.inputs(transposed)["0"].version
        == found.outputs(transposed)["0"].version
    )
    assert found.outputs(product)["0"].version == found.outputs(module)["0"].version
    for name in ("fc:mm~bwd#1", "fc:mm~bwd#2", "fc:sum~bwd#1"):
        gradient = found.named(name)
        assert (gradient.phase, gradient.forward_index, gradient.module, gradient.source) == (
            "backward",
            product.index,
            "fc",
            product.source,
        )
    assert Path(product.source.rpartition(":")[0]) == Path(__file__)


def test_every_input_has_the_producer_its_version_names(tmp_path: Path) -> None:
    found = record(tmp_path, programs.linear)
    produced = {row.version: row.index for row in found.tensors if row.io == "output"}
    losses = found.all("aten::mean.default")
    squares = found.all("aten::pow.Tensor_Scalar", phase="forward")
    for loss, square in zip(losses, squares, strict=True):
        assert produced[found.inputs(loss)["0"].version] == square.index


def test_statistics_equal_numpy(tmp_path: Path) -> None:
    x = torch.tensor([[1.0, -2.0, float("nan")], [float("inf"), 0.0, 70000.0]])
    found = record(tmp_path, lambda: x * 1.0)
    (row,) = found.outputs(found.all("aten::mul")[0]).values()
    assert (
        row.size,
        row.nan,
        row.pos_inf,
        row.neg_inf,
        row.zero,
        row.neg,
        row.pos,
        row.near_limit,
    ) == (6, 1, 1, 0, 1, 1, 2, 1)
    finite = np.array([1.0, -2.0, 0.0, 70000.0])
    assert (row.min, row.max) == (-2.0, 70000.0)
    assert row.mean == pytest.approx(finite.mean(), rel=1e-12)
    assert row.l2norm == pytest.approx(np.linalg.norm(finite), rel=1e-12)


def test_arguments_are_complete(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.randn(2, 3)
        torch.clamp(x, min=-1, max=2.5)
        x.to(torch.float16)
        torch.full((2,), float("-inf"))
        torch.cat([x, x], dim=1)
        torch.sum(x, dim=[0], keepdim=True, dtype=torch.float64)

    found = record(tmp_path, program)

    def args(op: str) -> dict[str, Any]:
        return json.loads(found.all(op)[0].args or "")

    assert args("aten::clamp")["args"] == [{"tensor": "0"}, -1, 2.5]
    assert args("aten::_to_copy")["kwargs"]["dtype"] == {"dtype": "float16"}
    assert args("aten::full")["args"] == [[2], {"float": "-inf"}]
    assert args("aten::cat")["args"] == [[{"tensor": "0.0"}, {"tensor": "0.1"}], 1]
    assert args("aten::sum.dim")["args"][:3] == [{"tensor": "0"}, [0], True]
    assert args("aten::sum.dim")["kwargs"]["dtype"] == {"dtype": "float64"}


def test_in_place_inputs_are_as_they_were_before(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.tensor([1.0, -1.0])
        x.log_()

    found = record(tmp_path, program)
    call = found.all("aten::log_")[0]
    before, after = found.inputs(call)["0"], found.outputs(call)["0"]
    assert (before.min, before.max, before.nan, after.nan) == (-1.0, 1.0, 0, 1)
    assert before.version != after.version
    assert before.storage == after.storage
    assert found.run.value(before).tolist() == [1.0, -1.0]


def test_full_values_of_any_layout(tmp_path: Path) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)

    def program() -> None:
        x.transpose(0, 2) + 1
        x[:, 1:, ::2] * 2
        x[:, :1].expand(2, 5, 4) - 1
        torch.as_strided(x, (3, 3), (1, 1)) / 2

    found = record(tmp_path, program, values="full")
    for op, expected in (
        ("add.Tensor", x.transpose(0, 2)),
        ("mul.Tensor", x[:, 1:, ::2]),
        ("sub.Tensor", x[:, :1].expand(2, 5, 4)),
        ("div.Tensor", torch.as_strided(x, (3, 3), (1, 1))),
    ):
        call = found.all(op)[0]
        assert np.array_equal(found.run.value(found.inputs(call)["0"]), expected.numpy())


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool, torch.int8],
)
def test_types_stay_true_on_disk(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.tensor([0.5, 1.0, -2.0]).to(dtype)
    found = record(tmp_path, x.clone, values="full")
    row = found.inputs(found.all("aten::clone")[0])["0"]
    assert row.dtype == str(dtype).removeprefix("torch.")
    stored = widened(found.run.value(row))
    assert stored.astype(np.complex64).tolist() == x.to(torch.complex64).tolist()


def test_an_anomaly_keeps_its_inputs_and_gets_its_bits(tmp_path: Path) -> None:
    a = torch.full((4, 4), 300.0, dtype=torch.float16)
    found = record(tmp_path, lambda: a @ a)
    call = found.all("aten::mm")[0]
    assert call.status == 0x400
    assert found.run.value(found.inputs(call)["0"]).tolist() == a.tolist()


def test_masks_are_no_anomaly(tmp_path: Path) -> None:
    def program() -> None:
        scores = torch.randn(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))
        torch.softmax(scores, -1)

    found = record(tmp_path, program)
    assert not any(call.status for call in found.calls)
    assert all(row.value is None for row in found.tensors)


def test_lstm_slots(tmp_path: Path) -> None:
    def program() -> None:
        nn.LSTM(3, 4)(torch.randn(5, 2, 3), (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)))

    found = record(tmp_path, program)
    assert {"0", "1.0", "1.1"} <= set(found.inputs(found.named("<root>:LSTM#1")))


def test_weight_gradients_of_three_dimensional_input(tmp_path: Path) -> None:
    found = record(tmp_path, programs.weight_gradients)
    shapes = [found.outputs(call)["0"].shape for call in found.all("aten::mm", phase="backward")]
    assert (8, 4) in shapes or (4, 8) in shapes


def test_a_custom_operator_needs_no_list(tmp_path: Path) -> None:
    library = torch.library.Library("opscope_test_rows", "FRAGMENT")
    library.define("twice(Tensor x, *, float by=2.0) -> Tensor")
    library.impl("twice", lambda x, *, by=2.0: x * by, "CPU")
    found = record(tmp_path, lambda: torch.ops.opscope_test_rows.twice(torch.ones(3), by=3.0))
    call = found.all("opscope_test_rows::twice")[0]
    assert json.loads(call.args or "")["kwargs"] == {"by": 3.0}
    assert found.outputs(call)["0"].max == 3.0


def test_recomputation_is_told_from_backward(tmp_path: Path) -> None:
    found = record(tmp_path, programs.checkpointing)
    again = found.all("aten::addmm", phase="recompute", step=1)
    assert again
    originals = {call.index: call for call in found.calls}
    for call in again:
        original = originals[call.forward_index or -1]
        assert (original.phase, original.module, original.op) == ("forward", call.module, call.op)
        assert call.name == original.name.replace("#", "~re#")


def test_custom_function_links_backward_to_its_own_line(tmp_path: Path) -> None:
    found = record(tmp_path, programs.custom_function)
    lines = {
        call.source.rpartition(":")[2]
        for call in found.all("aten::mul", phase="backward", step=0)
        if "Cube" in frames(found, call)
    }
    text = Path(programs.__file__).read_text(encoding="utf-8").splitlines()
    assert {text[int(line) - 1].strip() for line in lines} == {"return grad * 3 * x * x"}


def frames(found: Recorded, call: Any) -> str:
    (row,) = sql(found.run, f"SELECT frames FROM stacks WHERE stack = {call.stack}")
    return (
        "Cube"
        if any("in backward" in frame and "programs.py" in frame for frame in row["frames"])
        else ""
    )


def test_threads_are_recorded(tmp_path: Path) -> None:
    found = record(tmp_path, programs.several_threads)
    exponentials = found.all("aten::exp")
    assert len(exponentials) == 3
    assert threading.get_ident() not in {call.thread for call in exponentials}


def test_optimizer_phase_and_gradient_names(tmp_path: Path) -> None:
    found = record(tmp_path, programs.linear)
    updates = found.all("aten::add_", phase="optimizer", step=1)
    assert len(updates) == 4
    assert {found.inputs(call)["1"].role for call in updates} == {"gradient"}
    assert {found.inputs(call)["0"].tensor_name for call in updates} == {
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    }


def test_a_gradient_that_is_cut_out_of_several_bears_no_other_name(tmp_path: Path) -> None:
    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = (nn.Parameter(torch.ones(4) * n) for n in (1, 2))
            self.weight = nn.Parameter(torch.ones(12))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.cat([self.first, torch.zeros(4), self.last]) * self.weight

    net = Joined()
    found = record(tmp_path, lambda: net(torch.arange(12.0)).sum().backward())
    gradients = [
        tensor
        for call in found.all("", phase="backward")
        for tensor in found.outputs(call).values()
        if tensor.role == "gradient"
    ]
    assert {tensor.tensor_name for tensor in gradients} == {None, "weight"}


def test_api_level_is_opt_in(tmp_path: Path) -> None:
    def program() -> None:
        F.gelu(torch.randn(3))

    gelu = F.gelu
    found = record(tmp_path / "a", program, levels="operator,module,api")
    assert F.gelu is gelu
    (api,) = [call for call in found.calls if call.level == "api" and "gelu" in call.op]
    assert found.all("aten::gelu")[0].parent == api.index
    assert all(call.level != "api" for call in record(tmp_path / "b", program).calls)


def test_selection(tmp_path: Path) -> None:
    only = record(tmp_path / "ops", programs.linear, ops="gelu")
    assert {call.op for call in only.calls if call.level == "operator"} == {
        "aten::gelu.default",
        "aten::gelu_backward.default",
    }
    without = record(tmp_path / "skip", programs.linear, skip="addmm,*backward*")
    assert not without.all("addmm")
    assert without.all("aten::gelu.default")
    backward = record(
        tmp_path / "phase", programs.linear, phases="backward", ops="torch.nn.functional.gelu"
    )
    assert {call.op for call in backward.calls if call.level == "operator"} == {
        "aten::gelu_backward.default"
    }
    inputs = record(tmp_path / "io", programs.linear, io="input")
    assert {row.io for row in inputs.tensors} == {"input"}


def test_npu_format_is_the_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import SimpleNamespace

    from opscope.record.torch.binding import npu_format

    monkeypatch.setitem(
        sys.modules,
        "torch_npu",
        SimpleNamespace(get_npu_format=lambda tensor: SimpleNamespace(name="FRACTAL_NZ")),
    )
    assert npu_format(torch.ones(1)) == "FRACTAL_NZ"
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace(get_npu_format=lambda tensor: 29))
    assert npu_format(torch.ones(1)) == "29"
    monkeypatch.setitem(
        sys.modules,
        "torch_npu",
        SimpleNamespace(get_npu_format=lambda tensor: SimpleNamespace(name="ND")),
    )
    assert npu_format(torch.ones(1)) is None


def test_a_block_inside_a_recording_joins_it(tmp_path: Path) -> None:
    def program() -> None:
        with opscope.record(tmp_path / "inner") as inner:
            torch.ones(2) + 1
            inner.step()
        torch.ones(2) + 1

    found = record(tmp_path, program)
    assert not (tmp_path / "inner").exists()
    assert [call.step for call in found.all("aten::add")] == [0, 1]


def test_stop_and_start(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run") as recording:
        torch.ones(2) + 1
        recording.stop()
        torch.ones(2) * 1
        recording.start()
        torch.ones(2) - 1
    from tests.record.recorded import read

    found = read(recording.path)
    assert (
        len(found.all("aten::add")),
        len(found.all("aten::mul")),
        len(found.all("aten::sub")),
    ) == (1, 0, 1)


def test_recording_twice_never_overwrites(tmp_path: Path) -> None:
    paths = []
    for _ in range(2):
        with opscope.record(tmp_path / "run") as recording:
            torch.ones(2) + 1
        paths.append(recording.path)
    assert len(set(paths)) == 2


def test_sampled_values(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.ones(3)
        for _ in range(4):
            x.add_(1.0)

    found = record(tmp_path, program, values="sample", sample=2)
    calls = found.all("aten::add_")
    kept = [call for call in calls if found.inputs(call)["0"].value is not None]
    assert len(kept) == 2
    for call in kept:
        before = calls.index(call) + 1
        assert found.run.value(found.inputs(call)["0"]).tolist() == [before] * 3
        assert found.run.value(found.outputs(call)["0"]).tolist() == [before + 1] * 3


def test_what_arrives_unsound_is_kept(tmp_path: Path) -> None:
    x, y = torch.tensor([1.0, float("nan")]), torch.tensor([float("inf"), 1.0])

    def program() -> None:
        x * 2
        y - y

    found = record(tmp_path, program)
    product, difference = found.all("aten::mul")[0], found.all("aten::sub")[0]
    assert np.isnan(found.run.value(found.inputs(product)["0"])).tolist() == [False, True]
    assert found.run.value(found.inputs(difference)["0"]).tolist() == [float("inf"), 1.0]


def test_a_closure_is_no_part_of_its_optimizer(tmp_path: Path) -> None:
    found = record(tmp_path, programs.closure)
    assert {call.phase for call in found.all("aten::addmm.default")} == {"forward"}
    assert found.all("aten::dot", phase="optimizer")
