# SPDX-License-Identifier: Apache-2.0
"""Tensors whose memory is not the host's: statistics are worked out by tensor operators and fetched
at the end of a step.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import library as registry

import opscope
from opscope.record.torch import staging
from opscope.record.torch.binding import TorchBinding
from opscope.record.torch.operators import describe, mask_of_outputs
from opscope.record.torch.ring import Ring
from tests.record.recorded import record


class OnDevice(torch.Tensor):
    """Stands for a tensor on an accelerator: the recorder is told that it cannot be read from the
    host.
    """


def facts_of_a_device(tensor: torch.Tensor) -> Any:
    facts = ORIGINAL(tensor)
    if isinstance(tensor, OnDevice):
        return replace(facts, device="npu:0", tensor_class=None, readable=False, staged=True)
    return facts


ORIGINAL, ORIGINAL_CLONE = TorchBinding.facts, TorchBinding.clone


@pytest.mark.parametrize("plain", [False, True])
def test_statistics_arrive_with_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))

    def program() -> None:
        torch.tensor([1.0, 2.0, -3.0]).as_subclass(OnDevice) * 2
        torch.tensor([[float("inf"), 1.0]]).as_subclass(OnDevice).expand(3, 2) + 1

    found = record(tmp_path, program, plain=plain)
    (multiply,) = found.all("aten::mul.Tensor")
    row = found.inputs(multiply)["0"]
    assert (row.min, row.max, row.size, row.device) == (-3.0, 2.0, 3, "npu:0")
    assert row.digest is not None
    (add,) = found.all("aten::add.Tensor")
    row = found.inputs(add)["0"]
    assert (row.pos_inf, row.size, row.max) == (3, 6, 1.0)


@pytest.mark.parametrize("plain", [False, True])
def test_large_tensors_are_measured_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))
    monkeypatch.setattr(staging, "SMALL", 16)

    large = torch.tensor([1.0, float("nan"), -65504.0, 3.0, 0.0, float("-inf")]).as_subclass(
        OnDevice
    )
    wide = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).as_subclass(OnDevice)

    def program() -> None:
        large * 2
        wide + 1

    found = record(tmp_path, program, plain=plain)
    row = found.inputs(found.all("aten::mul.Tensor")[0])["0"]
    assert (row.size, row.nan, row.neg_inf, row.zero, row.neg, row.min, row.max) == (
        6,
        1,
        1,
        1,
        1,
        -65504.0,
        3.0,
    )
    assert (row.digest, row.near_limit) == (None, 0)
    assert found.inputs(found.all("aten::add.Tensor")[0])["0"].size is None, (
        "not every device has float64"
    )
    (process,) = found.run.processes
    assert "float64" in "".join(process.torch["not measured"])


@pytest.mark.parametrize("plain", [False, True])
def test_a_device_that_fails_costs_its_statistics_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *,
    plain: bool,
) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))

    def failing(device: torch.device, *given: object) -> None:
        raise RuntimeError("error code is 507015\nand much more")

    monkeypatch.setattr(staging, "fetched", failing)

    tensors = [torch.tensor([1.0, 2.0]).as_subclass(OnDevice) for _ in range(3)]

    def program() -> None:
        for tensor in tensors:
            tensor * 2
            opscope.mark_step()

    found = record(tmp_path, program, plain=plain)
    calls = found.all("aten::mul.Tensor")
    assert len(calls) == 3
    assert [found.inputs(call)["0"].size for call in calls] == [None] * 3
    told = capfd.readouterr().err
    (line,) = [line for line in told.splitlines() if "opscope" in line]
    assert "507015" in line
    assert "\n  and much more\n" in told, "nobody else is told of it"
    (process,) = found.run.processes
    assert [*process.torch["device errors"].values()] == ["error code is 507015\nand much more"]


@pytest.mark.parametrize("plain", [False, True])
def test_nothing_is_copied_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    """What an optimizer overwrites would be its whole state; nobody knows its result yet."""
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))
    copied: list[torch.Tensor] = []

    def clone(tensor: torch.Tensor) -> torch.Tensor:
        copied.append(tensor)
        return ORIGINAL_CLONE(tensor)

    monkeypatch.setattr(TorchBinding, "clone", staticmethod(clone))
    there, here = torch.ones(3).as_subclass(OnDevice), torch.ones(3)

    def program() -> None:
        for tensor in (there, here):
            tensor + 1
        opscope.mark_step()
        for tensor in (there, here):
            tensor.log_()

    record(tmp_path, program, plain=plain)
    assert [type(tensor) for tensor in copied] == [torch.Tensor]


def test_values_of_device_tensors_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))
    tensor = torch.tensor([1.0, 2.0]).as_subclass(OnDevice)
    found = record(tmp_path, lambda: tensor * 2, values="full")
    row = found.inputs(found.all("aten::mul.Tensor")[0])["0"]
    assert row.value is not None


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator, on which what has more than 16 bytes is large."""
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))
    monkeypatch.setattr(staging, "SMALL", 16)


