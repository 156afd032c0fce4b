# SPDX-License-Identifier: Apache-2.0
"""Two runs side by side: which calls belong together, and their tensors."""

from __future__ import annotations

import msgspec

from opscope.compare.pair.alignment import Match
from opscope.compare.pair.tensors import Rows
from opscope.compare.side.columns import Side
from opscope.compare.side.producers import Flow


class Between(msgspec.Struct, frozen=True):
    """What is known of a pairing across frameworks: how attributes differ by target call, and the
    calls that stand for several.
    """

    unlike: dict[int, str]
    groups: tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]


class Pairing(msgspec.Struct, frozen=True):
    """Two runs, who produced what in each, which calls belong together, and their tensors side by
    side.

    between is there where the runs come from different frameworks. dead: calls of either side that
    reach nothing (cause.unused_initialisation). by_regions: the two are written differently and
    were judged by what matters in them (cause.regions); recounted: in steps that both have
    (pair.common_steps); grown: that is apart by rounding which grew until it is seen; metric: the
    rows of a number that both read out and that is not the same, of a metric that each may have of
    its own; beyond: what is made of results was not compared; by_parts: data has other sizes where
    they part. by_wholes: so were two of other degrees, by logical tensors (cause.degrees); until:
    what is no fault of these, and behind which nothing was compared.
    """

    target: Side
    golden: Side
    flows: tuple[Flow, Flow]
    match: Match
    rows: Rows
    between: Between | None = None
    dead: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    by_regions: bool = False
    recounted: bool = False
    grown: bool = False
    metric: tuple[int, int] | None = None
    beyond: bool = False
    by_parts: bool = False
    by_wholes: bool = False
    until: str | None = None
