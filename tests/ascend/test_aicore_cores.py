# SPDX-License-Identifier: Apache-2.0
"""`.core` files, beside logs and alone: registers, arguments, values, and the kernel they carry."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.cli import main
from opscope.errors import FormatError
from opscope.formats.cann import corefile

from .aicore_logs import failed
from .conftest import part
from .core_writer import block, register, section, write

Aicore = Callable[..., tuple[int, dict[str, Any]]]
NAME = "Relu_" + "0f" * 16
IN, OUT = 0x12C040000000, 0x12C040010000


def relu(
    folder: Path,
    values: np.ndarray[Any, Any],
    *,
    value_bytes: int = 16,
    registers: dict[int, int] | None = None,
) -> Path:
    """A core file of a Relu whose DMA failed, with its description and its binary."""
    inside = {
        "binFileName": NAME, "kernelName": NAME, "magic": "RT_DEV_BINARY_MAGIC_ELF_AIVEC",
        "blockDim": 2,
        "supportInfo": {
            "simplifiedKey": ["Relu/d=0,p=1/0,2/0,2"],
            "inputs": [{"name": "x", "index": 0, "dtype": "float32", "format": "ND",
                "shape": [-2]}],
            "outputs": [{"name": "y", "index": 0, "dtype": "float32", "format": "ND",
                "shape": [-2]}],
        },
    }  # fmt: skip
    data = values.tobytes()
    words = struct.pack("<2Q", IN, OUT)
    about = (
        block(IN, len(data), 1, 2, values.shape)
        + block(OUT, len(data), 2, 3, values.shape)
        + block(0x12C100000000, 16, 3, 101)
    )
    found = registers or {0x700: 1 << 23, 0x730: 0x6A, 0x734: 0xB9}
    rows = b"".join(
        register(address, value, value_bytes=value_bytes) for address, value in found.items()
    )
    number = 25 + 7 if value_bytes == 16 else 36 + 7
    name = NAME.encode()
    return write(
        folder / f"{NAME}.2.6.20260405112233444.core",
        [
            section(".ascend.global", 1, data, address=IN, link=5),
            section(
                ".ascend.global", 1, np.maximum(values, 0).tobytes(), address=OUT, link=5, info=1
            ),
            section(".ascend.global", 1, words, address=0x12C100000000, link=5, info=2),
            section(".ascend.devtbl", 4, struct.pack("<4QII", 0, 0, 1 << 7, 0, 3, 1)),
            section(".ascend.auxinfo.global", 5, about),
            section(f".ascend.local.{number}", 2, bytes(64)),
            section(f".ascend.auxinfo.local.{number}", 6, struct.pack("<QIIII", 64, 6, 0, 4, 0)),
            section(f".ascend.regs.{number}", 3, rows),
            section(".ascend.file_kernel_object", 8, b"\x7fELF binary"),
            section(".ascend.file_kernel_json", 9, json.dumps(inside).encode()),
            section(".ascend.kernel_info", 10, struct.pack("<I", len(name)) + name),
        ],
    )


def values() -> np.ndarray[Any, Any]:
    return np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)


def test_what_a_core_file_holds(tmp_path: Path) -> None:
    found = corefile.read(relu(tmp_path, values()))
    assert (found.kernel, found.device, found.value_bytes) == (NAME, 3, 16)
    assert [(one.type, one.address, one.size, one.copied, one.shape) for one in found.blocks] == [
        (2, IN, 96, True, (4, 6)),
        (3, OUT, 96, True, (4, 6)),
        (101, 0x12C100000000, 16, True, ()),
    ]
    assert [(one.core, one.memory, one.size) for one in found.locals] == [("AIV 7", "UB", 64)]
    assert found.registers[0].values == {0x700: 1 << 23, 0x730: 0x6A, 0x734: 0xB9}


def test_a_core_file_alone_is_an_error_with_its_case(aicore: Aicore, tmp_path: Path) -> None:
    relu(tmp_path, values())
    code, document = aicore(tmp_path, "-o", tmp_path / "out")
    (finding,) = document["findings"]
    assert (code, finding["op"], finding["status"]) == (1, "Relu", "0x800000")
    error = part(finding, "error")
    assert (error["device"], error["stream"], error["task"], error["function"]) == (3, 2, 6, NAME)
    (core,) = part(finding, "cores")["cores"]
    assert (core["core"], core["kind"], core["registers"]["mte error info"]) == (
        7,
        "aivec error",
        "0xb90000006a",
    )
    assert [
        (one["label"], one["dtype"], one["shape"], one["address"])
        for one in part(finding, "arguments")["tensors"]
    ] == [
        ("input 0", "float32", [4, 6], hex(IN)),
        ("output 0", "float32", [4, 6], hex(OUT)),
    ]
    assert part(finding, "reference")["status"] == "agrees"
    case = tmp_path / "out" / "case"
    assert np.array_equal(np.load(case / "inputs" / "input.0.npy"), values())
    assert (case / "kernel_meta" / f"{NAME}.o").read_bytes() == b"\x7fELF binary"
    assert json.loads((case / "kernel_meta" / f"{NAME}.json").read_text())["binFileName"] == NAME
    assert "core file" in (tmp_path / "out" / "info.txt").read_text()


def test_a_core_file_completes_the_logs(aicore: Aicore, tmp_path: Path) -> None:
    bad = values()
    bad[1, 1] = np.nan
    relu(tmp_path, bad)
    (tmp_path / "plog-4711_1.log").write_text(failed(1.0, NAME) + failed(8.0, "other", task=7))
    _, document = aicore(tmp_path)
    first, second = document["findings"]
    assert (first["op"], first["status"], part(first, "error")["time"]) == (
        "Relu",
        "0x800000",
        "2024-05-06-07:08:01.000.000",
    )
    assert any(
        record["cause"] == "input values"
        for record in first["evidence"]
        if record["part"] == "verdict"
    )
    assert not any(record["part"] == "core file" for record in second["evidence"])


def test_registers_of_ascend_950(aicore: Aicore, tmp_path: Path) -> None:
    relu(tmp_path, values(), value_bytes=32, registers={0x6700: 1 << 31, 0x7708: 1, 0x6718: 0x1234})
    _, document = aicore(tmp_path)
    (finding,) = document["findings"]
    assert (finding["status"], part(finding, "error")["generation"]) == ("95, 352", "Ascend 950")
    assert part(finding, "cores")["cores"][0]["core"] == 7


def test_memory_that_was_not_copied_is_no_values(tmp_path: Path, aicore: Aicore) -> None:
    path = relu(tmp_path, values())
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<QQ", IN, 96))
    struct.pack_into("<Q", data, at + 8, 96 | 1 << 63)
    path.write_bytes(bytes(data))
    _, document = aicore(tmp_path)
    (finding,) = document["findings"]
    assert [one["label"] for one in part(finding, "dump")["tensors"]] == ["output 0"]
    assert part(finding, "addresses")["checks"][0]["status"] == "unreadable"


@pytest.mark.parametrize("keep", [64, 200, 600])
def test_a_torn_core_file_is_a_problem_and_no_crash(tmp_path: Path, keep: int) -> None:
    path = relu(tmp_path, values())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FormatError, match="torn"):
        corefile.read(path)
    (tmp_path / "plog-4711_1.log").write_text(failed(1.0, NAME))
    assert main(["aicore", str(tmp_path)]) == 1