def divided() -> None:
    """A division by zero of large tensors, and more that reads what it made."""
    quotient = torch.arange(64.0).view(8, 8).t().as_subclass(OnDevice)
    quotient.div_(torch.zeros(8, 8).as_subclass(OnDevice))
    for _ in range(3):
        quotient.exp_()


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("plain", [False, True])
def test_what_a_large_origin_read_and_made_is_kept(tmp_path: Path, *, plain: bool) -> None:
    found = record(tmp_path, divided, plain=plain)
    (division,) = found.all("aten::div_.Tensor")
    rows = [*found.inputs(division).values(), *found.outputs(division).values()]
    divisor = np.zeros((8, 8), np.float32)
    numbers = np.arange(64, dtype=np.float32).reshape(8, 8).T
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = [numbers, divisor, numbers / divisor]
    for row, values in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(found.run.value(row), values)
    exponential = found.all("aten::exp_.default")[0]
    assert found.outputs(exponential)["0"].value is None, "NaN came in: it is no origin"


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("options", [{"device_ring": "0"}, {"values": "none"}])
def test_without_a_ring_nothing_is_copied(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    def offer(_binding: TorchBinding, *given: object) -> None:
        raise AssertionError(given)

    monkeypatch.setattr(TorchBinding, "offer", offer)
    found = record(tmp_path, divided, plain=plain, **options)
    (division,) = found.all("aten::div_.Tensor")
    assert {row.value for row in found.inputs(division).values()} == {None}


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("plain", [False, True])
def test_what_only_hands_on_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    offered: list[torch.Size] = []
    original = staging.Staging.offer

    def offer(self: staging.Staging, given: Any, *, made: bool) -> None:
        offered.extend(tensor.shape for _, tensor in given)
        original(self, given, made=made)

    monkeypatch.setattr(staging.Staging, "offer", offer)
    large, small = (torch.ones(*shape).as_subclass(OnDevice) for shape in ((3, 8), (3,)))

    def program() -> None:
        large.t()
        torch.cat([large, large])
        large > 0
        torch.empty_like(large)
        small * 2
        large.expand(2, 3, 8) * 2

    record(tmp_path, program, plain=plain)
    assert offered == [torch.Size([1, 3, 8])]


@pytest.mark.usefixtures("device")
def test_nothing_is_copied_into_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_ring(*given: object) -> None:
        raise AssertionError(given)

    monkeypatch.setattr(staging, "captures", lambda _device: True)
    monkeypatch.setattr(staging, "make_ring", make_ring)
    found = record(tmp_path, divided)
    assert "not kept" not in found.run.processes[0].torch


@pytest.mark.usefixtures("device")
def test_a_device_without_memory_for_a_ring_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def make_ring(_device: torch.device, size: int) -> None:
        asked.append(size)

    monkeypatch.setattr(staging, "make_ring", make_ring)
    found = record(tmp_path, divided)
    assert asked == [64 << 20]
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "--device-ring" in line]
    assert "too little memory for --device-ring: 0 MiB" in line
    (division,) = found.all("aten::div_.Tensor")
    assert {row.value for row in found.inputs(division).values()} == {None}


