# SPDX-License-Identifier: Apache-2.0
"""Functions of JAX recorded by opscope.watch_jax, beside torch and by themselves, in the interpreter
that OPSCOPE_JAX_PYTHON names.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opscope.compare.api import compare
from opscope.run.finding import Document
from opscope.scan.api import scan

PYTHON = os.environ.get("OPSCOPE_JAX_PYTHON")
NETS, TORCH, UNSOUND, CALLS, DECLARED, PRIMITIVES = (
    Path(__file__).with_name(f"jax_{name}.py")
    for name in ("nets", "torch", "unsound", "calls", "declared", "primitives")
)
MODELS = ("mlp", "gpt", "conv", "lstm")
FORWARD = ("mlp-forward", "gpt-forward", "lstm-forward")
SAME = (
    *MODELS, "mlp-apart", "mlp-vmap", "mlp-forward", "gpt-apart", "gpt-remat",
    "gpt-forward", "lstm-apart", "lstm-forward",
)  # fmt: skip
# Of which line of the net they are, and of golden.
FAULTS = {
    "mlp-act": ('chosen("act"', "torch.tanh("),
    "mlp-form": ("update.update(", "update.step()"),
    "mlp-sum": ("losses.mean()", "cross_entropy("),
    "mlp-act+forward": ('chosen("act"', "torch.tanh("),
    "mlp-sum+apart": ("losses.mean()", "cross_entropy("),
    "gpt-eps": ('chosen("eps", 1e-5, 1e-2))', "self.before(x)"),
    "gpt-swap": ("scores = query @", "scaled_dot_product_attention("),
    "gpt-scale": ("scores = query @", "scaled_dot_product_attention("),
    "gpt-mask": ("jnp.where(mask", "scaled_dot_product_attention("),
    "gpt-axis": ("jax.nn.softmax(", "scaled_dot_product_attention("),
    "gpt-gelu": ("jax.nn.gelu(", "functional.gelu("),
    "gpt-gelu+remat": ("jax.nn.gelu(", "functional.gelu("),
    "gpt-sum": ("losses.mean()", "cross_entropy("),
    "gpt-rate": ("update.update(", "update.step()"),
    "gpt-decay": ("update.update(", "update.step()"),
    "conv-pads": ("nn.Conv(", "self.layers("),
    "conv-momentum": ("nn.BatchNorm(", "self.layers("),
    "conv-eps": ("nn.BatchNorm(", "self.layers("),
    "conv-pool": ("pool(x,", "self.layers("),
    "conv-sum": ("losses.mean()", "cross_entropy("),
    "conv-sgd": ("update.update(", "update.step()"),
    "lstm-gates": ("cell = jax.nn.sigmoid(forget)", "cell = torch.sigmoid(forget)"),
    "lstm-out": ("hidden = jax.nn.sigmoid(leave)", "hidden = torch.sigmoid(leave)"),
    "lstm-turned": ("gates = x @", "gates = x @"),
    "lstm-rate": ("update.update(", "update.step()"),
    "lstm-b2": ("update.update(", "update.step()"),
}
# Which operator makes what is not finite first, at which line.
ORIGINS = {
    "log": ("log", "jnp.log(shares)"),
    "overflow": ("exp", "jnp.exp(100"),
    "division": ("div", "y / y.sum("),
    "gradient": ("div", "jnp.sqrt(y)"),
    "half": ("mul", "(y * y)"),
    "loop": ("mul", "held * held"),
}
SOUND = ("masked", "guarded", "drawn", "choice")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_JAX_PYTHON names no interpreter"),
]


def execute(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *words], capture_output=True, text=True, timeout=300)


def recorded(folder: Path, script: Path, *names: str) -> None:
    done = execute(str(PYTHON), str(script), str(folder), *names)
    assert done.returncode == 0, done.stderr
    assert "opscope:" not in done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of all nets, of torch in a folder of their own."""
    made = tmp_path_factory.mktemp("jax")
    recorded(made / "torch", TORCH, *MODELS, *FORWARD)
    recorded(made, NETS, *SAME, *FAULTS)
    return made


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs")
    recorded(made, UNSOUND, *ORIGINS, *SOUND)
    return made


