# SPDX-License-Identifier: Apache-2.0
"""Puts the helper modules of this and the neighbouring directories on the path of the tests."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (".", "../mindspore", "../msprobe"):
    sys.path.insert(0, str((Path(__file__).parent / folder).resolve()))
