# SPDX-License-Identifier: Apache-2.0
"""Which recorded call launched a kernel that failed: AI Core errors of logs joined with a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opscope.ascend.analysis import Analysis, with_call
from opscope.ascend.recorded import RecordedCall, RecordedTensor
from opscope.errors import OpscopeError
from opscope.questions.rows import whole_calls
from opscope.run.keys import keys_at
from opscope.run.query import tensors_at
from opscope.scan.crashes import crash_accusations
from opscope.scan.device_errors import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from opscope.questions.findings import Accusation
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor

LARGEST = 1 << 30  # bytes of a value that are written into a case


def with_calls(analyses: Sequence[Analysis], run: Run) -> tuple[Analysis, ...]:
    """Errors with the call of the run that each is of, where that is known: of the process that the
    log is of, in which it died, an operator that such a kernel computes.
    """
    crashed = crash_accusations(run)
    return tuple(_with_call(analysis, run, crashed) for analysis in analyses)


def _with_call(analysis: Analysis, run: Run, crashed: Sequence[Accusation]) -> Analysis:
    pids = {process.process: process.pid for process in run.processes}
    kernel = analysis.operator or analysis.fault.kernel
    for crash in crashed:
        if kernel is None or analysis.fault.pid not in (None, pids.get(crash.process)):
            continue
        wanted = keys_at([(crash.process, crash.index)])
        for call, _ in whole_calls(run, wanted, tensors=False).values():
            if plain(call.op) == plain(kernel):
                return with_call(analysis, _recorded(run, crash, call))
    return analysis


def _recorded(run: Run, crash: Accusation, call: Call) -> RecordedCall:
    return RecordedCall(
        run=run.info.path,
        name=call.name,
        op=call.op,
        source=call.source,
        args=call.args,
        tensors=tuple(
            RecordedTensor(
                io=row.io,
                slot=row.slot,
                dtype=row.dtype,
                shape=tuple(row.shape),
                layout=row.layout,
                values=_values(run, row),
            )
            for row in tensors_at(run, crash.process, crash.index)  # what the journal has, too
            if row.shape is not None
        ),
        certain=crash.confidence == "proven",
    )


def _values(run: Run, row: Tensor) -> NDArray[np.generic] | None:
    """What an input held; what a call that failed would have made nobody knows."""
    if row.io != "input" or row.value is None or row.partial:
        return None
    try:
        elements = run.value(row)
    except OpscopeError:
        return None  # the shard is gone; the case says that it lacks the values
    return elements if elements.nbytes <= LARGEST else None
