# SPDX-License-Identifier: Apache-2.0
"""Kinds of operators by how their results err: which rule of judge.tolerance an operator falls
under.
"""

from __future__ import annotations

from opscope.operators.catalogue import remembered, traits_of

# Correct results of these need not be alike: random numbers, bases and orders that are not unique,
# contents of fresh memory.
UNJUDGED = {
    "random": "random numbers: alike only where both sides drew the same",
    "basis": "a factorisation or an order that is not unique",
    "memory": "memory that was not written yet",
    "conditioning": "a solution whose error is that of its matrix, which is not known",
}


@remembered(8192)
def tolerance_kind(name: str) -> str:
    """The rule an operator falls under: a key of judge.tolerance's rules; "unknown" is judged most
    leniently.
    """
    if unjudged_kind(name):
        return "unjudged"
    known = traits_of(name)
    exact = known.moves or known.view or known.predicate
    implied = (
        "cast"
        if known.cast
        else "product"
        if known.contraction
        else "exact"
        if exact
        else "unknown"
    )
    return known.tolerance or implied


@remembered(8192)
def unjudged_kind(name: str) -> str:
    """Why results of an operator need not be alike: a key of UNJUDGED, or an empty text."""
    known = traits_of(name)
    named = known.tolerance if known.tolerance in UNJUDGED else ""
    return "random" if known.random else "memory" if known.allocates else named
