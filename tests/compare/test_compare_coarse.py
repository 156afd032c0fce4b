# SPDX-License-Identifier: Apache-2.0
"""Ports that compute in bfloat16: roundings of what cancels, of biases that begin as zeros and of
later steps accuse nobody; a fault that is larger is told, and that smaller ones are hidden is said.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import Labelled, labelled, marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, ROWS, STEPS, LAYERS, CLASSES = 16, 12, 4, 3, 5


def batches() -> list[Labelled]:
    return labelled(82, steps=STEPS, size=(ROWS, WIDE), classes=CLASSES)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDE, WIDE) for _ in range(LAYERS)])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDE) for _ in range(LAYERS)])
        self.head = nn.Linear(WIDE, CLASSES)
        drawn = torch.Generator().manual_seed(81)
        with torch.no_grad():
            for layer in (*self.layers, self.head):
                layer.weight.copy_(0.4 * torch.randn(layer.weight.shape, generator=drawn))
                layer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + nn.functional.gelu(norm(layer(x)))
        return self.head(x)  # type: ignore[no-any-return]


class Ported(Model):
    """The same with norms written out; with a fault, the residual is left out."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            y = (x @ layer.weight.t() + layer.bias).float()
            centred = y - y.mean(-1, keepdim=True)
            unit = centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
            y = nn.functional.gelu(unit * norm.weight + norm.bias)
            x = y if self.fault else x + y  # target
        return self.head(x)  # type: ignore[no-any-return]


def original(_: str) -> None:
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for x, labels in batches():
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def ported(fault: str) -> None:
    model = Ported(fault)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for x, labels in batches():
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(x).float().log_softmax(-1)
            loss = -logits.gather(1, labels[:, None]).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize("fault", ["", "no residual"])
def test_roundings_of_bfloat16_accuse_nobody(tmp_path: Path, fault: str) -> None:
    target, golden = recorded(ported, tmp_path / "a", fault), recorded(original, tmp_path / "b")
    document = opscope.compare(target, golden).document
    assert any("record both in float32" in str(each) for each in document.summary["warnings"])
    if not fault:
        assert (document.verdict, document.findings) == ("clean", ())
        return
    (told,) = document.findings
    assert marked_line(__file__, "# target") in told_lines(told, "target")
