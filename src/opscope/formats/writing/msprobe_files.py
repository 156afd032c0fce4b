# SPDX-License-Identifier: Apache-2.0
"""Writes a run in msprobe's layout, for its compare, its graph view and everything else that reads
dump.json.

    step{n}/rank{r}/dump.json, stack.json, construct.json,
    dump_tensor_data/{entry}.{input|kwargs|output|parameters}.{slot}.pt

Entries are named as msprobe names them: a name that already is one stays; a module becomes
Module.{path}.{Class}.{phase}.{n}, an API {Prefix}.{api}.{n}.{phase}, an operator
Aten.{name}.{n}.{phase}; n counts from 0 in each step. Max and Min are over all elements there, so
NaN and infinities go into them. Operators that gave no arguments have their inputs in the order of
their slots.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from threading import Lock
from typing import Any

from opscope.arrays import Array
from opscope.formats.msprobe.names import PLACES, parse_name
from opscope.formats.writing.array_files import write_pt
from opscope.formats.writing.call_arguments import argument_tree
from opscope.formats.writing.naming import Names, safe
from opscope.run.schema import Call, Stack, Tensor, ValueRef

_DATA = "dump_tensor_data"
_INFIX = {"input": "input", "output": "output"}


class EntryNames:
    """Names of entries, one for each call; counted in the order of asking, so ask in the order of
    the run.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int, str], int] = defaultdict(int)
        self._known: dict[tuple[int, int], str] = {}
        self._taken: set[tuple[int, int, str]] = set()

    def of(self, call: Call) -> str:
        """The entry's name."""
        key = (call.process, call.index)
        if key not in self._known:
            self._known[key] = self._new(call)
        return self._known[key]

    def _new(self, call: Call) -> str:
        step = (call.process, call.step)
        if parse_name(call.name) is not None and (*step, call.name) not in self._taken:
            self._taken.add((*step, call.name))
            return call.name
        phase = "backward" if call.phase == "backward" else "forward"
        stem = _module_stem(call) if call.level == "module" else _api_stem(call)
        while True:
            number = self._counts[(*step, f"{stem}.{phase}")]
            self._counts[(*step, f"{stem}.{phase}")] += 1
            name = (
                f"{stem}.{phase}.{number}" if call.level == "module" else f"{stem}.{number}.{phase}"
            )
            if (*step, name) not in self._taken:
                self._taken.add((*step, name))
                return name


def _module_stem(call: Call) -> str:
    kind = safe(call.op.rsplit(".", 1)[-1])
    path = ".".join(safe(part) for part in (call.module or "").split(".") if part)
    return f"Module.{path}.{kind}" if path else f"Module.{kind}"


def _api_stem(call: Call) -> str:
    """Prefix and name of an API: the prefix of its own place in Python, Aten for operators."""
    if "::" in call.op:
        return f"Aten.{safe(call.op.rpartition('::')[2].partition('.')[0])}"
    prefix, _, name = call.op.rpartition(".")
    known = next((short for short, package in PLACES.items() if prefix in {short, package}), None)
    return f"{known}.{safe(name)}" if known else f"Torch.{safe(name)}"


