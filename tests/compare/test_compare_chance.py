# SPDX-License-Identifier: Apache-2.0
"""What agrees by chance, what is prepared otherwise and what one side keeps beside its weights hides
no fault of a program that is written differently, and is none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opscope
from opscope.run.finding import Document

WIDE, KINDS, ROWS, STEPS = 12, 5, 16, 2
Weights = dict[str, Tensor]


def begun() -> Weights:
    """What both programs begin with."""
    drawn = torch.Generator().manual_seed(3)
    shapes = {"into": (WIDE, WIDE), "out": (KINDS, WIDE)}
    return {name: torch.randn(shape, generator=drawn) * 0.5 for name, shape in shapes.items()}


def batches() -> list[tuple[Tensor, Tensor]]:
    drawn = torch.Generator().manual_seed(4)
    return [
        (torch.randn(ROWS, WIDE, generator=drawn), torch.randint(KINDS, (ROWS,), generator=drawn))
        for _ in range(STEPS)
    ]


def plain_norm() -> nn.LayerNorm:
    return nn.LayerNorm(WIDE, elementwise_affine=False)


class Original(nn.Module):
    """Two norms, one after the other, and a batch norm that keeps its mean, by PyTorch's modules."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(WIDE, WIDE, bias=False)
        self.first, self.second = plain_norm(), plain_norm()
        self.batch = nn.BatchNorm1d(WIDE)
        self.out = nn.Linear(WIDE, KINDS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        read: Tensor = self.batch(F.gelu(self.into(x)) + x)
        made: Tensor = self.out(self.second(self.first(read)))
        return made


class Port(nn.Module):
    """The same with its batch norm written out, which keeps nothing."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.into, self.out = nn.Parameter(torch.empty(WIDE, WIDE)), nn.Parameter(torch.empty(0))
        self.gain, self.shift = nn.Parameter(torch.ones(WIDE)), nn.Parameter(torch.zeros(WIDE))
        self.first, self.second = plain_norm(), plain_norm()

    def forward(self, x: Tensor) -> Tensor:
        h = x @ self.into
        made = F.gelu(h)
        made = 2 * made if self.fault == "doubled" else made
        read = made + x
        away = read - read.mean(0)
        read = away / torch.sqrt(away.square().mean(0) + 1e-5) * self.gain + self.shift
        scores: Tensor = self.second(self.first(read)) @ self.out
        return scores


def original(weights: Weights) -> None:
    """Some rows of a batch count; gradients are cut short, then SGD."""
    model = Original()
    model.load_state_dict({f"{name}.weight": one for name, one in weights.items()}, strict=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for x, kinds in batches():
        rows = torch.nonzero(kinds > 0).flatten()
        loss = F.cross_entropy(model(x)[rows], kinds[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1e-6)
        optimizer.step()


def ported(weights: Weights, fault: str) -> None:
    """Rows that do not count weigh nothing, and what cuts gradients short is written out."""
    net = Port(fault)
    net.into.data, net.out.data = weights["into"].T.clone(), weights["out"].T.clone()
    parameters = list(net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.4 if fault == "rate" else 0.5)
    for x, kinds in batches():
        counted = (kinds > 0).float()
        each = net(x).log_softmax(1).gather(1, kinds[:, None])[:, 0]
        loss = -(each * counted).sum() / counted.sum()
        if fault == "rate":
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = [one.grad for one in parameters if one.grad is not None]
        else:
            gradients = list(torch.autograd.grad(loss, parameters))
        norm = torch.stack([one.square().sum() for one in gradients]).sum().sqrt()
        for parameter, one in zip(parameters, gradients, strict=True):
            parameter.grad = one.mul_(1e-6 / (norm + 1e-6))
        optimizer.step()  # here
        optimizer.zero_grad()


def without_modules(path: Path, fault: str = "") -> None:
    """The same by functions of weights that are read from a file, where nothing bears a name."""
    held = {name: one.requires_grad_() for name, one in torch.load(path, weights_only=True).items()}
    every = [torch.from_numpy(torch.cat(some).numpy()) for some in zip(*batches(), strict=True)]
    for x, kinds in zip(*(one.split(ROWS) for one in every), strict=True):
        read = F.gelu(x @ held["into"].T) + x
        away = read - read.mean(0)
        read = away / torch.sqrt(away.square().mean(0) + 1e-5) * held["gain"] + held["shift"]
        read = F.layer_norm(read, (WIDE,))
        made = F.layer_norm(read, (WIDE,)) @ held["out"].T
        counted = (kinds > 0).float()
        each = made.log_softmax(1).gather(1, kinds[:, None])[:, 0]
        loss = -(each * counted).sum() / counted.sum()
        gradients = torch.autograd.grad(loss, list(held.values()))
        norm = torch.stack([one.square().sum() for one in gradients]).sum().sqrt()
        rate = (0.4 if fault == "rate" else 0.5) * 1e-6 / (norm + 1e-6)
        with torch.no_grad():
            for parameter, one in zip(held.values(), gradients, strict=True):
                parameter.sub_(rate * one)


def judged(to: Path, port: Callable[[], None]) -> Document:
    """What is said of a port beside the original."""
    runs = {"golden": lambda: original(begun()), "target": port}
    for name, program in runs.items():
        with opscope.record(to / name, values="none"):
            program()
    return opscope.compare(to / "target", to / "golden").document


def place(words: str) -> str:
    """FILE:LINE of the line of this file that holds these words first."""
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(i for i, text in enumerate(lines, 1) if words in text)}"


def test_a_healthy_port_is_silent(tmp_path: Path) -> None:
    """A mean that a batch norm keeps begins as its weights do, and is none of the port's."""
    found = judged(tmp_path, lambda: ported(begun(), ""))
    assert (found.verdict, found.complete, found.findings) == ("clean", True, ())


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("doubled", "2 * made if"),  # norms behind it have a deviation of 1 in any case
        ("rate", "optimizer.step()  # here"),  # of gradients far smaller than those of the loss
    ],
)
def test_a_fault_is_named_at_its_line(tmp_path: Path, fault: str, line: str) -> None:
    found = judged(tmp_path, lambda: ported(begun(), fault)).findings[0]
    assert (found.source, found.step) == (place(line), 0)


def saved(to: Path) -> Path:
    """A file of what the two begin with, the weights of the batch norm with it."""
    kept = {"gain": torch.ones(WIDE), "shift": torch.zeros(WIDE)}
    torch.save(begun() | kept, to / "weights.pt")
    return to / "weights.pt"


def test_a_healthy_port_without_modules_is_silent(tmp_path: Path) -> None:
    """Its steps are counted by what is written to the weights."""
    found = judged(tmp_path, lambda: without_modules(saved(tmp_path)))
    assert (found.verdict, found.findings) == ("clean", ())


def test_another_rate_is_told_of_a_port_without_modules(tmp_path: Path) -> None:
    first = judged(tmp_path, lambda: without_modules(saved(tmp_path), "rate")).findings[0]
    assert (first.source, first.step) == (place("rate = (0.4 if"), 0)
