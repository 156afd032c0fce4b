# SPDX-License-Identifier: Apache-2.0
"""Graphs of torch.fx that a program calls: an exported model, a traced one, show the lines that
they were made from.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from torch import nn

import opscope
from tests.record.recorded import read

LINES = pytest.mark.skipif(
    not hasattr(torch.fx.graph.PythonCode, "_prologue_start"),
    reason="this torch does not say how it counts lines of generated code",
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x).sigmoid()
        return h - torch.log(x)


def sources(run: Path) -> dict[str, set[str]]:
    """The lines at which each operator ran."""
    found: dict[str, set[str]] = {}
    for call in read(run).calls:
        found.setdefault(call.op, set()).add(str(call.source))
    return found


def line(words: str) -> str:
    """FILE:LINE of the line of this file that holds these words first."""
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{1 + next(i for i, text in enumerate(lines) if words in text)}"


def loaded() -> nn.Module:
    """The block exported, saved and loaded again."""
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(Block(), (torch.ones(2, 4),)), buffer)
    buffer.seek(0)
    return torch.export.load(buffer).module()


@LINES
def test_an_exported_model_shows_the_lines_it_was_exported_from(tmp_path: Path) -> None:
    model = loaded()
    with opscope.record(tmp_path / "run"):
        model(torch.ones(2, 4))
    found = sources(tmp_path / "run")
    assert found["aten::native_layer_norm.default"] == {line("h = self.norm(x)")}
    assert found["aten::sigmoid.default"] == {line("h = self.norm(x)")}
    assert found["aten::log.default"] == {line("return h - torch.log(x)")}


@LINES
def test_a_graph_below_a_module_of_the_program_does_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), loaded())
    with opscope.record(tmp_path / "run"):
        model(torch.ones(2, 4))
    assert sources(tmp_path / "run")["aten::log.default"] == {line("return h - torch.log(x)")}


def test_a_graph_without_lines_is_at_the_line_that_calls_it(tmp_path: Path) -> None:
    model = torch.fx.symbolic_trace(Block())
    with opscope.record(tmp_path / "run"):
        model(torch.ones(2, 4))  # the call
    assert sources(tmp_path / "run")["aten::log.default"] == {line("# the call")}
