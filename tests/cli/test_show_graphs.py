# SPDX-License-Identifier: Apache-2.0
"""`opscope show --graphs`: what torch.compile made, how often it ran, why there are so many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.oldest import COMPILES_AGAIN, not_in_oldest
from tests.record.hidden_backend import hidden
from tests.record.recorded import record

from opscope.cli import main


@not_in_oldest(COMPILES_AGAIN)
@pytest.mark.filterwarnings("ignore")
def test_graphs_breaks_and_recompilations_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return torch.log(y)

    def program() -> None:
        run = torch.compile(broken, backend=hidden, dynamic=False)
        for size in (2, 2, 3):
            run(-torch.ones(size))

    torch._dynamo.reset()
    found = record(tmp_path, program)
    torch._dynamo.reset()
    path = str(found.run.info.path)
    assert main(["show", path, "--graphs", "--json"]) == 0
    graphs = json.loads(capsys.readouterr().out)["graphs"]
    assert [graph["executions"] for graph in graphs] == [
        {"forward": 2}, {"forward": 2}, {"forward": 1}, {"forward": 1},
    ]  # fmt: skip
    assert [graph["broken"] for graph in graphs] == [True, False, True, False]
    assert "size mismatch" in graphs[2]["reason"]
    assert [graph["repeated"] for graph in graphs] == [0, 2, 0, 1]
    assert main(["show", path, "--graphs"]) == 0
    told = capsys.readouterr().out
    assert "compiled again: " in told
    assert "breaks: " in told


def test_a_run_without_graphs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = record(tmp_path, lambda: torch.ones(2) + 1)
    assert main(["show", str(found.run.info.path), "--graphs"]) == 0
    assert "no graph of torch.compile" in capsys.readouterr().err
