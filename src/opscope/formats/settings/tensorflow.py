# SPDX-License-Identifier: Apache-2.0
"""What a TensorFlow 1.15 training on Ascend sets before the next run: Estimator and sess.run.

The lines are those of the manual "构造单算子复现用例" (AI Core errors), with the dump options of NPURunConfig and DumpConfig beside
them for the other purposes.
"""

from __future__ import annotations

from opscope.errors import UsageError
from opscope.formats.settings.kinds import Kind, Prepared, Request, Snippet, TextFile, Variable, chosen_purpose
from opscope.formats.settings.steps import step_and_before, wrong_steps

MODES = ("estimator", "session")
PURPOSES = {
    "aicore": "an AI Core error: kernels with debug information, the dump of the operator that fails",
    "overflow": "operators that overflow",
    "dump": "inputs and outputs of every operator",
}
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
    """The lines of a training script for a purpose; framework chooses "estimator" or "session", None gives both."""
    purpose = chosen_purpose("tensorflow", PURPOSES, request.purpose)
    if request.framework not in {None, *MODES}:
        raise UsageError(f"--framework {request.framework!r}: not one of {', '.join(MODES)}")
    steps = request.steps or (step_and_before(request.step) if request.step is not None else None)
    if steps is not None and (wrong := wrong_steps(steps)) is not None:
        raise UsageError(f"--steps: {wrong}")
    path = request.path or "./dump"
    writers = {"estimator": estimator_lines, "session": session_lines}
    chosen = [request.framework] if request.framework else list(MODES)
    texts = {mode: writers[mode](purpose, path=path, steps=steps) for mode in chosen}
    return Prepared(
        files=tuple(TextFile(f"{mode}.py.txt", text) for mode, text in texts.items()),
        environment=VARIABLES,
        snippets=tuple(Snippet(_WHERE[mode], text) for mode, text in texts.items()),
        advice=_ADVICE[purpose],
        result=_RESULT[purpose].format(path=path),
    )


def estimator_lines(purpose: str, *, path: str, steps: str | None) -> str:
    """The lines for an Estimator; path and steps become Python literals."""
    if purpose == "aicore":
        options = "  op_debug_level = 2,            # kernels with debug information"
        last = ",\n  enable_exception_dump=1       # the inputs and outputs of the failing operator; not of dynamic shape"
        return _ESTIMATOR.format(before="", options=options, last=last)
    arguments = f'enable_dump_debug=True, dump_path={path!r}, dump_debug_mode="all"'
    if purpose == "dump":
        arguments = f'enable_dump=True, dump_path={path!r}, dump_mode="all"' + (f", dump_step={steps!r}" if steps else "")
    return _ESTIMATOR.format(before=f"dump_config = DumpConfig({arguments})\n", options="  dump_config=dump_config,", last="")


def session_lines(purpose: str, *, path: str, steps: str | None) -> str:
    """The lines for sess.run; path and steps become Python literals."""
    if purpose == "aicore":
        options = {"enable_exception_dump": ("i", "1"), "op_debug_level": ("i", "2")}
    elif purpose == "overflow":
        options = {"enable_dump_debug": ("b", "True"), "dump_path": ("s", _text(path)), "dump_debug_mode": ("s", _text("all"))}
    else:
        options = {"enable_dump": ("b", "True"), "dump_path": ("s", _text(path)), "dump_mode": ("s", _text("all"))}
        if steps:
            options["dump_step"] = ("s", _text(steps))
    lines = (f'custom_op.parameter_map["{name}"].{kind} = {value}' for name, (kind, value) in options.items())
    return _SESSION.format(options="\n".join(lines))


def _text(value: str) -> str:
    return f"tf.compat.as_bytes({value!r})"


_WHERE = {"estimator": "in an Estimator's training script", "session": "in a sess.run training script"}
_ADVICE = {
    "aicore": (
        "op_debug_level 2 compiles without optimisation (-O0 -g) and finds the CCE line; 1 keeps it; 0 is off",
        "kernel_meta appears in the folder the training is started in: *.cce, *_loc.json, *.o, *.json",
        "operators of dynamic shape are left out of the dump of exceptions",
    ),
    "overflow": ("one pair of files for each overflowing operator: its dump, and OpDebug.Node_Opdebug.…",),
    "dump": ("the dump slows the training and fills the disk: name steps (--steps 9|10)",),
}
_RESULT = {
    "aicore": "kernel_meta/ and the dump of the failing operator in the folder the training is started in; opscope aicore FOLDER",
    "overflow": "{path}/TIME/DEVICE/…; opscope scan {path}",
    "dump": "{path}/TIME/DEVICE/MODEL/MODEL_ID/STEP; opscope scan {path}",
}
KIND = Kind(name="tensorflow", about="TensorFlow on Ascend, Estimator and sess.run", purposes=PURPOSES, prepare=prepare)
