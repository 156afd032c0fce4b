# SPDX-License-Identifier: Apache-2.0
"""What a TensorFlow 1.15 training on Ascend sets before the next run: Estimator and sess.run.

The lines are those of the manual "构造单算子复现用例" (AI Core errors), with the dump options of
NPURunConfig and DumpConfig beside them for the other purposes.
"""

from __future__ import annotations

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
from opscope.formats.settings.problem import errors
from opscope.formats.settings.steps import step_and_before, wrong_steps
from opscope.formats.settings.table import Key, check_table

MODES = ("estimator", "session")
PURPOSES = {
    "aicore": "an AI Core error: kernels with debug information, the dump of the operator that "
    "fails",
    "overflow": "operators that overflow",
    "dump": "inputs and outputs of every operator",
}
# What --set may name: the arguments of NPURunConfig and of DumpConfig, which are keys of
# parameter_map in a session.
RUN_KEYS = (
    Key(name="op_debug_level", kind="integer", choices=(0, 1, 2)),
    Key(name="enable_exception_dump", kind="integer", choices=(0, 1, 2)),
)
DUMP_KEYS = (
    Key(name="enable_dump", kind="boolean"),
    Key(name="enable_dump_debug", kind="boolean"),
    Key(name="dump_path", kind="text"),
    Key(name="dump_step", kind="text"),
    Key(name="dump_mode", kind="text", choices=("input", "output", "all")),
    Key(name="dump_debug_mode", kind="text", choices=("aicore_overflow", "atomic_overflow", "all")),
)
VARIABLES = (
    Variable("DUMP_GE_GRAPH", "1", "before the program starts: graphs with everything in them"),
    Variable("DUMP_GRAPH_LEVEL", "1", "before the program starts: every graph"),
    Variable("ASCEND_GLOBAL_LOG_LEVEL", "1", "before the program starts: log level INFO"),
)
_ESTIMATOR = """\
import tensorflow as tf
from npu_bridge.estimator.npu.npu_config import NPURunConfig
from npu_bridge.estimator.npu.npu_config import DumpConfig

session_config=tf.ConfigProto()
{before}
config = NPURunConfig(
{options}
  session_config=session_config{last}
  )
"""
_SESSION = """\
import tensorflow as tf
from npu_bridge.estimator import npu_ops
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

config = tf.ConfigProto()

custom_op =  config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name =  "NpuOptimizer"
custom_op.parameter_map["use_off_line"].b = True
{options}
config.graph_options.rewrite_options.remapping = RewriterConfig.OFF  # close the remap switch

with tf.Session(config=config) as sess:
  print(sess.run(cost))
"""


def prepare(request: Request) -> Prepared:
    """The lines of a training script for a purpose; framework chooses "estimator" or "session",
    None gives both.
    """
    purpose = chosen_purpose("tensorflow", PURPOSES, request.purpose)
    if request.framework not in {None, *MODES}:
        raise UsageError(f"--framework {request.framework!r}: not one of {', '.join(MODES)}")
    steps = request.steps or (step_and_before(request.step) if request.step is not None else None)
    if steps is not None and (wrong := wrong_steps(steps)) is not None:
        raise UsageError(f"--steps: {wrong}")
    path = request.path or "./dump"
    writers = {"estimator": estimator_lines, "session": session_lines}
    chosen = [request.framework] if request.framework else list(MODES)
    options = _options(purpose, path, steps) | given(request.settings, (*RUN_KEYS, *DUMP_KEYS))
    texts = {mode: writers[mode](options) for mode in chosen}
    return Prepared(
        files=tuple(TextFile(f"{mode}.py.txt", text) for mode, text in texts.items()),
        environment=VARIABLES,
        snippets=tuple(Snippet(_WHERE[mode], text) for mode, text in texts.items()),
        advice=_ADVICE[purpose],
        result=_RESULT[purpose].format(path=path),
    )


