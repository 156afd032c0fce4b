# SPDX-License-Identifier: Apache-2.0
"""A part of a graph that a compiler makes wrongly is cut out into a folder that fails alone."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import opscope
from opscope.errors import UsageError
from opscope.repro.scripts.repro_graph import CannotTryError, build, function, method, program

pytestmark = pytest.mark.filterwarnings("ignore")
BACKEND = """
import torch
from torch._dynamo.backends.registry import register_backend


@register_backend
def forgetful(module, inputs):
    for node in module.graph.nodes:
        if node.target == "copy_":
            node.target = "view_as"
    module.recompile()
    return module.forward
"""


def swap(front: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
    kept = front * 1
    front.copy_(back)
    back.copy_(kept)
    return front + back


VIEW = {"memory": 0, "shape": [2], "stride": [1], "offset": 0, "trained": False}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run in which `forgetful` leaves copies out; two halves of one memory change places."""
    place = tmp_path / "forgetful.py"
    place.write_text(BACKEND, encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(BACKEND.replace("@register_backend", ""), str(place), "exec"), space)
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(swap, backend=space["forgetful"])
    with opscope.record(tmp_path / "run", check=True):
        compiled(torch.rand(3, 4), torch.rand(3, 4))
    torch._dynamo.reset()
    return tmp_path / "run"


def mismatch(run: Path) -> str:
    found = [each for each in opscope.scan(run).findings if each.kind == "compiled-mismatch"]
    assert found[0].call is not None
    return found[0].call


def tried(case: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(case / "repro.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.zoo
def test_the_folder_fails_alone_and_prints_its_code(run: Path, tmp_path: Path) -> None:
    case = tmp_path / "case"
    opscope.repro(run, mismatch(run), case)
    assert {path.name for path in case.iterdir()} == {
        "README.md", "graph.json", "inputs.safetensors", "repro.py",
    }  # fmt: skip
    done = tried(case, "--import", str(tmp_path / "forgetful.py"))
    assert done.returncode == 1, done.stderr
    assert "compiled by forgetful" in done.stdout
    code = tried(case, "--code")
    assert (code.returncode, ".copy_(" in code.stdout) == (0, True)
    said: list[str] = []
    exec(code.stdout.replace('"forgetful"', '"eager"'), {"print": lambda *made: said.append(made)})
    assert len(said) == 2  # operators, and compiled code
    elsewhere = tried(case)
    assert elsewhere.returncode == 125
    assert "knows no back end 'forgetful'" in elsewhere.stderr


def test_a_graph_that_nobody_found_wrong_cannot_be_cut_out(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(torch.tanh, backend="eager")
    with opscope.record(tmp_path / "run"):
        compiled(torch.rand(3))
    (call,) = [row.name for row in rows(tmp_path / "run") if row.level == "graph"]
    with pytest.raises(UsageError, match="only what --check found wrong"):
        opscope.repro(tmp_path / "run", call, tmp_path / "case")


def rows(run: Path) -> list[Any]:
    from opscope.run.arrow import decode_stream

    return list(decode_stream("calls", opscope.open_run(run).table("calls")))


@pytest.mark.parametrize(
    "name",
    ["os.system", "torch.load", "torch.hub.load", "torch.from_file", "operator.methodcaller",
     "torch.ops.image.read_file.default", "torch.nn.functional.__builtins__", "torch.add;x"],
)  # fmt: skip
def test_a_file_cannot_name_what_touches_more_than_tensors(name: str) -> None:
    with pytest.raises(CannotTryError):
        function(name)


@pytest.mark.parametrize("name", ["__reduce_ex__", "share_memory_", "sum();x", "nonsense"])
def test_a_file_cannot_name_such_methods(name: str) -> None:
    with pytest.raises(CannotTryError):
        method(name)


def test_names_of_a_file_do_not_reach_code(tmp_path: Path) -> None:
    evil = "x; import os"
    node = {"name": evil, "kind": "call_function", "target": "torch.add", "kwargs": {}}
    data: dict[str, Any] = {
        "inputs": [{"name": evil}],
        "nodes": [{**node, "args": [{"node": evil}, 1]}],
        "outputs": [evil],
    }
    assert "import" not in build(json.loads(json.dumps(data))).code
    data |= {"backend": evil + '"', "inputs": [{**data["inputs"][0], **VIEW}], "memories": [{}]}
    tree = ast.parse(program(data, {"m0": torch.zeros(2)}))
    assert [each.name for each in ast.walk(tree) if isinstance(each, ast.alias)] == ["torch"]
    data["nodes"][0]["kwargs"] = {"alpha=1) or (": 2}
    with pytest.raises(CannotTryError):
        build(data)
