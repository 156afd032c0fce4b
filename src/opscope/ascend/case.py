# SPDX-License-Identifier: Apache-2.0
"""The single-operator case of an error: a folder with main.py for OpUT as the manual has it, and
repro.py that needs nothing of it.

main.py      op_test_frame.ut.OpUT with the kernel's binary: run it where CANN is
launch.py    the binary by pyACL, with nothing of op_test_frame
repro.py     the one or the other where they can, else the dumped outputs against the CPU reference;
               exit code 0 nothing wrong, 1 it fails, 125 it cannot be tried here
case.json      what repro.py reads;   inputs/, outputs/   the dumped values;
kernel_meta/   the binary and its .json
references/    the CPU references, NumPy only;   tiling.bin   the tiling data as far as it is known
"""

from __future__ import annotations

import json
import shlex
import shutil
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.ascend.analysis import Analysis, WrittenCase, with_case_result
from opscope.ascend.dumps import DumpedTensor, device_values_of, raw_of, values_of
from opscope.ascend.kernels import stripped
from opscope.ascend.launch import Launch, launch_of
from opscope.ascend.reference import attributes_of
from opscope.ascend.tensors import KernelTensor
from opscope.ascend.verdict import NOT_REPRODUCED, REPRODUCED
from opscope.errors import FormatError, UsageError
from opscope.formats.bounded_json import load_json
from opscope.formats.cann.corefile import content
from opscope.formats.layouts import is_private

if TYPE_CHECKING:
    from opscope.arrays import Array

FORM = "aicore"
_PACKAGE = Path(__file__).parent
_LONGEST = 600.0  # seconds that a case may run
_LARGEST_BINARY = 1 << 28
_LARGEST_CASE = 1 << 26
_MAIN = """\
# Single-operator case of {title}, made by opscope. Needs CANN with op_test_frame:
#     python3 main.py
{called}from pathlib import Path

from op_test_frame.ut import OpUT

HERE = Path(__file__).resolve().parent


def run_sample_case():
    ut_case = OpUT({op}, None, None)

    case1 = {{
        "params": [
{params}
        ],
        "case_name": {name},
        "bin_path": str(HERE / {binary}),
    }}
    ut_case.add_direct_case(case1)
    ut_case.run("all")


if __name__ == "__main__":
    run_sample_case()
"""