def given(settings: Mapping[str, Any], keys: tuple[Key, ...]) -> dict[str, Any]:
    """What --set says, checked; UsageError, all faults in one line, for a key there is not and a
    value it cannot have.
    """
    wrong = errors(check_table(dict(settings), keys, at="--set"))
    if wrong:
        raise UsageError("; ".join(problem.line() for problem in wrong))
    return dict(settings)


def _options(purpose: str, path: str, steps: str | None) -> dict[str, Any]:
    """Options for a purpose, in the order the manual writes them."""
    if purpose == "aicore":
        return {"op_debug_level": 2, "enable_exception_dump": 1}
    if purpose == "overflow":
        return {"enable_dump_debug": True, "dump_path": path, "dump_debug_mode": "all"}
    return {"enable_dump": True, "dump_path": path, "dump_mode": "all"} | (
        {"dump_step": steps} if steps else {}
    )


def estimator_lines(options: Mapping[str, Any]) -> str:
    """The lines for an Estimator; values become Python literals."""
    dump = ", ".join(
        f"{key.name}={_literal(options[key.name])}" for key in DUMP_KEYS if key.name in options
    )
    lines = ["  dump_config=dump_config,"] if dump else []
    if "op_debug_level" in options:
        lines.append(
            f"  op_debug_level = {options['op_debug_level']},            # "
            f"{_LEVELS[options['op_debug_level']]}"
        )
    last = ""
    if "enable_exception_dump" in options:
        last = (
            f",\n  enable_exception_dump={options['enable_exception_dump']}       # "
            f"{_EXCEPTIONS[options['enable_exception_dump']]}"
        )
    return _ESTIMATOR.format(
        before=f"dump_config = DumpConfig({dump})\n" if dump else "",
        options="\n".join(lines),
        last=last,
    )


def session_lines(options: Mapping[str, Any]) -> str:
    """The lines for sess.run; values become Python literals."""
    names = sorted(options, key=lambda name: name != "enable_exception_dump")  # as in the manual
    return _SESSION.format(
        options="\n".join(
            f'custom_op.parameter_map["{name}"].{_assigned(options[name])}' for name in names
        )
    )


def _assigned(value: bool | int | str) -> str:  # noqa: FBT001
    if isinstance(value, str):
        return f"s = tf.compat.as_bytes({value!r})"
    return f"b = {value}" if isinstance(value, bool) else f"i = {value}"


def _literal(value: bool | str) -> str:  # noqa: FBT001
    return f'"{value}"' if value == "all" else repr(value)


_LEVELS = {
    0: "no debug information (the default)",
    1: "kernels with their .cce and _loc.json",
    2: "kernels with debug information",
}
_EXCEPTIONS = {
    0: "no dump of the failing operator",
    1: "the inputs and outputs of the failing operator; not of dynamic shape",
    2: "a brief dump of the failing operator; of dynamic shape too",
}
_WHERE = {
    "estimator": "in an Estimator's training script",
    "session": "in a sess.run training script",
}
_ADVICE = {
    "aicore": (
        (
            "op_debug_level 2 compiles without optimisation (-O0 -g) and finds the CCE line; 1 "
            "keeps it; 0 is off"
        ),
        (
            "kernel_meta appears in the folder the training is started in: *.cce, *_loc.json, "
            "*.o, *.json"
        ),
        "operators of dynamic shape are left out of the dump of exceptions",
    ),
    "overflow": (
        "one pair of files for each overflowing operator: its dump, and OpDebug.Node_Opdebug.…",
    ),
    "dump": ("the dump slows the training and fills the disk: name steps (--steps 9|10)",),
}
_RESULT = {
    "aicore": "kernel_meta/ and the dump of the failing operator in the folder the training is "
    "started in; opscope aicore FOLDER",
    "overflow": "{path}/TIME/DEVICE/…; opscope scan {path}",
    "dump": "{path}/TIME/DEVICE/MODEL/MODEL_ID/STEP; opscope scan {path}",
}
KIND = Kind(
    name="tensorflow",
    about="TensorFlow on Ascend, Estimator and sess.run",
    purposes=PURPOSES,
    prepare=prepare,
)
