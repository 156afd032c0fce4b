# SPDX-License-Identifier: Apache-2.0
"""Dumps of msprobe (mindstudio-probe) of every generation: dump.json, stack.json, construct.json,
debug.json, tensor files.
"""

from __future__ import annotations

from opscope.formats.msprobe.layout import looks_like_dump
from opscope.formats.registry import Format, later

FORMAT = Format("msprobe", looks_like_dump, later("opscope.formats.msprobe.reader:open_dump"))
