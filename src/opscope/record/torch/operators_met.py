# SPDX-License-Identifier: Apache-2.0
"""Operators that the program calls and the shipped catalogue does not know: what their schemas tell
goes with the run.
"""

from __future__ import annotations

from typing import Any

from opscope.operators.catalogue import is_shipped, traits_of
from opscope.operators.rows import Row
from opscope.operators.spelling import OWN, namespace
from opscope.operators.traits import Traits
from opscope.record.operators_met import told_row
from opscope.record.torch.operator_facts import derived_row


def row_of(func: Any, op: str) -> Row:
    """What a run has to tell of an operator; nothing of one that the catalogue knows."""
    return told_row(op, _news(op, derived_row(func)) if hasattr(func, "_schema") else {})


def _news(op: str, row: Row) -> Row:
    """What the shipped data leave open: all of an operator of somebody's library; of torch's own
    what is harmless, where no sheet has it.
    """
    known = traits_of(op)
    if namespace(op) in OWN:
        return {"pointwise": True} if row.get("pointwise") and known == Traits() else {}
    if not is_shipped(op):
        return row
    return {
        trait: held
        for trait, held in row.items()
        if trait not in ("writes", "pointwise") and getattr(known, trait) != held
    }
