# SPDX-License-Identifier: Apache-2.0
"""record/bootstrap/sitecustomize.py, in interpreters of its own with a small package called
torch.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import opscope
from opscope.record.bootstrap.sitecustomize import HomeFinder
from opscope.record.launch import BOOTSTRAP

# A recorder's entry that says what it sees; sys.modules is where the real one would be found.
JOINING = """
import sys, types
entry = types.ModuleType("opscope.record.join")
entry.join_from_environment = lambda: print("joined", getattr(sys.modules["torch"], "whole", None), flush=True)
sys.modules["opscope.record.join"] = entry
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "lib" / "torch").mkdir(parents=True)
    (tmp_path / "lib" / "torch" / "__init__.py").write_text(
        "from torch import inner\nwhole = True\n"
    )
    (tmp_path / "lib" / "torch" / "inner.py").write_text("print('torch runs')\n")
    return tmp_path


def run(
    place: Path, code: str, *, flags: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(
        [str(BOOTSTRAP), str(place / "lib"), str(Path(opscope.__file__).parents[1])]
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith("OPSCOPE")}
    env = {**plain, "PYTHONPATH": path, "OPSCOPE_RUN": str(place / "run"), **environment}
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_joins_right_after_torch_was_imported(place: Path) -> None:
    done = run(place, JOINING + "import torch\nprint('program')\nimport torch.inner")
    assert (done.stdout, done.stderr, done.returncode) == (
        "torch runs\njoined True\nprogram\n",
        "",
        0,
    )


@pytest.mark.parametrize(
    ("options", "prepared"), [("--check --keep=all", True), ("--output=--check", False)]
)
def test_what_checks_calls_is_started_before_torch_is_imported(
    place: Path, options: str, prepared: bool
) -> None:
    preparing = (
        "early = types.ModuleType('opscope.record.active')\n"
        "early.active = types.SimpleNamespace(prepare=lambda: print('prepared', flush=True))\n"
        "sys.modules[early.__name__] = early\n"
    )
    done = run(place, JOINING + preparing + "import torch", OPSCOPE=options)
    assert done.stdout.splitlines() == [
        *(["prepared"] if prepared else []),
        "torch runs",
        "joined True",
    ]
    assert done.stderr == ""


def test_asking_for_the_spec_is_not_importing(place: Path) -> None:
    """transformers and accelerate ask `find_spec("torch")` long before they import it."""
    asking = (
        "import importlib.util\nassert importlib.util.find_spec('torch')\nassert "
        "importlib.util.find_spec('torch')\n"
    )
    done = run(place, JOINING + asking + "import torch")
    assert done.stdout == "torch runs\njoined True\n"


def test_the_finder_and_the_loader_leave_no_trace(place: Path) -> None:
    """The loader none at once; the finder none once every framework it waits for has come."""
    (place / "lib" / "mindspore").mkdir()
    (place / "lib" / "mindspore" / "__init__.py").write_text("print('mindspore runs')\n")
    other = (
        "import types\nother = types.ModuleType('opscope.record.mindspore.join')\n"
        "other.join_from_environment = lambda: print('joined "
        "too')\nsys.modules[other.__name__] = other\n"
        "def left(): return [type(f).__name__ for f in sys.meta_path].count('AfterImport')\n"
    )
    code = (
        "import torch\nprint('exec_module' in vars(torch.__spec__.loader), left())\nimport "
        "mindspore\nprint(left())"
    )
    assert run(place, JOINING + other + code).stdout.endswith(
        "joined True\nFalse 1\nmindspore runs\njoined too\n0\n"
    )


def test_an_import_that_failed_is_joined_when_it_succeeds(place: Path) -> None:
    (place / "lib" / "torch" / "__init__.py").write_text(
        "import os\nif 'BAD' in os.environ: raise ImportError('once')\nwhole = True\n"
    )
    code = (
        "import os\ntry:\n    import torch\nexcept ImportError as e: print(e)\ndel "
        "os.environ['BAD']\nimport torch\n"
    )
    assert run(place, JOINING + code, BAD="1").stdout == "once\njoined True\n"


def test_torch_from_a_zip_whose_loader_serves_others_too(place: Path) -> None:
    with zipfile.ZipFile(place / "lib.zip", "w") as file:
        file.writestr("torch.py", "import other\nwhole = True\n")
        file.writestr("other.py", "print('other')\n")
    code = (
        "sys.path.insert(0, ZIP)\nimport "
        "importlib.util\nimportlib.util.find_spec('torch')\nimport other\nimport torch"
    )
    assert (
        run(place, JOINING + code.replace("ZIP", repr(str(place / "lib.zip")))).stdout
        == "other\njoined True\n"
    )


def test_a_framework_imported_before_start_up_ended_is_joined(place: Path) -> None:
    """A .pth file of site-packages runs before sitecustomize."""
    code = JOINING + "import torch\ndel sys.modules['sitecustomize']\nimport importlib\n"
    code += (
        f"sys.path.insert(0, {str(BOOTSTRAP)!r})\nimport os\nos.environ['OPSCOPE_RUN'] = "
        f"{str(place / 'run')!r}\nimport sitecustomize"
    )
    assert run(place, code, OPSCOPE_RUN="").stdout == "torch runs\njoined True\n"


def test_a_recorder_that_fails_leaves_the_program_alone(place: Path) -> None:
    failing = JOINING.replace('print("joined"', 'print("joined" + 1')
    done = run(place, failing + "import torch\nprint('program')\nsys.exit(5)")
    assert (done.stdout, done.returncode) == ("torch runs\nprogram\n", 5)
    assert done.stderr.startswith("opscope: not recording: TypeError: ")
    assert done.stderr.count("\n") == 1
    (note,) = (place / "run").glob("note-*.txt")
    assert note.read_text() == done.stderr
    assert sys.executable in done.stderr


def test_a_closed_stderr_and_a_missing_run_are_nobodys_trouble(place: Path) -> None:
    failing = JOINING.replace('print("joined"', 'print("joined" + 1')
    done = run(
        place,
        "import sys\nsys.stderr.close()\n" + failing + "import torch\nprint('program')",
        OPSCOPE_RUN="/nonexistent/run",
    )
    assert (done.stdout, done.returncode) == ("torch runs\nprogram\n", 0)


def test_another_opscope_than_the_launchers_does_not_record(place: Path) -> None:
    done = run(place, JOINING + "import torch", OPSCOPE_VERSION="9.9")
    assert done.stdout == "torch runs\n"
    assert f"the launcher is opscope 9.9, here is {opscope.__version__} in " in done.stderr


@pytest.mark.parametrize("active", [True, False])
def test_a_process_without_torch_sees_nothing(place: Path, active: bool) -> None:
    code = (
        "import sys; print(len(sys.modules), 'opscope' in sys.modules, any('bootstrap' in p "
        "for p in sys.path))"
    )
    plain = run(place, code, PYTHONPATH=str(place / "lib"), OPSCOPE_RUN="").stdout.split()
    seen = run(place, code, OPSCOPE_RUN=str(place / "run") if active else "").stdout.split()
    assert int(seen[0]) - int(plain[0]) <= 1  # sitecustomize itself
    assert seen[1:] == ["False", "False"]


def test_says_once_that_a_python_came_through(place: Path) -> None:
    run(place, "")
    run(place, "")
    assert [path.name for path in (place / "run").iterdir()] == ["started"]


def test_the_users_own_sitecustomize_runs(place: Path) -> None:
    (place / "lib" / "sitecustomize.py").write_text("print('mine')\nvalue = 3\n")
    done = run(place, JOINING + "import sitecustomize, torch\nprint(sitecustomize.value)")
    assert (done.stdout, done.stderr) == ("mine\ntorch runs\njoined True\n3\n", "")


def test_the_users_own_sitecustomize_fails_as_it_would(place: Path) -> None:
    (place / "lib" / "sitecustomize.py").write_text("import no_such_module_at_all\n")
    with_us = run(place, "print('program')")
    without = run(place, "print('program')", PYTHONPATH=str(place / "lib"))
    assert (with_us.returncode, with_us.stdout) == (without.returncode, without.stdout)
    assert with_us.stderr.splitlines()[-1] == without.stderr.splitlines()[-1]


def test_children_are_watched_too(place: Path) -> None:
    child = JOINING + "import torch"
    done = run(
        place,
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)",
    )
    assert done.stdout == "torch runs\njoined True\n"


