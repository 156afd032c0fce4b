# SPDX-License-Identifier: Apache-2.0
"""What can be written of a run: plain files of a tensor each, or whole layouts and tables."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal[
    "npy",
    "bin",
    "msnpy",
    "pt",
    "txt",
    "csv",
    "safetensors",
    "mindspore",
    "msprobe",
    "cann",
    "parquet",
]
KINDS: tuple[str, ...] = get_args(Kind)
