# SPDX-License-Identifier: Apache-2.0
"""Dumps of api_accuracy_checker: forward_info_{rank}.json, backward_info_{rank}.json,
stack_info_{rank}.json.

    {"Functional*silu*0": {"args": [{"type": "torch.Tensor", "dtype": …, "shape": …, "Max": …,
    "Min": …, "datapath": …}, …], "kwargs": {…}}}

in a step{n} folder or none. A backward entry is the list of the gradients that came in. Values,
where they were kept, are .pt files in forward_real_data*/ and backward_real_data*/ beside the json;
of a datapath only the file's name is used.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.formats.bounded_json import load_json_or_note
from opscope.formats.folders import file_names, folder_names, walk
from opscope.formats.foreign import ForeignRun
from opscope.formats.msprobe.leaves import TensorLeaf, arguments_text, tensors
from opscope.formats.msprobe.stacks import read_stacks, user_line
from opscope.formats.registry import Format
from opscope.formats.run_builder import RunBuilder
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Tensor, ValueRef

if TYPE_CHECKING:
    from opscope.run.protocol import Run

_FILE = re.compile(r"(forward|backward)_info_(\d{1,12})\.json")
_STEP = re.compile(r"step(\d{1,9})")
_KEY = re.compile(r"([^*]+)\*(.+)\*(\d{1,15})")
_DEPTH = 3
_KEPT = {"dtype", "shape", "requires_grad", "tensor_class", "layout"}


class _Place(msgspec.Struct, frozen=True):
    folder: Path
    step: int
    owner: int
    phases: tuple[str, ...]


class _Source(msgspec.Struct, frozen=True):
    leaves: tuple[tuple[str, TensorLeaf], ...]
    files: dict[str, str]


def detect(path: Path) -> bool:
    """Whether a folder holds such json files, by name and first bytes."""
    if not path.is_dir():
        return False
    return any(
        _looks_right(place.folder / f"{place.phases[0]}_info_{place.owner}.json")
        for place in _places(path)
    )


def _looks_right(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return re.match(rb'\s*\{\s*("[^"]{1,1000}\*\d+"\s*:|\})', stream.read(4096)) is not None
    except OSError:
        return False


def _places(root: Path) -> Iterator[_Place]:
    for folder, names in walk(root, _DEPTH, ".json"):
        owners: dict[int, list[str]] = defaultdict(list)
        for name in reversed(names):  # forward before backward
            named = _FILE.fullmatch(name)
            if named:
                owners[int(named[2])].append(named[1])
        step = _STEP.fullmatch(folder.name)
        for owner, phases in sorted(owners.items()):
            yield _Place(folder, int(step[1]) if step else 0, owner, tuple(phases))


def open_dump(path: Path) -> Run:
    """The dump as a run; FormatError when no json in it can be read."""
    from opscope.formats.msprobe.reader import load_value

    builder = _Builder(path)
    owners: dict[int, list[_Place]] = defaultdict(list)
    for place in _places(path):
        owners[place.owner].append(place)
    small = all(owner < 100_000 for owner in owners) and 0 in owners  # ranks, not process numbers
    for process, owner in enumerate(sorted(owners)):
        steps = sorted(owners[owner], key=lambda place: place.step)
        builder.add_process(owner if small else process, steps)
    return ForeignRun(
        RunInfo(path=str(path), format="api_accuracy_checker"),
        path,
        builder.rows.tables(path, "no forward_info_*.json below it"),
        builder.draft,
        load=load_value,
    )


FORMAT = Format("api_accuracy_checker", detect, open_dump)


class _Builder:
    """Collects the calls of a dump."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rows = RunBuilder()
        self._sources: dict[tuple[int, int], _Source] = {}

    def add_process(self, rank: int, places: list[_Place]) -> None:
        """All steps of one process."""
        self.rows.start_process(str(places[0].folder), rank)
        for place in places:
            files = _real_data(place.folder, self.root)
            stacks = read_stacks(self._read(place, "stack"))
            forward: dict[str, int] = {}
            for phase in place.phases:
                value = self._read(place, phase)
                if not isinstance(value, dict):
                    continue
                self.rows.read = True
                for key, body in value.items():
                    call = self._call(key, body, place.step, phase, forward, stacks.get(key, ()))
                    source = _Source(tuple(_leaves(body, phase)), files)
                    self._sources[call.process, call.index] = source

    def _read(self, place: _Place, what: str) -> Any:
        path = place.folder / f"{what}_info_{place.owner}.json"
        return load_json_or_note(path, self.rows.problems)

    def _call(
        self,
        key: str,
        body: Any,
        step: int,
        phase: str,
        forward: dict[str, int],
        frames: tuple[str, ...],
    ) -> Call:
        parts = _KEY.fullmatch(key)
        is_forward = phase == "forward"
        call = self.rows.add_call(
            step=step,
            level="api",
            phase=phase,
            op=f"{parts[1]}.{parts[2]}" if parts else key,
            name=f"{key}.{phase}",
            forward_index=None if is_forward else forward.get(key),
            stack=self.rows.add_stack(frames) if is_forward else None,
            source=user_line(frames),
            args=_arguments(body) if is_forward else None,
        )
        if is_forward:
            forward[key] = call.index
        return call

    def draft(self, call: Call) -> list[Tensor]:
        """Rows of one call."""
        source = self._sources[call.process, call.index]
        rows = []
        for io, leaf in source.leaves:
            columns = dict(leaf.columns)
            if leaf.data_name in source.files:
                columns = {name: columns[name] for name in columns.keys() & _KEPT} | {
                    "value": ValueRef(source.files[leaf.data_name], "")
                }
            rows.append(
                Tensor(process=call.process, index=call.index, io=io, slot=leaf.slot, **columns)
            )
        return rows


def _real_data(folder: Path, root: Path) -> dict[str, str]:
    """Names of kept values beside a json -> their places below root."""
    kept_files: dict[str, str] = {}
    for name in folder_names(folder):
        if "_real_data" in name:
            prefix = os.path.relpath(folder / name, root)
            kept_files |= {file: f"{prefix}/{file}" for file in file_names(folder / name)}
    return kept_files


def _named(value: Any) -> Any:
    """A leaf's datapath as the data_name that msprobe's leaves have."""
    if isinstance(value, dict):
        path = value.get("datapath")
        named = {key: _named(item) for key, item in value.items()}
        return (
            named | {"data_name": path.replace("\\", "/").rsplit("/", 1)[-1]}
            if isinstance(path, str)
            else named
        )
    return [_named(item) for item in value] if isinstance(value, list) else value


def _leaves(body: Any, phase: str) -> Iterator[tuple[str, TensorLeaf]]:
    if phase == "backward":
        for leaf in tensors(_named(body), ""):
            yield (
                "input",
                msgspec.structs.replace(
                    leaf, slot=leaf.slot or "0", columns=leaf.columns | {"role": "gradient"}
                ),
            )
        return
    if isinstance(body, dict):
        for leaf in tensors(_named(body.get("args")), ""):
            yield "input", leaf
        for leaf in tensors(_named(body.get("kwargs")), "kwargs"):
            yield "input", leaf


def _arguments(body: Any) -> str | None:
    if not isinstance(body, dict):
        return None
    return arguments_text(body.get("args"), body.get("kwargs"))
