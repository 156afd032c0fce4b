# SPDX-License-Identifier: Apache-2.0
"""A port and its original, two files, of which a part was recorded: nobody is accused of what was
left out, and what cannot be judged is said.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import opscope

ORIGINAL = """
import torch
from torch import nn

torch.manual_seed(3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.into, self.out = nn.LayerNorm(6), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(torch.nn.functional.silu(self.into(self.norm(x))))


net = Net()
weights = {name: weight.detach().clone() for name, weight in net.named_parameters()}
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
drawn = torch.Generator().manual_seed(4)
for _ in range(4):
    x, y = torch.randn(10, 6, generator=drawn), torch.randint(3, (10,), generator=drawn)
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
"""
PORT = """
import torch

net = torch.nn.ModuleDict(
    {"norm": torch.nn.LayerNorm(6), "into": torch.nn.Linear(6, 8), "out": torch.nn.Linear(8, 3)}
)
first = [torch.zeros_like(weight) for weight in net.parameters()]
second = [torch.zeros_like(weight) for weight in net.parameters()]
net.load_state_dict(WEIGHTS)


def scores(p, x):
    mean = x.mean(-1, keepdim=True)
    x = (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + 1e-5).sqrt()
    x = (x * p["norm"].weight + p["norm"].bias) @ p["into"].weight.T + p["into"].bias
    return x * torch.sigmoid(x) @ p["out"].weight.T + p["out"].bias


drawn = torch.Generator().manual_seed(4)
for step in range(1, 5):
    x, y = torch.randn(10, 6, generator=drawn), torch.randint(3, (10,), generator=drawn)
    loss = 0.0
    for half in (slice(0, 5), slice(5, 10)):
        logits = scores(net, x[half])
        part = (logits.logsumexp(1) - logits.gather(1, y[half, None])[:, 0]).mean() / 2
        part.backward()
        loss += part.item()
    with torch.no_grad():
        for p, m, v in zip(net.parameters(), first, second):
            m.mul_(0.9).add_(p.grad, alpha=0.1)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            over = (v / (1 - 0.999**step)).sqrt() + 1e-8
            p.sub_(0.01 / (1 - 0.9**step) * m / over)
            p.grad = None
"""
PARTS: list[dict[str, Any]] = [
    {},
    {"values": "full"},
    {"levels": "operator"},
    {"levels": "api"},
    {"levels": "module"},
    {"levels": "operator,module,api"},
    {"io": "output"},
    {"io": "input"},
    {"phases": "forward"},
    {"phases": "backward"},
    {"ops": "*mm*"},
    {"keep": "last:1"},
    {"keep": "last:2"},
    {"steps": "0-1"},
    {"steps": "1-2"},
]


def recorded(
    folder: Path, name: str, text: str, part: dict[str, Any], **given: object
) -> tuple[Path, dict[str, Any]]:
    """A run of a program in a file of its own, and what it left."""
    program, run = folder / f"{name}.py", folder / name
    program.write_text(text, encoding="utf-8")
    with opscope.record(run, **part):
        left = runpy.run_path(str(program), given)
    return run, left


def both(folder: Path, mine: dict[str, Any], theirs: dict[str, Any]) -> tuple[Path, Path]:
    golden, left = recorded(folder, "original", ORIGINAL, theirs)
    target, _ = recorded(folder, "port", PORT, mine, WEIGHTS=left["weights"])
    return target, golden


@pytest.mark.parametrize("part", PARTS, ids=json.dumps)
def test_a_port_that_is_well_is_accused_of_nothing(tmp_path: Path, part: dict[str, Any]) -> None:
    document = opscope.compare(*both(tmp_path, part, part)).document
    assert not document.findings


@pytest.mark.parametrize("part", PARTS[2:], ids=json.dumps)
def test_nor_beside_one_that_was_recorded_whole(tmp_path: Path, part: dict[str, Any]) -> None:
    for sides in ((part, {}), ({}, part)):
        folder = tmp_path / ("target" if sides[0] else "golden")
        folder.mkdir()
        assert not opscope.compare(*both(folder, *sides)).document.findings


@pytest.mark.parametrize("part", PARTS, ids=json.dumps)
def test_neither_is_said_to_be_unsound(tmp_path: Path, part: dict[str, Any]) -> None:
    for run in both(tmp_path, part, part):
        assert not opscope.scan(run).findings


@pytest.mark.parametrize("part", PARTS, ids=json.dumps)
def test_one_program_in_two_files_agrees(tmp_path: Path, part: dict[str, Any]) -> None:
    runs = [recorded(tmp_path, name, ORIGINAL, part)[0] for name in ("one", "other")]
    document = opscope.compare(*runs).document
    assert not document.findings
    assert document.complete, document.summary["warnings"]
