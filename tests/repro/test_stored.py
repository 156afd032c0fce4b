# SPDX-License-Identifier: Apache-2.0
"""The lines by which cut-out scripts read and write tensors, against safetensors' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from opscope.repro.scripts.stored import STORED_TYPES, places_of, read_tensors, write_tensors
from opscope.run.dtypes import DTYPES

HERE = {
    name: getattr(torch, known) for name, known in STORED_TYPES.items() if hasattr(torch, known)
}
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (2, 0), (5,), (2, 3, 4))


def tensors() -> dict[str, torch.Tensor]:
    """One of each type and shape, with any bits."""
    generator = torch.Generator().manual_seed(3)
    held = {}
    for name, dtype in HERE.items():
        for shape in SHAPES:
            size = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
            most = 2 if dtype is torch.bool else 256
            bits = torch.randint(0, most, (size,), dtype=torch.uint8, generator=generator)
            held[f"{name} {shape}"] = bits.view(dtype).reshape(shape)
    return held


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        (each.dtype, each.shape) == (other[key].dtype, other[key].shape)
        and torch.equal(
            each.reshape(-1).view(torch.uint8), other[key].reshape(-1).view(torch.uint8)
        )
        for key, each in one.items()
    )


def test_their_files_are_read(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "a.safetensors", metadata={"format": "pt"})
    read = read_tensors(tmp_path / "a.safetensors")
    assert same(read, tensors())
    read["F32 (5,)"].fill_(1)  # they may be written to, and the file is not
    assert same(load_file(tmp_path / "a.safetensors"), tensors())


def test_they_read_ours(tmp_path: Path) -> None:
    turned = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    held = {**tensors(), "turned": turned}
    write_tensors(tmp_path / "a.safetensors", held)
    for read in (
        load_file(tmp_path / "a.safetensors"),
        read_tensors(str(tmp_path / "a.safetensors")),
    ):
        assert same(read, {**tensors(), "turned": turned.detach().contiguous()})
    for name, _, first, end in places_of((tmp_path / "a.safetensors").read_bytes()).values():
        width = torch.empty(0, dtype=HERE[name]).element_size()
        assert first % width == 0 or first == end
    write_tensors(tmp_path / "none.safetensors", {})
    assert read_tensors(tmp_path / "none.safetensors") == {}


def file(header: Any, size: int = 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


def row(**other: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **other}}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x08\x00",
        (1 << 60).to_bytes(8, "little") + b"{}",
        file(b"{"),
        file(b"\xff"),
        file(row(data_offsets=[0, 9])),
        file(row(data_offsets=[-4, 4])),
        file(row(data_offsets=[8, 0])),
        file(row(data_offsets=[0, 7])),
        file(row(data_offsets=[0, "x"])),
        file(row(shape=[3])),
        file(row(shape=[-2])),
        file(row(shape=[1 << 62, 8])),
    ],
)
def test_damaged_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises((ValueError, RuntimeError)):
        read_tensors(tmp_path / "a")


def test_types_are_those_of_the_one_table() -> None:
    known = {each.safetensors: each.name for each in DTYPES if each.kind != "complex"}
    assert {name: known.get(name) for name in STORED_TYPES} == STORED_TYPES


def test_a_type_that_torch_has_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(file(row(dtype="F7\n")))
    with pytest.raises(TypeError, match=r"no element type 'F7\\n'"):
        read_tensors(tmp_path / "a")
