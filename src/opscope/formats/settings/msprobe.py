# SPDX-License-Identifier: Apache-2.0
"""config.json of msprobe (PrecisionDebugger): keys, their rules, a file for a purpose.

Keys, values and rules: msprobe 26.2 and its earlier generations; what only earlier ones know is a
note.
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
    chosen_purpose,
)
from opscope.formats.settings.problem import Problem
from opscope.formats.settings.steps import wrong_steps
from opscope.formats.settings.table import Key, check_table, nearest

FILE = "config.json"
TASKS = ("statistics", "tensor", "acc_check", "structure", "nan_check", "exception_dump")
EARLIER_TASKS = ("overflow_check", "free_benchmark", "run_ut", "grad_probe")
LEVELS = ("L0", "L1", "L2", "mix", "debug")
KEYS = (
    Key(name="task", kind="text", choices=(*TASKS, *EARLIER_TASKS)),
    Key(name="dump_path", kind="text"),
    Key(name="rank", kind="any"),
    Key(name="step", kind="any"),
    Key(name="level", kind="text", choices=LEVELS),
    Key(name="dump_enable", kind="boolean"),
    Key(name="async_dump", kind="boolean"),
    Key(name="extra_info", kind="boolean"),
    Key(name="precision", kind="text", choices=("low", "high")),
    Key(name="risk_level", kind="text", choices=("ALL", "CORE", "FOCUS")),
    Key(name="custom_op_namespaces", kind="texts"),
    Key(name="load", kind="table"),
    Key(name="seed", kind="integer", least=0),
    Key(name="is_deterministic", kind="boolean"),
    Key(name="enable_dataloader", kind="boolean"),
    Key(name="acl_config", kind="text"),
    *(Key(name=task, kind="table") for task in (*TASKS, *EARLIER_TASKS)),
)
_COMMON = (
    Key(name="scope", kind="texts"),
    Key(name="list", kind="texts"),
    Key(name="tensor_list", kind="texts"),
    Key(name="data_mode", kind="texts", choices=()),
    Key(name="device", kind="text", choices=("host", "device")),
    Key(name="slice", kind="tables"),
    Key(name="request_id", kind="text"),
    Key(name="summary_mode", kind="any"),
)
TASK_KEYS: Mapping[str, tuple[Key, ...]] = {
    "statistics": _COMMON,
    "tensor": (
        *_COMMON,
        Key(name="file_format", kind="text", choices=("npy", "bin")),
        Key(name="bench_path", kind="text"),
        Key(name="diff_nums", kind="integer", least=-1),
    ),
    "acc_check": (
        Key(name="white_list", kind="texts"),
        Key(name="black_list", kind="texts"),
        Key(name="error_data_path", kind="text"),
    ),
    "nan_check": tuple(
        key for key in _COMMON if key.name in {"list", "scope", "tensor_list", "data_mode"}
    ),
    "overflow_check": (
        Key(name="overflow_nums", kind="integer", least=-1),
        Key(name="check_mode", kind="text", choices=("all", "aicore", "atomic")),
    ),
}
DATA_MODES = ("all", "forward", "backward", "input", "output")
EARLIER = ("seed", "is_deterministic", "enable_dataloader", "acl_config", *EARLIER_TASKS)
PURPOSES = {
    "nan": "the failing step and the one before it, every tensor (--step N)",
    "compare": "statistics of one step with the module tree, to compare with a run elsewhere",
    "statistics": "statistics of every call, every step",
    "overflow": "statistics of every call; opscope scan finds the first overflow in them",
}
Config = Mapping[str, Any]
Remarks = list[tuple[str, str]]


def check(document: object) -> tuple[Problem, ...]:
    """Remarks on a parsed config.json."""
    problems = check_table(document, KEYS)
    if not isinstance(document, dict):
        return tuple(problems)
    for task, keys in TASK_KEYS.items():
        if isinstance(document.get(task), dict):
            problems += check_table(document[task], keys, at=task)
    if any(problem.severity == "error" for problem in problems):
        return tuple(problems)
    problems += [
        Problem("error", key, text, "config.json of msprobe")
        for rule in RULES
        for key, text in rule(document)
    ]
    problems += [
        Problem(
            "note", key, "is known to msprobe's earlier generations only", "config.json of msprobe"
        )
        for key in EARLIER
        if key in document
    ]
    return tuple(problems)


def task_of(document: Config) -> str:
    """The task of a configuration, statistics unless it says otherwise."""
    return str(document.get("task", "statistics"))


def _steps(document: Config) -> Remarks:
    remarks: Remarks = []
    for key in ("step", "rank"):
        value = document.get(key, [])
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            text = str(part)
            if (
                isinstance(part, bool)
                or not isinstance(part, int | str)
                or wrong_steps(text) is not None
            ):
                remarks.append((key, f'{part!r} is neither a number nor a range such as "4-6"'))
    return remarks


def _data_modes(document: Config) -> Remarks:
    wanted = document.get(task_of(document), {}).get("data_mode", ["all"])
    at = f"{task_of(document)}.data_mode"
    remarks = [
        (at, f"{mode!r} is unknown{nearest(mode, DATA_MODES)}")
        for mode in wanted
        if mode not in DATA_MODES
    ]
    return remarks or ([(at, '"all" stands alone')] if "all" in wanted and len(wanted) > 1 else [])


def _scope(document: Config) -> Remarks:
    scope = document.get(task_of(document), {}).get("scope", [])
    if not scope or len(scope) == 2:
        return []
    return [
        (
            f"{task_of(document)}.scope",
            f"has {len(scope)} names; none, or the first and the last name of a range",
        )
    ]


def _level_two(document: Config) -> Remarks:
    if document.get("level") != "L2":
        return []
    table = document.get("tensor", {})
    if task_of(document) != "tensor":
        return [("level", 'L2 needs task "tensor"')]
    if table.get("scope"):
        return [("tensor.scope", "must be empty with level L2")]
    return (
        []
        if len(table.get("list", [])) == 1
        else [("tensor.list", "must hold exactly one API with level L2")]
    )


def _levels(document: Config) -> Remarks:
    task, level = task_of(document), document.get("level", "L1")
    if level == "debug" and task not in {"statistics", "tensor"}:
        return [("level", '"debug" goes with the tasks statistics and tensor only')]
    if task == "nan_check" and level != "L1":
        return [("level", "task nan_check needs level L1")]
    if task == "structure" and level not in {"L0", "mix"}:
        return [("level", "task structure needs level L0 or mix")]
    return []


def _asynchronous(document: Config) -> Remarks:
    if (
        document.get("async_dump")
        and task_of(document) == "tensor"
        and not document.get("tensor", {}).get("list")
    ):
        return [("tensor.list", "must name APIs when async_dump is on with task tensor")]
    return []


RULES: tuple[Callable[[Config], Remarks], ...] = (
    _steps,
    _data_modes,
    _scope,
    _level_two,
    _levels,
    _asynchronous,
)


def prepare(request: Request) -> Prepared:
    """A config.json for a purpose and the lines of the training script."""
    purpose = chosen_purpose("msprobe", PURPOSES, request.purpose)
    task = {"nan": "tensor"}.get(purpose, "statistics")
    if request.data in {"tensor", "full"}:
        task = "tensor"
    document: dict[str, Any] = {
        "task": task,
        "dump_path": request.path or "./msprobe_dump",
        "rank": [],
        "step": _step_list(purpose, request),
        "level": "mix" if purpose == "compare" else "L1",
    }
    modes = {"input": ["input"], "output": ["output"]}.get(request.io or "", ["all"])
    document[task] = {"scope": [], "list": list(request.operators), "data_mode": modes}
    if task == "statistics":
        document[task]["summary_mode"] = "statistics"
    for name, value in request.settings.items():
        _set(document, name, value)
    return Prepared(
        files=(TextFile(FILE, json.dumps(document, indent=4, ensure_ascii=False) + "\n"),),
        snippets=(Snippet("in the training script", _SCRIPT),),
        advice=(
            (
                "opscope run -- python train.py records the same without a line in the script, "
                "and every dispatcher operator"
            ),
        ),
        result=f"{document['dump_path']}/stepN/rankN/dump.json; opscope scan "
        f"{document['dump_path']}",
        problems=check(document),
    )


_SCRIPT = """\
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(config_path="{FOLDER}/config.json")
…
debugger.start(model)      # before the forward pass of each step
…
debugger.stop()            # after the backward pass
debugger.step()"""


def _step_list(purpose: str, request: Request) -> list[int | str]:
    if request.steps is not None:
        return [int(part) if part.isdigit() else part for part in request.steps.split("|")]
    if request.step is not None:
        return [step for step in (request.step - 1, request.step) if step >= 0]
    return [0] if purpose == "compare" else []


def _set(document: dict[str, Any], name: str, value: Any) -> None:
    """Set a key, `level` or `statistics.summary_mode`; UsageError for one that does not exist."""
    table, dot, key = name.partition(".")
    if table not in {known.name for known in KEYS}:
        raise UsageError(
            "config.json of msprobe has no key "
            f"{name!r}{nearest(table, [known.name for known in KEYS])}"
        )
    if dot:
        document.setdefault(table, {})[key] = value
    else:
        document[name] = value


def verify(document: Any, request: Request) -> tuple[Problem, ...]:  # noqa: ARG001 - one signature for all kinds
    """Remarks on a config.json somebody wrote."""
    return check(document)


KIND = Kind(
    name="msprobe",
    about="msprobe's PrecisionDebugger (config.json)",
    purposes=PURPOSES,
    prepare=prepare,
    verify=verify,
)