class MsprobeFiles:
    """Writes tensor files as calls come, and the jsons at the end."""

    def __init__(self, out: Path, names: EntryNames) -> None:
        self._out = out
        self._names = names
        self._files = Names()
        self._lock = Lock()

    def write(self, call: Call, tensor: Tensor, values: Array) -> ValueRef:
        """One tensor's .pt."""
        folder = f"{folder_of(call)}/{_DATA}"
        with self._lock:
            entry = self._names.of(call)
        name = self._files.take(folder, _stem(entry, tensor), ".pt")
        (self._out / folder).mkdir(parents=True, exist_ok=True)
        write_pt(self._out / folder / name, values)
        return ValueRef(f"{folder}/{name}", "")

    def close(self) -> None:
        """The jsons are written by finish."""

    def finish(
        self, calls: list[tuple[Call, list[Tensor]]], stacks: dict[tuple[int, int], Stack]
    ) -> None:
        """Write dump.json, stack.json and construct.json of each step and rank."""
        places: dict[str, list[tuple[Call, list[Tensor]]]] = defaultdict(list)
        for call, rows in calls:
            places[folder_of(call)].append((call, rows))
        for folder, part in places.items():
            (self._out / folder).mkdir(parents=True, exist_ok=True)
            self._write_place(self._out / folder, part, stacks)

    def _write_place(
        self,
        folder: Path,
        part: list[tuple[Call, list[Tensor]]],
        stacks: dict[tuple[int, int], Stack],
    ) -> None:
        part.sort(key=lambda pair: (pair[0].process, pair[0].index))
        names = {(call.process, call.index): self._names.of(call) for call, _ in part}
        left = _in_leaving_order([call for call, _ in part])
        bodies = {(call.process, call.index): _body(call, rows) for call, rows in part}
        kept = any(row.value is not None for _, rows in part for row in rows)
        levels = {call.level for call, _ in part}
        dump = {
            "task": "tensor" if kept else "statistics",
            "level": "mix" if len(levels) > 1 else "L0" if levels == {"module"} else "L1",
            "framework": "pytorch",
            "dump_data_dir": f"{folder.resolve() / _DATA}" if kept else None,
            "data": {
                names[call.process, call.index]: bodies[call.process, call.index] for call in left
            },
        }
        _write(folder / "dump.json", dump)
        _write(folder / "stack.json", _stack_json(part, names, stacks))
        above = {
            call.index: None if call.parent is None else names.get((call.process, call.parent))
            for call in left
        }
        parents = (
            {names[call.process, call.index]: above[call.index] for call in left}
            if levels != {"api"}
            else {}
        )
        _write(folder / "construct.json", parents)


def folder_of(call: Call) -> str:
    """step{n}/rank{r}."""
    return f"step{call.step}/rank{call.rank}"


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def _in_leaving_order(calls: list[Call]) -> list[Call]:
    """Calls in the order they are left: what runs inside a call stands before it, as msprobe has
    it.
    """
    within: dict[tuple[int, int], list[Call]] = defaultdict(list)
    known = {(call.process, call.index) for call in calls}
    roots = []
    for call in calls:
        parent = (call.process, call.parent) if call.parent is not None else None
        if parent in known and call.parent is not None and call.parent < call.index:
            within[call.process, call.parent].append(call)
        else:
            roots.append(call)
    order: list[Call] = []
    stack = [(call, False) for call in reversed(roots)]
    while stack:
        call, left = stack.pop()
        if left:
            order.append(call)
            continue
        stack.append((call, True))
        stack.extend((child, False) for child in reversed(within[call.process, call.index]))
    return order


def _stem(entry: str, tensor: Tensor) -> str:
    """{entry}.input.0, {entry}.kwargs.mask, {entry}.parameters.weight, {entry}.weight for gradients
    of parameters.
    """
    if ".parameters_grad" in entry:
        return f"{safe(entry)}.{safe(tensor.slot)}"
    if tensor.slot.startswith(("kwargs.", "parameters.")):
        return f"{safe(entry)}.{safe(tensor.slot)}"
    return f"{safe(entry)}.{_INFIX[tensor.io]}.{safe(tensor.slot)}"


def _body(call: Call, rows: list[Tensor]) -> dict[str, Any]:
    """An entry: input_args, input_kwargs, parameters and output, or input and output for
    gradients.
    """
    leaves = {(row.io, row.slot): _leaf(row) for row in rows}
    if ".parameters_grad" in call.name and parse_name(call.name) is not None:
        return {row.slot: [_leaf(row)] for row in rows}
    output = _listed({slot: leaf for (io, slot), leaf in leaves.items() if io == "output"})
    inputs = {slot: leaf for (io, slot), leaf in leaves.items() if io == "input"}
    parameters = {
        slot.removeprefix("parameters."): inputs.pop(slot)
        for slot in list(inputs)
        if slot.startswith("parameters.")
    }
    if call.phase == "backward":
        return {"input": _listed(inputs), "output": output}
    named = {
        slot.removeprefix("kwargs."): inputs.pop(slot)
        for slot in list(inputs)
        if slot.startswith("kwargs.")
    }
    tree = argument_tree(call.args)
    positional = tree.get("args")
    known = tree.get("kwargs")
    body: dict[str, Any] = {
        "input_args": [_filled(value, inputs) for value in positional]
        if isinstance(positional, list)
        else _listed(inputs),
        "input_kwargs": {
            key: _filled(value, {f"kwargs.{slot}": leaf for slot, leaf in named.items()})
            for key, value in known.items()
        }
        if isinstance(known, dict)
        else named,
        "output": output,
    }
    if call.phase == "recompute":
        body["is_recompute"] = True
    return body | ({"parameters": parameters} if parameters else {})


