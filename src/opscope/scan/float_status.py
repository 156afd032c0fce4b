# SPDX-License-Identifier: Apache-2.0
"""What the overflow status of a saturating device says of the steps of a run: that something left
its type there, never which call.

The status stays raised until somebody clears it. In which step it was raised is known where it was
clear at the end of the step before, or where a call of the program cleared it in between. A result
at the limit of its type in such a step is the overflow; one in a step that left the status clear,
where nobody cleared it, is doubtful.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from opscope.judge.limits import NARROW
from opscope.questions.findings import Accusation
from opscope.run.query import rows_of
from opscope.run.vectors import calls_of
from opscope.scan.skipped_steps import FLOAT_STATUS, Skips

if TYPE_CHECKING:
    from opscope.questions.rows import Node
    from opscope.run.protocol import Run
    from opscope.run.schema import Process

# The check of gradients clears the status itself where that is how the device tells of overflow.
_CLEARING = (
    "npu::npu_clear_float_status",
    "aten::_amp_foreach_non_finite_check_and_unscale",
)


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """Steps in a row at whose ends the status was raised, first in one from since to seen."""

    since: int
    seen: int
    until: int


class DeviceTold(msgspec.Struct, frozen=True):
    """What process.json has of one device: the first and last step at whose ends it was asked."""

    read: tuple[int, int]
    raised: tuple[Stretch, ...] = ()

    def raised_in(self, step: int, *, cleared: bool) -> bool:
        """Whether something overflowed in this step, or in one of a few that it is among."""
        return any(
            each.since <= step <= each.seen or (cleared and each.seen < step <= each.until)
            for each in self.raised
        )

    def quiet_in(self, step: int, *, cleared: bool) -> bool:
        """Whether nothing overflowed in this step."""
        asked = self.read[0] <= step <= self.read[1]
        return asked and not cleared and not any(e.since <= step <= e.until for e in self.raised)


class StatusTold:
    """What the devices of all processes told."""

    def __init__(
        self,
        devices: Mapping[int, Mapping[str, DeviceTold]],
        cleared: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        """devices: by process; cleared: processes and their steps in which the program may have
        cleared a status.
        """
        self._devices, self._cleared = devices, cleared

    def weighed(
        self, accusations: Sequence[Accusation], nodes: Iterable[Node], skips: Skips
    ) -> tuple[list[Accusation], list[Node]]:
        """Accusations of results at the limit, surer or less sure by what the devices told, and the
        calls of those in steps that a GradScaler skipped on purpose.
        """
        if not self._devices or not accusations:
            return list(accusations), []
        calls = {(node.process, node.index): node for node in nodes if _may_saturate(node)}
        excused = {
            call_id: node
            for accusation in accusations
            if (node := calls.get(call_id := (accusation.process, accusation.index))) is not None
            and self._saturated(accusation)
            and skips.excuses_step(node.process, node.step)
        }
        unexcused = [
            accusation
            for accusation in accusations
            if (accusation.process, accusation.index) not in excused
        ]
        steps = {call_id: node.step for call_id, node in calls.items()}
        return self._all_weighed(unexcused, steps), list(excused.values())

    def raised_for(self, node: Node) -> bool:
        """Whether something overflowed in the step of a call."""
        devices = self._devices.get(node.process)
        if devices is None or not _may_saturate(node):
            return False
        cleared = (node.process, node.step) in self._cleared
        return any(status.raised_in(node.step, cleared=cleared) for status in devices.values())

    def _saturated(self, accusation: Accusation) -> bool:
        return accusation.process in self._devices and bool(accusation.evidence.get("saturated"))

    def _all_weighed(
        self, accusations: Sequence[Accusation], steps: Mapping[tuple[int, int], int]
    ) -> list[Accusation]:
        weighed = [
            self._weighed(accusation, steps.get((accusation.process, accusation.index)))
            for accusation in accusations
        ]
        alone: dict[tuple[int, int], list[int]] = defaultdict(list)
        for position, accusation in enumerate(weighed):
            if _raised(accusation):
                alone[accusation.process, steps[accusation.process, accusation.index]].append(
                    position
                )
        for positions in alone.values():
            only = positions[0]  # of several, who knows whether each did
            if len(positions) == 1 and "reported_by" not in weighed[only].evidence:
                weighed[only] = msgspec.structs.replace(weighed[only], confidence="proven")
        return weighed

    def _weighed(self, accusation: Accusation, step: int | None) -> Accusation:
        if step is None or not self._saturated(accusation):
            return accusation
        devices = self._devices[accusation.process]
        cleared = (accusation.process, step) in self._cleared
        if any(status.raised_in(step, cleared=cleared) for status in devices.values()):
            words, confidence, raised = "the device raised its overflow status", "likely", True
        elif all(status.quiet_in(step, cleared=cleared) for status in devices.values()):
            words, confidence, raised = (
                "but the device raised no overflow status",
                "suspected",
                False,
            )
        else:
            return accusation
        return msgspec.structs.replace(
            accusation,
            reasons=(*accusation.reasons, f"{words} in step {step}"),
            confidence=confidence,
            evidence={**accusation.evidence, "status_raised": raised},
        )

    def unexplained(
        self,
        accusations: Iterable[Accusation],
        spans: Mapping[tuple[int, int, int], tuple[int, int]],
    ) -> tuple[str, ...]:
        """One line for each process whose device raised its status in steps where no recorded call
        shows a result at the limit; spans: first and last call of each process, rank and step.
        """
        if not self._devices:
            return ()
        raised = [
            (accusation.process, accusation.index)
            for accusation in accusations
            if _raised(accusation)
        ]
        shown = {
            (process, step)
            for (process, _, step), (first, last) in spans.items()
            if any(owner == process and first <= index <= last for owner, index in raised)
        }
        ranks = {process: rank for process, rank, _ in spans}
        return tuple(
            line
            for process, devices in sorted(self._devices.items())
            for device, status in devices.items()
            for line in _told_alone(
                ranks.get(process, process), device, status, _of(process, shown)
            )
        )


def told_by(run: Run) -> StatusTold:
    """What the devices of these processes told; the calls are looked at only where one did."""
    devices = {each.process: told for each in run.processes if (told := _read(each))}
    return StatusTold(devices, _cleared(run) if devices else frozenset())


def _cleared(run: Run) -> frozenset[tuple[int, int]]:
    """Processes and their steps in which an operator may have cleared a status."""

    clearing = calls_of(run, lambda op: op.startswith(_CLEARING))
    rows = rows_of(run, "calls", ("process", "step", "level"), clearing)
    return frozenset((process, step) for process, step, level in rows if level == "operator")


def _read(process: Process) -> dict[str, DeviceTold]:
    try:
        return msgspec.convert(process.torch.get(FLOAT_STATUS, {}), dict[str, DeviceTold])
    except msgspec.ValidationError:
        return {}  # written by something else; nothing is concluded


def _may_saturate(node: Node) -> bool:
    return any(row.dtype in NARROW for row in node.outputs)


def _raised(accusation: Accusation) -> bool:
    return bool(accusation.evidence.get("status_raised"))


def _of(process: int, places: Iterable[tuple[int, int]]) -> set[int]:
    return {step for owner, step in places if owner == process}


def _told_alone(rank: int, device: str, status: DeviceTold, shown: set[int]) -> Iterator[str]:
    alone = [
        each
        for each in status.raised
        if not any(each.since <= step <= each.until for step in shown)
    ]
    if not alone:
        return
    first, more = alone[0], len(alone) - 1
    steps = (
        f"step {first.seen}" if first.since == first.seen else f"steps {first.since}-{first.seen}"
    )
    again = f" (and {more} more {'time' if more == 1 else 'times'})" if more else ""
    yield (
        f"rank {rank}: {device} raised its overflow status in {steps}{again}, and no recorded call "
        "shows a result at the limit of its type: what overflowed was inside of a call, in a type "
        "whose limit is a usual mask (float32, bfloat16), or not recorded; where the device has "
        "infinities (no INF_NAN_MODE_FORCE_DISABLE), a run with them names its line"
    )
