# SPDX-License-Identifier: Apache-2.0
"""Memory of the inputs: what shares it shares it again, strides, offsets and alignment stay."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.repro.single_calls import Recorder, call_row, run_of

import opscope.repro
from opscope.repro.buffers import ALIGNMENT, kept_shape, place
from opscope.run.schema import Tensor, dense_strides

SCRIPT = Path(opscope.repro.__file__).parent / "scripts" / "repro.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("template", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rebuild(
    script: ModuleType, directory: Path, tensors: list[torch.Tensor], **wide: Any
) -> list[torch.Tensor]:
    """The tensors after a way through a repro folder."""
    recorder = Recorder()
    tree = {"args": [recorder.tree(tensors, "0")], "kwargs": {}}
    run, call = run_of(recorder.rows, recorder.values, call_row("aten::cat.default", tree))
    opscope.repro.write(run, call, directory)
    case = json.loads((directory / "case.json").read_text())
    found = script.build_tensors(
        case, load_file(directory / "inputs.safetensors"), script.Conditions("cpu", "cpu", wide)
    )
    return [found[f"0.{i}"] for i in range(len(tensors))]


def same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


BASE = torch.arange(4000.0)
VIEWS = {
    "whole": [BASE],
    "column": [BASE.view(40, 100)[:, 7]],
    "transposed": [BASE.view(40, 100).t()],
    "channels last": [torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last)],
    "expanded": [torch.arange(5.0).view(5, 1).expand(5, 1000)],
    "expanded scalar": [torch.tensor(3.0).expand(2, 3)],
    "windows": [BASE.unfold(0, 10, 3)[:20]],
    "far offset": [BASE[3001:3005]],
    "empty": [torch.empty(0, 3), torch.empty(2, 0).t()],
    "scalar": [torch.tensor(2.5)],
    "two halves": [BASE[:10], BASE[5:15]],
    "same twice": [BASE[:10], BASE[:10]],
    "with transpose": [BASE.view(40, 100), BASE.view(40, 100).t()],
    "bits": [BASE[:8], BASE.view(torch.int32)[:8], BASE.view(torch.uint8)[1:9]],
    "apart": [torch.ones(3), torch.ones(3)],
    "bool and complex": [
        torch.tensor([True, False]),
        torch.tensor([1 + 2j, complex(float("nan"), 1)]),
    ],
    "fp8": [
        torch.arange(6.0).to(torch.float8_e4m3fn).view(2, 3).t(),
        torch.arange(6.0).to(torch.float8_e5m2),
    ],
    "unsigned": [
        torch.arange(3, dtype=torch.int32).to(torch.uint16),
        torch.tensor([2**40]).to(torch.uint64),
    ],
}


@pytest.mark.parametrize("name", VIEWS)
def test_tensors_come_back_with_their_memory(name: str, script: ModuleType, tmp_path: Path) -> None:
    before = VIEWS[name]
    after = rebuild(script, tmp_path / "case", before)
    for was, here in zip(before, after, strict=True):
        assert (here.dtype, here.shape, here.stride()) == (was.dtype, was.shape, was.stride())
        assert torch.equal(
            here.contiguous().view(-1).view(torch.uint8),
            was.contiguous().view(-1).view(torch.uint8),
        )
        if was.numel():
            assert here.storage_offset() <= was.storage_offset()
            assert (was.storage_offset() - here.storage_offset()) * was.itemsize % ALIGNMENT == 0
    for i, was in enumerate(before):
        for j, other in enumerate(before):
            if was.numel() and other.numel():
                assert same_place(was, other) == same_place(after[i], after[j])


def test_a_write_through_one_view_is_seen_by_the_other(script: ModuleType, tmp_path: Path) -> None:
    first, second = rebuild(script, tmp_path / "case", VIEWS["two halves"])
    first.fill_(-1.0)
    assert second.tolist() == [-1.0] * 5 + [10.0, 11.0, 12.0, 13.0, 14.0]


def test_types_that_look_at_the_same_bytes_part_when_one_is_widened(
    script: ModuleType, tmp_path: Path
) -> None:
    floats, ints, octets = rebuild(script, tmp_path / "case", VIEWS["bits"], float=torch.float64)
    assert (floats.dtype, ints.dtype, octets.dtype) == (torch.float64, torch.int32, torch.uint8)
    assert floats.tolist() == BASE[:8].tolist()
    assert ints.tolist() == BASE.view(torch.int32)[:8].tolist()
    assert same_place(ints, octets)
    assert not same_place(ints, floats)


def test_only_what_is_seen_is_stored(script: ModuleType, tmp_path: Path) -> None:
    rebuild(
        script, tmp_path / "case", [torch.tensor([1.0]).expand(3000, 3000), BASE[:10], BASE[:10]]
    )
    stored = load_file(tmp_path / "case" / "inputs.safetensors")
    assert {key: list(value.shape) for key, value in stored.items()} == {"0.0": [1, 1], "0.1": [10]}


def test_rows_without_storage_or_strides_lie_apart_and_densely() -> None:
    rows = [
        Tensor(process=0, index=0, io="input", slot=str(i), dtype="float32", shape=(2, 3))
        for i in range(2)
    ]
    buffers, placed, warnings = place(rows)
    assert [placed[slot].stride for slot in "01"] == [(3, 1), (3, 1)]
    assert placed["0"].buffer != placed["1"].buffer
    assert all(buffer.size == 6 for buffer in buffers.values())
    assert not warnings


def test_a_view_spread_over_too_much_memory_is_packed_and_said() -> None:
    row = Tensor(
        process=0,
        index=0,
        io="input",
        slot="0",
        dtype="float32",
        shape=(2,),
        stride=(2**40,),
        storage=1,
        offset=0,
    )
    buffers, placed, warnings = place([row])
    assert (placed["0"].stride, buffers["0"].size) == ((1,), 2)
    assert "conditions differ: input 0" in warnings[0]


@given(
    shape=st.lists(st.integers(1, 4), max_size=3),
    strides=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    offset=st.integers(0, 300),
)
@settings(max_examples=200, deadline=None)
def test_any_strides_come_back(shape: list[int], strides: list[int], offset: int) -> None:
    spec = importlib.util.spec_from_file_location("template", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stride = tuple(strides[: len(shape)])
    was = torch.arange(600.0).as_strided(shape, stride, offset)
    row = Tensor(
        process=0,
        index=0,
        io="input",
        slot="0",
        dtype="float32",
        shape=tuple(shape),
        stride=stride,
        storage=1,
        offset=offset,
    )
    buffers, placed, _ = place([row])
    kept = kept_shape(row.shape or (), stride)
    case = {"buffers": {"0": {"size": buffers["0"].size, "dtype": "float32"}},
            "tensors": [{"slot": "0", "dtype": "float32", "shape": shape, "stride": stride,
                "offset": placed["0"].offset, "buffer": "0",
                         "device": "cpu", "key": "0", "kept": kept,
                         "values": "recorded"}]}  # fmt: skip
    value = was[tuple(slice(0, size) for size in kept)].contiguous()
    assert torch.equal(
        module.build_tensors(case, {"0": value}, module.Conditions("cpu", "cpu", {}))["0"], was
    )


def test_dense_strides_are_torchs() -> None:
    for shape in ([], [0], [2, 0, 3], [2, 3, 4], [1, 1]):
        assert dense_strides(shape) == torch.empty(shape).stride()
