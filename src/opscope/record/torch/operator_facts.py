# SPDX-License-Identifier: Apache-2.0
"""What torch itself tells of its operators: tags and alias annotations of every overload that is
registered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch

from opscope.operators.catalogue import SHIPPED, is_shipped, sheet, traits_of
from opscope.operators.rows import Row
from opscope.operators.spelling import OWN, namespace, word_of
from opscope.operators.traits import Traits
from opscope.record.operators_met import told_row
from opscope.substitute.schema import overload_named, written_arguments

_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# What torch {version} tells by itself of words that no other sheet has; made by scripts/derive_operators.py.
"""  # noqa: E501


_NAMES_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# What torch {version} calls the arguments of its operators; made by scripts/derive_operators.py.
"""


def overloads(*namespaces: str) -> Iterator[Any]:
    """Every registered overload of these namespaces, in the order of their names."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if name.partition("::")[0] in namespaces:
            with suppress(AttributeError, RuntimeError):
                yield overload_named(name)


def draws(overload: Any) -> bool:
    """Whether it draws random numbers whatever it is called with; those with a rate of dropout draw
    by its value.
    """
    rated = any("dropout" in argument.name for argument in overload._schema.arguments)
    return torch.Tag.nondeterministic_seeded in overload.tags and not rated


def is_pointwise(overload: Any) -> bool:
    """Whether torch tags it as pointwise."""
    return torch.Tag.pointwise in overload.tags


def derived_row(overload: Any) -> dict[str, bool | str]:
    """What torch tells of an operator by its tags and the alias annotations of its schema; a view
    is none by its schema alone, since who says so often copies.
    """
    told: dict[str, bool | str] = {
        "pointwise": is_pointwise(overload),
        "random": draws(overload),
        "moves": torch.Tag.view_copy in overload.tags,
        "view": torch.Tag.inplace_view in overload.tags,
        "writes": ",".join(_written(overload._schema)),
    }
    return {trait: held for trait, held in told.items() if held}


def _written(schema: Any) -> list[str]:
    """Slots that a call writes to, each by its place where it has one."""
    written = written_arguments(schema)
    return [
        f"kwargs.{each.name}" if each.kwarg_only else str(position)
        for position, each in enumerate(schema.arguments)
        if f"kwargs.{each.name}" in written
    ]


def derived_sheet() -> str:
    """The text of torch.txt: pointwise operators of aten that no other sheet names."""
    known = {word for name in SHIPPED for word in sheet(name).rows}
    words = sorted(
        {word_of(each._schema.name) for each in overloads("aten") if is_pointwise(each)} - known
    )
    return _HEAD.format(version=_version()) + "".join(f"{word:28} pointwise\n" for word in words)


def argument_sheet() -> str:
    """The text of arguments/aten.txt: the arguments of operators of aten that are given more than
    tensors, with their defaults as JSON, but for what writes into an `out=`.
    """
    lines = [
        " ".join([_word(overload), *map(_spelt_argument, overload._schema.arguments)])
        for overload in overloads("aten")
        if _is_given_scalars(overload._schema)
    ]
    return _NAMES_HEAD.format(version=_version()) + "\n".join(lines) + "\n"


def _word(overload: Any) -> str:
    return str(overload).removeprefix("aten.").removesuffix(".default")


def _spelt_argument(argument: Any) -> str:
    """`dim`, or `keepdim=false` where there is a default that JSON can say."""
    if not argument.has_default_value() or not _is_plain(argument.default_value):
        return str(argument.name)
    return f"{argument.name}={json.dumps(argument.default_value, separators=(',', ':'))}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _is_given_scalars(schema: Any) -> bool:
    return not any(each.is_out for each in schema.arguments) and any(
        "Tensor" not in str(each.type) for each in schema.arguments
    )


def _version() -> str:
    return ".".join(torch.__version__.split(".")[:2])


# Operators that the program calls and the shipped catalogue does not know: what their schemas
# tell goes with the run.


def row_of(func: Any, op: str) -> Row:
    """What a run has to tell of an operator; nothing of one that the catalogue knows."""
    return told_row(op, _news(op, derived_row(func)) if hasattr(func, "_schema") else {})


def _news(op: str, row: Row) -> Row:
    """What the shipped data leave open: all of an operator of somebody's library; of torch's own
    what is harmless, where no sheet has it.
    """
    known = traits_of(op)
    if namespace(op) in OWN:
        return {"pointwise": True} if row.get("pointwise") and known == Traits() else {}
    if not is_shipped(op):
        return row
    return {
        trait: held
        for trait, held in row.items()
        if trait not in ("writes", "pointwise") and getattr(known, trait) != held
    }
