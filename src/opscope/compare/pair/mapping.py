# SPDX-License-Identifier: Apache-2.0
"""A user's own table of names: opscope's form, and msprobe's api, cell, data and layer mapping
files.

opscope's form has up to four tables, names of the target on the left:

    operators: {Functional.linear: torch.nn.functional.linear}
    modules: {network._backbone: model}
    calls: {Default/fc-Dense/MatMul-op1: fc.addmm#1}
    tensors: {NPU.npu_fusion_attention.4.forward.input.0:
    Functional.flash_attention_score.4.forward.input.0}

msprobe's are told by their content (docs of msprobe 26.2, compare; specs of the options -am, -cm,
-dm, -lm).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.compare.pair.files import Originals, original_slots
from opscope.compare.pair.mapping_slots import Fixed, Slot, Slots, fixed_rows, rules_for
from opscope.compare.pair.mapping_text import read_text, refused
from opscope.compare.side.columns import MODULE, Side
from opscope.compare.side.tokens import bare_module
from opscope.errors import UsageError
from opscope.run.hashes import hash_of

if TYPE_CHECKING:
    from collections.abc import Mapping as Words

    from opscope.compare.pair.alignment import Match

OWN = frozenset({"operators", "modules", "calls", "tensors"})
TOP = frozenset({"TopLayer", "Cell", "PipelineCell"})
_ROW = re.compile(
    r"^(?P<call>.+?)\.(?P<io>input|output|parameters|parameters_grad|kwargs)(?:\.(?P<slot>.+))?$"
)
_API = re.compile(
    r"(?:Functional|Tensor|Torch|VF|Aten|NPU|Jit|Distributed|Primitive|Mint|MintFunctional|MintDistributed)\.\w+"
)
_CALL = re.compile(r"^(?P<op>.+?)\.\d+(?:\.(?:forward|backward))?$")


class Mapping(msgspec.Struct, frozen=True):
    """Names of the target by what golden calls them.

    layers: by the class of the enclosing module, names of its children. parts: parts of module
    paths, each replaced once where no whole
    name fits. operator_slots, call_slots: which tensors of a call belong together. originals: what
    operators of a device stand for, by their names as file names have them.
    """

    operators: dict[str, str] = {}
    modules: dict[str, str] = {}
    calls: dict[str, str] = {}
    layers: dict[str, dict[str, str]] = {}
    parts: dict[str, str] = {}
    operator_slots: dict[str, Slots] = {}
    call_slots: dict[str, Slots] = {}
    originals: dict[str, Originals] = {}

    def operator(self, name: str) -> str:
        """Golden's word for an operator of the target."""
        return self.operators.get(name, name)

    def mover(self, side: Side) -> Callable[[str], str]:
        """A function from the target's module paths to golden's."""
        classes = _classes(side) if self.layers else {}

        def move(path: str) -> str:
            whole = self._prefixed(self._layered(path, classes))
            bare = bare_module(
                path
            )  # a file may name modules with what wrappers put into their paths, or without
            return bare_module(
                whole
                if whole != path or bare == path
                else self._prefixed(self._layered(bare, classes))
            )

        return move

    def _prefixed(self, path: str) -> str:
        """The longest known beginning of a path replaced."""
        if path in self.modules:
            return self.modules[path]
        for cut in range(len(path) - 1, 0, -1):
            if path[cut] == "." and path[:cut] in self.modules:
                return f"{self.modules[path[:cut]]}{path[cut:]}".lstrip(".")
        for mine, theirs in self.parts.items():
            path = path.replace(mine, theirs, 1)
        return path

    def _layered(self, path: str, classes: Words[str, str]) -> str:
        """Components replaced by the table of the class that holds them; a table may span several
        components (a.b).
        """
        if not self.layers:
            return path
        parts, moved, at = path.split("."), list[str](), 0
        while at < len(parts):
            table = self._table(classes.get(".".join(parts[:at]), ""), top=at == 0)
            for end in range(len(parts), at, -1):
                name = ".".join(parts[at:end])
                if name in table:
                    moved.append(table[name])
                    at = end
                    break
            else:
                moved.append(parts[at])
                at += 1
        return ".".join(part for part in moved if part)

    def _table(self, kind: str, *, top: bool) -> Words[str, str]:
        table = dict(self.layers.get(kind, {}))
        for name in TOP if top else ():
            table |= self.layers.get(name, {})
        return table

    def pairs(self, target: Side, golden: Side) -> list[tuple[int, int]]:
        """Places of the calls that are given by name; UsageError for a name that neither run
        has.
        """
        if not self.calls:
            return []
        mine, theirs = _places(target, self.calls), _places(golden, self.calls.values())
        lost = _lost(self.calls, mine, theirs)
        if len(lost) == 2 * len(self.calls):
            raise UsageError(
                f"mapping: neither run has a call named {lost[0]!r}; opscope show RUN lists "
                "their names"
            )
        return [
            pair
            for name, partner in self.calls.items()
            for pair in zip(mine.get(name, ()), theirs.get(partner, ()), strict=False)
        ]

    def unused(self, target: Side, golden: Side) -> list[str]:
        """A line where the runs lack calls that the mapping names."""
        if not self.calls:
            return []
        lost = _lost(self.calls, _places(target, self.calls), _places(golden, self.calls.values()))
        return (
            [
                (
                    f"mapping: {len(lost)} of the calls it names are not in these runs, the "
                    f"first: {lost[0]}"
                )
            ]
            if lost
            else []
        )

    def rows(self, target: Side, golden: Side, match: Match) -> Fixed | None:
        """What the mapping says of single tensors of matched calls; None where it says nothing."""
        if not self.operator_slots and not self.call_slots and not self.originals:
            return None
        calls_of = _places(target, self.call_slots) if self.call_slots else {}
        named = original_slots(target, self.originals) if self.originals else []
        named += [
            (call, self.call_slots[name]) for name, calls in calls_of.items() for call in calls
        ]
        return fixed_rows(target, golden, match, rules_for(target, self.operator_slots, named))


