# SPDX-License-Identifier: Apache-2.0
"""Images that one program hands to its network one after the other, and the other at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import opscope
from opscope.compare.api import Policy, pair_runs
from opscope.compare.pair.meetings import meet
from opscope.compare.pair.passes import joined
from opscope.compare.side.columns import side_of
from opscope.run.whole_tables import read_tables

STEPS = 2


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.PReLU(),
        nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.PReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 6),
    )  # fmt: skip


class Own(nn.Module):
    """The same network written out."""

    def __init__(self, given: nn.Sequential, fault: str) -> None:
        super().__init__()
        self.fault = fault
        held = [one.detach().clone() for one in given.parameters()]
        self.held = nn.ParameterList(held)

    def forward(self, x: Tensor) -> Tensor:
        for at in (0, 3):
            x = nn.functional.conv2d(x, self.held[at], self.held[at + 1], 2, 1)
            slope = 2 * self.held[at + 2] if self.fault == "slope" and at else self.held[at + 2]
            x = torch.where(x > 0, x, x * slope.view(1, -1, 1, 1))
        pooled = x.amax((2, 3)) if self.fault == "pool" else x.mean((2, 3))
        return pooled @ self.held[6].T + self.held[7]


def trained(to: Path, fault: str | None) -> Path:
    """A recorded training with triplets: of the original one after the other, of the port at
    once.
    """
    held = torch.Generator().manual_seed(5)
    batches = [torch.randn(3, 4, 3, 12, 12, generator=held) for _ in range(STEPS)]
    with opscope.record(to, values="none"):
        model = network() if fault is None else Own(network(), fault)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for batch in batches:
            if fault is None:
                anchor, near, far = (nn.functional.normalize(model(part)) for part in batch)
                loss = nn.functional.triplet_margin_loss(anchor, near, far, margin=0.5)
            else:
                made = model(batch.flatten(0, 1))
                made = made / made.norm(dim=1, keepdim=True).clamp_min(1e-12)
                anchor, near, far = made.split(4)
                away = [(anchor - one + 1e-6).square().sum(1).sqrt() for one in (near, far)]
                loss = (away[0] - away[1] + 0.5).relu().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return to


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("original") / "run", None)


def test_a_healthy_port_that_makes_one_batch_of_them_is_silent(
    original: Path, tmp_path: Path
) -> None:
    document = opscope.compare(trained(tmp_path / "run", ""), original).document
    assert (document.verdict, document.complete, document.findings) == ("clean", True, ())


@pytest.mark.parametrize(("fault", "op"), [("pool", "aten::amax"), ("slope", "aten::mul")])
def test_a_fault_behind_layers_that_meet_in_parts_is_named_where_it_is(
    original: Path, tmp_path: Path, fault: str, op: str
) -> None:
    first = opscope.compare(trained(tmp_path / "run", fault), original).findings[0]
    assert (first.op or "").startswith(op), first
    assert first.source is not None
    line = int(first.source.rpartition(":")[2])
    assert fault in Path(__file__).read_text().splitlines()[line - 1]


def test_the_first_layer_of_a_batch_is_what_the_passes_make_together(
    original: Path, tmp_path: Path
) -> None:
    whole, parts = (
        side_of(run, *read_tables(run))
        for run in map(opscope.open_run, (trained(tmp_path / "run", ""), original))
    )
    rows = [
        np.flatnonzero(
            side.tensors.output
            & side.which(side.calls.op, lambda op: "convolution." in op)[side.tensors.call]
        )
        for side in (whole, parts)
    ]
    found = list(joined(whole, rows[0], parts, rows[1], 1e-4))
    assert len(found) == len(rows[0]) == 2 * STEPS
    assert {len(one.parts) for one in found} == {3}
    assert max(one.error for one in found) < 1e-5


def graphs() -> list[Tensor]:
    drawn = torch.Generator().manual_seed(11)
    return [torch.randn(nodes, 6, generator=drawn) for nodes in (5, 3, 7, 4)]


def scored(to: Path, *, at_once: bool) -> Path:
    """A recorded inference on graphs of several sizes, as one batch or one after the other."""
    drawn = torch.Generator().manual_seed(4)
    first, second = (torch.randn(6, wide, generator=drawn) for wide in (6, 3))
    with opscope.record(to, values="none"), torch.no_grad():
        for nodes in [torch.cat(graphs())] if at_once else graphs():
            scores = torch.tanh(nodes @ first) @ second
            scores.sum().item() if at_once else scores.norm().item()
    return to


def test_graphs_of_several_sizes_meet_all_of_them_at_once(tmp_path: Path) -> None:
    parts = scored(tmp_path / "parts", at_once=False)
    whole = scored(tmp_path / "whole", at_once=True)
    assert not opscope.compare(whole, parts).findings
    sides = [side_of(run, *read_tables(run)) for run in map(opscope.open_run, (whole, parts))]
    rows = [
        np.flatnonzero(
            side.tensors.output
            & side.which(side.calls.op, lambda op: "tanh" in op or "mm." in op)[side.tensors.call]
        )
        for side in sides
    ]
    found = list(joined(sides[0], rows[0], sides[1], rows[1], 1e-4))
    assert sorted(len(one.parts) for one in found) == [4, 4, 4]
    assert max(one.error for one in found) < 1e-5


def test_a_table_meets_what_repeats_it(tmp_path: Path) -> None:
    """Positions of one text, and those of each text of a batch: what is computed of them agrees."""
    drawn = torch.Generator().manual_seed(2)
    texts, table = torch.randn(3, 5, 8, generator=drawn), torch.randn(5, 8, generator=drawn)

    def run(to: Path, positions: Tensor) -> Path:
        torch.manual_seed(1)
        net = nn.Linear(8, 8)
        with opscope.record(to, values="none"), torch.no_grad():
            net(texts + torch.cos(positions) * 2).relu().mean().item()
        return to

    target = run(tmp_path / "target", table.expand(3, 5, 8).clone())
    golden = run(tmp_path / "golden", table)
    pairing = pair_runs(*map(opscope.open_run, (target, golden)), Policy())
    sides = pairing.target, pairing.golden
    mine, theirs = (np.flatnonzero(side.calls.leaf[side.tensors.call]) for side in sides)
    error = meet(pairing, (mine, theirs)).error[0]
    cosines = sides[0].which(sides[0].calls.op, lambda op: "cos." in op)[sides[0].tensors.call]
    assert (error[cosines & sides[0].tensors.output] < 1e-5).all()
