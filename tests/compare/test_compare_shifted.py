# SPDX-License-Identifier: Apache-2.0
"""Two causal models of which one cuts its logits and the other fills its labels up: what is cut out
of logits that differ meets nothing, though its extremes are those of first tokens, to which no
attention is paid but their own.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WORDS, WIDE, BATCH, LONG, STEPS, RATE, FIRST = 23, 16, 3, 10, 2, 0.1, 2.0


def begun() -> list[Tensor]:
    """Of the words the first, with which all sequences begin, is by far the largest."""
    drawn = torch.Generator().manual_seed(91)
    words = torch.randn(WORDS, WIDE, generator=drawn) * 0.3
    words[0] *= FIRST
    return [words, *(torch.randn(WIDE, WIDE, generator=drawn) * 0.3 for _ in range(4))]


def batches() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(92)
    drawn_ids = [torch.randint(1, WORDS, (BATCH, LONG), generator=drawn) for _ in range(STEPS)]
    return [ids.index_fill(1, torch.tensor([0]), 0) for ids in drawn_ids]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.q, self.k, self.v, self.out = (nn.Parameter(one) for one in begun())

    def forward(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self.words)
        scores = (x @ self.q) @ (x @ self.k).transpose(1, 2) / math.sqrt(WIDE)  # golden
        later = torch.ones(LONG, LONG, dtype=torch.bool).triu(1)
        read = scores.masked_fill(later, -math.inf).softmax(-1) @ (x @ self.v)
        logits = (x + F.gelu(read @ self.out)) @ self.words.T
        said = logits[:, :-1].reshape(-1, WORDS).log_softmax(-1)
        return F.nll_loss(said, ids[:, 1:].reshape(-1))


class Ported(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        words, *matrices = begun()
        self.words = nn.Embedding(WORDS, WIDE, _weight=words)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDE, WIDE, False) for _ in matrices)
        self.scale = 1 / WIDE if fault else WIDE**-0.5
        with torch.no_grad():
            for layer, matrix in zip((self.q, self.k, self.v, self.out), matrices, strict=True):
                layer.weight.copy_(matrix.T)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        q, k, v = (layer(x)[:, None] for layer in (self.q, self.k, self.v))
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)  # target
        logits = F.linear(x + F.gelu(self.out(read[:, 0])), self.words.weight)
        labels = F.pad(ids, (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def trained(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for ids in batches():
        loss = model(ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def original(_: str) -> None:
    trained(Original())


def ported(fault: str) -> None:
    trained(Ported(fault))


@pytest.mark.parametrize("fault", ["", "scale"])
def test_what_is_cut_from_other_logits_meets_nothing(tmp_path: Path, fault: str) -> None:
    target, golden = recorded(ported, tmp_path / "a", fault), recorded(original, tmp_path / "b")
    document = opscope.compare(target, golden).document
    if not fault:
        assert (document.verdict, document.findings) == ("clean", ())
        return
    (told,) = document.findings
    assert "scaled_dot_product" in told.op  # the labels that are filled up, while logits met
    assert marked_line(__file__, "# target") in told_lines(told, "target")
    assert marked_line(__file__, "# golden") in told_lines(told, "golden")
