# SPDX-License-Identifier: Apache-2.0
"""The MindSpore form: kernels of a MindSpore dump and primitives of PyNative, by a script that
needs mindspore alone.

The primitive is built from its attributes (the .ir's, or {op_type}.{op_name}.json), found by name
in mindspore.ops, and called with the operands in their order. Only the operator's name, checked
against a strict pattern, enters the code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.judge.replayed import ROUNDOFF
from opscope.narrow import widened
from opscope.repro.build import Material, assemble
from opscope.repro.case import Failure, Witness
from opscope.repro.forms import Form
from opscope.repro.script import template
from opscope.run.query import tensors_of

if TYPE_CHECKING:
    from opscope.repro.case import Case, CaseTensor
    from opscope.run.protocol import Run
    from opscope.run.schema import Call
    from opscope.substitute.mindspore import TrueResult

PRIMITIVE = re.compile(r"[A-Z][A-Za-z0-9_]{0,99}")
PLACE = 'OPERATOR = "Mul"\n'


def takes(run: Run, call: Call) -> bool:
    """Whether the call is a primitive of MindSpore: its own dump, or a recording of a program that
    imported it.
    """
    if PRIMITIVE.fullmatch(call.op) is None or call.level != "operator":
        return False
    return run.info.format == "mindspore" or (run.info.format == "opscope" and "::" not in call.op)


def build(run: Run, call: Call, *, device: str | None = None, dtype: str | None = None) -> Material:
    """The case of one primitive, with the element that tells where its recorded result is wrong by
    definition; raises as repro.build does.
    """
    material = made_again(run, call, device=device, dtype=dtype)
    return material if updated(run, call) else witnessed(material)


def made_again(
    run: Run, call: Call, *, device: str | None = None, dtype: str | None = None
) -> Material:
    """The case without a look at what was recorded of its result: what replay judges itself."""
    if call.args is None:
        raise UsageError(
            f"{call.name}: neither the graph (.ir) nor a kernel-args json tells its "
            "arguments; dump with save_kernel_args"
        )
    return assemble(run, completed(run, call), form="mindspore", device=device, dtype=dtype)


def updated(run: Run, call: Call) -> bool:
    """Whether the call writes its operands and they were read out of MindSpore's own dump, which
    takes them once it is done, so that they are not what it read.

    A recording holds such kernels too, of what the program compiled: the parameters that these read
    have no version.
    """
    tree = msgspec.json.decode(call.args or "{}")
    if not tree.get("kwargs", {}).get("side_effect_mem"):
        return False
    return not run.info.coverage.before or any(
        row.io == "input" and row.version is None for row in tensors_of(run, call)
    )


def witnessed(material: Material) -> Material:
    """The case with the element that tells, where the first result that was recorded is not what
    its operands give by definition: MindSpore's own float64 may err as its float32 does.
    """
    recorded = next((entry for entry in material.expected if entry.key == "0"), None)
    case = material.case
    if recorded is None or any(tensor.values != "recorded" for tensor in case.tensors):
        return material
    defined = definition_of(material)
    target = recorded.load()
    if defined is None or defined.true.shape != target.shape:
        return material
    dtype = case.outputs[0].dtype
    verdict = defined.judge(
        widened(target).astype(np.float64) if dtype in ROUNDOFF else target, dtype=dtype
    )
    if verdict.verdict != "wrong" or verdict.worst is None:
        return material
    witness = Witness(
        slot="0",
        element=verdict.worst,
        recorded=verdict.got,
        true=verdict.expected,
        tolerance=verdict.tolerance,
    )
    failure = Failure(kind="mismatch", outputs={"0": ()}, witnesses=(witness,))
    return msgspec.structs.replace(material, case=msgspec.structs.replace(case, failure=failure))


def definition_of(material: Material) -> TrueResult | None:
    """What the call's first result is by definition; None where there is none, or no PyTorch to
    work it out.
    """
    try:
        from opscope.substitute.mindspore import definition
    except ImportError:
        return None
    case = material.case
    if not case.outputs or any(tensor.key is None for tensor in case.tensors):
        return None
    entries = {entry.key: entry for entry in material.inputs}
    rows = {row.slot: row for row in case.tensors}

    def array(row: CaseTensor) -> Any:
        values = entries[str(row.key)].load()
        wide = widened(values).astype(np.float64) if row.dtype in ROUNDOFF else values
        return np.array(np.broadcast_to(wide.reshape(row.kept), row.shape))

    return definition(
        case.op,
        [
            array(rows[value["tensor"]]) if isinstance(value, dict) and "tensor" in value else value
            for value in case.args["args"]
        ],
        case.args["kwargs"],
        types=[row.dtype for row in case.tensors],
        result=case.outputs[0].dtype,
    )


def completed(run: Run, call: Call) -> Call:
    """The call with an operand that no dump holds but its output tells: the shape that a gradient
    is to have, a number of segments.
    """
    rows = tensors_of(run, call)
    known = {row.slot for row in rows if row.io == "input"}
    shape = next((row.shape for row in rows if row.io == "output"), None)
    tree = msgspec.json.decode(call.args or "{}")
    lacking = [
        position
        for position, value in enumerate(tree.get("args", ()))
        if isinstance(value, dict) and value.get("tensor") not in {None, *known}
    ]
    if call.op not in _TOLD or lacking != [2] or not shape:
        return call
    tree["args"][2] = list(shape) if _TOLD[call.op] == "shape" else shape[0]
    return msgspec.structs.replace(call, args=msgspec.json.encode(tree).decode())


def script(case: Case) -> str:
    """Source of repro.py; UsageError for an operator's name that cannot be code."""
    return template("repro_mindspore.py", "verdict").replace(PLACE, section(case))


