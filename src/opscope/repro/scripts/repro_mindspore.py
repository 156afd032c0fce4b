#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: BLE001
"""One MindSpore primitive, alone: builds it from its attributes, calls it with the tensors it read,
says whether the failure shows.

Needs mindspore and numpy, nothing else. Exit code: 1 the failure shows, 0 it does not, 125 it
cannot be tried here (device, primitive, element type or library missing), 101 this script itself
failed.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import inspect
import json
import re  # noqa: F401 - for the parts
import struct
import sys
import textwrap  # noqa: F401 - for the parts
import traceback  # noqa: F401 - for the parts
from pathlib import Path
from typing import Any

try:
    import mindspore as ms
    import numpy as np
    from mindspore import Tensor
except ImportError as missing:
    print(f"cannot be tried here: {missing}; install mindspore", file=sys.stderr)
    sys.exit(125)

OPERATOR = "Mul"

# --- parts ---
from opscope.repro.scripts.verdict import CannotTry, answered, parsed  # noqa: E402 - script.py puts the text of this module here

# --- end of parts ---

HERE = Path(__file__).resolve().parent
ALLOWED: list[
    str
] = []  # patterns of primitives that are called though they may touch more than their tensors
HOMES = (
    "mindspore.ops",
    "mindspore.ops.operations",
    "mindspore.ops.auto_generate",
    "mindspore.ops.auto_generate.gen_ops_prim",
    "mindspore.ops.operations._grad_ops",
    "mindspore.ops.operations.nn_ops",
    "mindspore.ops.operations.math_ops",
    "mindspore.ops.operations.array_ops",
    "mindspore.ops.operations._inner_ops",
)
# safetensors names of element types -> NumPy's; bfloat16 is widened by hand.
TYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
BYTES = {
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "int8": "i1",
    "uint8": "u1",
    "bool": "?",
    "complex64": "<c8",
    "complex128": "<c16",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
}
FORMATS = {0: "NCHW", 1: "NHWC", 2: "NHWC", 11: "NCDHW"}
PAD_MODES = {0: "PAD", 1: "SAME", 2: "VALID"}
# Element types as kernels number them.
NUMBERED = {
    30: "bool",
    32: "int8",
    33: "int16",
    34: "int32",
    35: "int64",
    37: "uint8",
    38: "uint16",
    39: "uint32",
    40: "uint64",
    42: "float16",
    43: "float32",
    44: "float64",
    45: "bfloat16",
}
FLOATS = ("dropout", "keep_prob")  # have no default that says so
# The CPU back end works these out by approximations of its own (nnacl): Tanh is 1,700 units off.
APPROXIMATE = {
    "Tanh",
    "TanhGrad",
    "Sigmoid",
    "SigmoidGrad",
    "GeLU",
    "GeLUGrad",
    "Erf",
    "Erfc",
    "FastGeLU",
    "Mish",
    "LSTM",
    "LSTMGrad",
}
WINDOWS = ("kernel_size", "strides", "stride", "dilation")
LISTED = (
    "AddN",
    "AccumulateNV2",
    "Concat",
    "Stack",
    "IdentityN",
    "ParallelConcat",
)  # their operands are one tuple
CLASSES = ("nan", "pos_inf", "neg_inf")
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def printable(text: Any) -> str:
    return str(text).encode("unicode_escape").decode()


def load_tensors(name: str) -> dict[str, Any]:
    """Arrays of a safetensors file by key; bfloat16 as float32."""
    path = HERE / name
    if not path.exists():
        return {}
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    if length > len(data) - 8:
        raise CannotTry(f"{name} is torn")
    arrays = {}
    for key, entry in json.loads(data[8 : 8 + length]).items():
        if key == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            wide = np.frombuffer(data[begin:end], "<u2").astype("<u4") << 16
            arrays[key] = wide.view("<f4").reshape(entry["shape"])
        elif entry["dtype"] in TYPES:
            arrays[key] = np.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(
                entry["shape"]
            )
        else:
            raise CannotTry(
                f"{name}: element type {printable(entry['dtype'])} is unknown to this script"
            )
    return arrays


def element_type(name: str) -> Any:
    """MindSpore's element type of this name; CannotTry for one it lacks."""
    dtype = getattr(ms, {"bool": "bool_"}.get(name, name), None)
    if dtype is None:
        raise CannotTry(f"mindspore {ms.__version__} has no element type {printable(name)}")
    return dtype


