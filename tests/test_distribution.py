# SPDX-License-Identifier: Apache-2.0
"""What is handed out: the sdist of a tree that was worked in, and the wheel without kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", ".gitignore")
BUILD = (
    "import sys; from scikit_build_core import build as b; getattr(b, sys.argv[1])(sys.argv[2], {})"
)
PURE = (
    "import sys; from scikit_build_core import build as b; b.build_wheel(sys.argv[2], "
    "{'wheel.cmake': 'false', 'wheel.py-api': 'py3', 'wheel.platlib': 'false'})"
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources among what an environment, a build, runs and a stranger's folder left behind."""
    tree = tmp_path_factory.mktemp("tree")
    for name in NAMED:
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(
        ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    for left in (
        ".venv/lib/python3.11/site-packages/other/src/opscope/x.py",
        ".venv-torch/src/README.md",
        "build/cp311/CMakeLists.txt",
        "build/cp311/src/opscope/y.py",
        "runs/demo/src/opscope/LICENSE",
        "mine/src/opscope/pyproject.toml",
        "src/opscope.egg-info/PKG-INFO",
        "src/opscope/kernels/_native.so",
        "src/opscope/__pycache__/errors.pyc",
        "notes.md",
    ):
        path = tree / left
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left behind")
    return tree


def build(tree: Path, code: str, what: str, place: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", code, what, str(place)],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (made,) = place.iterdir()
    return made


def sources() -> set[str]:
    """What git would keep of the package."""
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / "src" / "opscope").rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".so"}
    }


def test_an_sdist_of_a_used_tree_holds_the_sources_and_nothing_else(
    tree: Path, tmp_path: Path
) -> None:
    with tarfile.open(build(tree, BUILD, "build_sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == sources() | {*NAMED, "PKG-INFO"} - {".gitignore"}


def test_the_wheel_without_kernels_is_for_every_platform_and_holds_no_binary(
    tree: Path, tmp_path: Path
) -> None:
    wheel = build(tree, PURE, "build_wheel", tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    package = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    assert package == {
        name.removeprefix("src/") for name in sources() if "/kernels/native/" not in name
    }


@pytest.mark.parametrize("workflow", ["checks", "release"])
def test_a_workflow_calls_targets_that_make_has(workflow: str) -> None:
    text = (ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = [
        line.split("make ")[1].split()[0] for line in text.splitlines() if "run: make" in line
    ]
    assert called
    assert all(f"\n{target}:" in makefile for target in called)


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")))
def test_the_fields_of_an_issue_form_bear_names(form: Path) -> None:
    """A word that YAML takes for something else is no name, and GitHub refuses the form."""
    names = re.findall(r"^ +id: (.+)$", form.read_text(encoding="utf-8"), re.MULTILINE)
    assert names
    assert {"true", "false", "yes", "no", "on", "off", "null"}.isdisjoint(map(str.lower, names))
    assert all(re.fullmatch(r"[A-Za-z][\w-]*", name) for name in names)
