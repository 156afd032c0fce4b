# SPDX-License-Identifier: Apache-2.0
"""The native run directory as a format: opscope's own, docs/store.md."""

from __future__ import annotations

from pathlib import Path

from opscope.formats.registry import Format, later
from opscope.run.store.layout import PROCESS_FILE, PROCESSES, RUN_FILE


def detect(path: Path) -> bool:
    """Whether this is the directory of a native run, torn ones included."""
    return (path / RUN_FILE).is_file() or any((path / PROCESSES).glob(f"*/{PROCESS_FILE}"))


FORMAT = Format("opscope", detect, later("opscope.run.store.reader:NativeRun"))