def array_of(row: dict[str, Any], stored: dict[str, Any]) -> Any:
    """The elements of one input; zeros where memory was uninitialised."""
    dtype = np.dtype(BYTES.get(row["dtype"], "<f4"))
    if row["key"] is None:
        return np.zeros(row["shape"], dtype)
    values = stored[row["key"]]
    if values.dtype == np.uint8 and row["dtype"] != "uint8" and row["dtype"] in BYTES:
        values = np.ascontiguousarray(values).view(dtype)
    return np.broadcast_to(values.reshape(row["kept"]), row["shape"])


def operands(case: dict[str, Any], stored: dict[str, Any], wide: str | None) -> list[Any]:
    """The operands in order; wide turns floating ones into that type."""
    rows = {row["slot"]: row for row in case["tensors"]}

    def build(value: Any) -> Any:
        if isinstance(value, list) and any(
            isinstance(part, dict) and "tensor" in part for part in value
        ):
            return tuple(build(part) for part in value)
        if isinstance(value, dict) and "tensor" in value:
            row = rows[value["tensor"]]
            floating = row["dtype"] in UNITS
            name = wide if wide and floating else row["dtype"]
            return Tensor(np.array(array_of(row, stored)), element_type(name))
        return plain(value)

    return [build(value) for value in case["args"]["args"]]


def plain(value: Any) -> Any:
    """A tagged constant as Python has it."""
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    if isinstance(value, dict) and "dtype" in value:
        return element_type(value["dtype"])
    if isinstance(value, dict):
        raise CannotTry(f"an operand is an object that cannot be rebuilt: {printable(value)[:120]}")
    return value


def find_primitive() -> Any:
    for home in HOMES:
        try:
            primitive = getattr(importlib.import_module(home), OPERATOR, None)
        except ImportError:
            continue
        if inspect.isclass(primitive):
            if "func" in parameters(primitive.__init__):
                check_allowed("runs what its argument func names")
            return primitive
    raise CannotTry(
        f"mindspore {ms.__version__} has no primitive {OPERATOR}: a kernel that only its "
        "compiler makes"
    )


def check_allowed(what: str) -> None:
    """CannotTry for a primitive that does more than compute, unless the user allowed it."""
    if not any(fnmatch.fnmatchcase(OPERATOR, pattern) for pattern in ALLOWED):
        raise CannotTry(f"{OPERATOR} {what}; --allow {OPERATOR} calls it all the same")


def parameters(function: Any) -> list[str]:
    """Names of the positional parameters after self."""
    try:
        declared = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        each.name
        for each in declared
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]


