# SPDX-License-Identifier: Apache-2.0
"""`opscope doctor --device`: statistics of every element type and layout on a device, as a table
to hand on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from opscope.cli.printing import print_json
from opscope.errors import UnavailableError
from opscope.version import VERSION

SECONDS = 600
WORDS = {True: "yes", False: "no"}
# In a process of its own: a kernel that fails there takes nothing else with it.
CODE = """
import sys, runpy
sys.argv = ["conformance", {device!r}]
runpy.run_module("opscope.record.torch.conformance", run_name="__main__")
"""


def examine_device(device: str, *, json: bool) -> int:
    """Print the table. 1: a statistic differs from the host's.

    Raises UnavailableError where there is no such device.
    """
    from opscope.cli.diagnosis import probe

    answers = probe(os.environ, seconds=SECONDS, code=CODE.format(device=device))
    if "error" in answers:
        raise UnavailableError(f"{device} cannot be tried: {answers['error']}")
    wrong = [row["type"] for row in answers["types"] if row["wrong"]]
    if json:
        verdict = "found" if wrong else "clean"
        print_json({"opscope": VERSION, "verb": "doctor", "verdict": verdict, **answers})
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines(answers, wrong))
    return 1 if wrong else 0


def lines(answers: dict[str, Any], wrong: list[str]) -> Iterator[str]:
    """Plain text that survives being pasted: facts of the device, the table, what is wrong."""
    facts = dict(answers["device"])
    yield f"opscope {VERSION} on {facts.pop('device')} {facts.pop('name')}".rstrip()
    yield ", ".join(facts.pop("versions"))
    yield ", ".join(f"{name}: {WORDS.get(value, value)}" for name, value in facts.items())
    yield f"{'type':14}{'small tensors':18}large tensors"
    for row in answers["types"]:
        yield f"{row['type']:14}{row['small']:18}{row['large']}"
    yield f"wrong: {', '.join(wrong)}" if wrong else "nothing differs from the host"
