# SPDX-License-Identifier: Apache-2.0
"""The arguments of a recorded call, for writers that name them in another tool's tree."""

from __future__ import annotations

from typing import Any

import msgspec


def argument_tree(args: str | None) -> dict[str, Any]:
    """The object that column args of table calls holds ("args", "kwargs", …); empty where it holds
    none.
    """
    try:
        value = msgspec.json.decode(args) if args else {}
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
