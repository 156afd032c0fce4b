# SPDX-License-Identifier: Apache-2.0
"""What a kernel does with memory is judged beside its values: arguments it may only read, results
that share memory or do not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import opscope
from opscope.run.finding import Finding

Kernel = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("one_process")


@contextmanager
def replaced(op: str, kernel: Kernel) -> Iterator[None]:
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl(op, kernel, "CPU")
    try:
        yield
    finally:
        library._destroy()


def checked(place: Path, program: Kernel, *wrong: Any) -> tuple[Any, tuple[Finding, ...]]:
    """What a program gives under --check and the findings, while an operator of torch is
    replaced.
    """
    with opscope.record(place, check=True):
        if wrong:
            with replaced(*wrong):
                given = program()
        else:
            given = program()
    return given, opscope.scan(opscope.open_run(place)).findings


def rectify() -> list[float]:
    x = torch.linspace(-1, 1, 24).reshape(4, 6)
    y = torch.relu(x)
    return [*x.flatten().tolist(), *y.flatten().tolist()]


def test_an_argument_that_is_only_read_was_changed(tmp_path: Path) -> None:
    def clobbers(x: torch.Tensor) -> torch.Tensor:
        return x.clamp_(min=0).clone()

    with replaced("relu", clobbers):
        alone = rectify()
    given, findings = checked(tmp_path / "run", rectify, "relu", clobbers)
    assert given == alone
    assert [finding.op for finding in findings] == ["aten::relu.default"]
    assert any("argument 0 was changed" in reason for reason in findings[0].reasons)
    rows = (
        {(row["io"], row["slot"]) for row in findings[0].evidence[0]["inputs_kept"]}
        if findings[0].evidence[0].get("inputs_kept")
        else None
    )
    assert rows is None or rows


def test_the_program_sees_an_argument_changed_once(tmp_path: Path) -> None:
    @torch.library.custom_op(
        "opscope_tests::halves", mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    def halves(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        x.mul_(0.5)
        return y

    def program() -> list[float]:
        x = torch.ones(3)
        return [float(halves(x).sum()) for _ in range(3)]

    alone = program()
    given, findings = checked(tmp_path / "run", program)
    assert given == alone
    assert [finding.op for finding in findings] == ["opscope_tests::halves.default"]


def write_through() -> list[float]:
    x = torch.zeros(4, 3)
    x[1].add_(1.0)
    return x.sum().tolist()  # type: ignore[return-value]


def test_a_view_that_is_a_copy(tmp_path: Path) -> None:
    def select(x: torch.Tensor, dim: int, index: int) -> torch.Tensor:
        return x.narrow(dim, index, 1).squeeze(dim).clone()

    given, findings = checked(tmp_path / "run", write_through, "select.int", select)
    assert given == 0.0
    assert [finding.op for finding in findings] == ["aten::select.int"]
    assert any("copy" in reason for reason in findings[0].reasons)


def test_a_result_that_is_its_argument(tmp_path: Path) -> None:
    def program() -> list[float]:
        x = torch.ones(6)
        torch.abs(x).add_(1.0)
        return [float(each) for each in x]

    given, findings = checked(tmp_path / "run", program, "abs", lambda x: x.view(-1))
    assert given == [2.0] * 6
    assert [finding.op for finding in findings] == ["aten::abs.default"]
    assert any("shares memory" in reason for reason in findings[0].reasons)


def test_what_a_healthy_kernel_leaves_undefined_is_not_nondeterminism(tmp_path: Path) -> None:
    def program() -> list[float]:
        torch.manual_seed(0)
        x = torch.randn(15, 3, 7, requires_grad=True)
        targets, lengths = torch.randint(1, 7, (3, 4)), torch.tensor([4, 3, 2])
        losses = []
        for _ in range(6):
            loss = torch.nn.functional.ctc_loss(
                x.log_softmax(-1), targets, torch.full((3,), 15), lengths, zero_infinity=True
            )
            loss.backward()
            losses.append(loss.item())
        return losses

    given, findings = checked(tmp_path / "run", program)
    assert given == program()
    assert findings == ()


def test_elements_that_are_one_in_memory_are_written_to_without_a_verdict(tmp_path: Path) -> None:
    def program() -> list[float]:
        x = torch.arange(6.0)
        x.as_strided((2, 2), (1, 1)).mul_(2)
        x.as_strided((2, 2), (1, 3)).mul_(2)  # these lie apart
        return x.tolist()

    given, findings = checked(tmp_path / "run", program)
    assert given == program()
    assert findings == ()
    told = opscope.open_run(tmp_path / "run").processes[0].checked["unjudged"]
    assert told["aten::mul_.Tensor"]["calls"] == 1
    assert "one in memory" in told["aten::mul_.Tensor"]["reason"]
