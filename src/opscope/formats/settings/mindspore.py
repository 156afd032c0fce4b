# SPDX-License-Identifier: Apache-2.0
"""data_dump.json of MindSpore: what it may hold, a file for a purpose, and what goes with it.

Keys, values, variables and folders: MindSpore 2.3 documents, "Dump功能调试"; which key stands in which
table, and what is
required: MindSpore's own parser (dump_json_parser.cc). The rules between keys are in
mindspore_rules.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Mapping
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
from opscope.formats.settings.mindspore_rules import Target, broken_rules, target_of
from opscope.formats.settings.problem import Problem
from opscope.formats.settings.steps import step_and_before
from opscope.formats.settings.table import Key, check_table, nearest

FILE = "data_dump.json"
VARIABLE = "MINDSPORE_DUMP_CONFIG"
STATISTICS = (
    "max",
    "min",
    "avg",
    "count",
    "negative zero count",
    "positive zero count",
    "nan count",
    "negative inf count",
    "positive inf count",
    "zero count",
    "md5",
    "l2norm",
)
DEFAULT_STATISTICS = ("max", "min", "l2norm")

COMMON_KEYS = (
    Key(name="dump_mode", kind="integer", choices=(0, 1, 2), required=True),
    Key(name="path", kind="text"),
    Key(name="net_name", kind="text", required=True),
    Key(name="iteration", kind="text", required=True),
    Key(name="saved_data", kind="text", choices=("tensor", "statistic", "full")),
    Key(name="input_output", kind="integer", choices=(0, 1, 2), required=True),
    Key(name="kernels", kind="texts", required=True),
    Key(name="support_device", kind="integers", required=True),
    Key(name="op_debug_mode", kind="integer", choices=(0, 1, 2, 3, 4)),
    Key(name="statistic_category", kind="texts"),
    Key(name="file_format", kind="text", choices=("npy", "bin")),
    Key(name="overflow_number", kind="integer", least=0),
    Key(name="initial_iteration", kind="integer", least=0),
)
E2E_KEYS = (
    Key(name="enable", kind="boolean"),
    Key(name="trans_flag", kind="boolean"),
    Key(name="stat_calc_mode", kind="text", choices=("host", "device")),
    Key(name="device_stat_precision_mode", kind="text", choices=("high", "low")),
    Key(name="sample_mode", kind="integer", choices=(0, 1)),
    Key(name="sample_num", kind="integer", least=1),
    Key(name="save_kernel_args", kind="boolean"),
)
COMMON_NAMES = tuple(key.name for key in COMMON_KEYS)
E2E_NAMES = tuple(key.name for key in E2E_KEYS)
TABLES = (
    Key(name="common_dump_settings", kind="table", required=True),
    Key(name="e2e_dump_settings", kind="table"),
)

PURPOSES = {
    "nan": "the failing step and the one before it, every tensor (--step N, counted from 0)",
    "compare": "one step, every tensor and its statistics, to compare with a run elsewhere",
    "statistics": "statistics of every operator, every step, no tensors",
    "overflow": "the operators that overflow, nothing else",
    "aicore": "the inputs of the operator that fails, nothing else (exception dump)",
    "set_dump": "only what the program names with mindspore.set_dump(cell or operator)",
    "sampling": "the ends of every tensor (sample_num elements), not all of it",
    "migration": "the outputs of one step in the host's layout, to compare with the framework the "
    "model comes from",
}


def check(
    document: object, target: Target, environment: Mapping[str, str] | None = None
) -> tuple[Problem, ...]:
    """Remarks on a parsed data_dump.json for that target; rules between keys are looked at once the
    keys are sound.
    """
    problems = check_table(document, TABLES)
    if not isinstance(document, dict):
        return tuple(problems)
    common, e2e = document.get("common_dump_settings"), document.get("e2e_dump_settings")
    if isinstance(common, dict):
        problems += check_table(
            common,
            COMMON_KEYS,
            at="common_dump_settings",
            elsewhere=dict.fromkeys(E2E_NAMES, "e2e_dump_settings"),
        )
        problems += statistics_of(common)
    if isinstance(e2e, dict):
        problems += check_table(
            e2e,
            E2E_KEYS,
            at="e2e_dump_settings",
            elsewhere=dict.fromkeys(COMMON_NAMES, "common_dump_settings"),
        )
    if isinstance(common, dict):
        wrong = {problem.key for problem in problems}
        kept = {
            key: value
            for key, value in common.items()
            if f"common_dump_settings.{key}" not in wrong
        }
        rest = (
            {key: value for key, value in e2e.items() if f"e2e_dump_settings.{key}" not in wrong}
            if isinstance(e2e, dict)
            else None
        )
        problems += [
            problem
            for problem in broken_rules(kept, rest, target, environment or {})
            if problem.key not in wrong
        ]
    return tuple(problems)


def statistics_of(common: Mapping[str, Any]) -> list[Problem]:
    """Remarks on the names in statistic_category."""
    wanted = common.get("statistic_category")
    if not isinstance(wanted, list):
        return []
    at = "common_dump_settings.statistic_category"
    return [
        Problem(
            "error",
            at,
            f"{name!r} is no statistic{nearest(name, STATISTICS)}",
            "statistic_category",
        )
        for name in wanted
        if isinstance(name, str) and name not in STATISTICS
    ]


def prepare(request: Request) -> Prepared:
    """A data_dump.json for a purpose on a back end, with the variables, lines and advice that go
    with it.
    """
    purpose = chosen_purpose("mindspore", PURPOSES, request.purpose)
    target = target_of(request)
    document = _overruled(_document(purpose, request, target), request.settings)
    variables = [Variable(VARIABLE, f"{{FOLDER}}/{FILE}", _WHERE)]
    if request.acl:
        variables.append(Variable("MS_ACL_DUMP_CFG_PATH", f"{{FOLDER}}/{FILE}", _WHERE))
    if (
        not document["common_dump_settings"].get("path")
        and "MS_DIAGNOSTIC_DATA_PATH" in request.environment
    ):
        variables.append(
            Variable(
                "MS_DIAGNOSTIC_DATA_PATH", request.environment["MS_DIAGNOSTIC_DATA_PATH"], _WHERE
            )
        )
    return Prepared(
        files=(TextFile(FILE, json.dumps(document, indent=4, ensure_ascii=False) + "\n"),),
        environment=tuple(variables),
        snippets=_snippets(purpose, target),
        advice=(*_ADVICE.get(purpose, ()), *_advice(document["common_dump_settings"], target)),
        result=_result(document, target),
        problems=check(document, target, request.environment),
    )


_WHERE = "before MindSpore is imported, in a distributed job before mindspore.communication.init"


def _document(purpose: str, request: Request, target: Target) -> dict[str, Any]:
    """The file for a purpose, with what the user asked for in words of ours."""
    common: dict[str, Any] = {
        "dump_mode": 2 if purpose == "set_dump" else 1 if request.operators else 0,
        "path": request.path or "",
        "net_name": "Net",
        "iteration": request.steps
        or (step_and_before(request.step) if request.step is not None else "all"),
        "saved_data": request.data or _data(purpose, target),
        "input_output": {
            None: 2 if purpose == "migration" else 0,
            "both": 0,
            "input": 1,
            "output": 2,
        }[request.io],
        "kernels": list(request.operators),
        "support_device": list(range(8)),
        "op_debug_mode": {"overflow": 3, "aicore": 4}.get(purpose, 0),
    }
    if common["saved_data"] != "tensor":
        common["statistic_category"] = [name for name in STATISTICS if name != "md5"]
    if purpose in {"compare", "migration"} and request.steps is None and request.step is None:
        common["iteration"] = "0"
    if not target.synchronous_wanted:
        if purpose == "sampling":
            raise UsageError(
                "sampling exists in synchronous dump only (O0 on Ascend); opscope run -- "
                "python … offers it on every device"
            )
        return {
            "common_dump_settings": {
                **common,
                "file_format": "bin" if purpose in {"overflow", "aicore"} else "npy",
            }
        }
    e2e: dict[str, Any] = {"enable": True, "trans_flag": True}
    if purpose == "sampling":
        e2e |= {"sample_mode": 1, "sample_num": 100}
    return {"common_dump_settings": common, "e2e_dump_settings": e2e}


def _data(purpose: str, target: Target) -> str:
    """Statistics are what "statistics" is about; beside tensors they are left out where the back
    end has none.
    """
    if purpose in {"compare", "migration"}:
        return "tensor" if target.backend == "CPU" else "full"
    return "statistic" if purpose == "statistics" else "tensor"


def _overruled(document: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The document with keys the user gave, each put into the table it belongs to."""
    places = {key.name: "common_dump_settings" for key in COMMON_KEYS} | {
        key.name: "e2e_dump_settings" for key in E2E_KEYS
    }
    for name, value in settings.items():
        table = places.get(name)
        if table is None:
            raise UsageError(f"data_dump.json has no key {name!r}{nearest(name, list(places))}")
        document.setdefault(table, {})[name] = value
    return document


