# SPDX-License-Identifier: Apache-2.0
"""Folders of arrays: a file's partner is the file, or the operator, of its name, whatever order a
folder would have.

A golden of TensorFlow or another folder beside a dump holds the outputs of operators under their
names, with `/` and `.` written `_` as file names need it; the type before a kernel's name is no
part of it. A graph (Mapping.originals) says which original an operator of the device stands for,
where names are not the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from opscope.compare.pair.mapping_slots import Slots
from opscope.compare.side.records import call_records

if TYPE_CHECKING:
    from collections.abc import Mapping as Words

    from opscope.compare.pair.sequences import Pair
    from opscope.compare.side.columns import Side
    from opscope.run.schema import Call

Originals = tuple[
    tuple[str, int] | None, ...
]  # of each output of an operator: the original and the number of its output
ARRAYS = "arrays"  # RunInfo.format of a folder of arrays
_LETTERS = re.compile(r"[^0-9A-Za-z]+")


def beside_files(target: Side, golden: Side) -> bool:
    """Whether one of two runs is a folder of arrays, which knows names and values and nothing of
    calls.
    """
    return (target.run.info.format == ARRAYS) != (golden.run.info.format == ARRAYS)


def same_files(
    target: Side,
    golden: Side,
    given: Iterable[Pair],
    originals: Words[str, Originals] | None = None,
) -> list[Pair]:
    """Calls of one step and name, where each side has one of it and none is given already.

    None where neither side is a folder of arrays and no graph says what the target's operators
    stand for.
    """
    formats = [side.run.info.format for side in (target, golden)]
    if ARRAYS not in formats and not originals:
        return []
    given_calls = [{pair[side] for pair in given} for side in (0, 1)]
    plain = formats[0] == formats[1] == ARRAYS and not originals
    spell = _whole if plain else file_name
    mine = _by_name(target, given_calls[0], lambda call: _original(spell(call), originals or {}))
    theirs = _by_name(golden, given_calls[1], spell)
    return [(call, theirs[key]) for key, call in mine.items() if key in theirs]


def _whole(call: Call) -> str:
    return call.name


def file_name(call: Call | str) -> str:
    """A call's name, or another, as file names would have it."""
    name = call if isinstance(call, str) else call.name.removeprefix(f"{call.op}.")
    return _LETTERS.sub("_", name)


def _original(name: str, originals: Words[str, Originals]) -> str | None:
    """The original whose output the first known output is; None for an operator that stands for
    none, the name itself where unknown.
    """
    if name not in originals:
        return name
    return next((file_name(output[0]) for output in originals[name] if output is not None), None)


def _by_name(
    side: Side, gone: set[int], spell: Callable[[Call], str | None]
) -> dict[tuple[int, int, str], int]:
    """Calls by rank, step and name."""
    named = [
        ((call.rank, call.step, name), number)
        for number, call in call_records(side, range(len(side.calls))).items()
        if number not in gone and side.calls.leaf[number] and (name := spell(call)) is not None
    ]
    counts = Counter(key for key, _ in named)
    return {key: call for key, call in named if counts[key] == 1}


def original_slots(side: Side, originals: Words[str, Originals]) -> list[tuple[int, Slots]]:
    """For each call that a graph knows, which output of its original each of its outputs is."""
    slots = []
    for at, call in call_records(side, range(len(side.calls))).items():
        outputs = originals.get(file_name(call))
        known = (
            []
            if outputs is None
            else [
                (number, original)
                for number, original in enumerate(outputs)
                if original is not None
            ]
        )
        if known:
            named = {
                ("output", str(number)): ("output", str(original[1]))
                for number, original in known
                if original[0] == known[0][1][0]
            }
            slots.append((at, Slots(named)))
    return slots
