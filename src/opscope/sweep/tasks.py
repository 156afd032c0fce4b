# SPDX-License-Identifier: Apache-2.0
"""Plain data between a sweep and the process that makes its calls."""

from __future__ import annotations

import msgspec

from opscope.judge.replayed import Replayed
from opscope.operators.told import Rows


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Programs of a name on a device; pattern says which operators are examined, None all; no
    dtypes mean all; declared says what operators are.
    """

    name: str
    pattern: str | None = None
    dtypes: tuple[str, ...] = ()
    device: str = "cpu"
    declared: Rows = {}


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is wrong: the operator, the sample it came from, its tensors by slot, and the
    verdict.
    """

    op: str
    sample: str
    dtype: str
    tensors: dict[str, str]
    verdict: Replayed


class Counts(msgspec.Struct, kw_only=True):
    """Calls of one operator whose first tensor has a type: examined, wrong, and why others could
    not be.
    """

    op: str
    dtype: str
    examined: int = 0
    wrong: int = 0
    unjudged: dict[str, int] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a task: others are operators that its programs called and that were not wanted,
    in the order of their first calls; reason says why it ended early.
    """

    name: str
    wrong: tuple[Swept, ...] = ()
    counts: tuple[Counts, ...] = ()
    others: tuple[str, ...] = ()
    reason: str = ""
