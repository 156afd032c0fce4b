# SPDX-License-Identifier: Apache-2.0
"""Records ports and their faults, compares each with its original and prints the score.

    python -m tests.compare_zoo.ports [PAIR | PAIR/FAULT …] [--to FOLDER] [--again] [--known]

A port whose losses are not the original's, or a fault that leaves them as they are, is an error of
this zoo, and ends it.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
from pathlib import Path

from tests.compare_zoo.ports.judge import Answer, judged
from tests.compare_zoo.ports.pair import HEALTHY, KNOWN, Pair, known
from tests.compare_zoo.ports.runs import checked, recorded


def score(answers: list[Answer]) -> str:
    """The table: a line a pair, then the sums."""
    lines = [f"{'pair':<17} healthy silent  faults named  with both lines"]
    for name in [*dict.fromkeys(answer.pair for answer in answers), "all"]:
        mine = [answer for answer in answers if name in (answer.pair, "all")]
        healthy = [answer for answer in mine if answer.variant == HEALTHY]
        faults = [answer for answer in mine if answer.variant != HEALTHY]
        lines.append(
            f"{name:<17} {sum(one.right for one in healthy):>10}/{len(healthy):<3}"
            f"  {sum(one.right for one in faults):>9}/{len(faults):<3}"
            f"  {sum(one.whole for one in faults):>14}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="PAIR[/VARIANT]")
    parser.add_argument("--to", type=Path, help="keep the runs in this folder")
    parser.add_argument("--again", action="store_true", help="record anew what is there")
    parser.add_argument("--known", action="store_true", help="write what is right to known.txt")
    options = parser.parse_args()
    folder = options.to or Path(tempfile.mkdtemp(prefix="ports"))
    wanted: dict[str, list[str]] = {}
    for name in options.names or [pair.name for pair in Pair.all()]:
        pair, _, variant = name.partition("/")
        wanted.setdefault(pair, []).extend([variant] if variant else Pair.named(pair).variants)
    answers = []
    for name, variants in wanted.items():
        pair = Pair.named(name)
        if missing := [one for one in pair.needs if importlib.util.find_spec(one) is None]:
            print(f"{name}: left out, needs {', '.join(missing)}")
            continue
        if not pair.interpreter:
            print(f"{name}: left out, no interpreter has {pair.framework} (OPSCOPE_*_PYTHON)")
            continue
        if options.again or not (folder / name / "losses.json").exists():
            recorded(pair, folder / name, pair.variants if options.to else variants)
        checked(pair, folder / name, variants)
        for variant in variants:
            answers.append(answer := judged(pair, variant, folder / name))
            word = "right" if answer.whole else "named" if answer.right else "miss"
            print(f"{word:<5} {answer}\n      {answer.said}", flush=True)
    print(score(answers))
    if options.known:
        asked = {str(answer) for answer in answers}
        right = {str(answer) for answer in answers if answer.right}
        KNOWN.write_text("\n".join(sorted(set(known()) - asked | right)) + "\n", encoding="utf-8")
    if not options.to:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
