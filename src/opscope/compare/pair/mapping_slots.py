# SPDX-License-Identifier: Apache-2.0
"""Which tensor of a call is which of its partner, where a mapping file says so: slots of an
operator's calls, or single tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.compare.side.call_rows import rows_of
from opscope.compare.side.records import call_records, tensor_records
from opscope.run.hashes import hash_of

if TYPE_CHECKING:
    from collections.abc import Mapping as Words

    from opscope.arrays import Ints
    from opscope.compare.pair.alignment import Match
    from opscope.compare.side.columns import Side

Slot = tuple[str, str]  # "input" or "output", and the slot's name


class Slots(msgspec.Struct, frozen=True):
    """Slots of a call of the target by those of its partner. closed: groups of slots of which those
    that are not named have no partner.
    """

    names: dict[Slot, Slot]
    closed: frozenset[str] = frozenset()


def group_of(slot: Slot) -> str:
    """input, output, parameters, or gradient (of parameters, which are outputs that bear names)."""
    io, name = slot
    if name.startswith("parameters."):
        return "parameters"
    return "gradient" if io == "output" and not name[:1].isdigit() else io


class Fixed(msgspec.Struct, frozen=True):
    """Rows of tensors that belong together whatever they look like, [n, 2], and those of either
    side that stand alone.
    """

    pairs: Ints
    alone: tuple[Ints, Ints]

    @property
    def rows(self) -> tuple[Ints, Ints]:
        """All rows of either side of which something was said."""
        return np.union1d(self.pairs[:, 0], self.alone[0]), np.union1d(
            self.pairs[:, 1], self.alone[1]
        )


def fixed_rows(
    target: Side, golden: Side, match: Match, rules: Iterable[tuple[int, Slots]]
) -> Fixed:
    """What rules for calls of the target (places) say of rows; calls without a partner are left as
    they are.
    """
    pairs: list[tuple[int, int]] = []
    closed: tuple[dict[int, frozenset[str]], dict[int, frozenset[str]]] = ({}, {})
    for call, slots in rules:
        partner = int(match.target[call])
        if partner < 0:
            continue
        own, others = _rows(target, call), _rows(golden, partner)
        codes = [(_code(slot), _code(partner_slot)) for slot, partner_slot in slots.names.items()]
        met = [
            (own[code], others[partner_code])
            for code, partner_code in codes
            if code in own and partner_code in others
        ]
        pairs.extend(met)
        if slots.closed:
            for number, rows in enumerate((own, others)):
                paired = {pair[number] for pair in met}
                closed[number].update(
                    {row: slots.closed for row in rows.values() if row not in paired}
                )
    alone = _within(target, closed[0]), _within(golden, closed[1])
    return Fixed(np.array(pairs, dtype=np.int64).reshape(-1, 2), alone)


def _within(side: Side, rows: Words[int, frozenset[str]]) -> Ints:
    """Those of the rows whose slot is in one of the groups given for them."""
    records = tensor_records(side, np.array(sorted(rows), dtype=np.int64)) if rows else {}
    grouped = [
        row for row, tensor in records.items() if group_of((tensor.io, tensor.slot)) in rows[row]
    ]
    return np.array(sorted(grouped), dtype=np.int64)


def _code(slot: Slot) -> tuple[bool, int]:
    return slot[0] == "output", hash_of(slot[1])


def _rows(side: Side, call: int) -> dict[tuple[bool, int], int]:
    """Rows of a call by side of it and hash of the slot."""
    tensors = side.tensors
    rows = rows_of(side, call)
    if side.base is not None:  # calls put together have slots of their own
        records = tensor_records(side, np.array(rows, dtype=np.int64)) if rows else {}
        return {_code((record.io, record.slot)): row for row, record in records.items()}
    return {(bool(tensors.output[row]), int(tensors.slot[row])): row for row in rows}


def rules_for(
    side: Side, by_operator: Words[str, Slots], by_call: Iterable[tuple[int, Slots]]
) -> Iterator[tuple[int, Slots]]:
    """Each call that a rule speaks of, by its place, with the rule."""
    yield from by_call
    if side.base is not None and by_operator:  # in the common words of two frameworks
        recorded = call_records(side, range(len(side.calls))).items()
        yield from (
            (number, by_operator[call.op]) for number, call in recorded if call.op in by_operator
        )
        return
    codes = {code: by_operator[word] for code, word in side.words.items() if word in by_operator}
    for code, slots in codes.items():
        yield from (
            (call, slots) for call in np.flatnonzero(side.calls.op == np.uint64(code)).tolist()
        )
