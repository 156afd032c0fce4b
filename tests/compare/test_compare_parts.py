# SPDX-License-Identifier: Apache-2.0
"""A packed batch beside a padded one: the operator at which they part is named, though no tensor
inside of the models has a counterpart of its size, where tensors are small or values are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, told_lines
from torch import Tensor, nn

import opscope

WORDS, WIDE, INNER, STEPS = 20, 12, 16, 6
LENGTHS = (7, 5, 6)
LONG = 100  # times these, of which statistics hold no samples


def begun() -> dict[str, Tensor]:
    drawn = torch.Generator().manual_seed(71)
    shapes = {
        "words": (WORDS, WIDE),
        "up": (INNER, WIDE),
        "down": (WIDE, INNER),
        "head": (WORDS, WIDE),
    }
    return {name: torch.randn(shape, generator=drawn) * 0.3 for name, shape in shapes.items()}


def batches(times: int) -> list[list[Tensor]]:
    drawn = torch.Generator().manual_seed(72)
    return [
        [torch.randint(1, WORDS, (length * times,), generator=drawn) for length in LENGTHS]
        for _ in range(STEPS)
    ]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name, weight in begun().items():
            self.register_parameter(name, nn.Parameter(weight))

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.embedding(tokens, self.words)
        x = F.layer_norm(x, (WIDE,))
        inner = x @ self.up.T
        opened = F.silu(inner)  # golden: activation
        x = x + opened @ self.down.T
        return x @ self.head.T


def original(_: str, times: int) -> None:
    model = Original()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for texts in batches(times):
        tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True)
        scores = model(tokens[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def ported(fault: str, times: int) -> None:
    """The same by functions, on the texts one behind the other."""
    weights = {name: weight.requires_grad_() for name, weight in begun().items()}
    optimizer = torch.optim.SGD(weights.values(), lr=0.1)
    for texts in batches(times):
        given = torch.cat([text[:-1] for text in texts])
        x = F.layer_norm(weights["words"][given], (WIDE,))
        inner = F.linear(x, weights["up"])
        opened = F.gelu(inner) if fault else inner * inner.sigmoid()  # target: activation
        x = x + F.linear(opened, weights["down"])
        odds = F.linear(x, weights["head"]).log_softmax(-1)
        loss = F.nll_loss(odds, torch.cat([text[1:] for text in texts]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def recorded(
    program: Callable[[str, int], None],
    to: Path,
    fault: str = "",
    *,
    values: str = "full",
    times: int = 1,
) -> Path:
    with opscope.record(to, values=values):
        program(fault, times)
    return to


@pytest.mark.parametrize("values", ["full", "none"])
def test_the_operator_is_named(tmp_path: Path, values: str) -> None:
    golden = recorded(original, tmp_path / "golden", values=values)
    run = recorded(ported, tmp_path / "healthy", values=values)
    healthy = opscope.compare(run, golden).document
    assert (healthy.verdict, healthy.complete, healthy.findings) == ("clean", True, ())
    run = recorded(ported, tmp_path / "faulty", "gelu", values=values)
    first = opscope.compare(run, golden).findings[0]
    assert first.op == "aten::gelu.default"
    assert marked_line(__file__, "# target: activation") in told_lines(first, "target")
    assert marked_line(__file__, "# golden: activation") in told_lines(first, "golden")


def test_where_values_would_tell_it_is_said(tmp_path: Path) -> None:
    golden = recorded(original, tmp_path / "golden", values="none", times=LONG)
    for fault in ("", "gelu"):
        run = recorded(ported, tmp_path / f"run{fault}", fault, values="none", times=LONG)
        said = opscope.compare(run, golden).document.summary["warnings"]
        assert any("--values full on both sides" in words for words in said) == bool(fault)
