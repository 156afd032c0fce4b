# SPDX-License-Identifier: Apache-2.0
"""The small files beside a MindSpore dump: .dump_metadata, execution order, kernel arguments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from opscope.errors import FormatError
from opscope.formats.bounded import read_bounded_text
from opscope.formats.bounded_json import json_value, load_json

_NAME_LIMIT = 4096
_ORDER_LIMIT = 1 << 28


def read_order(path: Path, problems: list[str]) -> list[str]:
    """Full names in execution order from ms_execution_order_graph_{g}.csv; empty when there is
    none.
    """
    if not path.is_file():
        return []
    try:
        lines = read_bounded_text(
            path, limit=_ORDER_LIMIT, what="an execution order", encoding="utf-8-sig"
        ).splitlines()
    except FormatError as error:
        problems.append(str(error))
        return []
    names = [line.split(",")[0].strip() for line in lines]
    return [
        name
        for name in names
        if name and not name.startswith("NodeExecutionOrder") and len(name) <= _NAME_LIMIT
    ]


def read_settings(folder: Path, problems: list[str]) -> dict[str, Any]:
    """.dump_metadata: {"config": {"device_target": …, "ms_version": …}, "data_dump": the user's
    settings}; may be absent.
    """
    settings: dict[str, Any] = {}
    for name in ("config", "data_dump"):
        path = folder / f"{name}.json"
        if not path.is_file():
            continue
        try:
            value = load_json(path)
        except FormatError as error:
            problems.append(str(error))
            continue
        if isinstance(value, dict):
            settings[name] = value
    return settings


def read_arguments(path: Path) -> dict[str, Any]:
    """{op_type}.{op_name}.json: arguments of a kernel; MindSpore prints every value as text, which
    is kept as what it says.
    """
    value = load_json(path)
    if not isinstance(value, dict):
        raise FormatError(path, "kernel arguments are not a JSON object", offset=0)
    return {str(name): _said(item) for name, item in value.items()}


def _said(value: Any) -> Any:
    """The number, bool or list that a printed value says, else the text itself."""
    if not isinstance(value, str) or len(value) > 1 << 16:
        return value
    text = value.strip()
    if text in {"true", "True", "false", "False"}:
        return text.lower() == "true"
    try:
        return (
            json_value(text.replace("(", "[").replace(")", "]"))
            if re.match(r"[-\d\[(]", text)
            else value
        )
    except (ValueError, RecursionError):
        return value
