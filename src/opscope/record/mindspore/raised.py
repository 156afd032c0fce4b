# SPDX-License-Identifier: Apache-2.0
"""A compiled graph that raised: which kernel it was, and those of its inputs that MindSpore has
dumped nowhere.

MindSpore dumps a kernel after it ran. What the kernel that raised has read is in the files of the
kernels that made it, or it is
a parameter or an input of the graph: these are taken from the program, where the exception still
has them.

    RUN/mindspore/{process}/raised/raised.json   what is told below
    RUN/mindspore/{process}/raised/{slot}.npy    inputs of the kernel that no file of the dump holds
"""

from __future__ import annotations

import gc
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import OpscopeError
from opscope.formats.mindspore.failed import Failed, first_paragraph
from opscope.formats.mindspore.reader import open_dump
from opscope.formats.npy import read_npy
from opscope.narrow import is_narrow, widened
from opscope.record.mindspore.compiled import began, folders_of
from opscope.record.mindspore.place import LARGEST, NET, RAISED
from opscope.record.mindspore.reading import array_of
from opscope.run.dtypes import find_dtype
from opscope.run.protocol import Run
from opscope.run.query import calls as calls_of
from opscope.run.query import tensors_of
from opscope.run.schema import Call, Tensor
from opscope.run.store.layout import write_json

FACTS = "raised.json"
_RUNS = {
    ("_exec_pip", "obj"),
    ("__call__", "new_inputs"),
}  # functions that run a graph, and a variable they have only then
_SIDE = frozenset({"graphs", "execution_order", ".dump_metadata"})
_SLOT = re.compile(r"\d{1,9}(\.\d{1,9})?")
_GOT = re.compile(r"\bgot:? +(-?\d{1,18})\b")


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the dump whose graph raised: the error, the full name of the kernel, the slots
    that were taken from the program.

    kernel is None where several may be meant; their places in the program are in candidates.
    """

    folder: str
    error: str
    kernel: str | None
    slots: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()


def tell_raised(process_folder: Path, dump: Path, error: BaseException) -> None:
    """Tell, of the first graph that raises in this process, what is needed to write its row.

    Nothing for errors that no graph raised while it ran, and where the kernel cannot be told.
    """
    frame = _graph_frame(error.__traceback__)
    if frame is None or (process_folder / RAISED).exists():
        return
    text = f"{type(error).__name__}: {first_paragraph(str(error))}"
    meant = _meant(_suspects(dump, Failed(str(error)), frame), text)
    if not meant:
        return
    (process_folder / RAISED).mkdir()
    first = meant[0]
    missing = {
        row.slot: first.inputs[row.slot]
        for row in first.rows
        if row.value is None and row.slot in first.inputs
    }
    if len(meant) == 1:
        first.folder.mkdir(parents=True, exist_ok=True)
        for slot, array in missing.items():
            path = process_folder / RAISED / f"{slot}.npy"
            plain = array.view(f"V{array.itemsize}") if is_narrow(array.dtype) else array
            np.save(path, plain, allow_pickle=False)
        told = Raised(
            folder=str(first.folder),
            error=text[:4000],
            kernel=first.call.name,
            slots=tuple(missing),
        )
    else:
        candidates = tuple(
            f"{each.call.op} ({each.call.source or each.call.name})" for each in meant
        )
        told = Raised(
            folder=str(first.folder), error=text[:4000], kernel=None, candidates=candidates
        )
    write_json(process_folder / RAISED / FACTS, told)


class _Suspect(msgspec.Struct, frozen=True):
    """A kernel that may have raised: the folder of its graph's iteration, its call and rows, what
    it read by slot.
    """

    folder: Path
    call: Call
    rows: list[Tensor]
    inputs: dict[str, Array]


def _suspects(dump: Path, failed: Failed, frame: FrameType) -> list[_Suspect]:
    """Those of the iteration that landed last; where it is whole, the first kernels of graphs,
    whose iteration has no folder yet.
    """
    last = max(folders_of(dump), key=began, default=None)
    suspects = list(_suspects_of(last, failed, frame)) if last is not None else []
    if suspects:
        return suspects
    for folder in list(_next_folders(dump)):
        folder.mkdir(parents=True)
        try:
            suspects += _suspects_of(folder, failed, frame)
        finally:
            folder.rmdir()
    return suspects


def _suspects_of(folder: Path, failed: Failed, frame: FrameType) -> Iterator[_Suspect]:
    run = open_dump(folder, failed=failed)
    for call in calls_of(run):
        if call.error is not None:
            rows = list(tensors_of(run, call))
            yield _Suspect(folder, call, rows, dict(_inputs(run, rows, frame)))


def _next_folders(dump: Path) -> Iterator[Path]:
    """Where the iterations would land that have no file yet, of every graph that was compiled."""
    for path in dump.glob("rank_*/graphs/ms_output_trace_code_graph_*.ir"):
        number, base = path.stem.rpartition("_")[2], path.parents[1]
        nets = [folder for folder in base.iterdir() if folder.is_dir() and folder.name not in _SIDE]
        ran = base / "execution_order" / f"ms_global_execution_order_graph_{number}.csv"
        last = (
            [line for line in ran.read_text(encoding="utf-8").split() if line.isdigit()]
            if ran.is_file()
            else []
        )
        folder = (
            (nets[0] if nets else base / NET) / number / (str(int(last[-1]) + 1) if last else "0")
        )
        if not folder.exists():
            yield folder


def _graph_frame(traceback: TracebackType | None) -> FrameType | None:
    """The innermost frame in which MindSpore runs a graph; None where it was not running one."""
    innermost = None
    while traceback is not None:
        code, local = traceback.tb_frame.f_code, traceback.tb_frame.f_locals
        path = code.co_filename.replace("\\", "/")
        runs = any(code.co_name == name and variable in local for name, variable in _RUNS)
        innermost = (
            traceback.tb_frame
            if runs and path.endswith("/api.py") and "/mindspore/" in path
            else innermost
        )
        traceback = traceback.tb_next
    return innermost


def _inputs(run: Run, rows: list[Tensor], frame: FrameType) -> Iterator[tuple[str, Array]]:
    """What a kernel read, by slot: from files of the dump, else from the program."""
    given = dict(_arguments(frame))
    for row in rows:
        if row.value is not None:
            yield row.slot, run.value(row)
        elif row.tensor_name is not None and (array := _of_program(row, given)) is not None:
            yield row.slot, array


def _of_program(row: Tensor, given: Mapping[str, Any]) -> Array | None:
    """The elements of a parameter or an input of the graph, where one object of that name has this
    shape.
    """
    held = given.get(str(row.tensor_name))
    held_arrays = [held] if held is not None else list(_parameters(str(row.tensor_name)))
    arrays = [array for each in held_arrays if (array := array_of(each)) is not None]
    fit = [array for array in arrays if row.shape is None or array.shape == row.shape]
    wide = [widened(array) for array in fit]
    same = all(np.array_equal(wide[0], each, equal_nan=wide[0].dtype.kind == "f") for each in wide)
    return fit[0] if fit and same else None


def _arguments(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Inputs of a graph, as the graph names them: by the parameters of the function it was compiled
    from, `*inputs` counted.
    """
    local = frame.f_locals
    cell = local.get("obj")
    function = cell.construct if cell is not None else getattr(local.get("self"), "fn", None)
    args = local.get("args") if cell is not None else local.get("args_list")
    if function is None or not isinstance(args, tuple):
        return
    names = list(inspect.signature(function).parameters.values())
    if (
        cell is None
        and names
        and getattr(local.get("self"), "obj", None) is not None
        and not inspect.ismethod(function)
    ):
        names = names[1:]
    for number, value in enumerate(args):
        name = names[min(number, len(names) - 1)] if names else None
        if name is not None and name.kind is name.VAR_POSITIONAL:
            yield f"{name.name}{number - len(names) + 1}", value
        elif name is not None and number < len(names):
            yield name.name, value
        if isinstance(getattr(value, "name", None), str):
            yield value.name, value  # a parameter handed over keeps its own name


