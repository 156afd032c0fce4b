# SPDX-License-Identifier: Apache-2.0
"""`--values overflow` (op_debug_mode 3): inputs and outputs of what overflowed, and of nothing
else.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from opscope.formats.settings.recording import Export
from opscope.formats.tool_tree import write_tool_tree
from tests.record.recorded import record


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("values", ["overflow", "anomaly"])
def test_outputs_of_an_overflow_are_kept(tmp_path: Path, values: str, plain: bool) -> None:
    def program() -> None:
        half = torch.full((4,), 300.0, dtype=torch.float16)
        (half * half + 1).relu()

    found = record(tmp_path, program, plain=plain, values=values)
    (call,) = [call for call in found.calls if call.status]
    assert call.op == "aten::mul.Tensor"
    kept = {(row.index, row.io) for row in found.tensors if row.value is not None}
    assert kept == {
        (call.index, "input"),
        *([(call.index, "output")] if values == "overflow" else []),
    }
    write_tool_tree(found.run, "mindspore", Export(only="overflow"), tmp_path / "tree")
    files = {path.name.split(".")[-5]: np.load(path) for path in (tmp_path / "tree").rglob("*.npy")}
    assert files["input"].tolist() == [300.0] * 4
    assert ("output" in files) == (values == "overflow")
    if values == "overflow":
        assert np.isposinf(files["output"]).all()
