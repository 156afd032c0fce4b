# SPDX-License-Identifier: Apache-2.0
"""What lies among the files of a dump and is none: pipes, devices, links in circles. Nothing waits
for them, the rest is read.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TENSOR = (
    '{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1, "Min": 0, '
    '"Mean": 0.5, "Norm": 1}'
)
KERNEL = "Add.Default_Add-op{0}.0.0.170000000000000{0}.output.0.DefaultFormat.Float32.npy"


def _npy(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / name, np.ones(3, np.float32))


def _cann(root: Path) -> list[str]:
    header = (
        b"\x0a\x032.0\x10\x01\x1a\x0e\x08\x01\x10\x02\x1a\x03\x0a\x01\x01\x30\x04\x3a\x01\x0a"
        b"2\x03add"
    )
    header = header.replace(b"\x1a\x0e", b"\x1a\x0b").replace(b"\x3a\x01\x0a", b"")
    root.mkdir()
    (root / "Add.add.1.2.3").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    return ["Add.pipe.1.2.4", "mapping.csv", "opscope.jsonl"]


def _arrays(root: Path) -> list[str]:
    _npy(root, "good.npy")
    return [
        "pipe.npy",
        "pipe.npz",
        "pipe.pt",
        "mapping.csv",
        "opscope.jsonl",
        "pipe.pkl",
        "forward_info_0.json",
        "dump.json",
    ]


def _mindspore(root: Path) -> list[str]:
    _npy(root / "rank_0/Net/0/0", KERNEL.format(0))
    for folder in ("graphs", "execution_order", ".dump_metadata"):
        (root / "rank_0" / folder).mkdir()
    data = "rank_0/Net/0/0"
    return [
        f"{data}/{KERNEL.format(1)}",
        f"{data}/statistic.csv",
        f"{data}/mapping.csv",
        f"{data}/Add.Default_Add-op0.json",
        "rank_0/graphs/ms_output_trace_code_graph_0.ir",
        "rank_0/execution_order/ms_execution_order_graph_0.csv",
        "rank_0/.dump_metadata/config.json",
    ]


def _msprobe(root: Path) -> list[str]:
    folder = root / "step0/rank0"
    (folder / "dump_tensor_data").mkdir(parents=True)
    (folder / "dump.json").write_text(
        f'{{"task": "tensor", "data": {{"Torch.add.0.forward": {{"input_args": [{TENSOR}]}}}}}}'
    )
    (root / "step1/rank0").mkdir(parents=True)
    return [
        "step1/rank0/dump.json",
        "step0/rank0/stack.json",
        "step0/rank0/dump_tensor_data/Torch.add.0.forward.input.0.pt",
    ]


def _ptdbg(root: Path) -> list[str]:
    root.mkdir()
    (root / "dump.pkl").write_text(
        '["Functional_relu_0_forward_input.0", 1, [], "torch.float32", [2], [1, 0, 0.5]]\n'
    )
    return ["other.pkl"]


@pytest.mark.parametrize("make", [_cann, _arrays, _mindspore, _msprobe, _ptdbg])
def test_pipes_and_devices_are_not_waited_for(make: object, tmp_path: Path) -> None:
    """In a process of its own: a reader that opens a pipe would never come back."""
    root = tmp_path / "dump"
    for name in make(root):  # type: ignore[operator]
        os.mkfifo(root / name)
    (root / "circle").symlink_to(root)
    program = (
        f"import opscope; run = opscope.open_run({str(root)!r}); "
        "print(len(run.rows('calls')), len(run.rows('tensors')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.stdout, done.stderr) == ("1 1\n", "")
    (root / "Zero.zero.1.2.5").symlink_to("/dev/zero")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert "Zero.zero.1.2.5" in done.stderr.splitlines()[-1]
