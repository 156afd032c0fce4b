# SPDX-License-Identifier: Apache-2.0
"""Fuzz one parser with atheris, guided by coverage: python tests/fuzz/fuzz.py TARGET
[-max_total_time=60 …]; make fuzz does all.

Starts from the kept corpus and writes what crashes to the working directory; copy that to
corpus/TARGET and mend the parser. Needs atheris (tests/fuzz/atheris.txt) beside opscope; without
it, test_corpus.py still replays the corpus.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from types import FunctionType

import atheris
from targets import CORPUS, TARGETS, attempt


def instrument(name: str) -> None:
    """Have opscope's functions count their branches.

    Not while they are imported: an editable build has a loader of its own, which atheris does not
    see through. The corpus is run first, since readers are imported when they are needed.
    """
    for path in (CORPUS / name).iterdir():
        attempt(name, path.read_bytes())
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and (found.__module__ or "").startswith("opscope"):
            atheris.instrument_func(found)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        raise SystemExit(f"name one of {', '.join(TARGETS)}")
    instrument(name)
    # libFuzzer writes what it finds into the first folder
    with tempfile.TemporaryDirectory() as found:
        words = [
            sys.argv[0],
            "-rss_limit_mb=4096",
            "-timeout=20",
            *sys.argv[2:],
            found,
            str(CORPUS / name),
        ]
        atheris.Setup(words, lambda data: attempt(name, data))
        atheris.Fuzz()


main()