def _lost(
    calls: Words[str, str], mine: Words[str, list[int]], theirs: Words[str, list[int]]
) -> list[str]:
    """Names of the target's calls, and of golden's, that are not there."""
    return [name for name in calls if name not in mine] + [
        name for name in calls.values() if name not in theirs
    ]


def _classes(side: Side) -> dict[str, str]:
    """The class of each module path, its last word."""
    calls = side.calls
    rows = np.flatnonzero(calls.level == MODULE)
    pairs = zip(side.texts(calls.module[rows]), side.texts(calls.op[rows]), strict=True)
    return {path: op.rpartition(".")[2] for path, op in pairs}


def _places(side: Side, names: Iterable[str]) -> dict[str, list[int]]:
    """Places in Side.calls of the calls with these names, in order."""
    wanted = {hash_of(name): name for name in names}
    calls_of: dict[str, list[int]] = {}
    for call in np.flatnonzero(np.isin(side.calls.name, np.array([*wanted], np.uint64))).tolist():
        calls_of.setdefault(wanted[int(side.calls.name[call])], []).append(call)
    return calls_of


def read_mapping(path: Path) -> Mapping:
    """The mapping of a file in any of the forms above; FormatError, with the line, for any other
    content.
    """
    value = read_text(path)
    if isinstance(value, list):
        return _api_mapping(path, value)
    if not isinstance(value, dict):
        raise refused(path, "a mapping file holds `name: name` lines or a list of api mappings")
    if not value:
        raise refused(path, "an empty mapping file")
    if set(value) <= OWN:
        tables = {
            name: _words(path, name, {} if table is None else table)
            for name, table in value.items()
        }
        rows = _data_mapping(path, tables.get("tensors", {}))
        calls = tables.get("calls", {}) | rows.calls
        return Mapping(
            operators=tables.get("operators", {}),
            modules=tables.get("modules", {}),
            calls=calls,
            call_slots=rows.call_slots,
        )
    if any(isinstance(item, dict) for item in value.values()):
        return _layer_mapping(path, value)
    words = _words(path, None, value)
    rows_of_dump = [name for name in words if _ROW.match(name)]
    if rows_of_dump:
        return _data_mapping(path, words)
    if all(_API.fullmatch(name) and _API.fullmatch(other) for name, other in words.items()):
        return Mapping(operators=words)  # msprobe's own table, ms_to_pt_api.yaml
    return _cell_mapping(words)


def _words(path: Path, name: str | None, table: Any) -> dict[str, str]:
    if not isinstance(table, dict):
        raise refused(path, f"{name} must hold `name: name` lines", key=name)
    for key, item in table.items():
        if item is not None and not isinstance(item, str | int):
            raise refused(
                path,
                f"{str(key)[:60]!r} needs one name behind it, not a "
                f"{'list' if isinstance(item, list) else 'table'}",
                key=key,
            )
    return {key: "" if item is None else str(item) for key, item in table.items()}


def _layer_mapping(path: Path, value: dict[str, Any]) -> Mapping:
    """msprobe -lm: by the class of a module (TopLayer, Cell or PipelineCell for the network itself)
    its children's names.
    """
    tables = {}
    for name, table in value.items():
        words = _words(path, name, {} if table is None else table)
        tables[str(name)] = {child: theirs.partition("(")[0] for child, theirs in words.items()}
    return Mapping(layers=tables)


_LISTS = {
    "args": "input",
    "outputs": "output",
    "output": "output",
    "parameters": "parameters",
    "parameters_grad": "gradient",
}


