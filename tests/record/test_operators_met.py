# SPDX-License-Identifier: Apache-2.0
"""Operators of a program's own library: what their schemas and declarations tell goes with the run,
and a process without torch judges it as one with torch does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import opscope
from opscope.operators.catalogue import declared_rows, knowing
from opscope.report.json import json_text

JUDGE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "mindspore"):
            raise ImportError(name)
sys.meta_path.insert(0, Nothing())
import opscope
from opscope.report.json import json_text
print(json_text(opscope.scan(sys.argv[1])))
print(json_text(opscope.compare(*sys.argv[1:]).document))
assert not {"torch", "mindspore"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def ops() -> Iterator[Any]:
    """A library: a pointwise operator, one that writes in place, one that moves, one that draws."""
    library = torch.library.Library("opslib", "DEF")
    library.define("gain(Tensor x, float s) -> Tensor", tags=(torch.Tag.pointwise,))
    library.impl("gain", lambda x, s: x * s, "CPU")
    library.define("add_into(Tensor(a!) x, Tensor y) -> ()")
    library.impl("add_into", _add_into, "CPU")
    library.define("turned(Tensor x) -> Tensor")
    library.impl("turned", lambda x: x.flip(0), "CPU")
    library.define("noise(Tensor x) -> Tensor")
    library.impl("noise", lambda x: x + torch.randn(x.shape), "CPU")
    library.define("no_nan(Tensor x) -> Tensor")
    library.impl("no_nan", lambda x: x.nan_to_num(), "CPU")
    yield torch.ops.opslib
    library._destroy()


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    with knowing():
        yield


def _add_into(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


def recorded(path: Path, program: Callable[[], Any]) -> Path:
    with opscope.record(path) as recording:
        program()
    assert recording.path is not None
    return recording.path


def table(run: Path) -> dict[str, Any]:
    (file,) = run.glob("processes/p-*/operators.json")
    told: dict[str, Any] = json.loads(file.read_bytes())["operators"]
    return told


def warnings(document: Any) -> str:
    return "\n".join(document.summary["warnings"])


def step(ops: Any, seed: int = 0, factor: float = 2.0) -> None:
    torch.manual_seed(seed)
    kept = ops.gain(torch.ones(4, 4), factor)
    ops.add_into(kept, torch.ones(4, 4))
    ops.noise(ops.turned(kept)).sum()


def test_a_run_has_what_schemas_tell(tmp_path: Path, ops: Any) -> None:
    run = recorded(tmp_path / "run", lambda: step(ops))
    assert table(run) == {
        "opslib::gain.default": {"pointwise": True},
        "opslib::add_into.default": {"writes": "0"},
    }


def test_a_program_of_known_operators_has_no_table(tmp_path: Path) -> None:
    def program() -> None:
        one = torch.ones(3, requires_grad=True)
        torch.dropout(one.relu().view(3, 1).exp(), 0.5, train=True).sum().backward()

    assert not list(recorded(tmp_path / "run", program).rglob("operators.json"))


def test_it_is_there_before_the_program_ends(tmp_path: Path, ops: Any) -> None:
    with opscope.record(tmp_path / "run") as recording:
        ops.gain(torch.ones(2), 2.0)
        assert recording.path is not None
        assert set(table(recording.path)) == {"opslib::gain.default"}


def test_without_torch_the_verdicts_are_the_same(tmp_path: Path, ops: Any) -> None:
    opscope.declare("opslib::turned", moves=True)
    runs = [
        recorded(tmp_path / name, lambda seed=seed, factor=factor: step(ops, seed, factor))  # type: ignore[misc]
        for name, seed, factor in (("a", 0, 3.0), ("b", 1, 2.0))
    ]
    with knowing():
        here = [opscope.scan(runs[0]), opscope.compare(*runs).document]
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, *map(str, runs)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "".join(f"{json_text(document)}\n" for document in here)
    assert here[1].findings[0].op == "opslib::gain.default"


def test_what_is_declared_random_is_no_finding(tmp_path: Path, ops: Any) -> None:
    plain = [
        recorded(tmp_path / f"plain{seed}", lambda seed=seed: step(ops, seed))  # type: ignore[misc]
        for seed in (0, 1)
    ]
    found = opscope.compare(*plain).document
    assert [each.op for each in found.findings] == ["opslib::noise.default"]
    with knowing(declared={"opslib::noise": {"random": True}}):
        told = opscope.compare(*plain).document
    assert not told.findings
    assert "opslib::noise.default: drew other random numbers than in golden" in warnings(told)
    opscope.declare("opslib::noise", random=True)
    kept = [
        recorded(tmp_path / f"told{seed}", lambda seed=seed: step(ops, seed))  # type: ignore[misc]
        for seed in (0, 1)
    ]
    with knowing(declared={op: {} for op in declared_rows()}):
        assert not opscope.compare(*kept).document.findings


def test_a_declared_guard_hides_an_origin_on_purpose(tmp_path: Path, ops: Any) -> None:
    def program() -> None:
        ops.no_nan(torch.zeros(4) / torch.zeros(4)).sum()

    run = recorded(tmp_path / "run", program)
    assert opscope.scan(run).findings
    with knowing(declared={"opslib::no_nan": {"guards": True, "picks": True}}):
        told = opscope.scan(run)
    assert not told.findings
    assert told.summary["hidden"] == 1


def test_an_unknown_operator_is_judged_on_equal_inputs_and_said(tmp_path: Path, ops: Any) -> None:
    def program(factor: float) -> None:
        ops.turned(ops.gain(torch.ones(4, 4), factor))

    runs = [recorded(tmp_path / f"{at}", lambda at=at: program(at)) for at in (2.0, 2.5)]  # type: ignore[misc]
    document = opscope.compare(*runs).document
    assert {each.op for each in document.findings} == {"opslib::gain.default"}
    assert "opslib::turned.default: nothing is known of what this computes" in warnings(document)


def test_two_runs_that_tell_otherwise(tmp_path: Path, ops: Any) -> None:
    runs = [recorded(tmp_path / name, lambda: step(ops)) for name in ("a", "b")]
    (file,) = runs[1].glob("processes/p-*/operators.json")
    told = json.loads(file.read_bytes())
    told["operators"]["opslib::gain.default"] = {"moves": True}
    file.write_text(json.dumps(told))
    assert "opslib::gain.default: of other traits in one recording" in warnings(
        opscope.compare(*runs).document
    )


HOSTILE = {
    "silencing": {
        op: {"allocates": True, "random": True, "guards": True, "picks": True, "silent": True}
        for op in ("aten::div.Tensor", "aten::div", "aten::sum.default", "div", "sum")
    },
    "replaced": {"aten::div.Tensor": {"tolerance": "memory", "brings": True, "scratch": "0"}},
}
MALFORMED = [
    b"",
    b"\x00\xff",
    b"[]",
    b'{"version": 2}',
    b'{"operators": {"a::b": {"random": 1}}}',
    b'{"operators": {"a::b": {"tolerance": "none such"}}}',
    b'{"operators": {"a b": {"random": true}}}',
    b'{"operators": {"a::b": {"rows": "(a+)+$"}}}',
    b'{"operators": {"a::b": {"nosuch": true}}}',
    b'{"operators": ' + b"[" * 5000,
    b'{"operators": {"a::b": {}}, "more": 1}',
    b" " * (1 << 20) + b"{}",
]


def unsound(tmp_path: Path) -> Path:
    def program() -> None:
        (torch.zeros(4) / torch.zeros(4)).sum()

    return recorded(tmp_path / "run", program)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_table_silences_a_shipped_operator(tmp_path: Path, name: str) -> None:
    run = unsound(tmp_path)
    before = opscope.scan(run)
    (process,) = run.glob("processes/p-*")
    (process / "operators.json").write_text(json.dumps({"operators": HOSTILE[name]}))
    after = opscope.scan(run)
    assert after.findings == before.findings
    assert before.findings[0].op == "aten::div.Tensor"
    assert "operators.json tells otherwise than the catalogue, which counts" in warnings(after)


@pytest.mark.parametrize("data", MALFORMED)
def test_a_malformed_table_is_said_and_does_not_count(tmp_path: Path, data: bytes) -> None:
    run = unsound(tmp_path)
    before = opscope.scan(run)
    (process,) = run.glob("processes/p-*")
    (process / "operators.json").write_bytes(data)
    after = opscope.scan(run)
    assert after.findings == before.findings
    assert after.complete
    (line,) = [each for each in after.summary["warnings"] if "operators.json" in each]
    assert line.endswith("what it tells of operators does not count")
    assert "\n" not in line
