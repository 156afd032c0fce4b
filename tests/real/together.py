# SPDX-License-Identifier: Apache-2.0
"""Runs programs one after the other in one process: `python together.py FILE…`."""

from __future__ import annotations

import runpy
import sys

for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
