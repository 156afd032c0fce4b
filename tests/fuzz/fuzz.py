# SPDX-License-Identifier: Apache-2.0
"""Fuzz one parser with atheris, guided by coverage: python tests/fuzz/fuzz.py TARGET [-max_total_time=60 …].

Starts from the kept corpus and writes what crashes to the working directory; copy that to corpus/TARGET and mend the parser. Needs
atheris and opscope in one environment; without it, test_corpus.py still replays the corpus.
"""

from __future__ import annotations

import sys
import tempfile

import atheris

with atheris.instrument_imports(include=["opscope"]):
    from targets import CORPUS, TARGETS, attempt


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        raise SystemExit(f"name one of {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as found:  # libFuzzer writes what it finds into the first folder
        words = [sys.argv[0], "-rss_limit_mb=4096", "-timeout=20", *sys.argv[2:], found, str(CORPUS / name)]
        atheris.Setup(words, lambda data: attempt(name, data))
        atheris.Fuzz()


main()
