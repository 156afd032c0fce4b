# SPDX-License-Identifier: Apache-2.0
"""Programs of a test's own file, recorded, and the lines of it that a finding names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import opscope
from opscope.compare.tell.comparison import Comparison
from opscope.run.finding import Finding

Labelled = tuple[Tensor, Tensor]  # rows, and their labels or what is to be made of them


def recorded(program: Callable[[str], None], to: Path, fault: str = "") -> Path:
    """A run of a program with a fault, without values."""
    with opscope.record(to, values="none"):
        program(fault)
    return to


def compared(
    pair: tuple[Callable[[str], None], Callable[[str], None]], to: Path, fault: str = ""
) -> Comparison:
    """A port with a fault beside its original."""
    port, original = pair
    return opscope.compare(recorded(port, to / "run", fault), recorded(original, to / "golden"))


def labelled(seed: int, *, steps: int, size: tuple[int, int], classes: int) -> list[Labelled]:
    """Batches of rows, each of one of so many classes."""
    drawn = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(*size, generator=drawn),
            torch.randint(classes, size[:1], generator=drawn),
        )
        for _ in range(steps)
    ]


def fitted(seed: int, *, steps: int, rows: int, wide: int, out: int) -> list[Labelled]:
    """Batches of rows, and as many rows of numbers that a model is to make of them."""
    drawn = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(rows, wide, generator=drawn), torch.randn(rows, out, generator=drawn))
        for _ in range(steps)
    ]


def told_lines(finding: Finding, side: str) -> set[int]:
    """The lines of a side's region, target or golden."""
    region = next(one[f"{side}_lines"] for one in finding.evidence if f"{side}_lines" in one)
    spans = [place.rpartition(":")[2].partition("-") for place in region]
    return {line for first, _, last in spans for line in range(int(first), int(last or first) + 1)}


def marked_line(file: str, words: str) -> int:
    """The line of a file that ends with these words."""
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    return next(number for number, text in enumerate(texts, 1) if text.endswith(words))
