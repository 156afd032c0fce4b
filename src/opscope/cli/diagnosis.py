# SPDX-License-Identifier: Apache-2.0
"""Facts about this machine and this interpreter that decide what opscope can do here.

Frameworks are looked at in a process of their own: one that hangs or crashes on import is a
finding, not our end.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from opscope.version import VERSION

# Distribution -> the module it is imported as.
BASE = {
    "numpy": "numpy",
    "msgspec": "msgspec",
    "nanoarrow": "nanoarrow",
    "xxhash": "xxhash",
    "cyclopts": "cyclopts",
    "rich": "rich",
}
FRAMEWORKS = ("torch", "torch_npu", "mindspore")
PROBE_SECONDS = 120
NOT_FROM_HERE = ("-P",) if sys.version_info >= (3, 11) else ()
# Prints one JSON object on its last line. Python 3.10 has no -P.
PROBE = """
import os, sys
home = os.path.dirname(os.__file__)
sys.path[:] = sorted(filter(None, sys.path), key=lambda entry: not entry.startswith(home) or entry.endswith("-packages"))
import json
facts = {}
try:
    import torch
    facts["torch"] = torch.__version__
    devices = ["cpu, %d threads" % torch.get_num_threads()]
    try:
        import torch_npu
        facts["torch_npu"] = torch_npu.__version__
        devices += ["npu:%d %s" % (i, torch.npu.get_device_name(i)) for i in range(torch.npu.device_count())]
    except ModuleNotFoundError:
        pass
    if torch.cuda.is_available():
        devices += ["cuda:%d %s" % (i, torch.cuda.get_device_name(i)) for i in range(torch.cuda.device_count())]
    facts["devices"] = devices
except BaseException as error:
    facts["error"] = "%s: %s" % (type(error).__name__, error)
