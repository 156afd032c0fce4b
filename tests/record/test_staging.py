# SPDX-License-Identifier: Apache-2.0
"""Tensors whose memory is not the host's: statistics are worked out by tensor operators and fetched
at the end of a step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import library as registry

import opscope
from opscope.record.torch import staging
from opscope.record.torch.binding import TorchBinding
from opscope.record.torch.operators import describe, mask_of_outputs
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
