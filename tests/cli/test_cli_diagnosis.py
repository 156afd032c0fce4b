# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import opscope
from opscope.cli.diagnosis import Diagnosis, cann_facts, diagnose, probe, python_path, shadowed
from opscope.cli.doctor import rows
from opscope.record.launch import BOOTSTRAP


def test_files_that_hide_modules_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, lib, copy = (tmp_path / name for name in ("here", "lib", "copy"))
    for directory in (here, lib, copy):
        directory.mkdir()
    (here / "random.py").write_text("")
    (here / "train.py").write_text("")
    (here / "platform").mkdir()  # no package: a module of the standard library wins over it
    (lib / "msgspec").mkdir()
    (lib / "msgspec" / "__init__.py").write_text("")
    (copy / "nanoarrow.py").write_text("")
    monkeypatch.syspath_prepend(str(lib))
    found = list(shadowed(here, [lib, lib, tmp_path / "gone"]))
    assert [(shadow.name, shadow.path) for shadow in found] == [
        ("random", str(here / "random.py")),
        ("msgspec", str(lib / "msgspec")),
    ]
    assert found[0].hides == "Python's own module random"
    assert found[1].hides.endswith("msgspec/__init__.py")
    assert str(lib) not in found[1].hides


def test_the_only_copy_of_a_module_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text("")
    assert list(shadowed(tmp_path, [])) == []


def test_python_path_without_our_own_directory() -> None:
    environment = {"PYTHONPATH": os.pathsep.join([str(BOOTSTRAP), "/a", "/b"])}
    assert python_path(environment) == [Path("/a"), Path("/b")]
    assert python_path({}) == []


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        (
            "aarch64-linux/ascend_toolkit_install.info",
            "package_name=Ascend-cann-toolkit\nversion=8.0.RC3\narch=aarch64\n",
            "8.0.RC3",
        ),
        (
            "version.cfg",
            "# version: 1.0\nrunning_version=[7.5.0.1.129:8.1.RC1]\n",
            "7.5.0.1.129:8.1.RC1",
        ),
        ("opp/version.info", "Version=7.1.0.5.242\n", "7.1.0.5.242"),
        ("other", "", "unknown"),
    ],
)
def test_cann_is_found_by_its_variable(tmp_path: Path, name: str, text: str, version: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert cann_facts({"ASCEND_HOME_PATH": str(tmp_path)}) == {
        "path": str(tmp_path),
        "version": version,
    }
    assert cann_facts({"ASCEND_HOME_PATH": ""}) == {}


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("print('noise'); print('{\"torch\": \"9\"}')", {"torch": "9"}),
        ("import os; os.abort()", {"error": "the interpreter died: exit code -6"}),
        (
            "raise SystemExit('libx.so: not found')",
            {"error": "the interpreter died: libx.so: not found"},
        ),
        ("import time; time.sleep(600)", {"error": "no answer within 0.5 s"}),
        ("print(3)", {"error": "unexpected answer 3"}),
    ],
)
def test_a_framework_that_dies_is_a_finding(code: str, answer: dict[str, str]) -> None:
    assert probe(os.environ, seconds=0.5 if "sleep" in code else 240, code=code) == answer


def test_the_probe_is_not_recorded() -> None:
    code = (
        "import json, os; print(json.dumps({name: 1 for name in os.environ if "
        "name.startswith('OPSCOPE')}))"
    )
    assert (
        probe({**os.environ, "OPSCOPE_RUN": "/x", "OPSCOPE": "-o x"}, seconds=60, code=code) == {}
    )


def test_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = diagnose(os.environ, here=tmp_path)
    assert found.executable == sys.executable
    assert all(found.packages.values())
    assert found.frameworks["torch"]
    assert found.devices[0].startswith("cpu, ")
    assert found.formats["opscope"] == ""
    assert found.shadowed == ()
    assert found.kernels["compiled"] or found.problems


def test_what_is_missing_is_said_with_its_reason() -> None:
    found = Diagnosis(
        opscope="1", home="/o", python="3", executable="/p", platform="x",
        packages={"numpy": None}, frameworks={"torch": None}, kernels={"compiled": False,
            "reason": "no such file"}, formats={"opscope": "", "odd": "No module named 'odd'"},
            problems=("numpy is missing; pip install numpy",), notes=("a note",),
    )  # fmt: skip
    said = list(rows(found))
    assert ("kernels", "not compiled: no such file; NumPy does their work") in said
    assert ("format", "odd is unavailable: No module named 'odd'") in said
    assert ("packages", "numpy missing") in said
    assert said[-2:] == [("note", "a note"), ("problem", "numpy is missing; pip install numpy")]


@pytest.mark.parametrize("module", [False, True], ids=["script", "python -m"])
def test_nothing_of_the_current_directory_is_run(tmp_path: Path, *, module: bool) -> None:
    """Files that stand for opscope, for a framework and for Python's own modules are named, and not
    one of them is imported.
    """
    for name in ("opscope", "torch", "json", "subprocess", "duckdb"):
        (tmp_path / f"{name}.py").write_text(f"open({name!r} + '.ran', 'w').close()\n")
    script = tmp_path / "bin" / "opscope"
    script.parent.mkdir()
    script.write_text("import sys\nfrom opscope.cli import main\nsys.exit(main())\n")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(opscope.__file__).parents[1]), "", "."]),
    }
    command = [sys.executable, *(["-m", "opscope"] if module else [str(script)]), "doctor"]
    if module:  # what is on PYTHONPATH before opscope has a say is the user's own
        del environment["PYTHONPATH"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, list(tmp_path.glob("*.ran"))) == (1, []), done.stderr
    assert str(tmp_path / "opscope.py") in "".join(
        line.strip() for line in done.stdout.splitlines()
    )
    assert "Traceback" not in done.stdout + done.stderr