def test_spawned_workers_are_watched_too(place: Path) -> None:
    worker = "import multiprocessing\ndef work():\n    exec(JOINING, {})\n    import torch\n"
    main = (
        "if __name__ == '__main__':\n    p = "
        "multiprocessing.get_context('spawn').Process(target=work)\n    p.start(); p.join()\n"
    )
    script = place / "spawn.py"
    script.write_text(f"JOINING = {JOINING!r}\n{worker}{main}")
    done = run(
        place,
        f"import runpy, sys\nsys.argv = [{str(script)!r}]\nrunpy.run_path({str(script)!r}, "
        "run_name='__main__')",
    )
    assert "joined True" in done.stdout, done.stderr


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_isolated_interpreters_are_left_alone(place: Path, flag: str) -> None:
    done = run(
        place,
        "import sys\nprint('sitecustomize' in sys.modules and 'bootstrap' in "
        "sys.modules['sitecustomize'].__file__)",
        flags=(flag,),
    )
    assert done.stdout == "False\n"
    assert list((place / "run").iterdir()) == []


def test_old_interpreters_can_read_it() -> None:
    """Python 2 included: no annotations, no f-strings, nothing that came later."""
    tree = ast.parse((BOOTSTRAP / "sitecustomize.py").read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    annotations = [function.returns for function in functions] + [
        a.annotation for function in functions for a in function.args.args
    ]
    assert functions
    assert annotations == [None] * len(annotations)
    late = (
        ast.JoinedStr
        | ast.AnnAssign
        | ast.NamedExpr
        | ast.AsyncFunctionDef
        | ast.Nonlocal
        | ast.YieldFrom
        | ast.Starred
    )
    assert not [node for node in ast.walk(tree) if isinstance(node, late)]
    assert not [
        arg
        for function in functions
        for arg in (*function.args.kwonlyargs, *function.args.posonlyargs)
    ]


@pytest.mark.parametrize("name", ["python2.7", "python3.6", "python3.8", "python3.9"])
def test_an_interpreter_that_is_too_old_says_so_and_goes_on(place: Path, name: str) -> None:
    interpreter = shutil.which(name)
    if (
        interpreter is None
        or subprocess.run([interpreter, "-V"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"no {name} here")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(BOOTSTRAP), str(place / "lib")]),
        "OPSCOPE_RUN": str(place / "run"),
    }
    done = subprocess.run(
        [interpreter, "-B", "-c", "import torch; print(torch.whole)"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "torch runs\nTrue\n"
    assert (
        done.stderr == "" if name == "python2.7" else "is older than opscope needs" in done.stderr
    )


def test_the_launchers_opscope_is_found_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "opscope").mkdir()
    (tmp_path / "opscope" / "__init__.py").write_text("")
    (tmp_path / "numpy.py").write_text("")
    monkeypatch.setenv("OPSCOPE_HOME", str(tmp_path))
    assert HomeFinder().find_spec("opscope").origin == str(tmp_path / "opscope" / "__init__.py")
    assert HomeFinder().find_spec("numpy") is None
    monkeypatch.delenv("OPSCOPE_HOME")
    assert HomeFinder().find_spec("opscope") is None
