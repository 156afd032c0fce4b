# SPDX-License-Identifier: Apache-2.0
"""Tensors of every kind, exceptions in the middle, ranks that are told late: recorded as they are, and nothing else changes."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from opscope.run.schema import Tensor
from tests.record.recorded import record

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse")
STATISTICS = ("nan", "pos_inf", "neg_inf", "zero", "min", "max", "mean", "l2norm", "digest")


def statistics(row: Tensor) -> set[object]:
    return {getattr(row, name) for name in STATISTICS}


def test_meta_tensors_have_no_statistics(tmp_path: Path) -> None:
    found = record(tmp_path, lambda: torch.empty(3, 4, device="meta") * 2, values="full")
    (row,) = found.outputs(found.all("aten::mul")[0]).values()
    assert (row.shape, row.dtype, row.device, row.value, statistics(row)) == ((3, 4), "float32", "meta", None, {None})


def test_sparse_tensors_have_no_statistics(tmp_path: Path) -> None:
    sparse = torch.eye(3).to_sparse()
    found = record(tmp_path, lambda: torch.sparse.mm(sparse, torch.ones(3, 2)), values="full")
    (call,) = [call for call in found.calls if any(row.layout not in (None, "strided") for row in found.inputs(call).values())][:1]
    (row,) = [row for row in found.inputs(call).values() if row.layout not in (None, "strided")]
    assert ("sparse" in row.layout, row.shape, row.value, statistics(row)) == (True, (3, 3), None, {None})


def test_nested_tensors_have_no_statistics(tmp_path: Path) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    found = record(tmp_path, lambda: nested * 2.0, values="full")
    (row,) = found.outputs(found.all("aten::mul")[0]).values()
    assert (row.value, statistics(row)) == (None, {None})
    assert "nested" in (row.tensor_class or row.layout or "").lower()


def test_fake_tensors_have_no_statistics(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def program() -> None:
        with FakeTensorMode():
            assert (torch.ones(2, 3) @ torch.ones(3, 4)).shape == (2, 4)
        torch.ones(5) + 1

    found = record(tmp_path, program, values="full")
    (call,) = found.all("aten::mm")
    assert [row.shape for row in found.outputs(call).values()] == [(2, 4)]
    assert {value for row in found.outputs(call).values() for value in (*statistics(row), row.value)} == {None}
    assert [row.max for row in found.outputs(found.all("aten::add")[0]).values()] == [2.0]


class Scaled(torch.Tensor):
    """A subclass as torchvision's tv_tensors are one."""


class Wrapped(torch.Tensor):
    """A subclass around a tensor, with a dispatch of its own, as DTensor and quantised weights are."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None) -> object:
        plain = [arg.inner if isinstance(arg, Wrapped) else arg for arg in args]
        return Wrapped(func(*plain, **(kwargs or {})))


def test_subclasses_stay_what_they_are(tmp_path: Path) -> None:
    seen: list[object] = []

    def program() -> None:
        scaled = torch.ones(3).as_subclass(Scaled) * 3
        wrapped = Wrapped(torch.ones(3)) * 4
        seen.extend((type(scaled), type(wrapped), wrapped.inner.tolist()))

    found = record(tmp_path, program)
    assert seen == [Scaled, Wrapped, [4.0] * 3]
    maxima = {row.max for call in found.all("aten::mul") for row in found.outputs(call).values()}
    assert {3.0, 4.0} <= maxima


class Raises(nn.Module):
    """Breaks on a negative input, two modules deep."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.Identity())
        self.inner[1].register_forward_hook(self.check)

    def check(self, module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        if float(args[0].detach().sum()) < -1e3:
            raise FloatingPointError("negative")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_after_an_exception_in_the_middle_of_a_step_names_are_right(tmp_path: Path) -> None:
    gc.collect()  # an optimizer of another test that lives yet would end the steps

    def program() -> None:
        torch.manual_seed(0)
        model = Raises()
        with torch.no_grad():
            model.inner[0].weight.copy_(torch.eye(2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for value in (1.0, -1e6, 2.0):
            try:
                model(torch.full((1, 2), value)).sum().backward()
            except FloatingPointError:
                torch.ones(1) - 1
                continue
            optimizer.step()
        torch.ones(1) * 7

    found = record(tmp_path, program)
    products = found.all("aten::addmm")
    assert [(call.module, call.name, call.step) for call in products] == [
        ("inner.0", "inner.0:addmm#1", 0), ("inner.0", "inner.0:addmm#1", 1), ("inner.0", "inner.0:addmm#2", 1),
    ]  # fmt: skip
    (caught,) = found.all("aten::sub")
    (last,) = [call for call in found.all("aten::mul.Tensor", phase="forward") if json.loads(call.args or "{}")["args"][1:] == [7]]
    assert [(call.module or "", call.parent) for call in (caught, last)] == [("", None)] * 2


@pytest.fixture
def ranks() -> Iterator[None]:
    """Left behind in no case: the group is torch's only one."""
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("ranks")
def test_a_rank_that_becomes_known_late_counts_from_the_first_row(tmp_path: Path) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def program() -> None:
        torch.ones(2) + 1
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=3, world_size=8)
        torch.ones(2) * 2

    found = record(tmp_path, program)
    (process,) = found.run.processes
    assert (process.rank, process.world) == (3, 8)
    assert {call.rank for call in found.calls} == {3}


def test_no_values_where_none_are_wanted(tmp_path: Path) -> None:
    found = record(tmp_path, lambda: torch.full((2,), 300.0, dtype=torch.float16) ** 2, values="none")
    (call,) = found.all("aten::pow")
    assert call.status
    assert {row.value for row in found.tensors} == {None}
    assert not list(Path(found.run.info.path).rglob("values-*"))


@pytest.mark.parametrize("plain", [False, True])
def test_what_a_library_keeps_for_its_backward_kernel_is_not_read(tmp_path: Path, *, plain: bool) -> None:
    """Half of it may never have been written: reading it takes memory pages that the program's own kernels then fault on."""
    lstm, x = nn.LSTM(8, 8), torch.randn(3, 2, 8)

    def read(folder: Path, values: str) -> tuple[set[bool], set[bool]]:
        found = record(folder, lambda: lstm(x)[0].sum().backward(), plain=plain, values=values)
        rows = [row for call in found.all("mkldnn_rnn_layer") for row in (*found.inputs(call).values(), *found.outputs(call).values())]
        return {row.max is None for row in rows if row.dtype == "uint8"}, {row.max is None for row in rows if row.dtype == "float32"}

    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    assert read(tmp_path / "anomaly", "anomaly") == ({True}, {False})
    assert read(tmp_path / "full", "full") == ({False}, {False})
