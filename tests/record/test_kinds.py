# SPDX-License-Identifier: Apache-2.0
"""Tensors of every kind, exceptions in the middle, ranks that are told late: recorded as they are,
and nothing else changes.
"""

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

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors", "ignore:Sparse", "ignore:torch.quantize_per"
)
STATISTICS = ("nan", "pos_inf", "neg_inf", "zero", "min", "max", "mean", "l2norm", "digest")


def statistics(row: Tensor) -> set[object]:
    return {getattr(row, name) for name in STATISTICS}


def test_meta_tensors_have_no_statistics(tmp_path: Path) -> None:
    found = record(tmp_path, lambda: torch.empty(3, 4, device="meta") * 2, values="full")
    (row,) = found.outputs(found.all("aten::mul")[0]).values()
    assert (row.shape, row.dtype, row.device, row.value, statistics(row)) == (
        (3, 4),
        "float32",
        "meta",
        None,
        {None},
    )


@pytest.mark.parametrize("plain", [False, True])
def test_a_sparse_tensor_is_read_as_its_values_and_its_indices(
    tmp_path: Path, *, plain: bool
) -> None:
    values = torch.tensor([1.0, -2.0, float("inf")])

    def program() -> torch.Tensor:
        sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2], [4, 0, 1]]), values * 2, (3, 5))
        return torch.sparse.mm(sparse, torch.ones(5, 2))

    found = record(tmp_path, program, values="full", plain=plain)
    (product,), (call,) = found.all("aten::mul"), found.all("sparse_coo_tensor")
    made, rows = found.outputs(product)["0"], found.outputs(call)
    whole = rows["0"]
    assert (whole.layout, whole.shape, whole.stride, whole.value) == (
        "sparse_coo",
        (3, 5),
        (),
        None,
    )
    assert (whole.version, whole.storage, whole.digest) == (made.version, made.storage, made.digest)
    assert (whole.size, whole.pos_inf, whole.min, whole.max) == (3, 1, -4.0, 2.0)
    assert (rows["0.indices"].shape, rows["0.indices"].max_int, rows["0.indices"].dtype) == (
        (2, 3),
        4,
        "int64",
    )


@pytest.mark.parametrize("plain", [False, True])
def test_compressed_nested_quantised_and_onednn_tensors_are_read(
    tmp_path: Path, *, plain: bool
) -> None:
    def program() -> None:
        (torch.eye(3) * 5).to_sparse_csr() * 2
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]) * 2.0
        channels = torch.tensor([0.5, 0.25]), torch.zeros(2, dtype=torch.long)
        torch.quantize_per_channel(torch.tensor([[1.0], [3.0]]), *channels, 0, torch.qint8)
        if torch.backends.mkldnn.is_available():
            torch.full((2, 2), 3.0).to_mkldnn() * 2

    found = record(tmp_path, program, plain=plain)
    rows = {
        (row.layout, row.dtype, slot): row
        for call in found.calls
        for slot, row in found.outputs(call).items()
    }
    compressed, nested, quantised = (rows[kind, dtype, "0"] for kind, dtype in KINDS)
    assert (compressed.shape, compressed.size, compressed.max) == ((3, 3), 3, 10.0)
    assert (nested.shape, nested.size, nested.max) == ((), 18, 2.0)
    assert (quantised.shape, quantised.min_int, quantised.max_int) == ((2, 1), 2, 12)
    assert {slot for _, _, slot in rows} >= {
        "0.crow_indices",
        "0.col_indices",
        "0.sizes",
        "0.scales",
        "0.zero_points",
    }
    if torch.backends.mkldnn.is_available():
        assert (rows["_mkldnn", "float32", "0"].size, rows["_mkldnn", "float32", "0"].max) == (
            4,
            6.0,
        )


KINDS = (("sparse_csr", "float32"), ("nested", "float32"), ("strided", "qint8"))


def test_a_nested_tensor_that_is_a_part_of_anothers_memory_is_not_read_as_the_whole(
    tmp_path: Path,
) -> None:
    def program() -> None:
        data = torch.nested.nested_tensor(
            [torch.tensor([[1.0, float("nan")]]), torch.tensor([[1.0, float("nan")]] * 2)]
        )
        data.chunk(2, -1)[0].contiguous()

    found = record(tmp_path, program)
    parts = [row for call in found.all("chunk") for row in found.outputs(call).values()]
    assert {row.nan for row in parts if row.layout == "nested"} == {None}


def test_fake_tensors_have_no_statistics(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def program() -> None:
        with FakeTensorMode():
            assert (torch.ones(2, 3) @ torch.ones(3, 4)).shape == (2, 4)
        torch.ones(5) + 1

    found = record(tmp_path, program, values="full")
    (call,) = found.all("aten::mm")
    assert [row.shape for row in found.outputs(call).values()] == [(2, 4)]
    assert {
        value for row in found.outputs(call).values() for value in (*statistics(row), row.value)
    } == {None}
    assert [row.max for row in found.outputs(found.all("aten::add")[0]).values()] == [2.0]


class Scaled(torch.Tensor):
    """A subclass as torchvision's tv_tensors are one."""


class Wrapped(torch.Tensor):
    """A subclass around a tensor, with a dispatch of its own, as DTensor and quantised weights
    are.
    """

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(
        cls, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> object:
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

    def check(
        self, module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor
    ) -> None:
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
        ("inner.0", "inner.0:addmm#1", 0),
        ("inner.0", "inner.0:addmm#1", 1),
        ("inner.0", "inner.0:addmm#2", 1),
    ]
    (caught,) = found.all("aten::sub")
    (last,) = [
        call
        for call in found.all("aten::mul.Tensor", phase="forward")
        if json.loads(call.args or "{}")["args"][1:] == [7]
    ]
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
    found = record(
        tmp_path, lambda: torch.full((2,), 300.0, dtype=torch.float16) ** 2, values="none"
    )
    (call,) = found.all("aten::pow")
    assert call.status
    assert {row.value for row in found.tensors} == {None}
    assert not list(Path(found.run.info.path).rglob("values-*"))


@pytest.mark.parametrize("plain", [False, True])
def test_what_a_library_keeps_for_its_backward_kernel_is_not_read(
    tmp_path: Path, *, plain: bool
) -> None:
    """Half of it may never have been written: reading it takes memory pages that the program's own
    kernels then fault on.
    """
    lstm, x = nn.LSTM(8, 8), torch.randn(3, 2, 8)

    def read(folder: Path, values: str) -> tuple[set[bool], set[bool]]:
        found = record(folder, lambda: lstm(x)[0].sum().backward(), plain=plain, values=values)
        rows = [
            row
            for call in found.all("mkldnn_rnn_layer")
            for row in (*found.inputs(call).values(), *found.outputs(call).values())
        ]
        return {row.max is None for row in rows if row.dtype == "uint8"}, {
            row.max is None for row in rows if row.dtype == "float32"
        }

    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    assert read(tmp_path / "anomaly", "anomaly") == ({True}, {False})
    assert read(tmp_path / "full", "full") == ({False}, {False})
