# SPDX-License-Identifier: Apache-2.0
"""What opscope.watch_jax says of what cannot be watched."""

from __future__ import annotations

import importlib.machinery
import sys
from typing import Any

import pytest

import opscope
from opscope.record.jax import door


def test_what_cannot_be_used_is_said() -> None:
    with pytest.raises(opscope.UsageError, match="int is no function"):
        opscope.watch_jax(3)  # type: ignore[arg-type]
    with pytest.raises(opscope.UsageError, match="one of none, full"):
        opscope.watch_jax(print, values="some")


def test_without_jax_it_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> importlib.machinery.ModuleSpec | None:
        return None

    monkeypatch.setattr(door, "find_spec", absent)
    with pytest.raises(opscope.UnavailableError, match="jax is not installed"):
        opscope.watch_jax(print)


def test_the_name_alone_imports_no_framework() -> None:
    before: Any = {"jax", "flax"} & sys.modules.keys()
    assert opscope.watch_jax is door.watch_jax
    assert {"jax", "flax"} & sys.modules.keys() == before
