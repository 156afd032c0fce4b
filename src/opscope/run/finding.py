# SPDX-License-Identifier: Apache-2.0
"""What a question answers with: one frozen record for a finding and one for the document it stands
in.

The shape is architecture.md section 6. Numbers that are not finite are written as "nan", "inf",
"-inf" in JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec

KINDS = (
    "overflow-origin",
    "divergence-origin",
    "structural-difference",
    "replay-mismatch",
    "nondeterminism",
    "crash",
    "aicore-error",
    "gradient-explosion",
    "gradient-vanishing",
    "rank-mismatch",
)


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """The forward call whose gradient a backward call computes."""

    call: str
    op: str
    source: str | None = None


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of a finding's call; stats holds the non-null statistics columns of its row."""

    slot: str
    dtype: str
    shape: tuple[int, ...] | None = None
    stats: dict[str, Any] = {}
    tensor_name: str | None = None
    role: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong: which call, where, why, how sure, and the evidence as data."""

    kind: str
    rank: int = 0
    step: int = 0
    index: int | None = None
    call: str | None = None
    op: str | None = None
    phase: str | None = None
    module: str | None = None
    source: str | None = None
    forward: Forward | None = None
    status: str | None = None
    reasons: tuple[str, ...] = ()
    confidence: str = "proven"
    evidence: tuple[dict[str, Any], ...] = ()
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The one JSON document a verb prints."""

    opscope: str
    verb: str
    runs: tuple[str, ...] = ()
    verdict: str = "clean"
    complete: bool = True
    findings: tuple[Finding, ...] = ()
    summary: dict[str, Any] = {}
