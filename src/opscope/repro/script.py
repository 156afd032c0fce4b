# SPDX-License-Identifier: Apache-2.0
"""The scripts of scripts/ as text that stands alone, with what they share written into them."""

from __future__ import annotations

import re
from importlib.resources import files

PARTS = "# --- parts ---\n"
PARTS_END = "# --- end of parts ---\n"


def template(name: str, *parts: str) -> str:
    """A script of scripts/ with the text of these modules where it imports them: what stands below
    the mark of each.
    """
    before, rest = _source(name).split(PARTS)
    _, after = rest.split(PARTS_END)
    written = "\n\n\n".join(
        _source(f"{part}.py").split(f"# --- {part} ---\n")[1].strip("\n") for part in parts
    )
    return f"{before}{PARTS}{written}\n\n\n{PARTS_END}{after}"


def _source(name: str) -> str:
    text = files("opscope.repro").joinpath("scripts", name).read_text(encoding="utf-8")
    return re.sub(r"# ruff: [^\n]*\n|  # (noqa|type: ignore)[^\n]*", "", text)
