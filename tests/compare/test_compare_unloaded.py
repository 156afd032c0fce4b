# SPDX-License-Identifier: Apache-2.0
"""Programs that only evaluate: a parameter that was not loaded, and texts that one side reads one
by one, and the other in a batch that is filled up.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WORDS, WIDE, ROUNDS = 20, 8, 3


def begun() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(3)
    sizes = (WORDS, WIDE), (WIDE, WIDE), (WORDS, WIDE), (WORDS,)
    return [torch.randn(*size, generator=drawn) for size in sizes]


def texts() -> list[list[Tensor]]:
    drawn = torch.Generator().manual_seed(4)
    return [
        [torch.randint(1, WORDS, (size,), generator=drawn) for size in (3, 6, 4)]
        for _ in range(ROUNDS)
    ]


class Model(nn.Module):
    """Words, mixed with those before them on average, and what may come next."""

    def __init__(self, *, loaded: bool = True) -> None:
        super().__init__()
        self.words, self.mix = nn.Embedding(WORDS, WIDE), nn.Linear(WIDE, WIDE, bias=False)
        self.head = nn.Linear(WIDE, WORDS)
        words, mix, head, bias = begun()
        with torch.no_grad():
            self.words.weight.copy_(words)
            self.mix.weight.copy_(mix)
            self.head.weight.copy_(head)
            if loaded:
                self.head.bias.copy_(bias)

    def forward(self, ids: Tensor, begins: Tensor) -> Tensor:
        places = torch.arange(ids.shape[-1])
        seen = (places[:, None] >= places) & (places >= begins[..., None, None])
        shares = seen / seen.sum(-1, keepdim=True).clamp(min=1)
        mixed = torch.tanh(self.mix(shares @ self.words(ids)))
        return self.head(mixed)  # both: head


@torch.no_grad()
def original(_: str) -> None:
    """Text by text."""
    torch.manual_seed(8)
    model = Model()
    for some in texts():
        scores = []
        for text in some:
            logits = model(text[:-1], torch.tensor(0))
            scores.append(-F.cross_entropy(logits, text[1:], reduction="sum"))
        torch.stack(scores).mean().item()


@torch.no_grad()
def ported(fault: str) -> None:
    """All texts at once, filled up before their first words."""
    torch.manual_seed(8)
    model = Model(loaded=fault != "unloaded")
    for some in texts():
        longest = max(map(len, some))
        begins = torch.tensor([longest - len(text) for text in some])
        ids = torch.stack([F.pad(text, (longest - len(text), 0)) for text in some])
        logp = model(ids[:, :-1], begins).log_softmax(-1)
        said = logp.gather(2, ids[:, 1:, None])[..., 0]
        kept = torch.arange(longest - 1) >= begins[:, None]
        (said * kept).sum(1).mean().item()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


def test_what_is_handed_out_in_another_form_is_nothing_where_all_numbers_are_the_same(
    golden: Path, tmp_path: Path
) -> None:
    target = recorded(ported, tmp_path / "run")
    assert not opscope.compare(target, golden).document.findings
    assert not opscope.compare(golden, target).document.findings


def test_a_parameter_that_is_not_loaded_is_told_where_it_is_read(
    golden: Path, tmp_path: Path
) -> None:
    target = recorded(ported, tmp_path / "run", "unloaded")
    finding = opscope.compare(target, golden).document.findings[0]
    assert finding.confidence == "suspected"
    assert any("drawn at random" in reason for reason in finding.reasons)
    assert marked_line(__file__, "# both: head") in told_lines(finding, "target")
