# SPDX-License-Identifier: Apache-2.0
"""Open an msprobe dump as a run: steps, ranks, entries become calls."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.arrays import Array
from opscope.formats.bounded_json import load_json_or_note
from opscope.formats.folders import file_names
from opscope.formats.foreign import ForeignRun
from opscope.formats.manifest import has_manifest, open_manifest
from opscope.formats.msprobe.layout import Place, find_places
from opscope.formats.msprobe.leaves import TensorLeaf, arguments_text, tensors
from opscope.formats.msprobe.names import EntryName, forward_name, parse_name
from opscope.formats.msprobe.stacks import read_stacks, user_line
from opscope.formats.npy import as_true_type, read_npy
from opscope.formats.pt import read_pt
from opscope.formats.run_builder import RunBuilder
from opscope.run.access import TensorRow
from opscope.run.dtypes import DType
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Tensor, ValueRef

if TYPE_CHECKING:
    from opscope.run.protocol import Run

# The entries of one dump.json, in the order they were entered, with their parents.
#
# dump.json lists an entry when it is left, so a module stands after what ran in it.
# construct.json says who enclosed whom; entries that were filtered out of the dump stand there
# too, and are passed over. In newer dumps its values are [parent, micro step].

_CHAIN_LIMIT = 500
OPTIMIZER = frozenset({"optimizer", "clip_grad"})


class Entry(msgspec.Struct, frozen=True):
    """One entry: its name taken apart, its body, the entry it ran in, and the names that enclose
    it, innermost first.
    """

    name: str
    parts: EntryName
    body: Any
    parent: str | None
    enclosing: tuple[str, ...] = ()


def read_construct(value: Any) -> dict[str, str | None]:
    """child -> parent out of construct.json, {} for anything else."""
    if not isinstance(value, dict):
        return {}
    parents: dict[str, str | None] = {}
    for child, parent in value.items():
        first = parent[0] if isinstance(parent, list) and parent else parent
        if first is None or isinstance(first, str):
            parents[child] = first
    return parents


def entries_of(data: dict[str, Any], parents: dict[str, str | None]) -> list[Entry]:
    """Entries in the order of entering; those whose name has no known shape are calls of their own
    name.
    """
    entries = {name: _entry(name, body, data, parents) for name, body in data.items()}
    order: dict[str, Entry] = {}
    for entry in entries.values():
        waiting = [name for name in entry.enclosing if name in entries and name not in order]
        for name in (*reversed(waiting), entry.name):
            order.setdefault(name, entries[name])
    return list(order.values())


def _entry(name: str, body: Any, data: dict[str, Any], parents: dict[str, str | None]) -> Entry:
    enclosing: list[str] = []
    above = parents.get(name)
    while above is not None and above not in enclosing and len(enclosing) < _CHAIN_LIMIT:
        enclosing.append(above)
        above = parents.get(above)
    parts = parse_name(name) or EntryName(
        "api", name.split(".", 1)[0][:200] or "unknown", None, "forward", 0
    )
    return Entry(
        name,
        parts,
        body,
        next((up for up in enclosing if up in data and up != name), None),
        tuple(enclosing),
    )


def phase_of(entry: Entry) -> str:
    """forward, backward, communication; recompute where the entry says so; optimizer for what ran
    in its step.
    """
    if isinstance(entry.body, dict) and entry.body.get("is_recompute") is True:
        return "recompute"
    if entry.parts.phase == "forward" and any(name in OPTIMIZER for name in entry.enclosing):
        return "optimizer"
    return entry.parts.phase


def module_of(entry: Entry, *, constructed: bool) -> str | None:
    """Path of the module: a module's own, for an API the innermost that encloses it, None where
    nothing says.
    """
    if entry.parts.module is not None:
        return entry.parts.module
    for name in entry.enclosing:
        above = parse_name(name)
        if above is not None and above.module is not None:
            return above.module
    return "" if constructed else None


_NO_HASH = "0x0000000000000000"  # the xor of words that come twice says nothing
_DATA = ("dump_tensor_data", "tensor_data")
_SIDES = (
    ("input_args", "input", ""),
    ("input_kwargs", "input", "kwargs"),
    ("input", "input", ""),
    ("output", "output", ""),
)


class _Source(msgspec.Struct, frozen=True):
    """Where the rows of a call come from."""

    entry: Entry
    prefix: str  # folder of the tensor files, relative to the root
    files: frozenset[str]


def open_dump(path: Path) -> Run:
    """The dump as a run; FormatError when no json in it can be read. See
    docs/formats-msprobe.md.
    """
    if has_manifest(path):
        return open_manifest(path)
    places = find_places(path)
    root = path if path.is_dir() else path.parent
    builder = _Builder(root)
    for owned in _by_owner(places):
        builder.add_process(owned)
    nothing = "no dump.json or debug.json below it"
    tables = builder.rows.tables(path, nothing, builder.hashes)
    info = RunInfo(path=str(path), format="msprobe", config=builder.header)
    return ForeignRun(info, root, tables, builder.draft, load=load_value)


def load_value(path: Path, key: str, true: DType | None) -> Array:  # noqa: ARG001 - the signature of all loaders
    """Elements of a .pt or .npy of a dump in their true type."""
    if path.suffix == ".pt":
        return as_true_type(read_pt(path), true, path)
    return read_npy(path, true=true)


def _by_owner(places: list[Place]) -> list[list[Place]]:
    """Folders of one process each, in the order of ranks."""
    groups: dict[tuple[int | None, str], list[Place]] = defaultdict(list)
    for place in places:
        groups[place.rank, "" if place.rank is not None else place.owner].append(place)
    return [
        sorted(group, key=lambda place: (place.step, str(place.folder)))
        for group in groups.values()
    ]


class _Builder:
    """Collects calls, stacks and the sources of rows, folder by folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rows = RunBuilder()
        self.header: dict[str, Any] = {}
        # msprobe's own hash of tensors, once their rows were read: a CRC-32 of the bytes, or an xor
        # of their words, is no digest of ours, but two dumps of msprobe can be compared by it
        self.hashes: dict[TensorRow, str] = {}
        self._sources: dict[tuple[int, int], _Source] = {}

    def add_process(self, places: list[Place]) -> None:
        """All steps of one process."""
        rank = places[0].rank if places[0].rank is not None else len(self.rows.processes)
        self.rows.start_process(str(places[0].folder), rank)
        for place in places:
            for name in place.files:
                self._folder(place, name)

    def _folder(self, place: Place, name: str) -> None:
        """Calls of one json; its stacks and parents are those beside it."""
        path, problems = place.folder / name, self.rows.problems
        value = load_json_or_note(path, problems)
        data = value.get("data") if isinstance(value, dict) else None
        if not isinstance(data, dict):
            if value is not None:
                problems.append(f'{path}: no object "data" in it; not a dump of msprobe')
            return
        self.rows.read = True
        self.header = {key: item for key, item in value.items() if key != "data"}
        stacks = read_stacks(load_json_or_note(place.folder / "stack.json", problems))
        parents = read_construct(load_json_or_note(place.folder / "construct.json", problems))
        entries = entries_of(data, parents)
        indices = {entry.name: self.rows.index + i for i, entry in enumerate(entries)}
        prefix, files = self._files(place.folder)
        for entry in entries:
            call = self._call(entry, indices, stacks, (place.step, bool(parents)))
            self._sources[call.process, call.index] = _Source(entry, prefix, files)

    def _files(self, folder: Path) -> tuple[str, frozenset[str]]:
        """The folder of tensor files beside a json; the path that dump.json names is relative to
        where its writer stood.
        """
        for name in _DATA:
            if (folder / name).is_dir():
                return os.path.relpath(folder / name, self.root), frozenset(
                    file_names(folder / name)
                )
        return "", frozenset()

    def _call(
        self,
        entry: Entry,
        indices: dict[str, int],
        stacks: dict[str, tuple[str, ...]],
        about: tuple[int, bool],
    ) -> Call:
        step, constructed = about
        frames = stacks.get(entry.name, ())
        forward = forward_name(entry.name)
        source = user_line(frames) or (
            user_line(stacks.get(forward, ())) if forward is not None else None
        )
        return self.rows.add_call(
            step=step,
            level=entry.parts.level,
            parent=indices.get(entry.parent) if entry.parent is not None else None,
            phase=phase_of(entry),
            op=entry.parts.op,
            module=module_of(entry, constructed=constructed),
            name=entry.name,
            forward_index=indices.get(forward) if forward is not None else None,
            stack=self.rows.add_stack(frames),
            source=source,
            args=_arguments(entry.body),
        )

    def draft(self, call: Call) -> list[Tensor]:
        """Rows of one call: the file's values where it is there, else what dump.json says."""
        source = self._sources[call.process, call.index]
        leaves = list(_leaves(source.entry))
        for io, leaf, _ in leaves:
            if leaf.hash is not None and leaf.hash != _NO_HASH:
                self.hashes[call.process, call.index, io, leaf.slot] = leaf.hash
        return [_row(call, io, leaf, extra, source) for io, leaf, extra in leaves]