def findings(document: Document) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(finding) for finding in document.findings]


def compared(runs: Path, net: str) -> list[dict[str, Any]]:
    golden = net.partition("-")[0] + "-forward" * ("forward" in net)
    return findings(compare(runs / net, runs / "torch" / golden).document)


def lines(file: Path, text: str) -> set[int]:
    return {at for at, line in enumerate(file.read_text().splitlines(), 1) if text in line}


def spanned(places: list[str], file: Path) -> set[int]:
    """The lines of a file among those that a finding tells."""
    found: set[int] = set()
    for place in places:
        name, _, span = place.rpartition(":")
        first, _, last = span.partition("-")
        if name == str(file):
            found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize("net", SAME)
def test_what_is_computed_alike_agrees(runs: Path, net: str) -> None:
    assert compared(runs, net) == []


@pytest.mark.parametrize("net", FAULTS)
def test_a_fault_is_told_at_the_lines_of_both(runs: Path, net: str) -> None:
    mine, theirs = FAULTS[net]
    (first,) = compared(runs, net)
    evidence = first["evidence"][0]
    assert first["op"].partition("::")[0] == "jax"
    target = spanned([first["source"], *evidence.get("target_lines", [])], NETS)
    assert target & lines(NETS, mine)
    if "golden_lines" in evidence:
        assert spanned(evidence["golden_lines"], TORCH) & lines(TORCH, theirs)


def test_two_runs_of_jax_tell_operator_and_argument(runs: Path, tmp_path: Path) -> None:
    recorded(tmp_path, NETS, "gpt")
    assert findings(compare(tmp_path / "gpt", runs / "gpt").document) == []
    first = findings(compare(runs / "gpt-rate", runs / "gpt").document)[0]
    assert (first["op"], first["phase"]) == ("jax::mul", "optimizer")
    assert "argument 0 is -0.0102, golden has -0.01" in first["reasons"]


@pytest.mark.parametrize("program", ORIGINS)
def test_what_is_not_finite_is_told_at_its_line(programs: Path, program: str) -> None:
    op, line = ORIGINS[program]
    first = findings(scan(programs / program))[0]
    file, _, number = first["source"].rpartition(":")
    assert (first["op"], file) == (f"jax::{op}", str(UNSOUND))
    assert int(number) in lines(UNSOUND, line)


@pytest.mark.parametrize("program", SOUND)
def test_sound_programs_are_silent(programs: Path, program: str) -> None:
    assert findings(scan(programs / program)) == []


def test_what_is_declared_of_a_primitive_goes_with_the_run(tmp_path: Path) -> None:
    recorded(tmp_path, DECLARED, "plain", "declared")
    assert not list((tmp_path / "plain").rglob("operators.json"))
    (file,) = (tmp_path / "declared").glob("processes/p-*/operators.json")
    assert msgspec.json.decode(file.read_bytes())["operators"] == {
        "jax::no_nan": {"guards": True, "picks": True}
    }
    assert [each["op"] for each in findings(scan(tmp_path / "plain"))] == ["jax::div"]
    assert findings(scan(tmp_path / "declared")) == []


def test_an_exception_of_the_program_is_its_own(tmp_path: Path) -> None:
    done = execute(str(PYTHON), str(UNSOUND), str(tmp_path), "raised")
    assert done.returncode == 1
    assert "ValueError: the program's own" in done.stderr


def test_a_watched_function_is_the_function_that_it_was(tmp_path: Path) -> None:
    done = execute(str(PYTHON), str(CALLS), str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("opscope:")]
    assert said == [
        "opscope: a call of a JAX function is not recorded, it runs as it is: RuntimeError: ours"
    ]


def test_every_primitive_outside_of_kernels_stands_in_a_sheet() -> None:
    done = execute(str(PYTHON), str(PRIMITIVES))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert int(done.stderr.split()[-2]) > 400
