# SPDX-License-Identifier: Apache-2.0
"""Dumps of msprobe (mindstudio-probe) of every generation: dump.json, stack.json, construct.json, debug.json, tensor files."""

from __future__ import annotations

from opscope.formats.msprobe.reader import FORMAT

__all__ = ["FORMAT"]