_ADVICE = {
    "migration": (
        (
            "the same weights, inputs and seeds on both sides, dropout off; opscope compare DUMP "
            "DUMP_OF_THE_OTHER_FRAMEWORK"
        ),
        "statistics and tensors of the other side: opscope run -- python … there",
    ),
    "sampling": (
        (
            "a sample shows no NaN between the ends: opscope run -- python … has statistics of "
            "the whole of every tensor"
        ),
    ),
}


def _snippets(purpose: str, target: Target) -> tuple[Snippet, ...]:
    sink = (
        "model.train(…, dataset_sink_mode=False)   # no data sinking, or the steps cannot be "
        "told apart"
    )
    lines = ["mindspore.set_context(reserve_class_name_in_scope=False)   # shorter file names"]
    if target.backend in {"GPU", "CPU"}:
        lines.append(sink)
    if purpose == "set_dump":
        lines.append(
            "mindspore.set_dump(net.conv1)   # before the network is called; a Cell, or an "
            "operator that is its attribute"
        )
    return (Snippet("in the training script", "\n".join(lines)),)


def _advice(common: Mapping[str, Any], target: Target) -> tuple[str, ...]:
    said = [
        "set the variables before the program starts: set inside it they have no effect",
        "a heterogeneous training (CPU and device in one graph) is not supported by the dump",
        "end the program after the wanted step (run_context.request_stop()); dumping is slow",
    ]
    if target.backend == "Ascend":
        said.append(
            "dumping delays ranks: raise HCCL_EXEC_TIMEOUT, or collective operators time out"
        )
    if common.get("kernels") and target.synchronous:
        said.append(
            "set_context(save_graphs=2) changes operator ids: keep it as it was when you "
            "looked the names up"
        )
    if not target.synchronous:
        said.append(
            "operator names of the graph: set DUMP_GE_GRAPH=2, DUMP_GRAPH_LEVEL, "
            "DUMP_GRAPH_PATH, run once, read them there"
        )
    if target.backend == "CPU" and common.get("saved_data") != "tensor":
        said.append(
            "statistics on CPU: opscope run --config data_dump.json -- python train.py offers "
            "what MindSpore refuses"
        )
    return tuple(said)


def _result(document: Mapping[str, Any], target: Target) -> str:
    path = document["common_dump_settings"].get("path") or "$MS_DIAGNOSTIC_DATA_PATH/debug_dump"
    if target.synchronous:
        return (
            f"{path}/rank_N/{document['common_dump_settings']['net_name']}/GRAPH/ITERATION; "
            f"opscope scan {path}"
        )
    step = "STEP/" if target.acl else ""
    return f"{path}/{step}TIME/DEVICE/MODEL/MODEL_ID/ITERATION; opscope scan {path}"


def verify(document: Any, request: Request) -> tuple[Problem, ...]:
    """Remarks on a file somebody wrote; whether it means synchronous or asynchronous dump is read
    off it.
    """
    return check(document, target_of(request, document), request.environment)


KIND = Kind(
    name="mindspore",
    about="MindSpore's own dump, synchronous or asynchronous (data_dump.json)",
    purposes=PURPOSES,
    prepare=prepare,
    verify=verify,
)