def _parameters(name: str) -> Iterator[Any]:
    """Parameters of the program's Cells that have this name."""
    seen: set[int] = set()
    for cell in gc.get_objects():
        held = (
            cell.__dict__.get("_params")
            if hasattr(type(cell), "construct") and hasattr(cell, "__dict__")
            else None
        )
        for parameter in held.values() if isinstance(held, dict) else ():
            if getattr(parameter, "name", None) == name and id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter


def _meant(suspects: list[_Suspect], text: str) -> list[_Suspect]:
    """Of several kernels of one primitive those that hold the whole number the error complains of,
    where it names one.
    """
    number = _GOT.search(text)
    if len(suspects) < 2 or number is None:
        return suspects
    wanted = int(number[1])
    holding = [
        each
        for each in suspects
        if any(
            array.dtype.kind in "iu" and (array == wanted).any() for array in each.inputs.values()
        )
    ]
    return holding or suspects


def read_raised(process_folder: Path, folder: Path) -> Raised | None:
    """What a process told of a folder; None where it told nothing of it."""
    path = process_folder / RAISED / FACTS
    try:
        if path.stat().st_size > LARGEST:
            return None
        told = msgspec.json.decode(path.read_bytes(), type=Raised)
    except (OSError, msgspec.MsgspecError):
        return None
    return told if told.folder == str(folder) else None


def taken_input(process_folder: Path, told: Raised, row: Tensor) -> Array | None:
    """The elements of an input that were taken from the program; None where they were not.
    FormatError for a file that is none.
    """
    if row.io != "input" or row.slot not in told.slots or _SLOT.fullmatch(row.slot) is None:
        return None
    return read_npy(process_folder / RAISED / f"{row.slot}.npy", true=find_dtype(row.dtype))


def teller(process_folder: Path, dump: Path) -> Callable[[BaseException], None]:
    """A function to call with every exception that passes; it raises nothing."""

    def tell(error: BaseException) -> None:
        try:
            tell_raised(process_folder, dump, error)
        except (OpscopeError, OSError, RuntimeError, TypeError, ValueError):
            return

    return tell
