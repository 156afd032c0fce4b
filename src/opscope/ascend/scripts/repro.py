# SPDX-License-Identifier: Apache-2.0
"""Tries a single-operator case: on the device through op_test_frame or acl, else its dumped outputs
by the CPU reference.

    python repro.py [--json] [--repeat N] [--reference]

Exit code 0: nothing is wrong with the operator here, 1: it fails, 125: it cannot be tried here.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPRODUCED, NOT_REPRODUCED, CANNOT = "reproduced", "not reproduced", "cannot be tried"
CODES = {REPRODUCED: 1, NOT_REPRODUCED: 0, CANNOT: 125}
# What the runtime prints when a kernel fails on an AI Core.
FAILED = (
    "there is an aivec error exception",
    "there is an aicore error exception",
    "there is an exception of aivec error",
    "there is an exception of aicore error",
    "aicore exception",
    "vector core exception",
    "Aicore kernel execute failed",
)


def on_device(case: dict[str, Any]) -> tuple[str, str]:
    """Runs main.py where op_test_frame is, else launch.py where acl is."""
    framed = (HERE / "main.py").is_file() and importlib.util.find_spec("op_test_frame") is not None
    launched = case.get("launch") is not None and importlib.util.find_spec("acl") is not None
    if not framed and not launched:
        return CANNOT, "neither op_test_frame nor acl is installed here: run this where CANN is"
    binary = HERE / case["binary"]
    if not binary.exists():
        return CANNOT, f"{binary} is missing: put the kernel's .o there"
    return by_frame() if framed else by_acl()


def by_acl() -> tuple[str, str]:
    """Runs launch.py in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / "launch.py")],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    said = next((word for word in FAILED if word in done.stdout + done.stderr), None)
    if done.returncode == 0:
        return NOT_REPRODUCED, lines[-1] if lines else "the kernel ran to its end"
    if (done.returncode == 1 and done.stdout.strip()) or said is not None:
        return REPRODUCED, done.stdout.strip().splitlines()[-1] if done.stdout.strip() else str(
            said
        )
    return CANNOT, lines[-1] if lines else f"launch.py ended with {done.returncode}"


def by_frame() -> tuple[str, str]:
    """Runs main.py; it fails when the kernel does, or when op_test_frame counts a failure."""
    done = subprocess.run(
        [sys.executable, str(HERE / "main.py")],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    text = done.stdout + done.stderr
    said = next((word for word in FAILED if word in text), None)
    if said is not None or done.returncode != 0:
        return (
            REPRODUCED,
            said
            or f"main.py ended with {done.returncode}: "
            f"{text.strip().splitlines()[-1] if text.strip() else ''}",
        )
    return NOT_REPRODUCED, "the kernel ran to its end"


def by_reference(case: dict[str, Any]) -> tuple[str, str]:
    """Holds the dumped outputs against the CPU reference."""
    if case["op"] is None or not case["inputs"]:
        return CANNOT, "the operator or its inputs are not known"
    sys.path.insert(0, str(HERE))
    judge = importlib.import_module("references.judge")
    sides = {side: [load(one) for one in case[side]] for side in ("inputs", "outputs")}
    if any(value is None for value in sides["inputs"]) or not any(
        value is not None for value in sides["outputs"]
    ):
        return CANNOT, "the values of the inputs and outputs were not dumped"
    dtypes = [one["dtype"] for one in case["outputs"]]
    judged = judge.judge(case["op"], sides["inputs"], sides["outputs"], case["attributes"], dtypes)
    return {"differs": REPRODUCED, "agrees": NOT_REPRODUCED}.get(judged.status, CANNOT), judged.text


def load(one: dict[str, Any]) -> Any:
    """Values of a tensor in the host's order; bfloat16 is kept as its bits."""
    if one.get("host") is None:
        return None
    numpy = importlib.import_module("numpy")
    values = numpy.load(HERE / one["host"], allow_pickle=False)
    if one["dtype"] == "bfloat16":
        return (values.astype(numpy.uint32) << 16).view(numpy.float32)
    return values


def main() -> int:
    """Try the case and say how it went."""
    parser = argparse.ArgumentParser(description="Try this single-operator case.")
    parser.add_argument("--json", action="store_true", help="one JSON document as the last line")
    parser.add_argument("--repeat", type=int, default=1, help="how often the device is tried")
    parser.add_argument("--reference", action="store_true", help="the CPU reference only")
    options, _ = parser.parse_known_args()
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    tries = (
        [on_device(case) for _ in range(max(1, options.repeat))]
        if not options.reference
        else [(CANNOT, "")]
    )
    shown = sum(1 for verdict, _ in tries if verdict == REPRODUCED)
    verdict, reason = (
        tries[0]
        if shown == 0
        else (REPRODUCED, next(text for verdict, text in tries if verdict == REPRODUCED))
    )
    where = "npu"
    if verdict == CANNOT:
        other = reason
        verdict, reason = by_reference(case)
        shown, tries, where = int(verdict == REPRODUCED), tries[:1], "cpu"
        reason = f"{reason}; {other}" if verdict == CANNOT and other else reason
    lines = [f"{case['op']} {case['kernel']}"]
    document = {
        "verdict": verdict,
        "shown": shown,
        "tried": len(tries),
        "reason": reason,
        "lines": lines,
        "device": where,
        "seen": {},
    }
    print(json.dumps(document) if options.json else f"{lines[0]}\n{verdict}: {reason}")
    return CODES[verdict]


if __name__ == "__main__":
    sys.exit(main())