def _api_mapping(path: Path, entries: list[Any]) -> Mapping:
    """msprobe -am: which API of MindSpore is which of PyTorch, calls or operators, and which of
    their tensors belong together.
    """
    operators: dict[str, str] = {}
    calls: dict[str, str] = {}
    slots: tuple[dict[str, Slots], dict[str, Slots]] = ({}, {})
    for number, entry in enumerate(entries, 1):
        first = next(iter(entry), None) if isinstance(entry, dict) else None
        mine, theirs = (
            (entry.get("ms_api"), entry.get("pt_api")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(mine, str) or not isinstance(theirs, str):
            raise refused(
                path, f"entry {number} of an api mapping needs ms_api and pt_api", key=first
            )
        one_call = bool(_CALL.match(mine) and _CALL.match(theirs))
        (calls if one_call else operators)[mine] = theirs
        entry_slots = _api_slots(path, entry)
        if entry_slots is not None:
            slots[one_call][mine] = entry_slots
    return Mapping(operators=operators, calls=calls, operator_slots=slots[0], call_slots=slots[1])


def _api_slots(path: Path, entry: dict[str, Any]) -> Slots | None:
    """The lists of an entry, ms_args beside pt_args and so on; None where it has none."""
    names: dict[Slot, Slot] = {}
    closed: set[str] = set()
    for key in entry:
        side, _, kind = str(key).partition("_")
        if key in {"ms_api", "pt_api"}:
            continue
        if side not in {"ms", "pt"} or kind not in _LISTS:
            known = ", ".join(f"ms_{name}" for name in _LISTS if name != "output")
            raise refused(
                path,
                f"{str(key)[:60]!r} is no key of an api mapping; known are ms_api, {known}, "
                "and pt_ of each",
                key=key,
            )
        lists = [_indices(path, entry, f"{word}_{kind}", key) for word in ("ms", "pt")]
        if len(lists[0]) != len(lists[1]):
            raise refused(
                path,
                f"ms_{kind} lists {len(lists[0])} and pt_{kind} {len(lists[1])}; they need as many",
                key=key,
            )
        closed.add(_LISTS[kind])
        names |= {
            _slot(kind, mine): _slot(kind, theirs) for mine, theirs in zip(*lists, strict=True)
        }
    return Slots(names, frozenset(closed)) if closed else None


def _indices(path: Path, entry: dict[str, Any], name: str, key: object) -> list[str]:
    value = entry.get(name)
    if not isinstance(value, list) or not all(
        isinstance(item, str | int) and not isinstance(item, bool) for item in value
    ):
        raise refused(path, f"{name} must be a list of places or names, such as [0, 1]", key=key)
    indices = [str(item) for item in value]
    if len(set(indices)) < len(indices):
        raise refused(path, f"{name} names a place twice", key=key)
    return indices


def _slot(kind: str, name: str) -> Slot:
    """The slot that an index or a name of a list means."""
    if kind == "args":
        return "input", name if name[:1].isdigit() else f"kwargs.{name}"
    return ("input", f"parameters.{name}") if kind == "parameters" else ("output", name)


def _cell_mapping(words: dict[str, str]) -> Mapping:
    """msprobe -cm: `fc2.Dense: fc2.Linear`, a path and its class; also plain parts of paths,
    replaced where no whole name fits.
    """
    operators: dict[str, str] = {}
    modules: dict[str, str] = {}
    parts: dict[str, str] = {}
    for mine, theirs in words.items():
        cell, partner = mine.rpartition("."), theirs.rpartition(".")
        if cell[2][:1].isupper() and partner[2][:1].isupper():
            if cell[0] or partner[0]:
                modules[cell[0]] = partner[0]
            operators[cell[2]] = partner[2]
        else:
            modules[mine] = theirs
            parts[mine] = theirs
    return Mapping(operators=operators, modules=modules, parts=parts)


def _data_mapping(path: Path, words: dict[str, str]) -> Mapping:
    """msprobe -dm: names of rows. The calls that they belong to are partners; rows that are not
    named are matched by slot.
    """
    calls: dict[str, str] = {}
    slots: dict[str, dict[Slot, Slot]] = {}
    for mine, theirs in words.items():
        row, other_row = _ROW.match(mine), _ROW.match(theirs)
        if row is None or other_row is None:
            lost = mine if row is None else theirs
            raise refused(
                path,
                f"{lost[:60]!r} is no row of a dump, such as Functional.linear.0.forward.input.0",
                key=mine,
            )
        (call, slot), (partner, other_slot) = _place(row), _place(other_row)
        known = calls.setdefault(call, partner)
        if known != partner:
            raise refused(
                path,
                f"{call} is {known} above and {partner} here; a call has one partner",
                key=mine,
            )
        if slot is not None and other_slot is not None:
            slots.setdefault(call, {})[slot] = other_slot
    return Mapping(calls=calls, call_slots={call: Slots(names) for call, names in slots.items()})


def _place(row: re.Match[str]) -> tuple[str, Slot | None]:
    """The call and the slot of a row's name; arguments by keyword are among the inputs, their names
    behind `input` or `kwargs`.
    """
    call, io, name = row["call"], row["io"], row["slot"]
    if io == "parameters_grad":  # an entry of its own, numbered in new dumps
        number, _, rest = (name or "").partition(".")
        numbered = number.isdigit() and bool(rest)
        own = rest.removeprefix("output.") if numbered else name
        return (
            f"{call}.parameters_grad.{number}" if numbered else f"{call}.parameters_grad",
            None if own is None else ("output", own),
        )
    if name is None:
        return call, None
    if io == "output":
        return call, ("output", name)
    if io == "parameters":
        return call, ("input", f"parameters.{name}")
    return call, (
        "input",
        name if name[:1].isdigit() or name.startswith("kwargs.") else f"kwargs.{name}",
    )