def arrange(kind: Any, given: list[Any], attributes: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The primitive, built, and the operands of its call.

    Operands beyond what the class says its call takes are arguments of its construction, in order;
    where it does not say, those are the constants at the end. The rest of the construction comes
    from the kernel's attributes by name.
    """
    wanted = [name for name in parameters(kind.__init__) if name != "self"]
    called = (
        [name for name in parameters(kind.__call__) if name != "self"]
        if "__call__" in vars(kind)
        else []
    )
    split = min(len(called), len(given)) if called else len(given)
    if OPERATOR in LISTED and not isinstance(given[0], tuple):
        split = sum(isinstance(value, Tensor) for value in given)
    elif not called and wanted:
        ending = len(given)
        while (
            ending
            and not isinstance(given[ending - 1], Tensor)
            and len(given) - ending < len(wanted)
        ):
            ending -= 1
        if len(given) - ending == len(wanted) or not any(name in attributes for name in wanted):
            split = ending
    named = {
        name: plain(attributes[name])
        for name in wanted
        if name in attributes and not isinstance(attributes[name], dict)
    }
    named.update(
        dict(zip(wanted, [value for value in given[split:] if not isinstance(value, Tensor)]))
    )  # a Tensor there orders kernels
    if OPERATOR in LISTED:
        inputs = [given[0] if isinstance(given[0], tuple) else tuple(given[:split])]
    else:
        inputs = [
            typed(name, value) for name, value in zip([*called, *[""] * split], given[:split])
        ]
    primitive = kind(**{name: fitted(kind, name, value) for name, value in named.items()})
    if (getattr(primitive, "attrs", None) or {}).get("side_effect_io"):
        check_allowed(
            "reads or writes more than its tensors"
        )  # by MindSpore's own mark: Print, TensorDump, summaries
    return primitive, same_shapes(inputs, attributes)


def typed(name: str, value: Any) -> Any:
    """An operand that is the number of an element type, as that type."""
    if (
        name in ("dtype", "type", "dst_type")
        and isinstance(value, int)
        and not isinstance(value, bool)
        and value in NUMBERED
    ):
        return element_type(NUMBERED[value])
    return value


def same_shapes(inputs: list[Any], attributes: dict[str, Any]) -> list[Any]:
    """Operands in the shapes the primitive wants, where the CPU back end dumped those from before a
    reshape.

    Of a primitive that updates its first operand in place those of as many elements have its shape;
    MatMul takes matrices.
    """
    if OPERATOR == "MatMul":
        return [
            Tensor(to_array(each).reshape(each.shape[0], -1), each.dtype)
            if len(each.shape) > 2
            else each
            for each in inputs
        ]
    if not attributes.get("side_effect_mem") or not inputs or not isinstance(inputs[0], Tensor):
        return inputs
    shape = inputs[0].shape

    def shaped(value: Any) -> Any:
        alike = isinstance(value, Tensor) and value.shape != shape and value.size == inputs[0].size
        return Tensor(to_array(value).reshape(shape), value.dtype) if alike else value

    return [shaped(value) for value in inputs]


def fitted(kind: Any, name: str, value: Any) -> Any:
    """An attribute as the constructor wants it: kernels hold formats as numbers, whole floats as
    integers, windows with all axes.
    """
    default = inspect.signature(kind.__init__).parameters[name].default
    if name in ("data_format", "format") and isinstance(value, int):
        return FORMATS.get(value, value)
    if name == "pad_mode" and isinstance(default, str) and isinstance(value, int):
        return PAD_MODES.get(value, value)
    if typed(name, value) is not value:
        return typed(name, value)
    if (
        (name in FLOATS or isinstance(default, float))
        and isinstance(value, int)
        and not isinstance(value, bool)
    ):
        return float(value)
    if name in WINDOWS and isinstance(value, tuple) and len(value) == 4 and value[:2] == (1, 1):
        return value[2:]
    return value


def cast_target(case: dict[str, Any], given: list[Any], wide: str | None) -> list[Any]:
    """Cast's second operand is a number of MindSpore's own; the recorded output says which type is
    meant.
    """
    if OPERATOR != "Cast" or not case["outputs"]:
        return given
    target = case["outputs"][0]["dtype"]
    return [given[0], element_type(wide if wide and target in UNITS else target)]


def make_call(case: dict[str, Any], stored: dict[str, Any], wide: str | None) -> dict[str, Any]:
    """Make the call; arrays of its results by slot."""
    return {slot: to_array(tensor) for slot, tensor in make_tensors(case, stored, wide).items()}


def make_tensors(case: dict[str, Any], stored: dict[str, Any], wide: str | None) -> dict[str, Any]:
    """Make the call; its results by slot."""
    given = cast_target(case, operands(case, stored, wide), wide)
    primitive, inputs = arrange(find_primitive(), given, case["args"]["kwargs"])
    try:
        result = primitive(*inputs)
    # MindSpore built for an older NumPy fails in the first call of a process, and in no later one
    except SystemError:
        result = primitive(*inputs)
    results = result if isinstance(result, (tuple, list)) else (result,)
    return {str(number): each for number, each in enumerate(results) if isinstance(each, Tensor)}


def to_array(tensor: Any) -> Any:
    try:
        return np.asarray(tensor.asnumpy())
    except (RuntimeError, TypeError):
        return np.asarray(tensor.astype(ms.float32).asnumpy())


def statistics(array: Any) -> dict[str, Any]:
    """Counts and range of an array, the extremes over the finite elements."""
    measured: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.dtype.kind not in "fiub":
        return measured
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    counts = {
        "nan": int(np.isnan(wide).sum()),
        "pos_inf": int(np.isposinf(wide).sum()),
        "neg_inf": int(np.isneginf(wide).sum()),
    }
    ends = {"min": float(finite.min()), "max": float(finite.max())} if finite.size else {}
    return {**measured, **counts, **ends}


def describe(measured: dict[str, Any]) -> str:
    text = f"{measured['dtype']}[{', '.join(map(str, measured['shape']))}]"
    if "min" in measured:
        text += f" in [{measured['min']:.6g}, {measured['max']:.6g}]"
    words = {"nan": "NaN", "pos_inf": "inf", "neg_inf": "-inf"}
    return text + "".join(
        f" {measured[name]} {word}" for name, word in words.items() if measured.get(name)
    )


def judge_nonfinite(case: dict[str, Any], outputs: dict[str, Any]) -> tuple[bool, str]:
    """The failure shows when an output holds a class of non-finite values that it held when it was
    recorded.
    """
    for slot, classes in case["failure"]["outputs"].items():
        if slot in outputs:
            seen = statistics(outputs[slot])
            if any(seen.get(name) for name in classes):
                return True, f"output {slot} holds {describe(seen)}"
    return False, "every output is finite here"


def apart(value: Any, exact: Any, dtype: str) -> float:
    """Largest error in units of what rounding of this type may cost a result of this size; infinite
    where finiteness differs.
    """
    value, exact = value.astype(np.float64), exact.astype(np.float64)
    if value.shape != exact.shape:
        return float("inf")
    both = np.isfinite(value) & np.isfinite(exact)
    if not np.array_equal(np.isfinite(value), np.isfinite(exact)):
        return float("inf")
    if not both.any():
        return 0.0
    scale = max(float(np.abs(exact[both]).max()), 1e-300)
    return float(np.abs(value[both] - exact[both]).max() / scale / UNITS.get(dtype, 2.0**-24))


def judge_mismatch(
    case: dict[str, Any], stored: dict[str, Any], outputs: dict[str, Any]
) -> tuple[bool, str]:
    """Nothing non-finite was recorded: hold the recorded output, and the one made here, against
    float64.
    """
    try:
        exact = make_call(case, stored, "float64")
    except CannotTry:
        raise
    except Exception as error:
        return False, f"nothing wrong was recorded, and no float64 here ({type(error).__name__})"
    recorded, sentences, shown = load_tensors("expected.safetensors"), [], False
    terms = max([4.0, *(float(np.prod(row["shape"]) ** 0.5) for row in case["tensors"])]) * (
        256 if OPERATOR in APPROXIMATE else 1
    )
    for row in case["outputs"]:
        slot = row["slot"]
        if slot not in exact or slot not in outputs or row["dtype"] not in UNITS:
            continue
        here = apart(outputs[slot], exact[slot], row["dtype"])
        sentences.append(f"output {slot}: {here:.3g} units of rounding from float64")
        was = recorded.get(row["key"]) if row["key"] is not None else None
        if was is not None:
            then = apart(np.asarray(was), exact[slot], row["dtype"])
            sentences.append(f"the recorded one {then:.3g}")
            shown = shown or (then > 64 * terms and here > 64 * terms)
        else:
            shown = shown or here > 64 * terms
    return shown, ", ".join(sentences) or "nothing wrong was recorded"


def judge_witnesses(witnesses: list[dict[str, Any]], outputs: dict[str, Any]) -> tuple[bool, str]:
    """Single elements of which the true value is known, worked out from these very inputs by
    another library: the failure shows where one of them is off by more than is allowed.
    """
    shown, sentences = False, []
    for witness in witnesses:
        element, out = tuple(witness["element"]), outputs.get(witness["slot"])
        if out is None or len(element) != out.ndim or any(map(int.__ge__, element, out.shape)):
            continue
        here, true = float(out[element]), float(witness["true"])
        near = abs(here - true) <= float(witness.get("tolerance") or 0.0)
        shown = shown or not (near or here == true or (np.isnan(here) and np.isnan(true)))
        sentences.append(
            f"element {list(element)} of output {witness['slot']} is {here!r}, {true!r} in truth"
        )
    return shown, "; ".join(sentences) or "none of the elements that tell is here"


def attempt(
    case: dict[str, Any], stored: dict[str, Any], wide: str | None
) -> tuple[bool, str, dict[str, Any]]:
    kind = case["failure"]["kind"]
    try:
        outputs = make_call(case, stored, wide)
    except CannotTry:
        raise
    except Exception as error:
        return judge_exception(case, error)
    if kind == "exception":
        try:
            call_compiled(case, stored, wide)
        except Exception as error:
            return judge_exception(case, error)
        return False, "the call returned", outputs
    if kind == "nonfinite":
        return (*judge_nonfinite(case, outputs), outputs)
    if case["failure"].get("witnesses"):
        return (*judge_witnesses(case["failure"]["witnesses"], outputs), outputs)
    return (*judge_mismatch(case, stored, outputs), outputs)


def judge_exception(case: dict[str, Any], error: Exception) -> tuple[bool, str, dict[str, Any]]:
    """The failure shows when an exception of the recorded type comes out; CannotTry for any
    other.
    """
    lines = [
        line.strip()
        for line in str(error).splitlines()
        if line.strip() and not line.lstrip().startswith("-")
    ]
    sentence = f"{type(error).__name__}: {printable(lines[0] if lines else '')}"
    failure = case["failure"]
    if failure["kind"] == "exception" and failure["error"]["type"] == type(error).__name__:
        return True, f"raises {sentence}", {}
    raise CannotTry(f"the call raised {sentence}") from error


def call_compiled(case: dict[str, Any], stored: dict[str, Any], wide: str | None) -> None:
    """Make the call inside a graph: some kernels look at their operands there only."""
    primitive, inputs = arrange(
        find_primitive(),
        cast_target(case, operands(case, stored, wide), wide),
        case["args"]["kwargs"],
    )

    class Compiled(ms.nn.Cell):  # type: ignore[misc]
        def construct(self, *operands: Any) -> Any:
            return primitive(*operands)

    mode = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        result = Compiled()(*inputs)
        for each in result if isinstance(result, (tuple, list)) else (result,):
            to_array(each)
    finally:
        ms.set_context(mode=mode)


def choose_device(name: str) -> str:
    """Have MindSpore use a device, and return its name there; CannotTry when it has none."""
    device = {"cpu": "CPU", "npu": "Ascend", "gpu": "GPU", "cuda": "GPU"}.get(
        name.partition(":")[0]
    )
    if device is None:
        raise CannotTry(f"device {printable(name)} is none of MindSpore's")
    try:
        ms.set_context(mode=ms.PYNATIVE_MODE, device_target=device)
    except (RuntimeError, ValueError) as error:
        raise CannotTry(f"no {device} here: {printable(error)[:200]}") from error
    return device


def run(case: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    stored = load_tensors("inputs.safetensors")
    device = choose_device(options.device or "cpu")
    lines = [f"{OPERATOR}  on {device}, mindspore {ms.__version__}"]
    lines += [f"  {key:<8} {printable(case[key])}" for key in ("source", "module") if case.get(key)]
    lines += [
        f"  in    {row['slot']:<8} {describe(statistics(array_of(row, stored)))}"
        for row in case["tensors"]
    ]
    lines += [
        f"  was   {row['slot']:<8} {describe({**row, **row['stats']})}" for row in case["outputs"]
    ]
    trials = [attempt(case, stored, options.dtype) for _ in range(options.repeat)]
    shown, reason, outputs = next((trial for trial in trials if trial[0]), trials[-1])
    seen = {slot: statistics(out) for slot, out in outputs.items()}
    lines += [f"  out   {slot:<8} {describe(array)}" for slot, array in seen.items()]
    if shown and case["failure"]["kind"] == "nonfinite" and not options.dtype:
        lines += ["  " + wider(case, stored)]
    lines += [f"  note  {printable(note)}" for note in case["warnings"]]
    count = sum(trial[0] for trial in trials)
    word = "reproduced" if count == len(trials) else "flaky" if count else "not reproduced"
    lines.append(f"{word}{f' {count}/{len(trials)}' if word == 'flaky' else ''}: {reason}")
    return {
        "verdict": word,
        "shown": count,
        "tried": len(trials),
        "reason": reason,
        "lines": lines,
        "device": device,
        "seen": seen,
    }


def wider(case: dict[str, Any], stored: dict[str, Any]) -> str:
    try:
        outputs = make_call(case, stored, "float64")
    except Exception as error:
        return f"wide  not to be had in float64 ({type(error).__name__})"
    return "wide  " + "; ".join(
        f"in float64 output {slot} is {describe(statistics(out))}" for slot, out in outputs.items()
    )


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Make one recorded call of {OPERATOR} again.")
    parser.add_argument("--device", help="device to use: cpu, npu, gpu")
    parser.add_argument(
        "--dtype", choices=sorted(UNITS), help="element type to use instead of the floating ones"
    )
    return parsed(parser, argv, library="module to import first")


def judged(options: argparse.Namespace) -> dict[str, Any]:
    ALLOWED.extend(options.allowed)
    for module in options.imports:
        importlib.import_module(module)
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    return run(case, options)


def main(argv: list[str]) -> int:
    options = parse(argv)
    return answered(lambda: judged(options), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
