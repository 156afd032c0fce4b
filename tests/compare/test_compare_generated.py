# SPDX-License-Identifier: Apache-2.0
"""Texts that one program continues one by one and the other all at once: where nothing that either
hands out has a counterpart, nothing is accused, and that is said.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import recorded
from torch import Tensor, nn

import opscope

WORDS, WIDE, NEW, BATCHES = 20, 8, 4, 2


def begun() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(51)
    return [torch.randn(shape, generator=drawn) for shape in ((WORDS, WIDE), (WORDS, WIDE))]


def batches() -> list[list[Tensor]]:
    drawn = torch.Generator().manual_seed(52)
    lengths = (3, 5, 6, 2)
    return [
        [torch.randint(1, WORDS, (length,), generator=drawn) for length in lengths]
        for _ in range(BATCHES)
    ]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDE), nn.Linear(WIDE, WORDS, bias=False)
        with torch.no_grad():
            for layer, weight in zip((self.embed, self.head), begun(), strict=True):
                layer.weight.copy_(weight)

    def forward(self, text: Tensor) -> Tensor:
        seen = self.embed(text).cumsum(0) / torch.arange(1, len(text) + 1)[:, None]
        return self.head(torch.tanh(seen))  # type: ignore[no-any-return]


def original(_: str) -> None:
    model = Original()
    with torch.inference_mode():
        for texts in batches():
            for prompt in texts:
                text = prompt
                for _ in range(NEW):
                    logits = model(text)[-1]
                    token = logits.argmax()
                    logits.log_softmax(0)[token].item()
                    text = torch.cat((text, token[None]))


class Ported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.score = (nn.Parameter(weight) for weight in begun())

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        seen = (self.words[ids] * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return torch.einsum("bd,vd->bv", seen.tanh(), self.score)[:, None]


def ported(fault: str) -> None:
    model = Ported().requires_grad_(requires_grad=False)
    for texts in batches():
        width = max(map(len, texts))
        ids = torch.zeros(len(texts), width, dtype=torch.long)
        mask = torch.zeros(len(texts), width)
        for row, text in enumerate(texts):
            ids[row, width - len(text) :] = text
            mask[row, width - len(text) :] = 1
        surprise = torch.zeros(())
        for _ in range(NEW):
            best = model(ids, mask)[:, -1].log_softmax(-1).max(-1)
            surprise = surprise - best.values.mean()
            ids = torch.cat((ids, best.indices[:, None]), 1)
            mask = torch.cat((mask, torch.full((len(mask), 1), 0.5 if fault else 1.0)), 1)
        surprise.item()


@pytest.mark.parametrize("fault", ["", "lighter"])
def test_texts_that_are_read_all_at_once_accuse_nobody(tmp_path: Path, fault: str) -> None:
    target, golden = recorded(ported, tmp_path / "a", fault), recorded(original, tmp_path / "b")
    document = opscope.compare(target, golden).document
    assert document.findings == ()
    assert not document.complete
    assert any("nothing that is in both" in words for words in document.summary["warnings"])
