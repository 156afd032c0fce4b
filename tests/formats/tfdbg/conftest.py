# SPDX-License-Identifier: Apache-2.0
"""Puts this directory's helper module, tfdbg_dumps.py, on the path of its tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