def _row(call: Call, io: str, leaf: TensorLeaf, extra: dict[str, Any], source: _Source) -> Tensor:
    columns = leaf.columns | extra
    if leaf.data_name is not None and leaf.data_name in source.files:
        columns = {name: columns[name] for name in columns.keys() & _KEPT}
        columns["value"] = ValueRef(f"{source.prefix}/{leaf.data_name}", "")
    return Tensor(process=call.process, index=call.index, io=io, slot=leaf.slot, **columns)


_KEPT = {"dtype", "shape", "requires_grad", "tensor_class", "layout", "role", "tensor_name"}


def _leaves(entry: Entry) -> Iterator[tuple[str, TensorLeaf, dict[str, Any]]]:
    """Tensors of an entry: side, leaf, and the columns its place gives."""
    body, parts = entry.body, entry.parts
    if parts.kind == "debug":
        for leaf in tensors(body, ""):
            yield "output", msgspec.structs.replace(leaf, slot=leaf.slot or "0"), {}
        return
    if not isinstance(body, dict):
        return
    path = f"{parts.module}." if parts.module else ""
    if parts.kind == "gradient":
        for name, value in body.items():
            for leaf in tensors(
                value[0] if isinstance(value, list) and len(value) == 1 else value, name
            ):
                yield "output", leaf, {"role": "gradient", "tensor_name": f"{path}{name}"}
        return
    role = {"role": "gradient"} if parts.phase == "backward" else {}
    for key, io, slot in _SIDES:
        for leaf in tensors(body.get(key), slot):
            yield io, msgspec.structs.replace(leaf, slot=leaf.slot or "0"), role
    for name, value in _items(body.get("parameters")):
        for leaf in tensors(value, f"parameters.{name}"):
            yield "input", leaf, {"role": "parameter", "tensor_name": f"{path}{name}"}
    # task nan_check keeps nothing else
    if body.get("is_nan") in (0, 1) and not isinstance(body["is_nan"], bool):
        yield "output", TensorLeaf("0", {"dtype": "unknown", "nan": body["is_nan"]}), {}


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _arguments(body: Any) -> str | None:
    """Column args of a forward entry; gradients have none."""
    if not isinstance(body, dict) or "input_args" not in body:
        return None
    return arguments_text(body.get("input_args"), body.get("input_kwargs"))
