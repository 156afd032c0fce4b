# SPDX-License-Identifier: Apache-2.0
"""A model that is only run, and a port of it over plain tensors: what both read out as numbers is
held against each other, what they hand out in other forms accuses nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.compare.told_lines import marked_line, recorded, told_lines
from torch import Tensor, nn

import opscope

WIDE, CLASSES, BATCH = 10, 5, 6


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)
        self.last = nn.Linear(WIDE, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x / 2 + 0.1))  # golden: scaled
        return self.last(torch.relu(self.second(x)))  # golden: gate


def batches(seed: int = 6) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    return [torch.randn(BATCH, WIDE, generator=drawn) for _ in range(3)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    to = tmp_path_factory.mktemp("weights") / "model.pt"
    torch.save(Classifier().state_dict(), to)
    return to


def loaded(checkpoint: Path) -> Classifier:
    model = Classifier().eval()
    model.load_state_dict(torch.load(checkpoint, weights_only=True))
    return model


def original(checkpoint: Path) -> Callable[[str], None]:
    def program(_: str) -> None:
        model = loaded(checkpoint)
        with torch.no_grad():
            for x in batches():
                model(x).softmax(1).amax(1).mean().item()

    return program


def twice(checkpoint: Path) -> Callable[[str], None]:
    """Another that reads out two numbers for each batch."""

    def program(_: str) -> None:
        model = loaded(checkpoint)
        with torch.no_grad():
            for x in batches():
                shares = model(x).softmax(1)
                shares.amax(1).mean().item() + shares[:, 0].std().item()

    return program


def scored(weights: dict[str, Tensor], x: Tensor, fault: str) -> Tensor:
    x = x * (0.4 if fault == "scaled" else 0.5) + 0.1  # target: scaled
    x = (x @ weights["first.weight"].T + weights["first.bias"]).tanh()
    x = x @ weights["second.weight"].T + weights["second.bias"]
    x = x * x.sigmoid() if fault == "gate" else x.clamp(min=0)  # target: gate
    return x @ weights["last.weight"].T + weights["last.bias"]


Reading = Callable[[Tensor], float]


def shares_of(logits: Tensor) -> Tensor:
    return torch.exp(logits - logits.logsumexp(1, keepdim=True))


def mean_of_shares(logits: Tensor) -> float:
    return shares_of(logits).max(1).values.mean().item()


def with_deviation(logits: Tensor) -> float:
    """Both numbers of `twice` as one."""
    shares = shares_of(logits)
    return (shares.max(1).values.mean() + shares[:, 0].std()).item()


def one_by_one(logits: Tensor) -> float:
    """The mean of what is read out for each row."""
    return sum(float(row.max()) for row in shares_of(logits)) / len(logits)


def entropy(logits: Tensor) -> float:
    logs = logits - logits.logsumexp(1, keepdim=True)
    return float(-(logs.exp() * logs).sum(1).mean())


def ported(checkpoint: Path, read: Reading = mean_of_shares) -> Callable[[str], None]:
    def program(fault: str) -> None:
        weights = torch.load(checkpoint, weights_only=True)
        print(weights["first.weight"].abs().mean().item())  # no result
        with torch.inference_mode():
            for x in batches():
                read(scored(weights, x, fault))

    return program


@pytest.fixture(scope="module")
def golden(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(original(checkpoint), tmp_path_factory.mktemp("golden") / "run")


def test_a_port_that_reads_out_the_same_is_accused_of_nothing(
    checkpoint: Path, golden: Path, tmp_path: Path
) -> None:
    document = opscope.compare(recorded(ported(checkpoint), tmp_path / "run"), golden).document
    assert (document.verdict, document.complete, document.findings) == ("clean", True, ())
    assert "was not compared" not in str(document.summary["warnings"])


@pytest.mark.parametrize("fault", ["scaled", "gate"])
@pytest.mark.parametrize("read", [mean_of_shares, one_by_one])
def test_a_fault_is_told_on_both_lines(
    checkpoint: Path, golden: Path, tmp_path: Path, fault: str, read: Reading
) -> None:
    """By the numbers; where the port reads out six for one of golden's, by what layers with the
    same weights are given.
    """
    target = recorded(ported(checkpoint, read), tmp_path / "run", fault)
    finding = opscope.compare(target, golden).document.findings[0]
    for side in ("target", "golden"):
        assert marked_line(__file__, f"# {side}: {fault}") in told_lines(finding, side)


def test_numbers_of_other_counts_are_nobodys_fault(
    checkpoint: Path, golden: Path, tmp_path: Path
) -> None:
    """What the model hands out agrees with what the port computes; what becomes of it is not known
    to.
    """

    def read(logits: Tensor) -> float:
        return max(float(share) for share in shares_of(logits).flatten()[: WIDE + 1])

    document = opscope.compare(
        recorded(ported(checkpoint, read), tmp_path / "run"), golden
    ).document
    assert (document.verdict, document.findings) == ("clean", ())
    assert "made of the models' results was not compared" in str(document.summary["warnings"])


@pytest.mark.parametrize("fault", ["", "gate"])
def test_two_numbers_may_be_read_out_as_their_sum(
    checkpoint: Path, tmp_path: Path, fault: str
) -> None:
    golden = recorded(twice(checkpoint), tmp_path / "golden")
    target = recorded(ported(checkpoint, with_deviation), tmp_path / "run", fault)
    findings = opscope.compare(target, golden).document.findings
    assert bool(findings) == bool(fault)
    if findings:
        assert marked_line(__file__, f"# target: {fault}") in told_lines(findings[0], "target")


def test_another_metric_is_nobodys_fault(checkpoint: Path, golden: Path, tmp_path: Path) -> None:
    """As many numbers, far from golden's: said, and not judged."""

    document = opscope.compare(
        recorded(ported(checkpoint, entropy), tmp_path / "run"), golden
    ).document
    assert (document.verdict, document.findings) == ("clean", ())
    assert "may be another metric" in str(document.summary["warnings"])


