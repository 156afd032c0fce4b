# SPDX-License-Identifier: Apache-2.0
"""The process that makes the calls of a sweep: a kernel that is wrong enough may end it.

It reads a task a line from its standard input, and writes an answer a line for each.
"""

from __future__ import annotations

import sys
from typing import TextIO

import msgspec

from opscope.errors import OpscopeError
from opscope.operators.catalogue import knowing
from opscope.sweep.tasks import Answer, Swept, Task


def answer_to(task: Task) -> Answer:
    """What is wrong in the programs of a name."""
    from opscope.substitute.arguments import dtype_named
    from opscope.sweep.examiner import sweep
    from opscope.sweep.samples import DTYPES, OPTIMIZERS, programs

    wrong: list[Swept] = []
    dtypes = tuple(map(dtype_named, task.dtypes)) or DTYPES
    try:
        examiner = sweep(programs(task.name, dtypes, task.device), task.pattern, wrong.append)
    except (OpscopeError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        return Answer(
            name=task.name, wrong=tuple(wrong), reason=f"{type(error).__name__}: {error}"[:300]
        )
    return Answer(
        name=task.name,
        wrong=tuple(wrong),
        counts=tuple(examiner.counts.values()),
        # optimizers are also run for an operator that no sample goes by: it is not made of theirs
        others=() if task.name == OPTIMIZERS else tuple(examiner.others),
    )


def serve(tasks: TextIO, answers: TextIO) -> None:
    """Answer until there are no more tasks."""
    import torch

    torch.set_num_threads(1)
    for line in tasks:
        task = msgspec.json.decode(line, type=Task)
        with knowing(declared=task.declared):
            answer = answer_to(task)
        answers.write(msgspec.json.encode(answer).decode() + "\n")
        answers.flush()


if __name__ == "__main__":
    own, sys.stdout = sys.stdout, sys.stderr  # what samples print is no answer
    serve(sys.stdin, own)
