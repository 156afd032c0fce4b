# SPDX-License-Identifier: Apache-2.0
"""Operators that compiled code calls: their inputs were rewritten by kernels that nobody saw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import CodeType

import pytest
import torch

from opscope.cli import main
from opscope.record.torch.stacks import GRAPHS, Stacks
from tests.record.recorded import record


def code(file: str, name: str) -> CodeType:
    return compile("pass", file, "exec").replace(co_name=name)


def test_generated_code_is_not_the_users() -> None:
    frames = [code("/tmp/cache/za/cza.py", "call"), code(next(iter(GRAPHS)), "__call__"), code("/home/me/train.py", "step")]
    site = Stacks().resolve(frames, [0, 0, 0])
    assert site.compiled
    assert site.source == "/home/me/train.py:0"
    assert not Stacks().resolve(frames[2:], [0]).compiled


def hidden(folder: Path, program: Callable[[], object]) -> int:
    return int(record(folder, program).run.info.hidden_calls)


def test_only_graphs_that_may_run_in_a_recording_hide_calls_of_it(tmp_path: Path) -> None:
    compiled, argument = torch.compile(lambda x: x * 2, backend="eager"), torch.ones(4)
    try:
        compiled(argument)
        assert hidden(tmp_path / "compiled before", lambda: compiled(argument)) > 0
        torch.compiler.reset()
        assert hidden(tmp_path / "none left", lambda: argument * 2) == 0
        assert hidden(tmp_path / "compiled meanwhile", lambda: compiled(argument)) > 0
    finally:
        torch.compiler.reset()


def test_a_saved_input_that_contradicts_its_statistics_is_not_cut_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> None:
        data = torch.ones(4)
        data + 1
        data.numpy()[:] = float("nan")
        data * 2

    found = record(tmp_path, program)
    (product,) = found.all("aten::mul")
    assert main(["repro", str(found.run.info.path), f"#{product.index}", "-o", str(tmp_path / "case")]) == 2
    assert "the run holds 4 NaN, its statistics tell of 0" in capsys.readouterr().err


@pytest.mark.zoo
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("plain", [False, True])
def test_what_a_fused_kernel_made_is_not_the_next_products(tmp_path: Path, *, plain: bool, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
    model = torch.compile(lambda x: second(torch.sqrt(first(x) - 10)))

    def program() -> None:
        with torch.no_grad():
            model(torch.randn(4, 8))

    found = record(tmp_path, program, plain=plain)
    products = found.all("aten::addmm.out")
    if not products:
        pytest.skip("this torch computes the products inside the compiled code")
    assert {row.nan for row in found.inputs(products[-1]).values()} == {None, 0, 32}
    assert main(["scan", str(found.run.info.path), "--json"]) == 1
    told = capsys.readouterr().out
    assert "arrived unsound" in told
    assert "accumulation overflow" not in told
