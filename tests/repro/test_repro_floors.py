# SPDX-License-Identifier: Apache-2.0
"""The floors that docs/floors.md states: syntax by the parser, and real interpreters where they are
named or found.

OPSCOPE_FLOOR_PYTHONS="/path/python:/path/python" names interpreters that have torch, the older
the better.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.repro.single_calls import record

import opscope
import opscope.repro

PACKAGE = Path(opscope.__file__).parent
# Newer than the Python a generated script must run on.
NEWER = {
    "removeprefix",
    "removesuffix",
    "is_relative_to",
    "with_stem",
    "hardlink_to",
    "bit_count",
    "pairwise",
    "walk",
    "BooleanOptionalAction",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    options = {
        "dtype": torch.float16,
        "layout": torch.strided,
        "device": torch.device("cpu"),
        "memory_format": torch.channels_last,
    }
    run, call = record(
        "aten::_to_copy.default", torch.full((1, 2, 2, 3), 1e5).expand(2, 2, 2, 3), **options
    )
    opscope.repro.write(run, call, tmp_path / "case")
    return tmp_path / "case"


def test_generated_script_is_python_3_8(folder: Path) -> None:
    tree = ast.parse((folder / "repro.py").read_text(encoding="utf-8"), feature_version=(3, 8))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & NEWER
    future = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    assert [alias.name for alias in future[0].names] == ["annotations"], (
        "X | None in annotations is text to Python 3.8"
    )


def test_generated_script_needs_torch_alone(folder: Path) -> None:
    tree = ast.parse((folder / "repro.py").read_text(encoding="utf-8"))
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {
        str(node.module).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert imported - set(sys.stdlib_module_names) == {"torch"}


def test_package_is_python_3_10() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) > 50
    for path in files:
        ast.parse(path.read_text(encoding="utf-8"), filename=str(path), feature_version=(3, 10))


@pytest.mark.parametrize(
    "name", ["python3.8", "python3.9", "python3.10", "python3.12", "python3.13", "python3.14"]
)
def test_interpreters_of_this_machine_compile_the_script(name: str, folder: Path) -> None:
    interpreter = shutil.which(name)
    if (
        interpreter is None
        or subprocess.run([interpreter, "-c", ""], capture_output=True).returncode != 0
    ):
        pytest.skip(f"{name} is not here")
    code = (
        "import pathlib, sys; compile(pathlib.Path(sys.argv[1]).read_text(encoding='utf-8'), "
        "'repro.py', 'exec')"
    )
    done = subprocess.run(
        [interpreter, "-W", "error", "-c", code, str(folder / "repro.py")],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.interop
@pytest.mark.parametrize(
    "interpreter",
    [path for path in os.environ.get("OPSCOPE_FLOOR_PYTHONS", "").split(os.pathsep) if path]
    or [None],
)
def test_script_reproduces_under_other_torch(interpreter: str | None, folder: Path) -> None:
    if interpreter is None:
        pytest.skip("OPSCOPE_FLOOR_PYTHONS names no interpreter")
    done = subprocess.run(
        [interpreter, str(folder / "repro.py")],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=600,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "reproduced: inf in output 0, as recorded"
