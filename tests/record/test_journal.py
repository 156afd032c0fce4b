# SPDX-License-Identifier: Apache-2.0
"""Inputs of chosen calls are on disk before the call begins, and are found again when it does not
return.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import opscope
from opscope.errors import FormatError, UsageError
from opscope.narrow import widened
from opscope.record.torch.journal import content
from opscope.run.database import sql
from opscope.run.query import tensors_of
from opscope.run.schema import Call
from opscope.run.store.journal import (
    LEAST,
    OPEN,
    RAISED,
    RETURNED,
    JournalFile,
    read_journals,
    read_value,
)
from opscope.scan.crashes import is_asynchronous


def journalled(folder: Path, *args: object, state: int = OPEN) -> JournalFile:
    file = JournalFile(folder / "journal-0", thread=5)
    head, blocks, _keep = content("aten::mm.default", args, {})
    file.write(12, head, blocks)
    file.mark(state)
    return file


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0).reshape(3, 4)[:, 1:3],
        torch.tensor([1.0, 2.0]).expand(3, 2),
        torch.tensor(2.5).expand(3, 3),
        torch.arange(7, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.zeros(0, 3),
        torch.randn(2 * LEAST // 4 + 5),
    ],
    ids=[
        "dense",
        "transposed",
        "slice",
        "expanded",
        "scalar expanded",
        "bfloat16",
        "bool",
        "empty",
        "larger than the file",
    ],
)
def test_inputs_come_back(tensor: torch.Tensor, tmp_path: Path) -> None:
    journalled(tmp_path, tensor, 3).close()
    (entry,) = read_journals(tmp_path)
    assert (entry.state, entry.thread, entry.index, entry.head.op) == (
        OPEN,
        5,
        12,
        "aten::mm.default",
    )
    (row,) = entry.rows(0, 12)
    assert (row.shape, row.dtype) == (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
    if tensor.numel():
        found = read_value(tmp_path, entry, row)
        assert np.array_equal(widened(found).astype(np.float64), tensor.double().numpy())


def test_a_call_that_returned_is_forgotten_and_one_that_raised_is_not(tmp_path: Path) -> None:
    file = journalled(tmp_path, torch.ones(2), state=RETURNED)
    assert read_journals(tmp_path) == ()
    file.mark(RAISED)
    assert len(read_journals(tmp_path)) == 1
    file.close()


def test_damaged_journals_are_refused_by_name(tmp_path: Path) -> None:
    journalled(tmp_path, torch.ones(2)).close()
    path = tmp_path / "journal-0"
    whole = path.read_bytes()
    for damaged in (
        b"",
        whole[:10],
        b"x" * 100,
        whole[:8] + b"\x09" + whole[9:],
        whole[:32] + b"\xff" * 8 + whole[40:],
        whole[:64] + b"]" + whole[65:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match="journal-0"):
            read_journals(tmp_path)
    path.write_bytes(whole[:200])
    path.write_bytes(whole[:5000])
    (entry,) = read_journals(tmp_path)
    path.write_bytes(whole[:4000])
    with pytest.raises(FormatError, match="outside the file"):
        read_value(tmp_path, entry, entry.rows(0, 12)[0])


def test_chosen_calls_of_a_program_and_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opscope.record(tmp_path / "run", journal="aten::mm,tanh*"):
        with pytest.raises(RuntimeError):
            torch.mm(torch.full((2, 3), 7.0), torch.ones(4, 5))
        torch.relu(torch.ones(3))
    run = opscope.open_run(str(tmp_path / "run"))
    (row,) = sql(run, "SELECT * FROM calls WHERE error IS NOT NULL")
    call = Call(**{name: row[name] for name in Call.__struct_fields__})
    kept = {
        tensor.slot: run.value(tensor).tolist()
        for tensor in tensors_of(run, call, io="input")
        if tensor.value is not None
    }
    assert kept == {"0": [[7.0] * 3] * 2, "1": [[1.0] * 5] * 4}
    with opscope.record(tmp_path / "other", journal="bmm"):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    assert "'bmm' matched no call" in capsys.readouterr().err
    with pytest.raises(UsageError):
        opscope.record(tmp_path / "wrong", journal="name-regex((")


def test_device_errors_are_told_from_others() -> None:
    for text in (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: [ERROR] AICore exception 507015",
        "RuntimeError: npuSynchronizeDevice, error code is 507011",
        "EZ9999: Inner Error!",
    ):
        assert is_asynchronous(text)
    for text in (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
        "ValueError: error in the data",
        "KeyError: 507",
        "RuntimeError: aclnnSwiGlu not in libopapi.so\n[ERROR] (PID:1) ERR01004 OPS invalid pointer",
    ):
        assert not is_asynchronous(text)
