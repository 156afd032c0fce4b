# SPDX-License-Identifier: Apache-2.0
"""acl.json, which pyACL's acl.init, aclInit and aclmdlSetDump read: object `dump`.

Keys, values and rules: CANN documents and its own parser. Beside the file: the line that reads it,
and ATC's --status_check, without which kernels of 910, 310P and 310B do not look for overflow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
from opscope.formats.settings.steps import MOST_RANGES, step_and_before, wrong_steps
from opscope.formats.settings.table import Key, check_table, nearest

FILE = "acl.json"
STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
EXCEPTION_SCENES = (
    "lite_exception",
    "aic_err_brief_dump",
    "aic_err_norm_dump",
    "aic_err_detail_dump",
)
SCENES = (*EXCEPTION_SCENES, "watcher")
ON_OFF = ("on", "off")
LONGEST_PATH = 512
MOST_ENTRIES = 100

KEYS = (
    Key(name="dump_path", kind="text"),
    Key(name="dump_list", kind="tables"),
    Key(name="dump_mode", kind="text", choices=("input", "output", "all")),
    Key(name="dump_op_switch", kind="text", choices=ON_OFF),
    Key(name="dump_level", kind="text", choices=("op", "kernel", "all")),
    Key(name="dump_data", kind="text", choices=("tensor", "stats")),
    Key(name="dump_stats", kind="texts"),
    Key(name="dump_step", kind="text"),
    Key(name="dump_debug", kind="text", choices=ON_OFF),
    Key(name="dump_scene", kind="text", choices=SCENES),
    Key(name="dump_kernel_data", kind="text"),
)
LIST_KEYS = (
    Key(name="model_name", kind="text"),
    Key(name="layer", kind="texts"),
    Key(name="watcher_nodes", kind="texts"),
    Key(name="optype_blacklist", kind="tables"),
    Key(name="opname_blacklist", kind="tables"),
    Key(name="opname_range", kind="tables"),
)
KERNEL_DATA = ("all", "printf", "tensor", "assert", "timestamp")
PURPOSES = {
    "overflow": "operators that overflow, and their status words",
    "aicore": "inputs and outputs of the AI Core operator that fails (exception dump)",
    "statistics": "statistics of every operator, no tensors",
    "model": "inputs and outputs of every operator of the models",
    "single-op": "inputs and outputs of single-operator (aclnn, aclop) calls",
}
Dump = Mapping[str, Any]


def check(document: object) -> tuple[Problem, ...]:
    """Remarks on a parsed acl.json. Other objects of the file are not looked at; an empty file sets
    nothing.
    """
    if not isinstance(document, dict):
        return tuple(check_table(document, KEYS))
    if "dump" not in document:
        near = nearest(next(iter(document), ""), ["dump"])
        return (
            Problem(
                "error", "dump", f"is missing: the file sets no dump{near if '?' in near else ''}"
            ),
        )
    dump = document["dump"]
    problems = check_table(dump, KEYS, at="dump")
    if not isinstance(dump, dict):
        return tuple(problems)
    for number, entry in enumerate(
        dump.get("dump_list", []) if isinstance(dump.get("dump_list"), list) else []
    ):
        problems += check_table(entry, LIST_KEYS, at=f"dump.dump_list[{number}]")
    if any(problem.severity == "error" for problem in problems):
        return tuple(problems)
    return (
        *problems,
        *(
            Problem("error", f"dump.{key}", text, "acl.json, object dump")
            for rule in RULES
            for key, text in rule(dump)
        ),
    )


Remarks = list[tuple[str, str]]


def _dump_path(dump: Dump) -> Remarks:
    path = dump.get("dump_path", "")
    if not path and dump.get("dump_scene") not in EXCEPTION_SCENES:
        return [("dump_path", "is missing; it is needed for everything but the dump of exceptions")]
    if len(path.encode()) > LONGEST_PATH:
        return [
            ("dump_path", f"has {len(path.encode())} characters, at most {LONGEST_PATH} are taken")
        ]
    return []


def _scene(dump: Dump) -> Remarks:
    scene = dump.get("dump_scene")
    if scene is None:
        return []
    if dump.get("dump_debug") == "on":
        return [
            ("dump_debug", f"overflow dump and dump_scene {scene!r} exclude each other; keep one")
        ]
    if scene == "watcher":
        remarks = (
            []
            if dump.get("dump_mode", "output") == "output"
            else [("dump_mode", 'scene watcher needs "output"')]
        )
        if not any(entry.get("watcher_nodes") for entry in dump.get("dump_list", [])):
            remarks.append(("dump_list", "scene watcher needs watcher_nodes"))
        return remarks
    model = [
        key
        for key in ("dump_list", "dump_mode", "dump_level", "dump_step", "dump_data", "dump_stats")
        if key in dump
    ]
    if dump.get("dump_op_switch") == "on":
        model.insert(0, "dump_op_switch")
    return (
        [
            (
                model[0],
                (
                    f"exception scene {scene!r} excludes model and single-operator dump; use two "
                    "files, two runs"
                ),
            )
        ]
        if model
        else []
    )


def _debug(dump: Dump) -> Remarks:
    if dump.get("dump_debug") == "on" and dump.get("dump_op_switch") == "on":
        return [
            (
                "dump_op_switch",
                "overflow dump (dump_debug on) and single-operator dump exclude each other",
            )
        ]
    return []


def _something(dump: Dump) -> Remarks:
    """A file with none of the three asks for nothing."""
    if (
        dump.get("dump_debug") == "on"
        or dump.get("dump_op_switch") == "on"
        or dump.get("dump_scene")
        or "dump_kernel_data" in dump
    ):
        return []
    entries = dump.get("dump_list")
    if entries is None:
        return [
            (
                "dump_list",
                (
                    "is missing: nothing is dumped; write [{}] for every model, or set "
                    "dump_op_switch or dump_debug to on"
                ),
            )
        ]
    if not entries:
        return [
            (
                "dump_list",
                (
                    "is empty, which is refused while dump_op_switch is off; write [{}] for every "
                    "model"
                ),
            )
        ]
    return []


def _entries(dump: Dump) -> Remarks:
    remarks: Remarks = []
    watcher = dump.get("dump_scene") == "watcher"
    for number, entry in enumerate(dump.get("dump_list", [])):
        at = f"dump_list[{number}]"
        if "watcher_nodes" in entry and not watcher:
            remarks.append((f"{at}.watcher_nodes", 'goes with dump_scene "watcher" only'))
        if watcher and "model_name" in entry:
            remarks.append((f"{at}.model_name", "is not taken in scene watcher"))
        if "opname_range" in entry and "model_name" not in entry:
            remarks.append((f"{at}.opname_range", "needs model_name beside it"))
        for key in ("optype_blacklist", "opname_blacklist", "opname_range"):
            if key in entry and dump.get("dump_level", "all") != "op":
                remarks.append((f"{at}.{key}", 'needs dump_level "op"'))
            if len(entry.get(key, [])) > MOST_ENTRIES:
                remarks.append(
                    (
                        f"{at}.{key}",
                        f"has {len(entry[key])} entries, at most {MOST_ENTRIES} are taken",
                    )
                )
        if dump.get("dump_op_switch", "off") == "off" and (
            "" in entry.get("layer", ()) or entry.get("layer") == []
        ):
            remarks.append(
                (f"{at}.layer", "is empty, or holds an empty name; leave it out for every operator")
            )
    return remarks


def _statistics(dump: Dump) -> Remarks:
    wanted, data = dump.get("dump_stats"), dump.get("dump_data", "tensor")
    if wanted is None:
        return []
    if data != "stats":
        return [("dump_stats", 'goes with dump_data "stats" only')]
    if not wanted:
        return [("dump_stats", "is empty; leave it out for all statistics")]
    return [
        ("dump_stats", f"{name!r} is no statistic{nearest(name, STATISTICS)}")
        for name in wanted
        if name not in STATISTICS
    ]


def _steps(dump: Dump) -> Remarks:
    text = dump.get("dump_step")
    if not text:
        return []
    if text.count("|") >= MOST_RANGES:
        return [("dump_step", f"has {text.count('|') + 1} ranges, at most {MOST_RANGES} are taken")]
    wrong = wrong_steps(text)
    return [("dump_step", wrong)] if wrong else []


def _kernel_data(dump: Dump) -> Remarks:
    words = [word.strip() for word in dump.get("dump_kernel_data", "all").split(",")]
    return [
        ("dump_kernel_data", f"{word!r} is unknown{nearest(word, KERNEL_DATA)}")
        for word in words
        if word not in KERNEL_DATA
    ]


RULES: tuple[Callable[[Dump], Remarks], ...] = (
    _dump_path,
    _scene,
    _debug,
    _something,
    _entries,
    _statistics,
    _steps,
    _kernel_data,
)


def prepare(request: Request) -> Prepared:
    """An acl.json for a purpose, the line that reads it, and what else the purpose needs."""
    purpose = chosen_purpose("acl", PURPOSES, request.purpose)
    dump = _dump(purpose, request)
    for name, value in request.settings.items():
        if name not in {key.name for key in KEYS}:
            raise UsageError(
                f"acl.json has no key dump.{name}{nearest(name, [key.name for key in KEYS])}"
            )
        dump[name] = value
    document = {"dump": dump}
    return Prepared(
        files=(TextFile(FILE, json.dumps(document, indent=4, ensure_ascii=False) + "\n"),),
        environment=_variables(purpose, request),
        snippets=_snippets(purpose),
        advice=_ADVICE.get(purpose, ()),
        result=_result(dump),
        problems=check(document),
    )


def _dump(purpose: str, request: Request) -> dict[str, Any]:
    dump: dict[str, Any] = {"dump_path": request.path or "output"}
    if purpose == "overflow":
        return {**dump, "dump_debug": "on"}
    if purpose == "aicore":
        return {
            **dump,
            "dump_scene": "aic_err_brief_dump"
            if request.data == "statistic"
            else "aic_err_norm_dump",
        }
    dump["dump_mode"] = {None: "all", "both": "all", "input": "input", "output": "output"}[
        request.io
    ]
    if purpose == "single-op":
        dump["dump_op_switch"] = "on"
    else:
        dump["dump_list"] = [{"layer": list(request.operators)}] if request.operators else [{}]
        dump["dump_op_switch"] = "off"
    if purpose == "statistics":
        dump["dump_data"] = "stats"
    steps = request.steps or (step_and_before(request.step) if request.step is not None else None)
    return {**dump, "dump_step": steps} if steps else dump


def _variables(purpose: str, request: Request) -> tuple[Variable, ...]:
    where = "before the program starts; it goes before the path in the file"
    if purpose == "aicore" and request.path:
        return (Variable("ASCEND_DUMP_PATH", request.path, where),)
    return ()


def _snippets(purpose: str) -> tuple[Snippet, ...]:
    reading = Snippet(
        "in the program, once, before anything else of pyACL",
        f'ret = acl.init("{{FOLDER}}/{FILE}")',
    )
    if purpose != "overflow":
        return (reading,)
    return (
        Snippet(
            "when the model is converted (910, 310P, 310B; later devices need no switch)",
            "atc … --status_check=1",
        ),
        reading,
    )


_ADVICE = {
    "overflow": (
        (
            "each overflowing operator leaves two files: its dump, and OpDebug.Node_Opdebug.… "
            "with the status word"
        ),
        "a status of several words is their sum: opscope aicore --status 272 explains it",
    ),
    "aicore": (
        (
            "the dump of exceptions leaves out operators of dynamic shape; use the overflow or "
            "model dump for those"
        ),
    ),
    "statistics": (
        "max, min, avg, nan, inf and l2norm of every tensor; one csv file for each operator",
    ),
    "single-op": ("aclnn calls have no model: their files lie in the device's folder",),
}


def _result(dump: Dump) -> str:
    path = str(dump.get("dump_path", "."))
    folder = path if path.startswith("/") or ":" in path else f"{{folder of the program}}/{path}"
    return f"{folder}/TIME/DEVICE/…; opscope scan {path}"


def verify(document: Any, request: Request) -> tuple[Problem, ...]:  # noqa: ARG001 - one signature for all kinds
    """Remarks on an acl.json somebody wrote."""
    return check(document)


KIND = Kind(
    name="acl",
    about="CANN's dump through pyACL or aclInit (acl.json)",
    purposes=PURPOSES,
    prepare=prepare,
    verify=verify,
)
