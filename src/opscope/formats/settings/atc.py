# SPDX-License-Identifier: Apache-2.0
"""Options of ATC and of GE: overflow checks in kernels, debug information of kernels, the dump of
exceptions.

Values and rules: CANN documents (op_debug_level, op_debug_config, enable_exception_dump,
--status_check). The one file among them is the configuration that op_debug_config names, lines of
key=value.
"""

from __future__ import annotations

from typing import Any

from opscope.errors import UsageError
from opscope.formats.settings.kinds import (
    Kind,
    Prepared,
    Request,
    Snippet,
    TextFile,
    Variable,
    chosen_purpose,
)
from opscope.formats.settings.problem import Problem
from opscope.formats.settings.steps import wrong_steps
from opscope.formats.settings.table import nearest

FILE = "op_debug.cfg"
CONFIG_WORDS = ("oom", "dump_cce", "dump_loc", "ccec_O0", "ccec_g", "check_flag")
PURPOSES = {
    "overflow": "kernels that look for overflow (--status_check 1)",
    "aicore": "kernels with debug information, and the dump of the operator that fails",
    "memory": "kernels that check their addresses (op_debug_config oom)",
    "model": "inputs and outputs of the graph's operators through GE's options",
}
# GE option -> what it may be; "" means free text.
OPTIONS: dict[str, tuple[str, ...]] = {
    "status_check": ("0", "1"),
    "op_debug_level": ("0", "1", "2", "3", "4"),
    "op_debug_config": (),
    "enable_exception_dump": ("0", "1", "2"),
    "enableDump": ("0", "1"),
    "enableDumpDebug": ("0", "1"),
    "dumpDebugMode": ("aicore_overflow", "atomic_overflow", "all"),
    "dumpData": ("tensor", "stats"),
    "dumpMode": ("input", "output", "all"),
    "dumpLayer": (),
    "dumpPath": (),
    "dumpStep": (),
}
_ATC_WORDS = ("status_check", "op_debug_level", "op_debug_config")


def check_options(options: dict[str, str], environment: dict[str, str]) -> tuple[Problem, ...]:
    """Remarks on GE and ATC options by name, without `--` and without `ge.exec.`."""
    problems = [
        Problem("error", name, f"unknown option{nearest(name, list(OPTIONS))}")
        if name not in OPTIONS
        else Problem("error", name, f"{value!r} is not one of {', '.join(OPTIONS[name])}")
        for name, value in options.items()
        if name not in OPTIONS or (OPTIONS[name] and value not in OPTIONS[name])
    ]
    if options.get("enableDump") == "1" and options.get("enableDumpDebug") == "1":
        problems.append(
            Problem(
                "error",
                "enableDumpDebug",
                "enableDump and enableDumpDebug exclude each other; keep one",
                "ge.exec.enableDump",
            )
        )
    if "dumpDebugMode" in options and options.get("enableDumpDebug") != "1":
        problems.append(
            Problem(
                "note",
                "dumpDebugMode",
                "has no effect unless enableDumpDebug is 1",
                "dumpDebugMode",
            )
        )
    if options.get("dumpStep"):
        wrong = wrong_steps(options["dumpStep"])
        problems.extend([Problem("error", "dumpStep", wrong, "dumpStep")] if wrong else [])
    if environment.get("NPU_COLLECT_PATH") and options.get("enable_exception_dump") in {"0", "2"}:
        text = (
            f"{options['enable_exception_dump']} has no effect: NPU_COLLECT_PATH is set and "
            "forces 1"
        )
        problems.append(Problem("note", "enable_exception_dump", text, "enable_exception_dump"))
    return tuple(problems)


def check_config(text: str, environment: dict[str, str]) -> tuple[Problem, ...]:
    """Remarks on the file that op_debug_config names."""
    problems, words = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or key not in {"op_debug_config", "op_debug_list"}:
            known = ["op_debug_config", "op_debug_list"]
            problems.append(
                Problem(
                    "error",
                    f"line {number}",
                    f"{key!r} is not a key=value line of this file{nearest(key, known)}",
                )
            )
        elif key == "op_debug_config":
            words = [word.strip() for word in value.split(",")]
    problems.extend(
        Problem("error", "op_debug_config", f"{word!r} is unknown{nearest(word, CONFIG_WORDS)}")
        for word in words
        if word not in CONFIG_WORDS
    )
    if "oom" in words and "ccec_O0" in words:
        problems.append(
            Problem(
                "error",
                "op_debug_config",
                "ccec_O0 and oom exclude each other; keep one",
                "op_debug_config",
            )
        )
    if "oom" in words and environment.get("NPU_COLLECT_PATH"):
        problems.append(
            Problem(
                "error",
                "op_debug_config",
                "oom cannot go with NPU_COLLECT_PATH; unset the variable",
                "op_debug_config",
            )
        )
    return tuple(problems)


