# SPDX-License-Identifier: Apache-2.0
"""Single passes of small models whose weights and batches were made before the recording began: the
right call comes first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch import library as registry
from torch.nn import functional

import opscope
from opscope.run.finding import Document

pytestmark = pytest.mark.zoo


class Tagger(nn.Module):
    """Words in, a tag for each out, by an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(16, 8)
        self.memory = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, ids: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        hidden, _ = self.memory(self.words(ids))
        return self.head(change(hidden))


def passed(
    to: Path,
    *,
    batch: int = 4,
    length: int = 6,
    perturbed: str = "",
    change: Callable[[Tensor], Tensor] = lambda x: x,
) -> Path:
    """One forward and backward pass, recorded."""
    torch.manual_seed(0)
    model = Tagger()
    if perturbed:
        with torch.no_grad():
            model.get_parameter(perturbed)[0] += 0.1
    ids = torch.randint(0, 16, (8, 8), generator=torch.Generator().manual_seed(1))[
        :batch, :length
    ].contiguous()
    goal = (ids % 4).reshape(-1)
    with opscope.record(to):
        functional.cross_entropy(model(ids, change).reshape(len(goal), -1), goal).backward()
    return to


def compared(folder: Path, **changed: object) -> Document:
    return opscope.compare(passed(folder / "target", **changed), passed(folder / "golden")).document  # type: ignore[arg-type]


def test_scratch_memory_of_a_library_accuses_nobody(tmp_path: Path) -> None:
    document = compared(tmp_path)
    assert (document.verdict, document.complete) == ("clean", True), document.findings


def test_what_only_changes_places_is_named(tmp_path: Path) -> None:
    first = compared(tmp_path, change=lambda hidden: hidden.flip(1)).findings[0]
    assert (first.kind, first.op) == ("divergence-origin", "aten::flip.default")


@pytest.mark.parametrize("size", [{"batch": 3}, {"length": 5}])
def test_a_batch_of_another_size_is_one_finding(size: dict[str, int], tmp_path: Path) -> None:
    (finding,) = compared(tmp_path, **size).findings
    assert (finding.op, finding.reasons[0].partition(":")[0]) == (
        "aten::embedding.default",
        "the batch has another size",
    )


def test_a_weight_that_differs_is_told_beside_a_batch_of_another_size(tmp_path: Path) -> None:
    first, second = compared(tmp_path, batch=3, perturbed="head.weight").findings
    assert first.op == "aten::embedding.default"
    assert second.module == "head"
    assert "head.weight" in second.reasons[0]


def pooled(to: Path, kernel: Callable[..., tuple[Tensor, Tensor]] | None) -> Path:
    """One pooling, by torch's kernel or another one."""
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    made = registry.Library("aten", "IMPL")
    if kernel is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is a kernel already
            made.impl("max_pool2d_with_indices", kernel, "CPU")
    try:
        with opscope.record(to):
            values, _ = torch.ops.aten.max_pool2d_with_indices(x, [2, 2])
            values * 2
    finally:
        made._destroy()
    return to


def with_a_mask_of_bits(factor: float) -> Callable[..., tuple[Tensor, Tensor]]:
    """A kernel that has for indices what its own backward kernel reads, as NPUs do."""

    def kernel(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
        values = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))
        return values * factor, torch.arange(160, dtype=torch.uint8).view(1, 1, 4, 40)

    return kernel


def test_a_mask_in_the_form_of_another_device_is_no_divergence(tmp_path: Path) -> None:
    golden = pooled(tmp_path / "golden", None)
    document = opscope.compare(
        pooled(tmp_path / "healthy", with_a_mask_of_bits(1.0)), golden
    ).document
    assert document.verdict == "clean", document.findings
    wrong = opscope.compare(pooled(tmp_path / "wrong", with_a_mask_of_bits(1.5)), golden).document
    assert [each.op for each in wrong.findings] == ["aten::max_pool2d_with_indices.default"]
