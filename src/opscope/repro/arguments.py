# SPDX-License-Identifier: Apache-2.0
"""Argument trees: read from column args, refused where a call cannot be rebuilt, written as Python
literals.

Code is made only of names that match a strict pattern, names from tables below, and repr of
numbers, ascii of strings.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from opscope.errors import UsageError
from opscope.run.dtypes import find_dtype
from opscope.run.schema import ValueRef

TEXT_LIMIT = 4 << 20
DEPTH_LIMIT = 16
OPERATOR = re.compile(r"([A-Za-z_]\w*)::([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?", re.ASCII)
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
DEVICE = re.compile(r"[a-z]{1,20}(:\d{1,4})?", re.ASCII)
SLOT = re.compile(r"(kwargs\.[A-Za-z_]\w*|\d{1,6})(\.\d{1,6})*", re.ASCII)
GENERATORS = tuple(
    owner + kind for owner in ("", "generator:") for kind in ("cpu", "cuda", "npu", "xpu")
)
STATE_LIMIT = 1 << 20  # bytes; a Mersenne twister has 5056
LAYOUTS = (
    "strided",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "_mkldnn",
    "jagged",
)
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


def parse_operator(op: str) -> tuple[str, str, str]:
    """Namespace, name and overload of `aten::bmm.default`; UsageError for anything torch.ops does
    not hold.
    """
    parts = OPERATOR.fullmatch(op)
    if parts is None:
        raise UsageError(
            f"{op!r} is not a PyTorch operator (namespace::name.overload); choose a call of "
            "level operator"
        )
    return parts[1], parts[2], parts[3] or "default"


def parse_arguments(text: str | None, *, call: str) -> dict[str, Any]:
    """The tree {"args": [...], "kwargs": {...}}; UsageError when it is missing or holds what cannot
    be rebuilt.
    """
    if text is None:
        raise UsageError(f"{call}: its arguments were not recorded, so it cannot be called again")
    if len(text) > TEXT_LIMIT:
        raise UsageError(f"{call}: its argument tree is larger than {TEXT_LIMIT >> 20} MiB")
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{call}: its recorded arguments are not JSON ({error})") from error
    if (
        not isinstance(tree, dict)
        or not isinstance(tree.get("args"), list)
        or not isinstance(tree.get("kwargs"), dict)
    ):
        raise UsageError(f"{call}: its recorded arguments are not a tree of args and kwargs")
    for where, node in _entries(tree):
        if where.startswith("kwargs.") and NAME.fullmatch(where.removeprefix("kwargs.")) is None:
            raise UsageError(f"{call}: argument name {where!r} is not an identifier")
        try:
            _check(node, DEPTH_LIMIT)
        except UsageError as error:
            raise UsageError(f"{call}: argument {where} {error}") from None
    return {"args": tree["args"], "kwargs": tree["kwargs"]}


def random_states(text: str | None) -> dict[str, tuple[ValueRef, int]]:
    """Where the generator states of a call lie, and of how many bytes each is, by the names of
    repro/case.py; none for what is no JSON.
    """
    try:
        tree = msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, RecursionError):
        return {}
    stored_states = tree.get("random") if isinstance(tree, dict) else None
    states = {}
    for name, stored in (stored_states if isinstance(stored_states, dict) else {}).items():
        if name in GENERATORS and isinstance(stored, dict):
            shard, key, size = (stored.get(field) for field in ("shard", "key", "size"))
            if (
                isinstance(shard, str)
                and isinstance(key, str)
                and type(size) is int
                and 0 < size <= STATE_LIMIT
            ):
                states[str(name)] = (ValueRef(shard, key), size)
    return states


def tensor_slots(tree: dict[str, Any]) -> tuple[str, ...]:
    """Slots of the tensors a tree needs, in order."""
    return tuple(str(value) for tag, value in _tagged(tree) if tag == "tensor")


def scalars(tree: dict[str, Any]) -> tuple[float, ...]:
    """Real numbers among the arguments."""
    plain = (
        node for _, entry in _entries(tree) for node in _leaves(entry) if type(node) in {int, float}
    )
    return (*map(float, plain), *(float(value) for tag, value in _tagged(tree) if tag == "float"))


def call_code(op: str, tree: dict[str, Any]) -> str:
    """The expression that makes the call, `torch.ops.aten.add.Tensor(t["0"], 2, alpha=1)`; one
    argument a line when long.
    """
    namespace, name, overload = parse_operator(op)
    parts = (namespace, name, overload)
    if any(map(keyword.iskeyword, parts)):  # aten::random_.from
        target = (
            f"getattr(torch.ops.{namespace}.{name}, {overload!r})"
            if not keyword.iskeyword(name)
            else f"operator({op!r})"
        )
    else:
        target = "torch.ops." + ".".join(parts)
    given = [node_code(node) for node in tree["args"]]
    odd = {key: node for key, node in tree["kwargs"].items() if keyword.iskeyword(key)}
    given += [f"{key}={node_code(node)}" for key, node in tree["kwargs"].items() if key not in odd]
    if odd:
        given.append(
            "**{" + ", ".join(f"{key!r}: {node_code(node)}" for key, node in odd.items()) + "}"
        )
    line = f"{target}({', '.join(given)})"
    if len(line) <= 100:
        return line
    return f"{target}(\n" + "".join(f"        {argument},\n" for argument in given) + "    )"


def _entries(tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((str(i), node) for i, node in enumerate(tree["args"]))
    yield from ((f"kwargs.{key}", node) for key, node in tree["kwargs"].items())


def _leaves(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for item in node:
            yield from _leaves(item)
    else:
        yield node


def _tagged(tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for _, entry in _entries(tree):
        for node in _leaves(entry):
            if isinstance(node, dict):
                yield next(iter(node.items()))


def _check(node: Any, depth: int) -> None:
    """UsageError, worded to follow "argument 2", for a node that cannot be written as code."""
    if isinstance(node, list):
        if depth == 0:
            raise UsageError(f"nests deeper than {DEPTH_LIMIT} lists")
        for item in node:
            _check(item, depth - 1)
    elif isinstance(node, dict):
        _check_tagged(node)
    elif isinstance(node, int) and not -(2**63) <= node < 2**64:
        raise UsageError("is an integer of more than 64 bits")


def _check_tagged(node: dict[str, Any]) -> None:
    if len(node) != 1:
        raise UsageError("is not a value that opscope records")
    tag, value = next(iter(node.items()))
    if tag == "object":
        raise UsageError(f"is an object that cannot be rebuilt from a record: {str(value)[:200]!r}")
    known = _TAGS.get(tag)
    if known is None:
        raise UsageError(f"has the unknown tag {tag!r}")
    known(value)


def node_code(node: Any) -> str:
    """One argument as code; UsageError for what cannot be vouched for."""
    if isinstance(node, list):
        return "[" + ", ".join(map(node_code, node)) + "]"
    if isinstance(node, dict):
        tag, value = next(iter(node.items()))
        return _TAGS[tag](value)
    return ascii(node) if isinstance(node, str) else repr(node)


def _tensor(value: Any) -> str:
    if not isinstance(value, str) or SLOT.fullmatch(value) is None:
        raise UsageError(f"names the slot {value!r}, which is not one")
    return f't["{value}"]'


def _dtype(value: Any) -> str:
    dtype = find_dtype(value) if isinstance(value, str) else None
    if dtype is None or dtype.kind == "string":
        raise UsageError(f"is the unknown element type {value!r}")
    return f'dtype("{dtype.name}")'


def _device(value: Any) -> str:
    return f'device("{checked_device(value)}")'


def _generator(value: Any) -> str:
    return f'generator("{checked_device(value)}")'


def checked_device(value: Any) -> str:
    """A device's name, `cuda:0`; UsageError for a text that is not one."""
    if not isinstance(value, str) or DEVICE.fullmatch(value) is None:
        raise UsageError(f"is not a device's name: {value!r}")
    return value


def _member(names: tuple[str, ...]) -> Callable[[Any], str]:
    def code(value: Any) -> str:
        if value not in names:
            raise UsageError(f"is the unknown name {value!r}")
        return f"torch.{value}"

    return code


def _float(value: Any) -> str:
    if value not in ("nan", "inf", "-inf"):
        raise UsageError(f"is not a number: {value!r}")
    return f'float("{value}")'


def _complex(value: Any) -> str:
    if not isinstance(value, list) or len(value) != 2:
        raise UsageError("is not a complex number")
    return f"complex({', '.join(map(_part, value))})"


def _part(value: Any) -> str:
    if isinstance(value, dict) and list(value) == ["float"]:
        return _float(value["float"])
    if isinstance(value, str):
        return _float(value)
    if type(value) not in {int, float}:
        raise UsageError("is not a complex number")
    return repr(value)


# Tag of a value in column args -> the code of the value; each raises UsageError for what it cannot
# vouch for.
_TAGS: dict[str, Callable[[Any], str]] = {
    "tensor": _tensor,
    "dtype": _dtype,
    "device": _device,
    "generator": _generator,
    "layout": _member(LAYOUTS),
    "memory_format": _member(MEMORY_FORMATS),
    "float": _float,
    "complex": _complex,
}
