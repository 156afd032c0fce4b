# SPDX-License-Identifier: Apache-2.0
"""opscope installed beside MindSpore leaves it the NumPy it works with: a real installation, then a
PyNative program.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import tomllib

PYTHON = os.environ.get("OPSCOPE_MINDSPORE_PYTHON")
ROOT = Path(__file__).parents[2]
FRAMEWORKS = {"torch", "mindspore", "dev", "docs"}  # extras that bring what is not opscope's own
PROGRAM = (
    "import mindspore as ms; print((ms.Tensor([1.0, 2.0]) * 2.5 + 1).sum(), "
    "__import__('numpy').__version__)"
)
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_MINDSPORE_PYTHON names no interpreter"),
]


def said(*command: str) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=True
    ).stdout.strip()


def declared() -> list[str]:
    """What opscope asks for, with every extra that is no framework."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        found
        for name, extra in project["optional-dependencies"].items()
        if name not in FRAMEWORKS
        for found in extra
    ]
    return [*project["dependencies"], *extras]


def test_installing_opscope_leaves_pynative_as_it_was(tmp_path: Path) -> None:
    """The packages of MindSpore's environment lie behind those of a new one, in which first its
    NumPy and then ours are installed.
    """
    before = said(str(PYTHON), "-c", PROGRAM)
    numpy = before.split()[-1]
    said(str(PYTHON), "-m", "venv", str(tmp_path / "new"))
    python = str(tmp_path / "new/bin/python")
    said(
        python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"numpy=={numpy}"
    )
    said(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *declared())
    own, theirs = (
        Path(said(name, "-c", "import site; print(site.getsitepackages()[0])"))
        for name in (python, str(PYTHON))
    )
    (own / "behind.pth").write_text(f"{theirs}\n")
    assert said(python, "-c", "import msgspec; print(msgspec.__file__)").startswith(str(own))
    assert said(python, "-c", PROGRAM) == before
