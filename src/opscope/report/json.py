# SPDX-License-Identifier: Apache-2.0
"""Records and rows as JSON text that every parser reads: what is not finite is "nan", "inf" or
"-inf", never null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """Nested builtins with numbers that JSON has; anything unknown (a date, a decimal) as its
    text.
    """
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {} if config.tag is None else {config.tag_field: config.tag}
        return plain({**tag, **msgspec.structs.asdict(value)})
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    return value.hex() if isinstance(value, bytes | bytearray) else str(value)


def json_text(value: Any) -> str:
    """One line; ASCII, so that it survives any pipe and holds paths that are no valid Unicode."""
    return json.dumps(plain(value), allow_nan=False)


def json_pieces(head: dict[str, Any], lists: Iterable[tuple[str, Iterable[Any]]]) -> Iterator[str]:
    """One object, piece by piece: head's fields, then fields whose lists may be longer than memory,
    a line for each item.
    """
    yield json_text(head)[:-1]
    comma = ", " if head else ""
    for name, items in lists:
        yield f"{comma}{json.dumps(name)}: ["
        comma = ", "
        between = "\n"
        for item in items:
            yield between + json_text(item)
            between = ",\n"
        yield "]"
    yield "}"
