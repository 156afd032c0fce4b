# SPDX-License-Identifier: Apache-2.0
"""Random operators: a run keeps the generator's state for calls whose values it keeps, and a repro
draws the same numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
from tests.repro.single_calls import run_script
from torch.nn import functional as F

import opscope
import opscope.repro
from opscope.errors import FormatError
from opscope.record.torch.randomness import random_states
from opscope.run.protocol import Run
from opscope.run.query import calls
from opscope.run.schema import Call


def draws() -> list[torch.Tensor]:
    """Every way to draw: out of place, in place, from weights, with a generator of its own."""
    torch.manual_seed(7)
    x, own = torch.linspace(0.1, 0.9, 40), torch.Generator().manual_seed(3)
    torch.rand(700)  # the state is in the middle of what the generator has made in advance
    return [
        F.dropout(x, 0.3),
        torch.rand(5),
        torch.randn(20),
        torch.randint(0, 9, (6,)),
        torch.randperm(8),
        torch.bernoulli(x),
        torch.multinomial(x, 4),
        torch.empty(9).normal_(),
        torch.empty(9).uniform_(),
        x.clone().exponential_(),
        torch.rand(5, generator=own),
        torch.normal(x, 1.0, generator=own),
        F.rrelu(-x, training=True),
    ]


def record(directory: Path, **options: object) -> Run:
    with opscope.record(directory, **options):
        draws()
    return opscope.open_run(directory)


def states(run: Run) -> dict[str, list[str]]:
    """Names of the kept generator states by call."""
    return {
        call.name: sorted(json.loads(call.args or "{}").get("random", ())) for call in calls(run)
    }


def test_states_are_kept_with_values(tmp_path: Path) -> None:
    full = states(record(tmp_path / "full", values="full"))
    assert full["<root>:rand#2"] == ["cpu"]
    assert full["<root>:rand#3"] == ["generator:cpu"]
    assert full["<root>:randperm#1"] == ["cpu"]
    assert not any(full[name] for name in full if ":clone#" in name or ":linspace#" in name)
    assert not any(
        any(found) for found in states(record(tmp_path / "none", values="none")).values()
    )
    assert not any(any(found) for found in states(record(tmp_path / "anomaly")).values()), (
        "nothing here is suspicious"
    )


def test_watching_draws_nothing(tmp_path: Path) -> None:
    plain = draws()
    for values in ("full", "anomaly"):
        with opscope.record(tmp_path / values, values=values):
            watched = draws()
        assert all(torch.equal(mine, other) for mine, other in zip(watched, plain, strict=True))


def test_repro_draws_the_same_numbers(tmp_path: Path) -> None:
    run, tried = record(tmp_path / "run", values="full"), set()
    for call in calls(run):
        if not json.loads(call.args or "{}").get("random"):
            continue
        folder = tmp_path / str(call.index)
        opscope.repro.write(run, call, folder)
        _, document = run_script(folder, "--no-wide")
        same = [line for line in document["lines"] if line.startswith("  same")]
        kept = [row for row in opscope.repro.read_case(folder).outputs if row.key is not None]
        assert len(same) == len(kept) > 0, (call.name, document["lines"])
        tried.add(call.op.partition(".")[0])
    assert len(tried) >= 10, "these are no longer the random operators"


@pytest.mark.parametrize(("probability", "code"), [(0.0, 0), (0.5, 125)])
def test_a_dropout_of_nothing_is_judged_as_what_draws_nothing(
    tmp_path: Path, probability: float, code: int
) -> None:
    with opscope.record(tmp_path / "run", values="full"):
        F.scaled_dot_product_attention(*torch.randn(3, 1, 1, 4, 2), dropout_p=0.0)
        F.dropout(torch.ones(4), 0.5)
    run, name = opscope.open_run(tmp_path / "run"), "attention" if probability == 0 else "bernoulli"
    folder = tmp_path / "case"
    opscope.repro.write(run, next(call for call in calls(run) if name in call.op), folder)
    told = json.loads((folder / "case.json").read_text())
    told["failure"] = {"kind": "mismatch", "outputs": {}}
    (folder / "case.json").write_text(json.dumps(told))
    assert run_script(folder)[0] == code


def test_a_suspicious_draw_keeps_its_state(tmp_path: Path) -> None:
    """Which elements of a dropout overflow depends on what was drawn."""
    x = torch.full((64,), 60000.0, dtype=torch.float16)
    with opscope.record(tmp_path / "run"):
        for seed in range(3):
            torch.manual_seed(seed)
            y, _ = torch.native_dropout(x, 0.5, True)
    assert y.isinf().any()
    run = opscope.open_run(tmp_path / "run")
    found = [call for call in calls(run) if json.loads(call.args or "{}").get("random")]
    assert found, "no random call was kept"
    case = opscope.repro.build(run, found[-1]).case
    assert case.random.states == {"cpu": "random.cpu"}


def with_states(run: Run, place: str) -> Call:
    """A random call whose kept states are replaced."""
    call = next(call for call in calls(run) if call.name == "<root>:randperm#1")
    tree = json.loads(call.args or "{}") | {"random": json.loads(place)}
    return msgspec.structs.replace(call, args=json.dumps(tree))


@pytest.mark.parametrize(
    "place",
    [
        '{"cpu": 3}',
        '{"gpu": {}}',
        '{"cpu": {"shard": 1}}',
        '{"cpu": {"shard": "values-00099.safetensors", "key": "k", "size": 5}}',
        "[]",
    ],
)
def test_damaged_states_are_left_out(tmp_path: Path, place: str) -> None:
    run = record(tmp_path / "run", values="full")
    assert opscope.repro.build(run, with_states(run, place)).case.random.states == {}


def test_a_state_is_read_from_a_shard_alone(tmp_path: Path) -> None:
    run = record(tmp_path / "run", values="full")
    with pytest.raises(FormatError, match="not the name of a shard"):
        opscope.repro.build(
            run, with_states(run, '{"cpu": {"shard": "../x", "key": "k", "size": 5056}}')
        )


def test_the_state_of_any_accelerators_generator_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of torch for a device, as torch_npu brings one; here it is that of XPU."""
    devices = SimpleNamespace(default_generators=(torch.Generator(),), current_device=lambda: 0)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "xpu", devices)
        found = random_states((torch.device("xpu"),), {})
    assert list(found) == ["xpu"]
    assert torch.equal(found["xpu"], devices.default_generators[0].get_state())
    run = record(tmp_path / "run", values="full")
    place = json.loads(states_text(run))
    case = opscope.repro.build(run, with_states(run, json.dumps({"npu": place["cpu"]}))).case
    assert case.random.states == {"npu": "random.npu"}


def states_text(run: Run) -> str:
    """Where the kept states of a random call lie."""
    call = next(call for call in calls(run) if call.name == "<root>:randperm#1")
    return json.dumps(json.loads(call.args or "{}")["random"])
