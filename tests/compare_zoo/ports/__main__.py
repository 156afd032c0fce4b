# SPDX-License-Identifier: Apache-2.0
"""Records ports and their faults, compares each with its original and prints the score.

    python -m tests.compare_zoo.ports [PAIR | PAIR/FAULT …] [--to FOLDER] [--again] [--known]
        [--jobs N]

A port whose losses are not the original's, or a fault that leaves them as they are, is an error of
this zoo: it is said, the other pairs go on, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.compare_zoo.ports.judge import Answer, answered
from tests.compare_zoo.ports.pair import HEALTHY, KNOWN, Pair, known


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


def left_out(pair: Pair) -> str:
    """Why this Python does not run a pair; "" where it does."""
    if missing := [one for one in pair.needs if importlib.util.find_spec(one) is None]:
        return f"needs {', '.join(missing)}"
    if not pair.interpreter:
        return f"no interpreter has {pair.framework} (OPSCOPE_*_PYTHON)"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="PAIR[/VARIANT]")
    parser.add_argument("--to", type=Path, help="keep the runs in this folder")
    parser.add_argument("--again", action="store_true", help="record anew what is there")
    parser.add_argument("--known", action="store_true", help="write what is right to known.txt")
    parser.add_argument("--jobs", type=int, default=1, help="pairs at once")
    options = parser.parse_args()
    folder = options.to or Path(tempfile.mkdtemp(prefix="ports"))
    wanted: dict[str, list[str]] = {}
    every = [pair.name for pair in Pair.all()]
    for name in options.names or every:
        pair, _, variant = name.partition("/")
        if pair not in every:
            parser.error(f"no pair is named {pair}")
        wanted.setdefault(pair, []).extend([variant] if variant else Pair.named(pair).variants)
    for name in list(wanted):
        if why := left_out(Pair.named(name)):
            print(f"{name}: left out, {why}")
            del wanted[name]
    answers, failed = [], 0
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        asked = {
            name: pool.submit(
                answered, name, variants, folder / name, kept=bool(options.to), again=options.again
            )
            for name, variants in wanted.items()
        }
        for name, answer_of in asked.items():
            try:
                told = answer_of.result()
            except (RuntimeError, ValueError) as error:
                failed += 1
                print(f"error {name}: {error}", flush=True)
                continue
            for answer in told:
                word = "right" if answer.whole else "named" if answer.right else "miss"
                print(f"{word:<5} {answer}\n      {answer.said}", flush=True)
            answers.extend(told)
            if not options.to:
                shutil.rmtree(folder / name)
    if not options.to:
        shutil.rmtree(folder)
    print(score(answers))
    if options.known:
        judged_now = {str(answer) for answer in answers}
        right = {str(answer) for answer in answers if answer.right}
        KNOWN.write_text(
            "\n".join(sorted(set(known()) - judged_now | right)) + "\n", encoding="utf-8"
        )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