def test_a_fault_is_told_though_another_metric_is_read_out(
    checkpoint: Path, golden: Path, tmp_path: Path
) -> None:
    """A layer computes on from where they part, so that the metric is not all that differs."""

    target = recorded(ported(checkpoint, entropy), tmp_path / "run", "gate")
    finding = opscope.compare(target, golden).document.findings[0]
    assert marked_line(__file__, "# target: gate") in told_lines(finding, "target")


def augmented(x: Tensor, weights: dict[str, Tensor], layer: str) -> Tensor:
    """A layer whose bias is a column of its weights."""
    both = torch.cat([weights[f"{layer}.weight"], weights[f"{layer}.bias"][:, None]], 1)
    return torch.cat([x, x.new_ones(len(x), 1)], 1) @ both.T


@pytest.mark.parametrize("fault", ["", "gate"])
def test_one_number_far_off_is_no_metric_where_a_layer_goes_on(
    checkpoint: Path, tmp_path: Path, fault: str
) -> None:
    """Also where the layer's weights are computed of those that were loaded."""

    def once(_: str) -> None:
        with torch.no_grad():
            (loaded(checkpoint)(batches()[0]) * 9).softmax(1).var().item()

    def port(fault: str) -> None:
        weights = torch.load(checkpoint, weights_only=True)
        with torch.inference_mode():
            x = augmented(batches()[0] / 2 + 0.1, weights, "first").tanh()
            x = augmented(x, weights, "second")
            x = x.sigmoid() * 4 if fault else x.clamp(min=0)  # target: bounded
            (augmented(x, weights, "last") * 9).softmax(1).var().item()

    target, golden = recorded(port, tmp_path / "run", fault), recorded(once, tmp_path / "golden")
    findings = opscope.compare(target, golden).document.findings
    assert bool(findings) == bool(fault)
    if findings:
        assert marked_line(__file__, "# target: bounded") in told_lines(findings[0], "target")


@pytest.mark.parametrize("fault", ["", "gate"])
def test_of_several_lines_those_are_compared_that_are_nearest(
    checkpoint: Path, golden: Path, tmp_path: Path, fault: str
) -> None:
    """The norm of the logits, read out beside, is a metric of the port's own."""

    def read(logits: Tensor) -> float:
        return mean_of_shares(logits) + 0 * logits.norm().item()

    target = recorded(ported(checkpoint, read), tmp_path / "run", fault)
    findings = opscope.compare(target, golden).document.findings
    assert bool(findings) == bool(fault)
    if findings:
        assert marked_line(__file__, "# target: gate") in told_lines(findings[0], "target")


class Cell(nn.Module):
    """A recurrence, of one text or of several."""

    def __init__(self) -> None:
        super().__init__()
        drawn = torch.Generator().manual_seed(9)
        self.read = nn.Parameter(torch.randn(WIDE, WIDE, generator=drawn) * 0.4)
        self.keep = nn.Parameter(torch.randn(WIDE, WIDE, generator=drawn) * 0.4)

    def forward(self, texts: Tensor) -> Tensor:
        state = torch.zeros(len(texts), WIDE)
        for now in (texts @ self.read).unbind(1):
            state = torch.tanh(now + state @ self.keep)
        return state


def test_a_recurrence_run_for_each_text_is_nobodys_fault(tmp_path: Path) -> None:
    """Each step of a batch is as much as some steps of single texts are."""
    drawn = torch.Generator().manual_seed(8)
    texts = torch.randn(3, 4, WIDE, generator=drawn)

    def at_once(_: str) -> None:
        with torch.no_grad():
            Cell()(texts).sum().item()

    def one_by_one(_: str) -> None:
        cell = Cell()
        with torch.no_grad():
            for text in texts:
                cell(text[None]).abs().max().item()

    target, golden = recorded(one_by_one, tmp_path / "run"), recorded(at_once, tmp_path / "golden")
    assert not opscope.compare(target, golden).document.findings