class _Param(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the case: shape and format of the device, those of the host, and files of its
    values below the folder.
    """

    io: str
    index: int
    shape: tuple[int, ...]
    dtype: str
    format: str
    ori_shape: tuple[int, ...]
    ori_format: str
    value: str | None = None
    host: str | None = None


def write(analysis: Analysis, folder: Path) -> WrittenCase:
    """Write the case of an error into a folder that is not there yet. UsageError, with the reason,
    where it cannot be made.

    Where shapes or types are not known there is no main.py, but the launch by sizes and addresses,
    which needs neither.
    """
    tensors = [
        tensor
        for tensor in analysis.tensors
        if tensor.io in ("input", "output") and tensor.part == 0
    ]
    reason, shapes = _described(analysis, tensors)
    if (
        reason is not None
        and launch_of(
            analysis.fault, analysis.tensors, analysis.tiling, kernel=analysis.kernel, files={}
        )
        is None
    ):
        raise UsageError(reason)
    folder.mkdir(parents=True)
    params = [
        _param(analysis, tensor, shape, folder)
        for tensor, shape in zip(tensors, shapes, strict=False)
    ]
    files = {
        **_raw(analysis, folder, params),
        **{f"{param.io} {param.index}": param.value for param in params if param.value is not None},
    }
    launch = launch_of(
        analysis.fault, analysis.tensors, analysis.tiling, kernel=analysis.kernel, files=files
    )
    name = _binary_name(analysis)
    lacks = [
        *_binaries(analysis, folder, name),
        *_without_values(analysis, params, launch),
        *_uncertain(analysis),
        *(launch.lacks if launch is not None else ()),
    ]
    if reason is None:
        fields = {
            "op": json.dumps(analysis.operator),
            "name": json.dumps(name),
            "binary": json.dumps(f"kernel_meta/{name}.o"),
            "called": f"# Called as {_plain(analysis.call.text)}\n"
            if analysis.call is not None
            else "",
        }
        text = _MAIN.format(
            title=_comment(analysis), params="\n".join(map(_line, params)), **fields
        )
        (folder / "main.py").write_text(text, encoding="utf-8", errors="backslashreplace")
    else:
        lacks.append(f"main.py: {reason}")
    for script in ("repro.py", "launch.py"):
        shutil.copyfile(_PACKAGE / "scripts" / script, folder / script)
    shutil.copytree(
        _PACKAGE / "references", folder / "references", ignore=shutil.ignore_patterns("__pycache__")
    )
    if analysis.tiling.data:
        (folder / "tiling.bin").write_bytes(analysis.tiling.data)
    (folder / "case.json").write_text(
        json.dumps(_record(analysis, params, name, launch), indent=1, default=str) + "\n",
        encoding="utf-8",
    )
    (folder / "README.md").write_text(
        _readme(analysis, params, launch, lacks), encoding="utf-8", errors="backslashreplace"
    )
    return WrittenCase(folder=str(folder), lacks=tuple(lacks))


def _described(
    analysis: Analysis, tensors: list[KernelTensor]
) -> tuple[str | None, list[tuple[int, ...]]]:
    """Why the call cannot be described to OpUT, None where it can; and the shapes of its
    tensors.
    """
    if analysis.operator is None:
        return "the type of the operator is not known; give the graph or the kernel's .json", []
    if not tensors:
        return (
            (
                "inputs and outputs are not known; give the graph, the kernel's .json, or logs "
                "with their description"
            ),
            [],
        )
    try:
        return None, [_shape_of(analysis, tensor) for tensor in tensors]
    except UsageError as error:
        return str(error), []


def _raw(analysis: Analysis, folder: Path, params: list[_Param]) -> dict[str, str]:
    """Files with the dumped bytes of tensors that are not stored as values: of no known type, or
    none of the inputs and outputs.
    """
    stored = {(param.io, param.index) for param in params if param.value is not None}
    files = {}
    for dumped in analysis.dump.tensors if analysis.dump is not None else ():
        if (
            (dumped.io, dumped.index) in stored
            or dumped.zeroed
            or dumped.partial
            or not dumped.size
        ):
            continue
        side_folder = folder / f"{dumped.io}s"
        side_folder.mkdir(exist_ok=True)
        name = f"{dumped.io}s/{dumped.io}.{dumped.index}.bin"
        (folder / name).write_bytes(
            raw_of(analysis.dump.file, dumped) if analysis.dump is not None else b""
        )
        files[dumped.label] = name
    return files


def call_of(analysis: Analysis) -> tuple[object, ...]:
    """What makes the call of an error the same as that of another: kernel, tiling, and the tensors
    but for their addresses.
    """
    tensors = tuple(
        (tensor.io, tensor.index, tensor.dtype, tensor.format, tensor.shape, tensor.size)
        for tensor in analysis.tensors
    )
    return (
        analysis.operator,
        analysis.fault.dev_func,
        analysis.tiling.data,
        tensors,
        analysis.dump.file if analysis.dump is not None else None,
    )


def is_case(folder: Path) -> bool:
    """Whether a folder is a case that write made."""
    path = folder / "case.json"
    try:
        document = (
            load_json(path) if path.is_file() and path.stat().st_size <= _LARGEST_CASE else None
        )
    except (FormatError, OSError):
        return False
    return (
        isinstance(document, dict)
        and document.get("form") == FORM
        and (folder / "repro.py").is_file()
    )


def tried(analysis: Analysis) -> Analysis:
    """The analysis once its case was run: on the device its outcome completes the verdict;
    elsewhere it is only told.
    """
    from opscope.repro import execute

    if analysis.case is None:
        return analysis
    outcome = execute(Path(analysis.case.folder), timeout=_LONGEST)
    case = msgspec.structs.replace(
        analysis.case, status=outcome.status, device=outcome.device, reason=outcome.reason
    )
    done = msgspec.structs.replace(analysis, case=case)
    if outcome.device != "npu" or outcome.status not in (REPRODUCED, NOT_REPRODUCED):
        return done
    return with_case_result(done, outcome.status)


def _binary_name(analysis: Analysis) -> str:
    """Name of the binary without .o: the description's, else the function's without its endings,
    else the kernel's.
    """
    name = analysis.fault.dev_func or analysis.operator or "kernel"
    # A static kernel is NAME__kernel0 of NAME.o; a dynamic one has its tiling key behind the
    # binary's name.
    function = (
        name.removesuffix("__kernel0")
        if name.endswith("__kernel0")
        else stripped(name, analysis.fault.tiling_key)[-1]
    )
    known = analysis.kernel.binary if analysis.kernel is not None else function
    return (
        "".join(
            character if character.isalnum() or character in "_-." else "_" for character in known
        ).strip(".")
        or "kernel"
    )


def _comment(analysis: Analysis) -> str:
    return _plain(f"{analysis.operator} {analysis.name or ''}".strip())


def _plain(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _dumped(analysis: Analysis, tensor: KernelTensor) -> DumpedTensor | None:
    known = analysis.dump.tensors if analysis.dump is not None else ()
    return next(
        (dumped for dumped in known if (dumped.io, dumped.index) == (tensor.io, tensor.index)), None
    )


def _shape_of(analysis: Analysis, tensor: KernelTensor) -> tuple[int, ...]:
    """The shape of this call; UsageError where nothing says it."""
    dumped = _dumped(analysis, tensor)
    shape = (
        tensor.shape
        if tensor.shape is not None
        else dumped.shape
        if dumped is not None and dumped.dtype
        else None
    )
    dtype = tensor.dtype or (dumped.dtype if dumped is not None else None)
    if shape is None or dtype is None or any(dim < 0 for dim in shape):
        what = "element type" if dtype is None else "shape"
        raise UsageError(
            f"the {what} of {tensor.label} is not known; give the kernel's .json "
            "(--kernel-meta), the graph or the dump"
        )
    return shape


def _param(
    analysis: Analysis, tensor: KernelTensor, shape: tuple[int, ...], folder: Path
) -> _Param:
    dumped = _dumped(analysis, tensor)
    layout = tensor.format or "ND"
    values, host = _values(analysis, dumped)
    if values is None and not is_private(layout):
        values = host = _given(analysis, tensor)
    if values is not None and is_private(layout):
        shape = tuple(values.shape)
    origin = (
        tensor.origin_shape
        if tensor.origin_shape is not None
        else tuple(host.shape)
        if host is not None and is_private(layout)
        else shape
    )
    files = _stored(tensor, values, host, folder)
    return _Param(
        io=tensor.io,
        index=tensor.index,
        shape=shape,
        dtype=tensor.dtype or (dumped.dtype if dumped is not None else None) or "float32",
        format=layout,
        ori_shape=origin,
        ori_format=tensor.origin_format or ("ND" if is_private(layout) else layout),
        value=files[0],
        host=files[1],
    )


def _values(analysis: Analysis, dumped: DumpedTensor | None) -> tuple[Array | None, Array | None]:
    """Elements in the device's and in the host's order; none of memory that could not be copied."""
    if (
        analysis.dump is None
        or dumped is None
        or dumped.zeroed
        or dumped.partial
        or dumped.dtype is None
    ):
        return None, None
    host = values_of(analysis.dump.file, dumped, analysis.tensors)
    device = device_values_of(analysis.dump.file, dumped)
    return (host if device is None else device), host


def _given(analysis: Analysis, tensor: KernelTensor) -> Array | None:
    """What the recorded call gave for a tensor, in the shape that the kernel has it in."""
    given = (
        None if analysis.filled is None else analysis.filled.given.get((tensor.io, tensor.index))
    )
    if given is None or given.values is None or tensor.shape is None:
        return None
    values = given.values  # of a type that NumPy does not have they are bytes
    return values.reshape(tensor.shape) if values.size == prod(tensor.shape) else None


def _stored(
    tensor: KernelTensor, values: Array | None, host: Array | None, folder: Path
) -> tuple[str | None, str | None]:
    """Files of the values: as they lie on the device, and in the host's order where that is
    another.
    """
    if values is None or host is None:
        return None, None
    side_folder = folder / f"{tensor.io}s"
    side_folder.mkdir(exist_ok=True)
    first = f"{tensor.io}s/{tensor.io}.{tensor.index}.npy"
    _save(folder / first, values)
    if values.shape == host.shape and not is_private(tensor.format or "ND"):
        return first, first
    second = f"{tensor.io}s/{tensor.io}.{tensor.index}.host.npy"
    _save(folder / second, host)
    return first, second


def _save(path: Path, values: Array) -> None:
    """A .npy that every NumPy reads: types it does not have are kept as their bits."""
    import numpy as np

    plain = values if values.dtype.isbuiltin == 1 else values.view(f"u{values.dtype.itemsize}")
    np.save(path, np.ascontiguousarray(plain).reshape(values.shape), allow_pickle=False)


def _line(param: _Param) -> str:
    """One entry of params, in the manual's keys and order."""
    keys = ("shape", "dtype", "format", "ori_shape", "ori_format")
    values = {key: getattr(param, key) for key in keys}
    words = ", ".join(
        f'"{key}": {json.dumps(value) if isinstance(value, str) else value}'
        for key, value in values.items()
    )
    value = (
        f', "value": str(HERE / {json.dumps(param.value)})'
        if param.io == "input" and param.value is not None
        else ""
    )
    return f"            {{{words}{value}}},"


def _binaries(analysis: Analysis, folder: Path, name: str) -> list[str]:
    """Copies the kernel's binary and its .json as NAME.o and NAME.json; what is missing of them."""
    kernel_folder = folder / "kernel_meta"
    kernel_folder.mkdir()
    lacks = []
    binary = next(
        (path for path in analysis.objects if path.stat().st_size <= _LARGEST_BINARY), None
    )
    if binary is not None:
        shutil.copyfile(binary, kernel_folder / f"{name}.o")
    elif (held := _held_binary(analysis)) is not None:
        (kernel_folder / f"{name}.o").write_bytes(held)
    else:
        lacks.append(f"the kernel's binary: put it at kernel_meta/{name}.o")
    if analysis.kernel is not None:
        (kernel_folder / f"{name}.json").write_text(
            json.dumps(analysis.kernel.document, indent=1),
            encoding="utf-8",
            errors="backslashreplace",
        )
    else:
        lacks.append(f"the kernel's description: put it at kernel_meta/{name}.json")
    return lacks


def _held_binary(analysis: Analysis) -> bytes | None:
    """The binary out of the .core file, as the compiler wrote it, else as it was loaded."""
    held = (analysis.core.binary or analysis.core.loaded) if analysis.core is not None else None
    if analysis.core is None or held is None or held[1] > _LARGEST_BINARY:
        return None
    data = content(Path(analysis.core.path), held)
    return data if data.startswith(b"\x7fELF") else None


def _uncertain(analysis: Analysis) -> list[str]:
    """What has to be known of a case that a recorded call filled in."""
    if analysis.call is None or analysis.filled is None:
        return []
    doubts = []
    if not analysis.call.certain:
        doubts.append(
            f"certainty: {analysis.call.name} is the first recorded call of "
            f"{analysis.call.op} that may have "
            "failed; record with --sync to know"
        )
    if not any(tensor.io == "output" for tensor in analysis.tensors):
        doubts.append("outputs: the call raised before it had any; add them to main.py")
    if analysis.filled.in_order_of_call:
        doubts.append(
            "the kernel's own order of tensors: inputs and outputs are in the order of the "
            f"PyTorch call ({analysis.call.op}); attributes of the operator are not known"
        )
    return doubts


def _without_values(analysis: Analysis, params: list[_Param], launch: Launch | None) -> list[str]:
    if (
        not params
        and launch is not None
        and not any(
            buffer.file for buffer in launch.buffers if buffer.io not in ("tiling", "spare")
        )
    ):
        return [
            (
                "values of the arguments: give the exception dump (--dump); without it launch.py "
                "takes zeros"
            )
        ]
    absent = [str(param.index) for param in params if param.io == "input" and param.value is None]
    if not absent:
        return []
    without = (
        f"; opscope run --sync --journal {shlex.quote(analysis.call.op)} -- CMD keeps them"
        if analysis.call is not None
        else ""
    )
    numbers = ", ".join(absent)
    return [
        f"values of input {numbers}: without them OpUT takes random numbers from 0.1 to 1{without}"
    ]


def _record(
    analysis: Analysis, params: list[_Param], name: str, launch: Launch | None
) -> dict[str, Any]:
    sides = {
        f"{side}s": [msgspec.structs.asdict(param) for param in params if param.io == side]
        for side in ("input", "output")
    }
    return {
        "form": FORM,
        "op": analysis.operator,
        "node": analysis.name,
        "kernel": name,
        "binary": f"kernel_meta/{name}.o",
        "attributes": attributes_of(analysis.node, analysis.kernel),
        "call": None
        if analysis.call is None
        else {
            "name": analysis.call.name,
            "op": analysis.call.op,
            "source": analysis.call.source,
            "args": analysis.call.tree,
        },
        "tiling_key": analysis.fault.tiling_key,
        "block_dim": analysis.fault.block_dim,
        "launch": None if launch is None else msgspec.to_builtins(launch),
        **sides,
    }


def _called(analysis: Analysis) -> str:
    if analysis.call is None:
        return ""
    command = f"opscope repro {shlex.quote(analysis.call.run)} {shlex.quote(analysis.call.name)}"
    return (
        f"The program's call, {_plain(analysis.call.name)}:\n\n    {_plain(analysis.call.text)}\n\n"
        f"As a script of PyTorch: `{_plain(command)}`.\n\n"
    )


def _readme(
    analysis: Analysis, params: list[_Param], launch: Launch | None, lacks: list[str]
) -> str:
    rows = "\n".join(
        f"| {param.io} {param.index} | {param.dtype} | {list(param.shape)} | {param.format} | "
        f"{param.value or 'not dumped'} |"
        for param in params
    )
    if not params and launch is not None:
        rows = "\n".join(
            f"| {buffer.label} | ? | {buffer.size} bytes | ? | {buffer.file or 'not dumped'} |"
            for buffer in launch.buffers
        )
    main = (
        "python3 main.py      # on the machine with CANN: op_test_frame runs the kernel's "
        "binary with these inputs\n"
        if params
        else ""
    )
    verdict = "".join(
        character if character not in "`|<>" else " " for character in analysis.verdict.text
    )
    missing = "".join(f"- {text}\n" for text in lacks) or "- nothing\n"
    return (
        f"# Single-operator case: {_comment(analysis)}\n\n{verdict}\n\n"
        f"```sh\n{main}"
        "python3 launch.py    # on the machine with CANN: the binary by pyACL, each argument "
        "between two guards\n"
        "python3 repro.py     # the one or the other, or the CPU reference: 0 fine, 1 it "
        "fails, 125 cannot be tried\n```\n\n"
        "Take the outcome back: `opscope aicore … --case-result reproduced`, "
        "`not-reproduced`, or the folder of the new logs.\n\n"
        f"{_called(analysis)}"
        f"| tensor | type | shape | format | values |\n|---|---|---|---|---|\n{rows}\n\n## "
        f"Missing\n\n{missing}"
    )