def prepare(request: Request) -> Prepared:
    """The options for a purpose, as ATC's command line and as GE's options, and the file they
    name.
    """
    purpose = chosen_purpose("atc", PURPOSES, request.purpose)
    options = {
        **_options(purpose, request),
        **{name: str(value) for name, value in request.settings.items()},
    }
    environment = dict(request.environment)
    files = (
        (TextFile(FILE, "op_debug_config=oom\n" + _listed(request)),) if purpose == "memory" else ()
    )
    problems = check_options(options, environment)
    for file in files:
        problems += check_config(file.text, environment)
    return Prepared(
        files=files,
        environment=(_debug_folder(request),)
        if purpose in {"aicore", "memory"} and request.path
        else (),
        snippets=_snippets(options),
        advice=_ADVICE[purpose],
        result=_RESULT[purpose],
        problems=problems,
    )


def _options(purpose: str, request: Request) -> dict[str, str]:
    if purpose == "overflow":
        return {"status_check": "1"}
    if purpose == "aicore":
        return {"op_debug_level": "2", "enable_exception_dump": "1"}
    if purpose == "memory":
        return {"op_debug_config": f"{{FOLDER}}/{FILE}"}
    options = {
        "enableDump": "1",
        "dumpPath": request.path or "./dump",
        "dumpMode": {None: "all", "both": "all"}.get(request.io, request.io or "all"),
    }
    if request.data == "statistic":
        options["dumpData"] = "stats"
    if request.operators:
        options["dumpLayer"] = " ".join(request.operators)
    steps = request.steps or (str(request.step) if request.step is not None else None)
    return {**options, "dumpStep": steps} if steps else options


def _listed(request: Request) -> str:
    for name in request.operators:
        if "\n" in name or "," in name:
            raise UsageError(f"operator {name!r}: a name without commas and line ends was expected")
    return f"op_debug_list={','.join(request.operators)}\n" if request.operators else ""


def _debug_folder(request: Request) -> Variable:
    return Variable(
        "ASCEND_WORK_PATH",
        request.path or "",
        "before the program starts: kernel_meta and dumps go there",
    )


def _snippets(options: dict[str, str]) -> tuple[Snippet, ...]:
    atc = [f"--{name}={value}" for name, value in options.items() if name in _ATC_WORDS]
    ge = [
        f"{name if name.startswith('op_debug') else 'ge.exec.' + name} = {value}"
        for name, value in options.items()
        if name != "status_check"
    ]
    said = [Snippet("on ATC's command line", "atc … " + " ".join(atc))] if atc else []
    return (
        (
            *said,
            Snippet(
                "as options of GE (GEInitialize, or the framework's own name for them)",
                "\n".join(ge),
            ),
        )
        if ge
        else tuple(said)
    )


_ADVICE = {
    "overflow": (
        "910, 310P and 310B need it to find overflow; A2, A3 and 950 always look",
        "then: opscope prepare acl overflow",
    ),
    "aicore": (
        (
            "op_debug_level 2 compiles with -O0 -g: slower, and the CCE line of the error is "
            "known; 1 keeps the optimisation"
        ),
        "the dump of exceptions leaves out operators of dynamic shape",
    ),
    "memory": (
        (
            "an address out of range ends the kernel with its name in the log; not together with "
            "op_debug_level 2 (ccec_O0)"
        ),
    ),
    "model": ("dump slows the program; name steps and layers where they are known",),
}
_RESULT = {
    "overflow": "kernels that set the status word; nothing is written yet",
    "aicore": "kernel_meta/*.o, *.json, *.cce, *_loc.json, and "
    "TIME/DEVICE/extra-info/data-dump/…; opscope aicore FOLDER",
    "memory": "a log that names the kernel; opscope aicore LOGS",
    "model": "DUMPPATH/TIME/DEVICE/MODEL/MODEL_ID/STEP; opscope scan DUMPPATH",
}


def verify(document: Any, request: Request) -> tuple[Problem, ...]:
    """Remarks on an op_debug_config file somebody wrote."""
    return check_config(str(document), dict(request.environment))


KIND = Kind(
    name="atc",
    about="options of ATC and GE",
    purposes=PURPOSES,
    prepare=prepare,
    verify=verify,
    syntax="text",
)
