# SPDX-License-Identifier: Apache-2.0
"""Runs of other degrees, ranks or micro-batches, are judged by what these hold together.

Ranks are recorded one after the other; what an all-reduce would bring is worked out beforehand.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import opscope
from opscope.compare.api import compare
from opscope.compare.pair.sketches import Sketch
from opscope.compare.pair.wholes import distance, simple
from opscope.compare.tell.comparison import Comparison
from opscope.formats.registry import open_run
from opscope.run.memory import MemoryRun
from opscope.run.query import records

WIDE, BATCH, STEPS = 6, 8, 2
Data = list[tuple[Tensor, Tensor]]


class Net(nn.Module):
    def __init__(self, epsilon: float, *, noise: float) -> None:
        super().__init__()
        self.into, self.norm = nn.Linear(WIDE, WIDE), nn.LayerNorm(WIDE, eps=epsilon)
        self.noise, self.out = nn.Dropout(noise), nn.Linear(WIDE, 5)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.out(self.noise(functional.gelu(self.norm(self.into(x))))))


def data() -> Data:
    held = torch.Generator().manual_seed(3)
    return [
        (torch.randn(BATCH, WIDE, generator=held), torch.randint(0, 5, (BATCH,), generator=held))
        for _ in range(STEPS)
    ]


def made(fault: str, *, noise: float = 0.0) -> Net:
    torch.manual_seed(0)
    model = Net(1e-1 if fault == "epsilon" else 1e-5, noise=noise)
    if fault == "loaded":
        with torch.no_grad():
            model.into.weight[1] = model.into.weight[0]
    return model


def backward(model: Net, x: Tensor, y: Tensor, share: float = 1.0) -> None:
    (functional.cross_entropy(model(x), y) * share).backward()  # type: ignore[no-untyped-call]


def stepped(model: Net, fault: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=2e-2 if fault == "rate" else 1e-2)


def trained(to: Path, parts: int, fault: str = "", *, noise: float = 0.0) -> Path:
    """A training on one rank with so many micro-batches."""
    with opscope.record(to, values="none"):
        model = made(fault, noise=noise)
        optimizer = stepped(model, fault)
        for x, y in data():
            optimizer.zero_grad()
            for part in zip(x.chunk(parts), y.chunk(parts), strict=True):
                backward(model, *part, 1.0 if fault == "sum" else 1 / parts)
            optimizer.step()
    return to


def parallel(to: Path, fault: str, *, noise: float = 0.0) -> MemoryRun:
    """A data-parallel training on two ranks; of some faults rank 1 alone has one."""
    averaged = reduced(fault)
    for rank in range(2):
        with opscope.record(to / str(rank), values="none"):
            model = made(fault if fault != "loaded" or rank else "", noise=noise)
            torch.manual_seed(0 if fault == "seeds" else rank)
            model.train(not (fault == "eval" and rank))
            optimizer = stepped(model, fault)
            for step, ((x, y), gradients) in enumerate(zip(data(), averaged, strict=True)):
                half = 0 if fault == "data" else rank
                optimizer.zero_grad()
                backward(model, x.chunk(2)[half], y.chunk(2)[half])
                for name, parameter in model.named_parameters():
                    if not (fault == "unreduced" and name == "norm.weight"):
                        assert parameter.grad is not None
                        parameter.grad.copy_(gradients[name])
                if fault == "drift" and rank:
                    cast("Tensor", model.norm.bias.grad).mul_(2)
                if not (fault == "left out" and rank and step == 0):
                    optimizer.step()
    return joined([to / "0", to / "1"])


def reduced(fault: str) -> list[dict[str, Tensor]]:
    """The gradients of each step after their reduction."""
    model = made("epsilon" if fault == "epsilon" else "")
    optimizer, found = stepped(model, fault), []
    for x, y in data():
        optimizer.zero_grad()
        backward(model, x, y, 0.5 if fault == "twice" else 1.0)
        found.append({n: cast("Tensor", p.grad).clone() for n, p in model.named_parameters()})
        optimizer.step()
    return deepcopy(found)


def joined(places: list[Path]) -> MemoryRun:
    """Recordings as the ranks of one run."""
    rows: dict[str, list[Any]] = {"processes": [], "calls": [], "tensors": []}
    for rank, place in enumerate(places):
        run = open_run(place)
        for process in run.processes:
            known = {"process": rank, "rank": rank, "world": len(places)}
            rows["processes"].append(msgspec.structs.replace(process, **known))
        for call in records(run, "calls"):
            rows["calls"].append(msgspec.structs.replace(call, process=rank, rank=rank))
        for tensor in records(run, "tensors"):
            rows["tensors"].append(msgspec.structs.replace(tensor, process=rank))
    return MemoryRun(open_run(places[0]).info, **rows)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("alone") / "run", 1)


def silent(comparison: Comparison) -> bool:
    document = comparison.document
    return (document.verdict, document.complete, document.findings) == ("clean", True, ())


def test_healthy_ranks_and_micro_batches_are_silent_either_way(alone: Path, tmp_path: Path) -> None:
    ranks, parts = parallel(tmp_path / "ranks", ""), trained(tmp_path / "parts", 4)
    assert silent(compare(ranks, alone))
    assert silent(compare(alone, ranks))
    assert silent(compare(parts, alone))
    assert silent(compare(ranks, parts))


@pytest.mark.parametrize(
    ("fault", "place", "says"),
    [
        ("epsilon", (0, "native_layer_norm", "norm"), "what comes out of them does not"),
        ("loaded", (1, "t", "into"), "parameter into.weight (input 0) differs"),
        ("data", (1, "addmm", "into"), "is together not what golden is given"),
        ("twice", (0, "addmm|mm|sum", "out"), "all gradients are 0.5 times golden's"),
        ("unreduced", (0, "native_layer_norm_backward", "norm"), "gradient of norm.weight"),
        ("drift", (1, "native_layer_norm_backward", "norm"), "of 2 ranks only 1"),
        ("rate", (0, "addcdiv_", ""), "parameters move 2 times as far as golden's"),
    ],
)
def test_a_fault_is_named_with_module_and_rank(
    alone: Path, tmp_path: Path, fault: str, place: tuple[int, str, str], says: str
) -> None:
    first = compare(parallel(tmp_path / "ranks", fault), alone).findings[0]
    assert (first.rank, first.step, first.module) == (place[0], 0, place[2]), first
    assert (first.op or "").split("::")[1].split(".")[0] in place[1].split("|"), first
    assert any(says in reason for reason in first.reasons), first.reasons


def test_micro_batches_that_are_added_but_not_averaged_are_told(
    alone: Path, tmp_path: Path
) -> None:
    first = compare(trained(tmp_path / "parts", 4, "sum"), alone).findings[0]
    assert "all gradients are 4 times golden's" in str(first.reasons)


def test_other_draws_are_no_fault_and_end_the_comparison(tmp_path: Path) -> None:
    golden = trained(tmp_path / "golden", 1, noise=0.5)
    document = compare(parallel(tmp_path / "ranks", "", noise=0.5), golden).document
    assert (document.findings, document.complete) == ((), False)
    assert any("other random numbers in noise" in line for line in document.summary["warnings"])


def test_equal_draws_for_other_parts_of_a_batch_are_told(tmp_path: Path) -> None:
    golden = trained(tmp_path / "golden", 1, noise=0.3)
    first = compare(parallel(tmp_path / "ranks", "seeds", noise=0.3), golden).findings[0]
    assert (first.rank, first.step, first.module) == (1, 0, "noise"), first
    assert "ranks 0 and 1 draw the same random numbers" in first.reasons[0]


def test_where_nothing_can_be_compared_the_two_do_not_agree(alone: Path, tmp_path: Path) -> None:
    ranks = parallel(tmp_path / "ranks", "")
    told = {"mean": None, "min": None, "max": None, "l2norm": None}
    rows = [
        msgspec.structs.replace(row, **told) for row in ranks.rows("tensors") if row.role is None
    ]
    known = [row for row in ranks.rows("tensors") if row.role == "parameter"]
    tables = {"calls": ranks.rows("calls"), "tensors": [*known, *rows]}
    document = compare(MemoryRun(ranks.info, ranks.processes, **tables), alone).document
    assert (document.findings, document.complete) == ((), False)
    assert any("neither forward passes" in line for line in document.summary["warnings"])


def test_a_rank_that_is_missing_is_incomplete_and_accuses_nobody(tmp_path: Path) -> None:
    whole = parallel(tmp_path / "ranks", "")
    rows = {
        name: [row for row in whole.rows(name) if row.process == 0] for name in ("calls", "tensors")
    }
    document = compare(MemoryRun(whole.info, whole.processes[:1], **rows), whole).document
    assert (document.findings, document.complete) == ((), False)


def test_parts_meet_the_whole_in_any_order_and_however_often_they_are_held() -> None:
    whole, parts = Sketch(4, 10.0, 30.0, 1.0, 4.0), Sketch(8, 20.0, 60.0, 1.0, 4.0)
    assert distance(parts, whole) == 0
    assert distance(Sketch(8, 20.0, 60.0, 1.0, 4.4), whole) == pytest.approx(0.1)
    assert distance(Sketch(0, 0.0, 0.0, 0.0, 0.0), whole) == float("inf")
    assert simple(parts, whole, (2, 1))
    assert simple(whole, parts, (2, 4))
    assert not simple(parts, whole, (3, 1))
    assert not simple(Sketch(6, 0.0, 0.0, 0.0, 0.0), whole, (2, 1))


def test_a_rank_that_does_not_run_what_the_others_do_is_told(tmp_path: Path) -> None:
    golden = trained(tmp_path / "golden", 1, noise=0.3)
    first = compare(parallel(tmp_path / "ranks", "eval", noise=0.3), golden).findings[0]
    assert (first.rank, first.step, first.module) == (1, 0, "noise"), first
    assert first.reasons[0] == "rank 1 does not run it"


def test_a_rank_that_leaves_an_update_out_is_told(alone: Path, tmp_path: Path) -> None:
    first = compare(parallel(tmp_path / "ranks", "left out"), alone).findings[0]
    assert (first.rank, first.step) == (1, 0), first
    assert "rank 1 goes on to its next batch where the other ranks" in first.reasons[0]
