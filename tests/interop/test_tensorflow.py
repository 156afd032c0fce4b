# SPDX-License-Identifier: Apache-2.0
"""Dumps that TensorFlow's debugger writes: scanned, beside a port in torch, beside each other; by
the interpreter that OPSCOPE_TENSORFLOW_PYTHON names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opscope.compare.api import compare
from opscope.run.finding import Finding
from opscope.scan.api import scan

PYTHON = os.environ.get("OPSCOPE_TENSORFLOW_PYTHON")
FAULTS, NETS, PORTS = (
    Path(__file__).with_name(f"tensorflow_{name}.py") for name in ("faults", "nets", "ports")
)
MODES = ("FULL_TENSOR", "FULL_HEALTH", "CONCISE_HEALTH")
UNSOUND = {
    "log": "tf::Log",
    "exp": "tf::Exp",
    "div": "tf::RealDiv",
    "root": "tf::SqrtGrad",
    "half": "tf::Square",
}
BESIDE = {  # what a port does wrong: the operator that is named, and its module
    "mlp-rate": ("tf::Mul", "adam"),
    "conv-eps": ("tf::SquaredDifference", "conv_1.norm_1.moments"),
    "conv-pool": ("tf::AvgPool", "conv_1.average_pooling2d_1"),
    "conv-sum": ("tf::Sum", "conv_1"),
    "conv-momentum": ("tf::Mul", "sgd"),
    "conv-loss": (
        "tf::SparseSoftmaxCrossEntropyWithLogits",
        "compile_loss.sparse_categorical_crossentropy.SparseSoftmaxCrossEntropyWithLogits",
    ),
    "transformer-eps": ("tf::SquaredDifference", "transformer_1.before_1.moments"),
    "transformer-gelu": ("tf::Pow", "transformer_1.Gelu"),
    "transformer-scale": ("tf::Softmax", "transformer_1"),
    "transformer-axis": ("tf::Transpose", "transformer_1"),  # that a softmax makes of its axis
    "transformer-rate": ("tf::AddV2", "adam"),
}
EACH_OTHER = {
    "mlp-eps": "tf::AddV2",
    "mlp-gelu": "tf::Pow",
    "mlp-loss": "tf::Prod",
    "mlp-rate": "tf::AssignVariableOp",
    "conv-average": "tf::Mul",
    "conv-eps": "tf::AddV2",
    "conv-pool": "tf::AvgPool",
    "transformer-eps": "tf::AddV2",
    "transformer-gelu": "tf::Pow",
    "transformer-scale": "tf::Softmax",
    "transformer-axis": "tf::Transpose",
}
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_TENSORFLOW_PYTHON names no interpreter"),
]
Dump = Callable[..., Path]


def execute(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where dumps and runs lie; each is made when it is first asked for."""
    return tmp_path_factory.mktemp("tensorflow")


@pytest.fixture(scope="module")
def golden(folder: Path) -> Dump:
    """The run of a net in torch."""

    def made(net: str) -> Path:
        path = folder / net
        if not path.exists():
            words = ("run", "--values", "full", "-o", str(path), "--")
            port = (sys.executable, str(PORTS), net, str(folder / f"{net}.npz"))
            execute(sys.executable, "-m", "opscope", *words, *port)
        return path

    return made


@pytest.fixture(scope="module")
def dump(folder: Path, golden: Dump) -> Dump:
    """The dump of a net in TensorFlow, with what it does wrong."""

    def made(net: str, fault: str, mode: str = "FULL_TENSOR") -> Path:
        path = folder / f"{net}-{fault}"
        golden(net)
        if not path.exists():
            weights = str(folder / f"{net}.npz")
            execute(str(PYTHON), str(NETS), net, fault, mode, str(path), weights)
        return path

    return made


def line_of(finding: Finding) -> str:
    path, _, number = str(finding.source).rpartition(":")
    return Path(path).read_text().splitlines()[int(number) - 1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", UNSOUND)
def test_scan_names_the_operator_and_its_line(tmp_path: Path, program: str, mode: str) -> None:
    execute(str(PYTHON), str(FAULTS), program, mode, str(tmp_path / "dump"))
    first = scan(tmp_path / "dump").findings[0]
    assert first.op == UNSOUND[program]
    assert line_of(first).endswith(f"# line of {program}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", UNSOUND)
def test_scan_is_silent_where_nothing_is_wrong(tmp_path: Path, program: str, mode: str) -> None:
    execute(str(PYTHON), str(FAULTS), f"{program}-healthy", mode, str(tmp_path / "dump"))
    document = scan(tmp_path / "dump")
    assert (document.findings, document.complete) == ((), True)


@pytest.mark.parametrize("net", ["mlp", "conv", "transformer"])
def test_a_port_that_agrees_is_silent(dump: Dump, golden: Dump, net: str) -> None:
    assert compare(dump(net, "none"), golden(net)).findings == ()


@pytest.mark.parametrize("case", BESIDE)
def test_a_port_that_differs_is_named(dump: Dump, golden: Dump, case: str) -> None:
    net, fault = case.split("-")
    first = compare(dump(net, fault), golden(net)).findings[0]
    assert (first.op, first.module) == BESIDE[case]


@pytest.mark.parametrize("case", EACH_OTHER)
def test_two_dumps_are_held_beside_each_other(dump: Dump, case: str) -> None:
    net, fault = case.split("-")
    assert compare(dump(net, fault), dump(net, "none")).findings[0].op == EACH_OTHER[case]


def test_a_program_that_is_executed_again_agrees(dump: Dump, folder: Path, golden: Dump) -> None:
    first = dump("mlp", "none")
    execute(
        *(str(PYTHON), str(NETS), "mlp", "none", "FULL_TENSOR", str(folder / "again")),
        str(folder / "mlp.npz"),
    )
    assert compare(folder / "again", first).findings == ()
