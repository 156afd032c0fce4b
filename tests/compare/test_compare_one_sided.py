# SPDX-License-Identifier: Apache-2.0
"""What shows on one side alone, or later: a part of a gradient that one side does not hand back,
running statistics that only an evaluation reads, a parameter that is in no optimizer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, EXPERTS, BATCH, LONG, STEPS = 6, 4, 8, 5, 3


def drawn(*sizes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(11)
    return [torch.randn(*size, generator=generator) * 0.5 for size in sizes]


def weights() -> list[Tensor]:
    return drawn((WIDE, WIDE), (EXPERTS, WIDE), (EXPERTS, WIDE, 2))


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(12)
    return [
        (
            torch.randn(BATCH, LONG, WIDE, generator=generator),
            torch.randn(BATCH, 2, generator=generator),
        )
        for _ in range(STEPS + 1)
    ]


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        into, gate, experts = weights()
        self.into, self.norm = nn.Linear(WIDE, WIDE, bias=False), nn.BatchNorm1d(WIDE, eps=1e-4)
        self.gate, self.experts = nn.Linear(WIDE, EXPERTS, bias=False), nn.Parameter(experts)
        with torch.no_grad():
            self.into.weight.copy_(into)
            self.gate.weight.copy_(gate)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.norm(self.into(x).transpose(1, 2))  # golden: unbiased
        h = torch.tanh(h)[:, :, -1]
        shares = self.gate(h).softmax(-1)
        used = F.one_hot(shares.argmax(-1), EXPERTS).float().mean(0)
        balance = (used * shares.mean(0)).sum()  # golden: balance
        return torch.einsum("be,ewo,bw->bo", shares, self.experts, h), balance


class Ported(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.into, self.gate, self.experts = map(nn.Parameter, weights())
        self.scale, self.shift = nn.Parameter(torch.ones(WIDE)), nn.Parameter(torch.zeros(WIDE))
        self.register_buffer("mean", torch.zeros(WIDE))
        self.register_buffer("var", torch.ones(WIDE))

    def normed(self, h: Tensor) -> Tensor:
        mean, var = self.mean, self.var
        if self.training:
            mean, var = h.mean((0, 1)), h.var((0, 1), unbiased=False)
            n = h.shape[0] * h.shape[1]
            kept = var.detach() * (1 if self.fault == "unbiased" else n / (n - 1))
            self.mean.lerp_(mean.detach(), 0.1)
            self.var.lerp_(kept, 0.1)  # target: unbiased
        return (h - mean) / (var + 1e-4).sqrt() * self.scale + self.shift

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.normed(x @ self.into.T).tanh()[:, -1]
        shares = torch.softmax(h @ self.gate.T, dim=1)
        used = torch.zeros_like(shares).scatter(1, shares.argmax(1, keepdim=True), 1.0)
        known = shares.detach() if self.fault == "balance" else shares
        balance = torch.dot(used.mean(0), known.mean(0))  # target: balance
        return (shares[:, :, None] * torch.einsum("bw,ewo->beo", h, self.experts)).sum(1), balance


def trained(model: nn.Module, left: str = "") -> None:
    *batched, (x, y) = batches()
    optimizer = torch.optim.SGD(
        [weight for name, weight in model.named_parameters() if name != left], lr=0.1
    )
    for given, wanted in batched:
        optimizer.zero_grad()
        out, balance = model(given)
        (F.mse_loss(out, wanted) + 0.3 * balance).backward()  # type: ignore[no-untyped-call]
        optimizer.step()  # both: left
    model.eval()
    with torch.no_grad():
        F.mse_loss(model(x)[0], y).item()


def original(_: str) -> None:
    trained(Original())


def ported(fault: str) -> None:
    trained(Ported(fault), "gate" if fault == "left" else "")


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original, tmp_path_factory.mktemp("golden") / "run")


def test_a_port_that_is_well_is_accused_of_nothing(golden: Path, tmp_path: Path) -> None:
    assert not opscope.compare(recorded(ported, tmp_path / "run"), golden).document.findings


@pytest.mark.parametrize("fault", ["balance", "unbiased"])
def test_what_one_side_alone_does_is_told_on_both_lines(
    golden: Path, tmp_path: Path, fault: str
) -> None:
    target = recorded(ported, tmp_path / "run", fault)
    finding = opscope.compare(target, golden).document.findings[0]
    assert marked_line(__file__, f"# target: {fault}") in told_lines(finding, "target")
    assert marked_line(__file__, f"# golden: {fault}") in told_lines(finding, "golden")


def test_a_parameter_that_one_side_leaves_as_it_is_is_told_where_the_other_trains_it(
    golden: Path, tmp_path: Path
) -> None:
    target = recorded(ported, tmp_path / "run", "left")
    for pair, words in (((target, golden), "golden trains"), ((golden, target), "it trains")):
        finding = opscope.compare(*pair).document.findings[0]
        assert finding.step == 0
        assert any(words in reason for reason in finding.reasons)
        for side in ("target", "golden"):
            assert marked_line(__file__, "# both: left") in told_lines(finding, side)
