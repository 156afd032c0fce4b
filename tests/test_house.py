# SPDX-License-Identifier: Apache-2.0
"""What holds for the package as a whole: what an import costs and loads, what is public, what every
file begins with.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import opscope

ROOT = Path(__file__).parents[1]
PACKAGE = Path(opscope.__file__).parent
HEAVY = (
    "torch",
    "mindspore",
    "duckdb",
    "rich",
    "numpy",
    "cyclopts",
    "msgspec",
    "pandas",
    "asyncio",
)
LINE = "# SPDX-License-Identifier: Apache-2.0"
# Rooms whose modules are there to drive a framework.
FRAMEWORK_ROOMS = (
    "opscope.record.torch",
    "opscope.record.mindspore",
    "opscope.record.jax",
    "opscope.substitute",
    "opscope.sweep",
    "opscope.kernels.device.fused_kernel",  # Triton's language: only `fused` imports it
    "opscope.integrations",
)


def python(code: str, *, isolated: bool = False) -> subprocess.CompletedProcess[str]:
    path = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
    flags = ["-I"] if isolated else []
    return subprocess.run(
        [sys.executable, *flags, "-c", path + code],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_import_loads_nothing_heavy() -> None:
    done = python(f"import opscope\nprint([name for name in {HEAVY} if name in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def test_import_is_cheap() -> None:
    """In modules; benchmarks/startup.py has the seconds."""
    done = python("before = len(sys.modules)\nimport opscope\nprint(len(sys.modules) - before)")
    assert int(done.stdout) < 60, done.stderr


def test_help_loads_what_it_prints_with_and_no_more() -> None:
    code = (
        f"from opscope.cli import main\nmain(['--help'])\nprint([name for name in {HEAVY} if "
        "name in sys.modules], len(sys.modules) < 400)"
    )
    assert python(code).stdout.splitlines()[-1] == "['rich', 'cyclopts'] True"


def test_the_version_is_said_without_loading_anything_heavy() -> None:
    code = (
        f"from opscope.cli import main\nmain(['--version'])\nprint([name for name in {HEAVY} if "
        "name in sys.modules])"
    )
    said, loaded = python(code).stdout.splitlines()
    assert said == f"opscope {opscope.__version__}"
    assert loaded == "[]"


def test_every_public_name_is_there() -> None:
    assert sorted(opscope.__all__) == opscope.__all__ == dir(opscope)
    for name in opscope.__all__:
        assert getattr(opscope, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = opscope.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["opscope.record.config", "opscope.repro.case", "opscope"])
def test_a_room_of_the_name_of_a_function_is_that_function(first: str) -> None:
    """Whatever was imported before: importing anything inside a package binds the package over the
    function.
    """
    code = (
        f"import {first}, opscope\nfrom opscope import record, repro\nassert record is "
        "opscope.record and repro is opscope.repro\n"
    )
    code += (
        "import opscope.record.config, opscope.repro.write\nassert callable(opscope.record) and "
        "callable(opscope.repro)\n"
    )
    code += "try:\n    record(steps='8-5')\nexcept opscope.UsageError as error:\n    print(error)\n"
    done = python(code)
    assert done.stdout.startswith("steps '8-5'"), done.stderr


@pytest.mark.parametrize(
    "first",
    ["opscope.scan.reach", "opscope.compare.side.columns", "opscope.replay.api", "opscope"],
)
def test_a_verb_is_called_through_its_room(first: str) -> None:
    """However it was imported, and with the signature of the function behind it."""
    code = f"import {first}, inspect, opscope\nfrom opscope import compare, replay, scan\n"
    code += (
        "from opscope.compare.api import compare as f\nfrom opscope.replay.api import replay as "
        "g\nfrom opscope.scan.api import scan as h\n"
    )
    code += (
        "for room, again, verb in ((compare, opscope.compare, f), (replay, opscope.replay, g), "
        "(scan, opscope.scan, h)):\n"
    )
    code += "    assert room is again and inspect.signature(room) == inspect.signature(verb)\n"
    code += (
        "try:\n    opscope.compare('not there', 'nor there')\nexcept opscope.FormatError as "
        "error:\n    print(error)\n"
    )
    done = python(code)
    assert done.stdout.startswith("not there"), done.stderr


def test_version_is_that_of_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'^version = "(.+)"$', text, re.MULTILINE)[1] == opscope.__version__  # type: ignore[index]


def modules() -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if (
            not name.startswith(FRAMEWORK_ROOMS)
            and parts[-1] != "__main__"
            and "scripts" not in parts
        ):
            found.append(name)
    return found


def test_every_module_imports_without_a_framework() -> None:
    """With the base dependencies alone; frameworks belong to their own rooms."""
    code = "class Missing:\n    def find_spec(self, name, path=None, target=None):\n"
    code += (
        "        if name.partition('.')[0] in ('torch', 'mindspore', 'torch_npu'): raise "
        "ModuleNotFoundError(name, name=name)\n"
    )
    code += (
        f"sys.meta_path.insert(0, Missing())\nimport importlib\nfor name in {modules()}:\n    "
        "importlib.import_module(name)\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr


def files() -> list[Path]:
    return [
        path
        for place in ("src", "tests", "scripts", "benchmarks")
        for path in sorted((ROOT / place).rglob("*.py"))
    ]


@pytest.mark.skipif(not (ROOT / "scripts").is_dir(), reason="not a source tree")
def test_every_file_says_its_licence() -> None:
    beginnings = {path: path.read_text(encoding="utf-8").splitlines()[:2] for path in files()}
    assert [
        str(path)
        for path, lines in beginnings.items()
        if lines and LINE not in (lines[0], lines[0].startswith("#!") and lines[-1])
    ] == []


@pytest.mark.skipif(not (ROOT / "scripts").is_dir(), reason="not a source tree")
def test_what_is_too_large_is_named(tmp_path: Path) -> None:
    function = 'def f():\n    """A docstring does not count."""\n    # nor does a comment\n'
    (tmp_path / "a.py").write_text(function + "    x = 1\n" * 232)
    (tmp_path / "b.py").write_text(function + "    x = 1\n" * 231 + "x = 1\n" * 1801)
    done = subprocess.run(
        [sys.executable, "scripts/check_size.py", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        f"{tmp_path}/a.py:1 f: 701 tokens, at most 700",
        f"{tmp_path}/b.py: 6101 tokens, at most 6100",
    ]
    assert done.returncode == 1


# -- OPSCOPE in the environment of a program that imports opscope ----------------------------------

STAND_IN = "import types\nentry = types.ModuleType('opscope.record.join')\n"
STAND_IN += (
    "entry.join_from_environment = lambda: print('joined')\nentry.record = lambda: print('made') "
    "or Stop\n"
)
STAND_IN += (
    "class Stop:\n    path = None\n    def __exit__(*_): print('ended')\n    def __enter__(*_): "
    "print('begun')\nStop = Stop()\n"
)
STAND_IN += (
    "import opscope.record\nsys.modules['opscope.record.join'] = entry\nsys.modules['torch'] = "
    "types.ModuleType('torch')\n"
)


@pytest.mark.parametrize(
    ("variables", "before", "said"),
    [
        ({"OPSCOPE": "--values full"}, "", ["made", "begun", "ended"]),
        ({"OPSCOPE_RUN": "/r"}, "", ["joined"]),
        ({}, "", []),
        ({"OPSCOPE": "--values full"}, "import opscope.cli\n", []),
        (
            {"OPSCOPE_RUN": "/r"},
            (
                "class F:\n    starts_opscope = True\n    find_spec = lambda *_: "
                "None\nsys.meta_path.append(F())\n"
            ),
            [],
        ),
    ],
)
def test_import_honours_the_environment(
    variables: dict[str, str], before: str, said: list[str]
) -> None:
    code = "import os\n" + STAND_IN + before + f"os.environ.update({variables!r})\n"
    code += (
        "from opscope.record.activate import activate\nif os.environ.get('OPSCOPE') or "
        "os.environ.get('OPSCOPE_RUN'): activate()\n"
    )
    done = python(code, isolated=True)
    assert done.stdout.split() == said, done.stderr


def test_import_starts_the_recording_itself() -> None:
    done = python(
        "import os\nos.environ['OPSCOPE'] = '--seed x'\nimport types\nsys.modules['torch'] = "
        "types.ModuleType('torch')\nimport opscope"
    )
    assert (
        done.stderr
        == "opscope: not recording torch: UsageError: --seed 'x': not a whole number from 0 to "
        "4294967295\n"
    )
    assert done.returncode == 0
