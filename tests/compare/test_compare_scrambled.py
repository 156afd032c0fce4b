# SPDX-License-Identifier: Apache-2.0
"""Numbers in another order, which statistics do not see: with the values that both runs keep the
call that put them so is named, without them the first to which the order matters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opscope

SIZE, WIDE, HEADS = 6, 8, 2


class Patches(nn.Module):
    """Patches of an image with a place each, and attention among them."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, WIDE, 2, stride=2)
        self.place = nn.Parameter(torch.randn(SIZE * SIZE, WIDE))
        self.qkv, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.cut(x).flatten(2).transpose(1, 2)
        y = torch.tanh(y)
        y = y + self.place
        q, k, v = self.qkv(y).chunk(3, -1)
        mixed = (q @ k.transpose(1, 2) / WIDE**0.5).softmax(-1) @ v
        made: Tensor = self.out(mixed.mean(1))
        return made


class Rewritten(nn.Module):
    """The same, channels last and products written out."""

    def __init__(self, given: Patches, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.kernel, self.bias = nn.Parameter(given.cut.weight.data), given.cut.bias
        self.where, self.mix, self.head = given.place, given.qkv, given.out

    def forward(self, x: Tensor) -> Tensor:
        rows = nn.functional.unfold(x, 2, stride=2).transpose(1, 2)  # patches, row by row
        y = rows @ self.kernel.flatten(1).t() + self.bias
        if self.fault == "columns":
            y = y.view(-1, SIZE, SIZE, WIDE).transpose(1, 2).reshape(-1, SIZE * SIZE, WIDE)
        if self.fault == "backwards":
            y = y.flip(1)
        y = torch.tanh(y)
        y = y + self.where
        q, k, v = torch.einsum("btc,dc->btd", y, self.mix.weight).add(self.mix.bias).chunk(3, -1)
        scores = torch.einsum("bqc,bkc->bqk", q, k) * WIDE**-0.5
        if self.fault == "scale":
            scores = scores * 1.1
        mixed = torch.einsum("bqk,bkc->bqc", scores.softmax(-1), v)
        return self.head(mixed.sum(1) / (SIZE * SIZE))


def written(path: Path, model: nn.Module, values: str) -> Path:
    torch.manual_seed(1)
    images = [torch.randn(2, 3, 2 * SIZE, 2 * SIZE) for _ in range(2)]
    with opscope.record(path, values=values), torch.no_grad():
        for image in images:
            model(image)
    return path


Compared = Callable[[str, str], Any]


@pytest.fixture
def compared(tmp_path: Path) -> Compared:
    def compare(fault: str, values: str) -> Any:
        torch.manual_seed(0)
        original = Patches().eval()
        golden = written(tmp_path / "golden", original, values)
        target = written(tmp_path / "target", Rewritten(original, fault), values)
        return opscope.compare(target, golden).document

    return compare


def line_of(text: str) -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (found,) = (number for number, line in enumerate(lines, 1) if line.strip().startswith(text))
    return f"{__file__}:{found}"


@pytest.mark.parametrize("values", ["none", "full"])
def test_other_layouts_are_no_fault(compared: Compared, values: str) -> None:
    document = compared("", values)
    assert (document.verdict, document.findings) == ("clean", ())


@pytest.mark.parametrize(
    ("fault", "line"), [("columns", "y = y.view(-1, SIZE, SIZE"), ("backwards", "y = y.flip(1)")]
)
def test_the_call_that_put_them_so_is_named(compared: Compared, fault: str, line: str) -> None:
    (first, *_) = compared(fault, "full").findings
    assert first.source == line_of(line)
    assert "gives golden's numbers in another order" in first.reasons


def test_without_values_it_is_the_first_call_to_which_the_order_matters(compared: Compared) -> None:
    (first, *_) = compared("columns", "none").findings
    assert first.source == line_of("y = y + self.where")


def test_what_is_wrong_in_order_is_told_as_without_values(compared: Compared) -> None:
    (first, *_) = compared("scale", "full").findings
    assert first.source == line_of("scores = scores * 1.1")