@pytest.mark.usefixtures("device")
def test_a_ring_is_given_back_where_its_memory_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The program is not told of it: what ran out of memory was opscope's own."""
    rings: list[weakref.ref[Any]] = []
    original_ring, original_split = staging.make_ring, torch.split

    def make_ring(*given: Any) -> Any:
        ring = original_ring(*given)
        rings.append(weakref.ref(ring))
        return ring

    def split(*given: Any) -> Any:
        if rings and rings[0]() is not None:
            raise torch.OutOfMemoryError("NPU out of memory. Tried to allocate 20.00 MiB")
        return original_split(*given)

    monkeypatch.setattr(staging, "make_ring", make_ring)
    monkeypatch.setattr(torch, "split", split)
    found = record(tmp_path, divided)
    assert len(rings) == 1
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "--device-ring" in line]
    assert "too little memory for --device-ring: 0 MiB" in line
    assert [found.outputs(call)["0"].size for call in found.all("aten::exp_.default")] == [64] * 3
    (division,) = found.all("aten::div_.Tensor")
    assert found.outputs(division)["0"].pos_inf == 63


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("broken", [False, True])
def test_a_ring_ends_with_the_recording_or_where_a_device_cannot_fill_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, broken: bool
) -> None:
    rings: list[weakref.ref[Any]] = []
    original = staging.make_ring

    def make_ring(*given: Any) -> Any:
        ring = original(*given)
        rings.append(weakref.ref(ring))
        return ring

    def put(*_given: object, **_words: object) -> None:
        raise RuntimeError("copies between types are not supported")

    monkeypatch.setattr(staging, "make_ring", make_ring)
    if broken:
        monkeypatch.setattr(Ring, "put", put)
    found = record(tmp_path, divided)
    assert [ring() for ring in rings] == [None] * len(rings)
    assert 1 <= len(rings) <= 2
    assert ("not kept" in found.run.processes[0].torch) == broken
    assert found.outputs(found.all("aten::exp_.default")[-1])["0"].size == 64


@pytest.mark.usefixtures("device")
def test_opscope_running_out_of_memory_is_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    original = torch.split

    def split(*given: Any) -> Any:
        tried.append(len(tried))
        if len(tried) == 4:
            raise torch.OutOfMemoryError("NPU out of memory. Tried to allocate 20.00 MiB")
        return original(*given)

    monkeypatch.setattr(torch, "split", split)
    found = record(tmp_path, divided, device_ring="0")
    sizes = [found.outputs(call)["0"].size for call in found.all("aten::exp_.default")]
    assert (len(sizes), sizes.count(None)) == (3, 1)
    assert "OutOfMemoryError" in str(found.run.processes[0].torch["not measured"])


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_gradients_that_are_not_scaled_are_not_read_again(
    tmp_path: Path, *, plain: bool, scaled: bool
) -> None:
    weight, state = torch.ones(3), [torch.zeros(3) for _ in range(2)]
    gradient, scale = torch.full((3,), 4.0), torch.tensor(2.0)

    def program() -> None:
        given = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}
        switches = {"nesterov": False, "maximize": False, "is_first_step": True}
        scaling = {"grad_scale": scale} if scaled else {}
        torch._fused_sgd_([weight], [gradient], [state[0]], **given, **switches, **scaling)
        gradient + 1

    found = record(tmp_path, program, plain=plain)
    (update,) = found.all("aten::_fused_sgd_.default")
    assert found.outputs(update)["1.0"].max == (2.0 if scaled else None)
    assert found.outputs(update)["0.0"].max is not None
    (addition,) = found.all("aten::add.Tensor")
    assert found.inputs(addition)["0"].max == (2.0 if scaled else 4.0)


def test_only_fused_optimizers_scale_gradients() -> None:
    aten = torch.ops.aten
    for operator in (aten._fused_adamw_, aten._fused_adam_, aten._fused_sgd_, aten._fused_adagrad_):
        assert describe(operator.default).unscaled == 1
        assert describe(operator.tensor_lr).unscaled == 1
    assert describe(aten._foreach_add_.List).unscaled is None
    assert describe(aten.add.Tensor).unscaled is None