print("\\n" + json.dumps(facts))
"""  # noqa: E501


class Shadow(msgspec.Struct, frozen=True):
    """A file that is imported in place of a module of the same name."""

    name: str
    path: str
    hides: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What is here. problems must be mended for opscope to do its work; notes are worth knowing."""

    opscope: str
    home: str
    python: str
    executable: str
    platform: str
    packages: dict[str, str | None] = {}
    frameworks: dict[str, str | None] = {}
    devices: tuple[str, ...] = ()
    cann: dict[str, str] = {}
    kernels: dict[str, Any] = {}
    formats: dict[str, str] = {}
    shadowed: tuple[Shadow, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def diagnose(environment: Mapping[str, str], *, here: Path) -> Diagnosis:
    """Look at everything."""
    packages = {name: version_of(name) for name in BASE}
    frameworks = {name: version_of(name) for name in FRAMEWORKS}
    probed = probe(environment, seconds=PROBE_SECONDS) if find_spec("torch") is not None else {}
    frameworks.update({name: probed[name] for name in FRAMEWORKS if name in probed})
    cann = cann_facts(environment)
    kernels = kernel_facts()
    shadows = tuple(shadowed(here, python_path(environment)))
    problems = [
        f"{name} is missing; pip install {name}"
        for name, version in packages.items()
        if version is None
    ]
    problems += [
        f"{shadow.name}: {shadow.path} hides {shadow.hides}; rename it or take its directory "
        "off PYTHONPATH"
        for shadow in shadows
    ]
    problems += _kernel_problems(kernels) + _framework_problems(frameworks, probed, cann)
    return Diagnosis(
        opscope=VERSION,
        home=str(Path(__file__).parents[1]),
        python=platform.python_version(),
        executable=sys.executable,
        platform=platform.platform(),
        packages=packages,
        frameworks=frameworks,
        devices=tuple(probed.get("devices", ())),
        cann=cann,
        kernels=kernels,
        formats=format_facts(),
        shadowed=shadows,
        problems=tuple(problems),
        notes=tuple(_notes(environment, frameworks, here)),
    )


def version_of(distribution: str) -> str | None:
    """Version of an installed distribution, None when it is not there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def probe(environment: Mapping[str, str], *, seconds: float, code: str = PROBE) -> dict[str, Any]:
    """Versions and devices as the frameworks themselves say, or under "error" why they do not.

    Nothing is imported from the current directory, neither by python -c nor by what PYTHONPATH has
    of it (an empty entry, say).
    """
    clean = {name: value for name, value in environment.items() if not name.startswith("OPSCOPE")}
    here = Path.cwd()
    entries = [
        entry
        for entry in clean.pop("PYTHONPATH", "").split(os.pathsep)
        if entry and Path(entry).resolve() != here
    ]
    clean |= {"PYTHONPATH": os.pathsep.join(entries)} if entries else {}
    try:
        done = subprocess.run(
            [sys.executable, *NOT_FROM_HERE, "-c", code],
            env=clean,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {seconds:g} s"}
    try:
        facts = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"error": f"the interpreter died: {last[0]}"}
    return facts if isinstance(facts, dict) else {"error": f"unexpected answer {facts!r}"}


def kernel_facts() -> dict[str, Any]:
    """Whether the compiled kernels load, and the instruction set they use."""
    try:
        native = importlib.import_module("opscope.kernels._native")
        return {"compiled": True, "in_use": native.isa(), "available": list(native.isas())}
    except (ImportError, AttributeError) as error:
        return {"compiled": False, "reason": str(error)}


def format_facts() -> dict[str, str]:
    """Every format by name: "" where it can be read, else why not."""
    from opscope.formats.registry import Unavailable, formats

    return {form.name: form.reason if isinstance(form, Unavailable) else "" for form in formats()}


def cann_facts(environment: Mapping[str, str]) -> dict[str, str]:
    """Where CANN is and its version, as its set_env.sh and its version files say; empty where there
    is none.
    """
    names = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
    home = next((environment[name] for name in names if environment.get(name)), None)
    if home is None:
        return {}
    places = [
        *Path(home).glob("*/ascend_toolkit_install.info"),
        Path(home, "version.cfg"),
        Path(home, "opp", "version.info"),
    ]
    for path in places:
        try:
            version = re.search(
                r"^\s*(?:version|Version|running_version)\s*=\s*\[?([\w.:\-]+)",
                path.read_text(errors="replace"),
                re.MULTILINE,
            )
        except OSError:
            continue
        if version is not None:
            return {"path": home, "version": version[1]}
    return {"path": home, "version": "unknown"}


def python_path(environment: Mapping[str, str]) -> list[Path]:
    """The directories of PYTHONPATH, without the one that opscope run puts there."""
    entries = (
        [
            Path(entry or ".").absolute()
            for entry in environment.get("PYTHONPATH", "").split(os.pathsep)
        ]
        if environment.get("PYTHONPATH")
        else []
    )
    return [entry for entry in entries if entry.parts[-3:] != ("opscope", "record", "bootstrap")]


def shadowed(here: Path, entries: Sequence[Path]) -> Iterator[Shadow]:
    """Files of the current directory and of PYTHONPATH that hide a module of the standard library,
    of opscope, or a framework.
    """
    known = {*BASE.values(), *FRAMEWORKS, "opscope"}
    seen: set[Path] = set()
    for directory in [here, *entries]:
        if directory in seen or not directory.is_dir():
            continue
        seen.add(directory)
        for path in sorted(directory.iterdir()):
            name = _module_name(path)
            hidden = _hidden_by(name, directory, known) if name is not None else None
            if name is not None and hidden is not None:
                yield Shadow(name, str(path), hidden)


def _module_name(path: Path) -> str | None:
    """What a file or directory would be imported as."""
    if path.suffix in (".py", ".so"):
        return path.name.partition(".")[0]
    return path.name if (path / "__init__.py").is_file() else None


def _hidden_by(name: str, directory: Path, known: set[str]) -> str | None:
    if name in sys.stdlib_module_names:
        return f"Python's own module {name}"
    if name not in known:
        return None
    spec = PathFinder.find_spec(
        name, [entry for entry in sys.path if Path(entry or ".").absolute() != directory]
    )
    return str(spec.origin) if spec is not None and spec.origin is not None else None


def _kernel_problems(kernels: Mapping[str, Any]) -> list[str]:
    if kernels["compiled"]:
        return []
    return [
        (
            f"the compiled kernels cannot be loaded ({kernels['reason']}); recording is many "
            "times slower: pip install opscope builds them"
        )
    ]


def _framework_problems(
    frameworks: Mapping[str, str | None], probed: Mapping[str, Any], cann: Mapping[str, str]
) -> list[str]:
    problems = [f"torch cannot be imported: {probed['error']}"] if "error" in probed else []
    if frameworks["torch_npu"] is not None and not cann:
        problems.append(
            "torch_npu is installed but ASCEND_HOME_PATH is not set; source CANN's set_env.sh"
        )
    return problems


def _notes(
    environment: Mapping[str, str], frameworks: Mapping[str, str | None], here: Path
) -> Iterator[str]:
    if frameworks["torch"] is None:
        yield (
            "torch is not installed in this interpreter; opscope run records programs of "
            "interpreters that have it"
        )
    for entry in python_path(environment):
        if not entry.exists():
            yield f"PYTHONPATH names {entry}, which does not exist"
    for directory in [here, *python_path(environment)]:
        if (directory / "sitecustomize.py").is_file():
            yield (
                f"{directory / 'sitecustomize.py'} is imported after opscope's own under opscope "
                "run"
            )
    for name in ("PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHONHOME"):
        if environment.get(name):
            yield f"{name} is set"
