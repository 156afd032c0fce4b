# SPDX-License-Identifier: Apache-2.0
"""Batches that one side cuts into parts, each padded as far as its own rows need: nothing of them
is of a size with the whole batch, and only losses and gradients can be held against it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import compared, told_lines
from torch import Tensor, nn

ROWS, PAD = 6, 19
Text = list[int]


def texts(step: int) -> list[Text]:
    drawn = torch.Generator().manual_seed(50 + step)
    lengths = torch.randint(3, 9, (ROWS,), generator=drawn).tolist()
    return [torch.randint(0, PAD, (length,), generator=drawn).tolist() for length in lengths]


def padded(rows: list[Text]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


class Reader(nn.Module):
    """Norms of one content before, between and behind two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.table = nn.Embedding(PAD + 1, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(6))
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
        self.head = nn.Linear(8, PAD)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norms[0](self.table(ids))
        for layer, norm in zip(self.layers, list(self.norms)[1:], strict=True):
            x = norm(x + torch.tanh(layer(x)))
        return self.head(x)


def rates(optimizer: torch.optim.Optimizer, step: int) -> None:
    for group in optimizer.param_groups:
        group["lr"] = 3e-3 * step  # nothing moves in the first step


def original(_: str) -> None:
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), 0.0)
    for step in range(3):
        ids = padded(texts(step))
        wanted = ids[:, 1:].masked_fill(ids[:, 1:] == PAD, -100)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        rates(optimizer, step)
        optimizer.step()


def port(fault: str) -> None:
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), 0.0)
    for step in range(3):
        rows = texts(step)
        counted = sum(len(row) - 1 for row in rows)
        for at in range(0, ROWS, 2):
            ids = padded(rows[at : at + 2])
            scores = model(ids[:, :-1])
            wanted = ids[:, 1:]
            told = wanted != PAD
            loss = nn.functional.cross_entropy(scores[told], wanted[told], reduction="sum")
            loss = loss / (3 * int(told.sum()) if fault == "weight" else counted)  # weight
            if fault == "zeroed":
                optimizer.zero_grad()
            loss.backward()  # zeroed
        rates(optimizer, step)
        optimizer.step()
        optimizer.zero_grad()


def test_parts_that_are_padded_otherwise_are_silent(tmp_path: Path) -> None:
    document = compared((port, original), tmp_path).document
    assert (document.verdict, document.findings) == ("clean", ())


@pytest.mark.parametrize(("fault", "word"), [("weight", "losses"), ("zeroed", "gradients")])
def test_what_parts_is_told_and_no_more(tmp_path: Path, fault: str, word: str) -> None:
    first = compared((port, original), tmp_path, fault).findings[0]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    told = [lines[line - 1] for line in sorted(told_lines(first, "target"))]
    assert any(line.endswith(f"# {fault}") for line in told), told
    assert len(first.reasons) == 1
    assert first.reasons[0].startswith(f"the {word} of the step part")