def told_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A queue of calls that says of an operator that it failed, to whoever asks next, and then goes
    on.
    """
    told: list[str] = []
    original = staging.sent

    def sent(tensor: torch.Tensor, *given: Any) -> Any:
        if bool((tensor == 6.0).any()) and not told:
            told.append("the current working operator name is DynamicRNN")
            raise RuntimeError(told[0])
        return original(tensor, *given)

    monkeypatch.setattr(staging, "sent", sent)
    return told


@pytest.mark.parametrize("plain", [False, True])
def test_what_an_operator_of_the_program_failed_with_is_raised_in_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))
    told = told_once(monkeypatch)
    good, bad = (torch.tensor([value]).as_subclass(OnDevice) for value in (1.0, 6.0))
    raised: list[str] = []

    def program() -> None:
        good * 2
        try:
            bad * 2
        except RuntimeError as error:
            raised.append(str(error))
        good + 4

    found = record(tmp_path, program, plain=plain)
    assert raised == told
    (multiply,) = found.all("aten::mul.Tensor")
    assert found.inputs(multiply)["0"].size is None, "its copy may have been dropped"
    (add,) = found.all("aten::add.Tensor")
    assert found.inputs(add)["0"].max == 1.0


def test_the_call_in_which_a_device_tells_of_a_failed_operator_has_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def facts(tensor: torch.Tensor) -> Any:
        return replace(ORIGINAL(tensor), device="npu:0", readable=False, staged=True)

    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts))
    told = told_once(monkeypatch)
    tensor = torch.tensor([3.0])

    def program() -> None:
        with pytest.raises(RuntimeError, match="DynamicRNN"):
            tensor * 2

    found = record(tmp_path, program, plain=True)
    (multiply,) = found.all("aten::mul.Tensor")
    assert multiply.error == f"RuntimeError: {told[0]}"


@pytest.mark.parametrize("plain", [False, True])
def test_what_opscope_itself_cannot_do_on_a_device_is_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    monkeypatch.setattr(TorchBinding, "facts", staticmethod(facts_of_a_device))
    original = staging.sent

    def sent(tensor: torch.Tensor, *given: Any) -> Any:
        if tensor.dtype is torch.int16:
            raise RuntimeError("a private format")
        return original(tensor, *given)

    monkeypatch.setattr(staging, "sent", sent)
    private = torch.tensor([3], dtype=torch.int16).as_subclass(OnDevice)
    common = torch.tensor([1.0]).as_subclass(OnDevice)

    def program() -> None:
        private * 2
        common + 4

    found = record(tmp_path, program, plain=plain)
    assert found.inputs(found.all("aten::mul.Tensor")[0])["0"].size is None
    assert found.inputs(found.all("aten::add.Tensor")[0])["0"].max == 1.0


@pytest.mark.parametrize("plain", [False, True])
def test_an_output_that_nobody_asked_for_is_not_read(tmp_path: Path, *, plain: bool) -> None:
    """An accelerator gives memory for it that it has not written."""
    made = registry.Library("opscope_unasked", "DEF")
    made.define("pair(Tensor x, bool[2] output_mask) -> (Tensor, Tensor)")
    made.impl("pair", lambda x, mask: (x * 2, torch.full_like(x, float("nan"))), "CPU")
    pair = torch.ops.opscope_unasked.pair

    def program() -> None:
        pair(torch.ones(3), [True, False])
        pair(torch.ones(3), [True, True])

    found = record(tmp_path, program, plain=plain)
    declined, asked = found.all("opscope_unasked::pair.default")
    assert (found.outputs(declined)["0"].max, found.outputs(declined)["1"].size) == (2.0, None)
    assert found.outputs(asked)["1"].nan == 3


def test_a_mask_says_which_outputs_are_wanted() -> None:
    """What the rule for such outputs rests on, by all operators that torch's dispatcher has."""
    aten = torch.ops.aten
    assert describe(aten.convolution_backward.default).asks == 10
    assert describe(aten.native_layer_norm_backward.default).asks == 7
    assert describe(aten.matmul_backward.default).asks == 3
    assert describe(aten.convolution.default).asks is None
    for schema in torch._C._jit_get_all_schemas():
        asks = mask_of_outputs(schema)
        if asks is not None and not schema.overload_name.endswith("out"):
            size = schema.arguments[asks].N
            assert size in (None, len(schema.returns)), schema
