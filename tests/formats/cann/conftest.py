# SPDX-License-Identifier: Apache-2.0
"""Puts cann_dumps.py, which makes small dump files, on the path of the tests beside it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
