# SPDX-License-Identifier: Apache-2.0
"""Draft the tensor rows of a call: types, versions, roles and where the values lie; measured later.

The true element type is the device type of the .ir. Where a file is named otherwise (Float16 for a
Float32 buffer, on the CPU back end) it holds the first bytes of the buffer under the wrong type:
such a row is partial and has neither statistics nor value. bfloat16 comes as float32 in the file
and is brought back. Operands and outputs that the graph knows and the dump left out have rows too,
with the values of another row of the same version where one was kept.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from opscope.errors import FormatError
from opscope.formats.foreign import UNKNOWN
from opscope.formats.mindspore.calls import CallFiles
from opscope.formats.mindspore.edges import Slot
from opscope.formats.mindspore.graph import TensorType
from opscope.formats.mindspore.kernels import Execution, SlotKey
from opscope.formats.mindspore.layout import Place
from opscope.formats.mindspore.names import TensorFile
from opscope.formats.mindspore.raw import raw_rows
from opscope.formats.mindspore.statistic import StatisticRow
from opscope.formats.npy import npy_dtype, read_npy_header
from opscope.run.schema import Call, Tensor, ValueRef

Held = dict[tuple[int, int], tuple[Place, Execution, SlotKey]]


class Drafter:
    """Drafts rows; root is the folder that shards are relative to."""

    def __init__(
        self, root: Path, files: dict[tuple[int, int], CallFiles], held: Held, problems: list[str]
    ) -> None:
        self._root, self._files, self._held, self._problems = root, files, held, problems
        self._prefixes: dict[Path, str] = {}

    def __call__(self, call: Call) -> list[Tensor]:
        """The rows of one call: inputs before outputs, in the order of their slots."""
        files = self._files[call.process, call.index]
        run = files.run
        if run is None:
            return [
                self._parameter(call, files.place, number, entry)
                for number, entry in enumerate(files.parameters)
            ]
        if run.raw is not None:
            path = files.place.path / run.raw.file
            return raw_rows(
                path,
                self._shard(files.place, run.raw.file),
                (call.process, call.index),
                self._problems,
            )
        slots = {(io, str(slot.position)): slot for io, part in _sides(files) for slot in part}
        keys = {
            *run.files,
            *run.statistics,
            *(key for key, slot in slots.items() if _is_tensor(slot)),
        }
        rows = [
            self._row(call, (files, run), key, slots.get(key)) for key in sorted(keys, key=_by_slot)
        ]
        return rows + [self._state(call, (files, run), slot) for slot in _lost_states(files)]

    def _row(
        self, call: Call, about: tuple[CallFiles, Execution], key: SlotKey, slot: Slot | None
    ) -> Tensor:
        files, run = about
        file, line = run.files.get(key), run.statistics.get(key)
        fields = _known(slot, file, line)
        if slot is not None and slot.written and key[0] == "input":
            fields["version"] = (
                # the dump is taken after the call: the file is none of the state that was read
                None
            )
        if file is not None:
            fields |= self._valued(files.place, file, _device_type(files, key, slot))
        elif line is not None:
            fields |= line.statistics
        elif slot is not None and slot.version is not None:
            fields |= self._borrowed(call.process, slot.version, slot.type)
        return Tensor(process=call.process, index=call.index, io=key[0], slot=key[1], **fields)

    def _valued(self, place: Place, file: TensorFile, device: TensorType | None) -> dict[str, Any]:
        """Columns of a row whose file is there: its value, or partial when the file cannot hold the
        tensor.
        """
        shard = self._shard(place, file.file)
        if device is None or device.dtype is None or file.dtype == device.dtype:
            return {"value": ValueRef(shard, "")}
        path = self._root / shard
        try:
            header = read_npy_header(path)
            stored = npy_dtype(header, path).name
        except FormatError as error:
            self._problems.append(str(error))
            return {"dtype": device.dtype}
        if (
            stored == device.dtype
            or (device.dtype == "bfloat16" and stored in {"float32", "uint16"})
            or file.dtype == "bfloat16"
        ):
            return {"value": ValueRef(shard, ""), "dtype": device.dtype}
        if file.dtype is None and file.layout is None:
            return {"value": ValueRef(shard, "")}
        return {"dtype": device.dtype, "shape": header.shape, "partial": True}

    def _borrowed(self, process: int, version: int, kind: TensorType | None) -> dict[str, Any]:
        """Values of a row without a file, from the file of another row of the same version."""
        holder = self._held.get((process, version))
        if holder is None:
            return {}
        place, run, key = holder
        file = run.files[key]
        if kind is not None and kind.dtype is not None and file.dtype not in {kind.dtype, None}:
            return {}
        return {
            "value": ValueRef(self._shard(place, file.file), ""),
            "shape": None,
        }  # a file after Reshape may keep the old shape

    def _state(self, call: Call, about: tuple[CallFiles, Execution], slot: Slot) -> Tensor:
        """An operand written in place that no output shows: what it holds after the call, under
        slot "input.N".
        """
        files, run = about
        file = run.files.get(("input", str(slot.position)))
        fields = _known(slot, file, None)
        if file is not None:
            fields |= self._valued(files.place, file, slot.type)
        elif slot.version is not None:
            fields |= self._borrowed(call.process, slot.version, slot.type)
        return Tensor(
            process=call.process,
            index=call.index,
            io="output",
            slot=f"input.{slot.position}",
            **fields,
        )

    def _parameter(
        self, call: Call, place: Place, number: int, entry: tuple[Execution, str, str]
    ) -> Tensor:
        run, name, role = entry
        file = next(iter(run.files.values()), None)
        line = next(iter(run.statistics.values()), None)
        fields = _known(None, file, line) | {"role": role, "tensor_name": name}
        if file is not None:
            fields |= {"value": ValueRef(self._shard(place, file.file), "")}
        elif line is not None:
            fields |= line.statistics
        return Tensor(
            process=call.process, index=call.index, io="input", slot=str(number), **fields
        )

    def _shard(self, place: Place, file: str) -> str:
        prefix = self._prefixes.get(place.path)
        if prefix is None:
            prefix = self._prefixes[place.path] = os.path.relpath(place.path, self._root)
        return f"{prefix}/{file}"


def _sides(files: CallFiles) -> tuple[tuple[str, tuple[Slot, ...]], ...]:
    if files.wiring is None:
        return ()
    return (("input", files.wiring.inputs), ("output", files.wiring.outputs))


def _is_tensor(slot: Slot) -> bool:
    """Rows without a file are made for tensors that some call or the program produced, and for
    strings, which never have one.
    """
    if slot.type is not None and slot.type.kind == "string":
        return True
    return slot.source is None or slot.source.kind in {"output", "parameter"}


def _lost_states(files: CallFiles) -> list[Slot]:
    if files.wiring is None:
        return []
    shown = {slot.version for slot in files.wiring.outputs}
    return [slot for slot in files.wiring.inputs if slot.written and slot.version not in shown]


def _device_type(files: CallFiles, key: SlotKey, slot: Slot | None) -> TensorType | None:
    """The type the device really had, only where the graph says device types."""
    if slot is None or files.node is None:
        return None
    types = files.node.device_inputs if key[0] == "input" else files.node.device_outputs
    return slot.type if types is not None else None


def _known(slot: Slot | None, file: TensorFile | None, line: StatisticRow | None) -> dict[str, Any]:
    """Columns that need no payload."""
    fields: dict[str, Any] = {"dtype": UNKNOWN}
    if line is not None:
        fields |= {"dtype": line.dtype or UNKNOWN, "shape": line.shape}
    if file is not None:
        fields["dtype"] = file.dtype or fields["dtype"]
        fields["layout"] = None if file.layout in {None, "DefaultFormat"} else file.layout
    if slot is None:
        return fields
    if slot.type is not None and file is None:
        fields["dtype"] = slot.type.dtype or fields["dtype"]
        fields["shape"] = fields.get("shape") or slot.type.shape
    fields["version"] = slot.version
    if slot.parameter is not None:
        fields["tensor_name"] = slot.parameter
        fields["role"] = "input data" if slot.fed else "parameter"
    elif slot.source is not None and slot.source.kind == "constant":
        fields["role"] = "constant"
    return fields


def _by_slot(key: SlotKey) -> tuple[str, list[int]]:
    return key[0], [int(part) for part in key[1].split(".")]