def section(case: Case) -> str:
    """What differs from case to case: the operator's name; its arguments are data of case.json."""
    if PRIMITIVE.fullmatch(case.op) is None:
        raise UsageError(f"{case.op!r} is not the name of a MindSpore primitive")
    return f"OPERATOR = {case.op!a}\n"


def code(case: Case) -> list[str]:
    """The call as a person would write it."""
    named = {
        name: value
        for name, value in case.args["kwargs"].items()
        if isinstance(value, (int, float, bool, str, list))
    }
    attributes = ", ".join(f"{name}={value!a}" for name, value in named.items() if name in _USUAL)
    operands = ", ".join(
        f't["{value["tensor"]}"]' if isinstance(value, dict) and "tensor" in value else ascii(value)
        for value in case.args["args"]
    )
    return [f"ops.{case.op}({attributes})({operands})"]


# Third operands that the shape of the output tells, as a whole or by its first size.
_TOLD = {
    "Conv2DBackpropInput": "shape",
    "Conv2DBackpropFilter": "shape",
    "Conv3DBackpropInput": "shape",
    "Conv3DBackpropFilter": "shape",
    "UnsortedSegmentSum": "first",
    "UnsortedSegmentMax": "first",
    "UnsortedSegmentMin": "first",
    "UnsortedSegmentProd": "first",
}
# Attributes that people set; the rest of a kernel's attributes are notes of the compiler.
_USUAL = frozenset(
    {
        "out_channel",
        "kernel_size",
        "mode",
        "pad_mode",
        "pad",
        "stride",
        "dilation",
        "group",
        "transpose_a",
        "transpose_b",
        "keep_dims",
        "axis",
        "epsilon",
        "momentum",
        "is_training",
        "keep_prob",
        "axes",
        "begin_norm_axis",
        "begin_params_axis",
        "shape",
        "strides",
        "use_nesterov",
        "use_locking",
        "gradient_scale",
        "dampening",
        "weight_decay",
        "nesterov",
        "data_format",
        "approximate",
        "ksize",
    }
)

FORM = Form(
    name="mindspore",
    takes=takes,
    build=build,
    script=script,
    section=section,
    code=code,
    needs="mindspore and numpy",
    worker="worker_mindspore.py",
)
