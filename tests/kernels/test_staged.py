# SPDX-License-Identifier: Apache-2.0
"""What an origin on a device read is kept when its statistics arrive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from opscope.kernels import statistics
from opscope.kernels.calls import Version
from opscope.kernels.staged import Staged

SOUND, UNSOUND = (statistics(np.float32([1, each])) for each in (2, np.nan))


def call(inputs: list[Version], outputs: list[Version]) -> Any:
    seen = [[SimpleNamespace(version=each) for each in side] for side in (inputs, outputs)]
    return SimpleNamespace(inputs=seen[0], outputs=seen[1])


def test_operands_of_what_became_unsound_are_kept() -> None:
    staged = Staged()
    versions = [Version(number=number, order=()) for number in range(6)]
    old, weight, x, product, after, aside = versions
    for ticket, version in enumerate(versions[:2]):
        staged.add(ticket, version)
    asked: list[int] = []

    def keep(ticket: int) -> tuple[str, str] | None:
        asked.append(ticket)
        return None if ticket == 0 else ("shard", str(ticket))

    assert not staged.fetched([(0, SOUND)], [], keep)
    assert not staged.fetched([(1, SOUND)], [], keep)
    for ticket, version in enumerate(versions[2:], 2):
        staged.add(ticket, version)
    calls = [
        call([x, weight, old], [product]),
        call([product, x], [after]),  # arrived
        call([x], [aside]),
        call([], [product]),
    ]
    found = [(2, SOUND), (3, UNSOUND), (4, UNSOUND), (5, None)]
    assert staged.fetched(found, calls, keep)
    assert asked == [2, 1], "of the step before, too; what is older has no copy any more"
    kept = {version.number: version.value for version in versions}
    assert kept == {**dict.fromkeys(range(6)), 1: ("shard", "1"), 2: ("shard", "2")}
    assert staged.pending == 0
    assert not staged.fetched([], calls, keep)
