# SPDX-License-Identifier: Apache-2.0
"""What to set before the next run so that an AI Core error can be explained: logs, graphs, kernels,
the dump of the operator.

TensorFlow's lines are the manual's and stand in settings/tensorflow.py; those of the other
frameworks are here. The environment is the same for all, and `opscope run` sets the part of it that
costs nothing (`collected`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opscope.errors import UsageError
from opscope.formats.settings import tensorflow
from opscope.formats.settings.acl import EXCEPTION_SCENES
from opscope.formats.settings.kinds import (
    Kind,
    Prepared,
    Request,
    Snippet,
    TextFile,
    Variable,
    chosen_purpose,
)
from opscope.formats.settings.table import Key

FRAMEWORKS = ("estimator", "session", "pytorch", "mindspore", "acl")
LOGS, GRAPHS, DUMPS = "log", "graph", "dump"
PURPOSES = {
    "error": "the error itself: logs with allocations, graphs, kernels with debug information, "
    "the dump of the operator that fails",
    "address": "an address out of range: the compiler's own check of every access (oom)",
}
# What --set may name, and the frameworks in whose lines it stands.
KEYS = {
    Key(name="dump_scene", kind="text", choices=EXCEPTION_SCENES): {"pytorch", "acl"},
    **{
        key: {"acl", *tensorflow.MODES} if key.name == "op_debug_level" else {*tensorflow.MODES}
        for key in tensorflow.RUN_KEYS
    },
}
_BEFORE = "before the program starts"


def collected(folder: str) -> dict[str, str]:
    """Variables that make CANN write logs, graphs and exception dumps under one folder, at no cost
    while nothing fails.

    The log level stays as it is (errors are logged at every level); graphs are written without
    weights, at the last stage.
    """
    return {
        "ASCEND_PROCESS_LOG_PATH": f"{folder}/{LOGS}",
        "DUMP_GE_GRAPH": "2",
        "DUMP_GRAPH_LEVEL": "3",
        "DUMP_GRAPH_PATH": f"{folder}/{GRAPHS}",
        "ASCEND_DUMP_SCENE": "lite_exception",
        "ASCEND_DUMP_PATH": f"{folder}/{DUMPS}",
    }


def prepare(request: Request) -> Prepared:
    """Variables, lines and acl.json for a purpose; framework chooses one of FRAMEWORKS, None gives
    all.
    """
    purpose = chosen_purpose("aicore", PURPOSES, request.purpose)
    if request.framework not in {None, *FRAMEWORKS}:
        raise UsageError(f"--framework {request.framework!r}: not one of {', '.join(FRAMEWORKS)}")
    wanted = FRAMEWORKS if request.framework is None else (request.framework,)
    folder = request.path or "{FOLDER}/collected"
    shown = request.path or "collected"
    settings = _settings(request.settings, purpose, wanted)
    snippets = [
        snippet for framework in wanted for snippet in _snippets(framework, purpose, settings)
    ]
    scene = settings.get("dump_scene", "aic_err_norm_dump")
    files = (
        ()
        if not {"acl", "pytorch"} & {*wanted}
        else (TextFile("acl.json", _acl_json(folder, scene)),)
    )
    return Prepared(
        files=(
            *files,
            *(
                (TextFile("op_debug_config.cfg", "op_debug_config=oom\n"),)
                if purpose == "address"
                else ()
            ),
        ),
        environment=_environment(folder, purpose),
        snippets=tuple(snippets),
        advice=_ADVICE[purpose],
        result=f"logs, graphs and dumps in {shown}, kernel_meta where the program is started; "
        f"opscope aicore {shown} kernel_meta",
    )


def _settings(
    settings: Mapping[str, Any], purpose: str, frameworks: tuple[str, ...]
) -> dict[str, Any]:
    """What --set says; UsageError also for a key that stands in none of the lines asked for."""
    chosen = tensorflow.given(settings, tuple(KEYS))
    for key, places in KEYS.items():
        if key.name in chosen and (purpose != "error" or not places & {*frameworks}):
            where = (
                "purpose error"
                if purpose != "error"
                else f"--framework {' or '.join(sorted(places))}"
            )
            raise UsageError(
                f"--set {key.name}: stands nowhere in these settings; it goes with {where}"
            )
    return chosen


def _environment(folder: str, purpose: str) -> tuple[Variable, ...]:
    variables = [
        Variable(
            "ASCEND_GLOBAL_LOG_LEVEL", "1", f"{_BEFORE}: INFO, so that allocations are in the log"
        ),
        Variable(
            "ASCEND_PROCESS_LOG_PATH", f"{folder}/{LOGS}", f"{_BEFORE}: where the process logs go"
        ),
        Variable("DUMP_GE_GRAPH", "1", f"{_BEFORE}: graphs with everything in them"),
        Variable("DUMP_GRAPH_LEVEL", "1", f"{_BEFORE}: every graph"),
        Variable("DUMP_GRAPH_PATH", f"{folder}/{GRAPHS}", f"{_BEFORE}: where the graphs go"),
    ]
    if purpose == "error":
        what = (
            f"{_BEFORE}: keeps kernels, graphs and the full exception dump (L1); not together "
            "with oom"
        )
        return (*variables, Variable("NPU_COLLECT_PATH", folder, what))
    return tuple(variables)


def _acl_json(folder: str, scene: str) -> str:
    return (
        json.dumps({"dump": {"dump_path": f"{folder}/{DUMPS}", "dump_scene": scene}}, indent=2)
        + "\n"
    )


def _snippets(framework: str, purpose: str, settings: Mapping[str, Any]) -> tuple[Snippet, ...]:
    if framework in tensorflow.MODES:
        known = {key.name for key in tensorflow.RUN_KEYS}
        own = {name: value for name, value in settings.items() if name in known}
        return (
            tensorflow.prepare(
                Request(purpose="aicore", framework=framework, settings=own)
            ).snippets
            if purpose == "error"
            else ()
        )
    level = str(settings.get("op_debug_level", 2))
    return tuple(
        Snippet(where, text.replace("{LEVEL}", level)) for where, text in _LINES[framework, purpose]
    )


_ATC = "atc --model=… --output=… --soc_version=… "
_LINES: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("pytorch", "error"): (
        (
            "in a PyTorch program (torch_npu), before the first operator",
            'import torch_npu\ntorch_npu.npu.set_dump("{FOLDER}/acl.json")\n',
        ),
        (
            "before the program starts, so that the Python line is the one that fails",
            "export ASCEND_LAUNCH_BLOCKING=1\n",
        ),
    ),
    ("pytorch", "address"): (
        (
            "in a PyTorch program (torch_npu), before the first operator",
            'torch.npu.set_option({"ACL_OP_DEBUG_OPTION": "oom"})\n',
        ),
    ),
    ("mindspore", "error"): (
        (
            "in a MindSpore program, before the network is made",
            'import mindspore as ms\nms.set_context(ascend_config={"exception_dump": "1"})\n',
        ),
        (
            "before the program starts, so that the Python line is the one that fails (PyNative)",
            "export MS_DEV_LAUNCH_BLOCKING=1\n",
        ),
    ),
    ("mindspore", "address"): (
        (
            "in a MindSpore program, before the network is made",
            'import mindspore as ms\nms.set_context(ascend_config={"op_debug_option": "oom"})\n',
        ),
    ),
    ("acl", "error"): (
        ("in an AscendCL program", 'aclInit("{FOLDER}/acl.json");\n'),
        ("when the model is converted", f"{_ATC}--op_debug_level={{LEVEL}}\n"),
    ),
    ("acl", "address"): (
        (
            "when the model is converted",
            f"{_ATC}--op_debug_config={{FOLDER}}/op_debug_config.cfg\n",
        ),
    ),
}
_ADVICE = {
    "error": (
        (
            "op_debug_level 2 compiles without optimisation (-O0 -g) and finds the CCE line; it "
            "slows every kernel: for this run only"
        ),
        (
            "kernels of dynamic shape may be left out of the dump: then use the brief one "
            "(dump_scene lite_exception, enable_exception_dump 2)"
        ),
        (
            "dump_scene aic_err_detail_dump (A2, A3; driver 25.0.RC1 or newer) keeps "
            "registers and memory of the cores in a .core file; the"
            " process is ended after it"
        ),
        "level INFO writes much: stop the program once the error has come",
        'asys launch --task="sh run.sh" --output=FOLDER collects the same where asys is installed',
    ),
    "address": (
        (
            "oom excludes NPU_COLLECT_PATH and ccec_O0; a trap with 0x5A5A0001 is a read out of "
            "bounds, 0x5A5A0002 a write"
        ),
        (
            "Ascend C operators: msSanitizer --tool=memcheck checks them without compiling the "
            "model again"
        ),
    ),
}
KIND = Kind(
    name="aicore",
    about="an AI Core error on Ascend, in any framework",
    purposes=PURPOSES,
    prepare=prepare,
)
