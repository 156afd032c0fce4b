# SPDX-License-Identifier: Apache-2.0
"""Operators that compiled code calls: their inputs were rewritten by kernels that nobody saw."""

from __future__ import annotations

import math
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
    frames = [
        code("/tmp/cache/za/cza.py", "call"),
        code(next(iter(GRAPHS)), "__call__"),
        code("/home/me/train.py", "step"),
    ]
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


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (math.nan, "4 NaN"),
        (math.inf, "4 +Inf"),
        (0.0, "4 zeros"),
        (-1.0, "4 negative elements"),
        (1.5, "smallest: 1.5"),
    ],
)
def test_a_saved_input_that_contradicts_its_statistics_is_not_cut_out(
    tmp_path: Path, value: float, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def program() -> None:
        data = torch.ones(4)
        data + 1
        data.numpy()[:] = value
        data * 2

    found = record(tmp_path, program, values="sample", sample=1)
    (product,) = found.all("aten::mul")
    assert (
        main(["repro", str(found.run.info.path), f"#{product.index}", "-o", str(tmp_path / "case")])
        == 2
    )
    assert f"({told})" in capsys.readouterr().err


def test_elements_in_another_order_contradict_their_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def program() -> None:
        data = torch.tensor([1.0, 2.0])
        data + 1
        data.numpy()[:] = data.numpy()[::-1].copy()
        data * 2

    found = record(tmp_path, program, values="sample", sample=1)
    assert (
        main(
            [
                "repro",
                str(found.run.info.path),
                f"#{found.all('aten::mul')[0].index}",
                "-o",
                str(tmp_path / "case"),
            ]
        )
        == 2
    )
    assert "(other bits)" in capsys.readouterr().err


@pytest.mark.zoo
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.complex64,
        torch.int32,
        torch.bool,
        torch.float8_e5m2,
    ],
)
def test_what_was_not_written_is_cut_out_in_every_type(tmp_path: Path, dtype: torch.dtype) -> None:
    def program() -> None:
        data = torch.tensor([0.0, 1.0, 3.0, 7.0]).to(dtype)
        data.reshape(2, 2).t().contiguous()
        data[:1].expand(3).clone()
        data[::2].clone()

    found = record(tmp_path, program, values="sample", sample=1)
    for number, call in enumerate(found.all("aten::clone")):
        assert main(
            ["repro", str(found.run.info.path), f"#{call.index}", "-o", str(tmp_path / str(number))]
        ) in {0, 1}


@pytest.mark.parametrize("plain", [False, True])
def test_where_nobody_counts_writes_what_graphs_may_have_written_is_read_again(
    tmp_path: Path, *, plain: bool
) -> None:
    """Tensors of inference mode have no version counter; a fused kernel that writes to one is stood
    in for by NumPy.
    """
    compiled = torch.compile(lambda x: x * 2, backend="eager")

    @torch.inference_mode()
    def program() -> None:
        data = torch.ones(4)
        data + 1
        compiled(data).numpy()[:] = 0.0
        data.numpy()[:] = math.inf
        data - 1

    try:
        found = record(tmp_path, program, plain=plain)
    finally:
        torch.compiler.reset()
    assert [row.pos_inf for row in found.inputs(found.all("aten::sub")[0]).values()] == [4]


@pytest.mark.zoo
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("plain", [False, True])
def test_what_a_fused_kernel_made_is_not_the_next_products(
    tmp_path: Path, *, plain: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
    model = torch.compile(lambda x: second(torch.sqrt(first(x) - 10)))

    def program() -> None:
        with torch.no_grad():
            model(torch.randn(4, 8))

    found = record(tmp_path, program, plain=plain)
    products = found.all("aten::addmm.out")
    if not products:
        pytest.skip("this torch computes the products inside the compiled code")
    assert {row.nan for row in found.inputs(products[-1]).values()} == {None, 0}
    assert main(["scan", str(found.run.info.path), "--json"]) == 1
    told = capsys.readouterr().out
    assert '"op": "aten::sqrt.default"' in told
    assert "accumulation overflow" not in told
