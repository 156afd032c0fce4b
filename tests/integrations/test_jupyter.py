# SPDX-License-Identifier: Apache-2.0
"""%%opscope, called as IPython calls it; tests/interop/test_dashboards_real.py has the real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import opscope
from opscope.run.finding import Document

FAULTY = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 4)
(net(torch.full((2, 4), 1e30)) ** 2).sum().backward()
ran = True
"""


class Formatter:
    """What shows objects of a type."""

    def __init__(self) -> None:
        self.shown: dict[type, Callable[[Any], str]] = {}

    def for_type(self, kind: type, show: Callable[[Any], str]) -> None:
        self.shown[kind] = show


class Shell:
    """What of IPython's shell an extension uses."""

    def __init__(self) -> None:
        self.html = Formatter()
        self.display_formatter = SimpleNamespace(formatters={"text/html": self.html})
        self.magics: dict[str, Callable[[str, str], Any]] = {}
        self.names: dict[str, Any] = {}

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        self.magics[f"{kind} {name}"] = function

    def run_cell(self, cell: str, *, store_history: bool) -> None:
        assert not store_history
        try:
            exec(cell, self.names)
        except ZeroDivisionError:
            self.names["raised"] = True


@pytest.fixture
def shell() -> Shell:
    made = Shell()
    opscope.load_ipython_extension(made)
    return made


def test_a_cell_is_recorded_and_its_verdict_is_its_result(shell: Shell, tmp_path: Path) -> None:
    document = shell.magics["cell opscope"](f"-o '{tmp_path / 'run'}' --values none", FAULTY)
    assert isinstance(document, Document)
    assert [each.op for each in document.findings] == ["aten::pow.Tensor_Scalar"]
    assert shell.names["ran"]
    assert (tmp_path / "run" / "run.json").exists()
    said = shell.html.shown[Document](document)
    assert said.startswith(document._repr_html_())
    assert 'sandbox="allow-scripts"' in said


def test_a_cell_that_raises_leaves_a_run_and_records_no_further(
    shell: Shell, tmp_path: Path
) -> None:
    document = shell.magics["cell opscope"](f"-o '{tmp_path / 'run'}'", FAULTY + "1 / 0")
    assert isinstance(document, Document)
    assert shell.names["raised"]
    rows = opscope.open_run(tmp_path / "run").calls
    exec(FAULTY, {})
    assert repr(opscope.open_run(tmp_path / "run").calls) == repr(rows)


def test_an_option_that_is_none_is_one_line_and_the_cell_does_not_run(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.magics["cell opscope"]("--valeus full", FAULTY) is None
    assert capsys.readouterr().err == ("opscope: unknown option --valeus; did you mean --values?\n")
    assert "ran" not in shell.names
