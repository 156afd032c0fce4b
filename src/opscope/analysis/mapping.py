# SPDX-License-Identifier: Apache-2.0
"""A user's own table of names: opscope's form, and msprobe's api, cell, data and layer mapping files.

opscope's form has up to four tables, names of the target on the left:

    operators: {Functional.linear: torch.nn.functional.linear}
    modules: {network._backbone: model}
    calls: {Default/fc-Dense/MatMul-op1: fc.addmm#1}
    tensors: {NPU.npu_fusion_attention.4.forward.input.0: Functional.flash_attention_score.4.forward.input.0}

msprobe's are told by their content (docs of msprobe 26.2, compare; specs of the options -am, -cm, -dm, -lm).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.analysis.compare_tables import MODULE, Side
from opscope.analysis.mapping_text import read_text
from opscope.errors import FormatError, UsageError
from opscope.run.query import sql

if TYPE_CHECKING:
    from collections.abc import Mapping as Words

OWN = frozenset({"operators", "modules", "calls", "tensors"})
TOP = frozenset({"TopLayer", "Cell", "PipelineCell"})
_ROW = re.compile(r"^(?P<call>.+?)\.(?P<io>input|output|parameters|parameters_grad|kwargs)(?:\.(?P<slot>.+))?$")
_CALL = re.compile(r"^(?P<op>.+?)\.\d+(?:\.(?:forward|backward))?$")


class Mapping(msgspec.Struct, frozen=True):
    """Names of the target by what golden calls them. layers: by the class of the enclosing module, names of its children."""

    operators: dict[str, str] = {}
    modules: dict[str, str] = {}
    calls: dict[str, str] = {}
    layers: dict[str, dict[str, str]] = {}

    def operator(self, name: str) -> str:
        """Golden's word for an operator of the target."""
        return self.operators.get(name, name)

    def mover(self, side: Side) -> Callable[[str], str]:
        """A function from the target's module paths to golden's."""
        classes = _classes(side) if self.layers else {}

        def move(path: str) -> str:
            return self._prefixed(self._layered(path, classes))

        return move

    def _prefixed(self, path: str) -> str:
        """The longest known beginning of a path replaced."""
        if path in self.modules:
            return self.modules[path]
        for cut in range(len(path) - 1, 0, -1):
            if path[cut] == "." and path[:cut] in self.modules:
                return f"{self.modules[path[:cut]]}{path[cut:]}".lstrip(".")
        return path

    def _layered(self, path: str, classes: Words[str, str]) -> str:
        """Components replaced by the table of the class that holds them; a table may span several components (a.b)."""
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
        found = dict(self.layers.get(kind, {}))
        for name in TOP if top else ():
            found |= self.layers.get(name, {})
        return found

    def pairs(self, target: Side, golden: Side) -> list[tuple[int, int]]:
        """Places of the calls that are given by name; UsageError for a name that neither run has."""
        if not self.calls:
            return []
        mine, theirs = _places(target, self.calls), _places(golden, self.calls.values())
        lost = [name for name in self.calls if name not in mine] + [name for name in self.calls.values() if name not in theirs]
        if len(lost) == 2 * len(self.calls):
            raise UsageError(f"mapping: neither run has a call named {lost[0]!r}; opscope show RUN lists their names")
        return [pair for one, other in self.calls.items() for pair in zip(mine.get(one, ()), theirs.get(other, ()), strict=False)]


def _classes(side: Side) -> dict[str, str]:
    """The class of each module path, its last word."""
    calls = side.calls
    rows = np.flatnonzero(calls.level == MODULE)
    pairs = zip(side.texts(calls.module[rows]), side.texts(calls.op[rows]), strict=True)
    return {path: op.rpartition(".")[2] for path, op in pairs}


def _places(side: Side, names: Iterable[str]) -> dict[str, list[int]]:
    """Places in Side.calls of the calls with these names, in order."""
    wanted = sorted(set(names))
    listed = ", ".join("?" * len(wanted))
    query = f'SELECT name, process, "index" FROM calls WHERE name IN ({listed})'  # noqa: S608 - question marks only
    found: dict[str, list[int]] = {}
    keys = {key: place for place, key in enumerate(side.calls.key.tolist())}
    for row in sql(side.run, query, wanted):
        place = keys.get((row["process"] << 40) | row["index"])
        if place is not None:
            found.setdefault(row["name"], []).append(place)
    return {name: sorted(places) for name, places in found.items()}


def read_mapping(path: Path) -> Mapping:
    """The mapping of a file in any of the forms above; FormatError for any other content."""
    value = read_text(path)
    if isinstance(value, list):
        return _api_mapping(path, value)
    if not isinstance(value, dict):
        raise FormatError(path, "a mapping file holds `name: name` lines or a list of api mappings")
    if value and set(value) <= OWN:
        tables = {name: _words(path, name, table) for name, table in value.items()}
        calls = tables.get("calls", {}) | _data_mapping(tables.get("tensors", {}))
        return Mapping(operators=tables.get("operators", {}), modules=tables.get("modules", {}), calls=calls)
    if all(isinstance(item, dict) or item is None for item in value.values()):
        return Mapping(layers={name: _words(path, name, item or {}) for name, item in value.items()})
    words = _words(path, "the file", value)
    if words and all(_ROW.match(name) for name in words):
        return Mapping(calls=_data_mapping(words))
    return _cell_mapping(words)


def _words(path: Path, name: str, table: Any) -> dict[str, str]:
    if not isinstance(table, dict) or not all(item is None or isinstance(item, str | int) for item in table.values()):
        raise FormatError(path, f"{name} must hold `name: name` lines")
    return {str(key): "" if item is None else str(item) for key, item in table.items()}


def _api_mapping(path: Path, entries: list[Any]) -> Mapping:
    """msprobe -am: which API of MindSpore is which of PyTorch; calls or operators. Slots are matched by shape and order anyway."""
    operators: dict[str, str] = {}
    calls: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        mine, theirs = (entry.get("ms_api"), entry.get("pt_api")) if isinstance(entry, dict) else (None, None)
        if not isinstance(mine, str) or not isinstance(theirs, str):
            raise FormatError(path, f"entry {number} of an api mapping needs ms_api and pt_api")
        both = _CALL.match(mine), _CALL.match(theirs)
        if both[0] and both[1]:
            calls[mine] = theirs
        else:
            operators[mine] = theirs
    return Mapping(operators=operators, calls=calls)


def _cell_mapping(words: dict[str, str]) -> Mapping:
    """msprobe -cm: `fc2.Dense: fc2.Linear`, a path and its class; also plain parts of paths."""
    operators: dict[str, str] = {}
    modules: dict[str, str] = {}
    for mine, theirs in words.items():
        one, other = mine.rpartition("."), theirs.rpartition(".")
        if one[2][:1].isupper() and other[2][:1].isupper():
            if one[0] or other[0]:
                modules[one[0]] = other[0]
            operators[one[2]] = other[2]
        else:
            modules[mine] = theirs
    return Mapping(operators=operators, modules=modules)


def _data_mapping(words: dict[str, str]) -> dict[str, str]:
    """msprobe -dm: row names; the calls that the rows belong to. Rows of one call are matched by slot."""
    found: dict[str, str] = {}
    for mine, theirs in words.items():
        one, other = _ROW.match(mine), _ROW.match(theirs)
        if one and other:
            found[one["call"]] = other["call"]
    return found