def _listed(leaves: dict[str, Any]) -> list[Any]:
    """Leaves by slot as nested lists; slots that are no numbers come at the end."""
    nested: list[Any] = []
    odd = []
    for slot, leaf in leaves.items():
        path = slot.split(".")
        if not all(part.isdigit() and len(part) < 5 for part in path):
            odd.append(leaf)
            continue
        target = nested
        for part in path[:-1]:
            _grow(target, int(part))
            if not isinstance(target[int(part)], list):
                target[int(part)] = []
            target = target[int(part)]
        _grow(target, int(path[-1]))
        target[int(path[-1])] = leaf
    return nested + odd


def _grow(items: list[Any], position: int) -> None:
    items.extend([None] * (position + 1 - len(items)))


def _filled(value: Any, leaves: dict[str, Any]) -> Any:
    """An argument as msprobe has it: tensors as leaves, scalars with their type."""
    if isinstance(value, list):
        return [_filled(item, leaves) for item in value]
    if isinstance(value, dict) and len(value) == 1:
        tag, inner = next(iter(value.items()))
        if tag == "tensor":
            return leaves.get(str(inner))
        if tag == "float":
            return (
                {"type": "float", "value": float(str(inner))}
                if str(inner) in {"nan", "inf", "-inf"}
                else None
            )
        if tag == "object" and inner == "not recorded":
            return {}  # as msprobe writes dtypes and devices given by position
        if tag == "object" and isinstance(inner, dict):
            return {key: _filled(item, leaves) for key, item in inner.items()}
        return {"type": f"torch.{tag}", "value": f"torch.{inner}" if tag == "dtype" else str(inner)}
    if value is None or isinstance(value, dict):
        return None
    return {"type": type(value).__name__, "value": value}


def _leaf(row: Tensor) -> dict[str, Any]:
    """A tensor in dump.json."""
    whole = row.size is not None
    leaf: dict[str, Any] = {
        "type": f"torch.{row.tensor_class}"
        if row.tensor_class and row.tensor_class.isidentifier()
        else "torch.Tensor",
        "dtype": f"torch.{row.dtype}",
        "shape": list(row.shape) if row.shape is not None else [],
        "Max": _extreme(row, largest=True) if whole else None,
        "Min": _extreme(row, largest=False) if whole else None,
        "Mean": _over_all(row, row.mean) if whole else None,
        "Norm": _over_all(row, row.l2norm, norm=True) if whole else None,
        "requires_grad": bool(row.requires_grad),
    }
    if row.value is not None:
        leaf["data_name"] = row.value.shard.rsplit("/", 1)[-1]
    return leaf


def _extreme(row: Tensor, *, largest: bool) -> float | int | None:
    if row.nan:
        return math.nan
    if largest and row.pos_inf:
        return math.inf
    if not largest and row.neg_inf:
        return -math.inf
    exact = row.max_int if largest else row.min_int
    value = row.max if largest else row.min
    if exact is not None or value is not None:
        return exact if exact is not None else value
    return math.inf if row.pos_inf else -math.inf if row.neg_inf else None


def _over_all(row: Tensor, value: float | None, *, norm: bool = False) -> float | None:
    if row.nan or (row.pos_inf and row.neg_inf and not norm):
        return math.nan
    if row.pos_inf or row.neg_inf:
        return math.inf if norm or row.pos_inf else -math.inf
    return value


def _stack_json(
    part: list[tuple[Call, list[Tensor]]],
    names: dict[tuple[int, int], str],
    stacks: dict[tuple[int, int], Stack],
) -> dict[str, Any]:
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for call, _ in part:
        if call.stack is not None and (call.process, call.stack) in stacks:
            groups[call.process, call.stack].append(names[call.process, call.index])
    return {
        str(i): [entries, [_frame(frame) for frame in stacks[key].frames]]
        for i, (key, entries) in enumerate(groups.items())
    }


def _frame(frame: str) -> str:
    line_at, _, function = frame.partition(" in ")
    path, _, line = line_at.rpartition(":")
    return f"File {path}, line {line}, in {function or '?'}, \n "
