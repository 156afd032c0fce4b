# SPDX-License-Identifier: Apache-2.0
"""Operators by name, and what their schemas tell of a call: which arguments it writes to, whether
it draws random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from opscope.errors import UnavailableError

# Arguments that torch's own operators write to though no schema marks them.
UNMARKED = {"fsdp::all_gather_copy_in": "all_gather_output"}
DROPOUTS = {"dropout_p": 0.0, "dropout": 0.0, "keep_prob": 1.0}  # and what draws nothing


def find_operator(op: str) -> Any:
    """The overload `namespace::name.overload`; UnavailableError where this process has none of that
    name.
    """
    try:
        return overload_named(op)
    except (AttributeError, RuntimeError) as error:
        raise UnavailableError(
            f"operator {op} is not registered here; it needs the module that defines it"
        ) from error


def overload_named(op: str) -> Any:
    """The overload `aten::add.Tensor`, `aten::silu` or `aten::silu.default`; AttributeError or
    RuntimeError where there is none.
    """
    namespace, _, rest = op.partition("::")
    name, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


def written_arguments(schema: Any) -> frozenset[str]:
    """Slots an operator writes to: marked in its schema, or known to torch all the same (running
    statistics).
    """
    info = torch._C._SchemaInfo(schema)
    slots = set()
    for position, argument in enumerate(schema.arguments):
        marked = argument.alias_info is not None and argument.alias_info.is_write
        if marked or info.is_mutable(argument.name) or UNMARKED.get(schema.name) == argument.name:
            slots.add(f"kwargs.{argument.name}")
            if not argument.kwarg_only:
                slots.add(str(position))
    return frozenset(slots)


def draws_random(
    func: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> bool:
    """Whether the result depends on a generator: dropout that drops nothing draws nothing."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    for position, argument in enumerate(func._schema.arguments):
        if argument.name in DROPOUTS:
            idle = DROPOUTS[argument.name]
            given = (
                args[position] if position < len(args) else (kwargs or {}).get(argument.name, idle)
            )
            return bool(given != idle)
    return True


def only_views(func: Any) -> bool:
    """Whether every result is a view of an argument that the call does not write to."""
    returns = func._schema.returns
    return bool(returns) and all(
        each.alias_info is not None and not each.alias_info.is_write for each in returns
    )
