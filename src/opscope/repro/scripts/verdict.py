# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N818
"""The part of every repro.py that knows no framework: the options that all have, and what is said
of the verdict.

script.py writes what stands below the mark into the generated script, which has no second file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
import traceback
from typing import Any


# --- verdict ---
class CannotTry(Exception):
    """The call cannot be made, or not be judged, on this machine."""


def folded(line: str) -> str:
    """A line in as many of at most 80 columns as it takes; what cannot be parted, a path for one,
    stays whole.
    """
    first = re.match(r"\s+\S+\s+|", line)
    below = " " * (len(first.group()) if first and first.group() else 2)
    return textwrap.fill(
        line, 80, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )


def parsed(parser: argparse.ArgumentParser, argv: list[str], *, library: str) -> argparse.Namespace:
    """The options, those that every script has among them."""
    parser.add_argument("--repeat", type=int, default=1, help="make the call this often")
    parser.add_argument(
        "--import", dest="imports", action="append", default=[], metavar="MODULE", help=library
    )
    parser.add_argument(
        "--allow",
        dest="allowed",
        action="append",
        default=[],
        metavar="OP",
        help="call it though it may do more than compute",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(argv)
    if options.repeat < 1:
        parser.error("--repeat wants at least 1")
    return options


def answered(judge: Any, *, as_json: bool) -> int:
    """Print what judge() says, and return the script's exit code."""
    try:
        result = judge()
    except CannotTry as reason:
        result = {
            "verdict": "cannot be tried",
            "reason": str(reason),
            "lines": [f"cannot be tried here: {reason}"],
        }
    except Exception:  # noqa: BLE001 - a traceback's exit code, 1, would claim that the failure shows
        traceback.print_exc()
        return 101
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    print(json.dumps(result) if as_json else "\n".join(map(folded, result["lines"])))
    return {"reproduced": 1, "flaky": 1, "not reproduced": 0}.get(str(result["verdict"]), 125)
