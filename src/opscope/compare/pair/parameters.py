# SPDX-License-Identifier: Apache-2.0
"""Parameters of two programs that hold the same when their models are first called, whatever their
names, and those that one side holds as one.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.pair.levels import within_modules
from opscope.compare.pair.sketches import Sketch, sketch, together
from opscope.compare.side.call_rows import computing, places_of
from opscope.compare.side.columns import MODULE, Side
from opscope.compare.side.contents import in_dumps
from opscope.operators.catalogue import traits_of
from opscope.run.hashes import distinct
from opscope.run.keys import NONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opscope.arrays import Floats, Ints, Words

PARTS = 64  # parameters of one side that another holds as one
STRIDES = (1, 2, 3, 4)  # how they stand among their neighbours: weights beside biases
MOST_BESIDE = 8  # of each of several layers that another holds stacked
EXACT = 1e-9  # of statistics of the same values, summed in another order
SUMMED = 1e-5  # the same of dumps of other tools, which sum in float32
DIGITS, SUMMED_DIGITS = 6, 3  # behind the first, of sums of squares in either
LEARNT = 1e-3  # of first gradients, by which parameters of one content are told apart
LEFT = 1e-5  # the same of what the first step leaves, which is near what it began with
KEPT = 1e-3  # of what gets no gradient: norms keep the variance of a sample, or of all that is
SAME = 1e-6  # of either, which tells nothing
MOST = 256  # of them that are looked at

Names = tuple[tuple[int, ...], tuple[int, ...]]


class Known(NamedTuple):
    """What is known of a side's parameters beside what they begin as: by their names the first
    gradient of each that gets one, and what the first step that writes to it leaves.
    """

    gradient: dict[int, Sketch]
    left: dict[int, Sketch]


def same_parameters(target: Side, golden: Side) -> list[Names]:
    """Parameters that hold the same when the models are first called, by the hashes of their names:
    those of the target, those of golden; one of them, or one that holds several.
    """
    sides, dumps = (target, golden), in_dumps(target, golden)
    first = [first_read(side) for side in sides]
    held = [
        {name: sketch(side, [row]) for name, row in rows.items()}
        for side, rows in zip(sides, first, strict=True)
    ]
    known = [
        Known(_gradients(side), _left(side, rows)) for side, rows in zip(sides, first, strict=True)
    ]
    groups = [_alike(sketches, SUMMED_DIGITS if dumps else DIGITS) for sketches in held]
    of_norms = kept_names(target, first[0]), kept_names(golden, first[1])
    contents = [*_of_both(groups, of_norms)]
    filled = [all(held[0][name].filled for name in names[0]) for names in contents]
    partners = [
        pair
        for names, one in zip(contents, filled, strict=True)
        for pair in _of_one_content(names, known, strictly=one)
    ]
    partners.extend(_joined(_without(held, partners), known, SUMMED if dumps else EXACT))
    numbers = [{content.least for content in side.values() if content.filled} for side in held]
    for number in sorted(numbers[0] & numbers[1]):  # zeros are no ones, though trained as these are
        moved = [
            {name: each.gradient[name] for name in side if name in each.gradient}
            for each, side in zip(known, map(partial(_filled_with, number), held), strict=True)
        ]
        partners.extend(_joined(_without(moved, partners), known, LEARNT))
    for names in compress(
        contents, filled
    ):  # by their order those that no gradient tells to be parts of others
        gone = _settled(partners)
        rest = [[name for name in names[at] if name not in gone[at]] for at in (0, 1)]
        partners += _of_one_content((rest[0], rest[1]), known)
    return partners


def _of_both(
    groups: list[dict[tuple[float, ...], list[int]]], of_norms: tuple[set[int], set[int]]
) -> Iterator[tuple[list[int], list[int]]]:
    """The names of both sides that are of one content; what a norm keeps begins as its weights do,
    and is apart.
    """
    for about, names in groups[0].items():
        both = names, groups[1].get(about, [])
        for own in (True, False):
            mine, theirs = (
                [name for name in side if (name in kept) == own]
                for side, kept in zip(both, of_norms, strict=True)
            )
            yield mine, theirs


def _filled_with(number: float, held: dict[int, Sketch]) -> dict[int, Sketch]:
    """What is held of parameters that begin as one number everywhere."""
    return {
        name: content
        for name, content in held.items()
        if content.filled and content.least == number
    }


def _without(held: list[dict[int, Sketch]], partners: list[Names]) -> list[dict[int, Sketch]]:
    """What is held of parameters that have no partner yet."""
    return [
        {name: content for name, content in side.items() if name not in gone}
        for side, gone in zip(held, _settled(partners), strict=True)
    ]


def _settled(partners: list[Names]) -> list[set[int]]:
    """The names of either side that have a partner."""
    return [{name for pair in partners for name in pair[number]} for number in (0, 1)]


def _joined(rest: list[dict[int, Sketch]], known: list[Known], near: float) -> list[Names]:
    """Parameters of either side that hold, within near, what several of the other do."""
    partners: list[Names] = []
    while True:
        new: list[Names] = [
            ((whole,), parts) for whole, parts in _windows(rest[0], rest[1], known, near)
        ]
        new += [(parts, (whole,)) for whole, parts in _windows(rest[1], rest[0], known[::-1], near)]
        if not new:
            return partners
        partners.extend(new)
        for pair in new:
            for number in (0, 1):
                for name in pair[number]:
                    rest[number].pop(name, None)


def first_read(side: Side) -> dict[int, int]:
    """For each parameter the row in which a call inside a module first reads it; any call where the
    program has no modules. Where these were not recorded, that in which it is last read whole until
    a call computes with it, or with a part of it: others load it, or make room for its momentum.
    """
    tensors, calls = side.tensors, side.calls
    rows = np.flatnonzero(tensors.parameter & ~tensors.output & (tensors.named != 0))
    rows = rows[calls.leaf[tensors.call[rows]] & np.isfinite(tensors.l2norm[rows])]
    if (calls.level == MODULE).any():
        rows = rows[within_modules(side)[tensors.call[rows]]]
    rows = rows[np.argsort(tensors.named[rows], kind="stable")]
    names, begins = np.unique(tensors.named[rows], return_index=True)
    recorded = side.run.info.coverage.modules or not len(rows)
    at = begins if recorded else _begun_with(side, rows, begins)
    return dict(
        sorted(zip(names.tolist(), rows[at].tolist(), strict=True), key=lambda entry: entry[1])
    )


def _begun_with(side: Side, rows: Ints, begins: Ints) -> Ints:
    """Of rows by parameters, which begin at these places, where each is last read whole until a
    call computes with it; its first where none does.
    """
    tensors, at = side.tensors, np.arange(len(rows))
    ends = np.append(begins[1:], len(rows))
    sizes = tensors.size[rows]
    whole = sizes == np.repeat(np.maximum.reduceat(sizes, begins), ends - begins)
    computes = side.which(side.calls.op, _computes)[tensors.call[rows]]
    first = np.minimum.reduceat(np.where(computes, at, len(rows)), begins)
    last = np.maximum.accumulate(np.where(whole, at, NONE))[np.minimum(first, ends - 1)]
    known: Ints = np.where((first < ends) & (last >= begins), last, begins)
    return known


def _computes(op: str) -> bool:
    """Whether an operator reads what its inputs hold, and does not write over it."""
    traits = traits_of(op)
    return not (traits.idle or traits.overwrites)


def gradient_rows(side: Side) -> Ints:
    """The rows in which gradients of named parameters are made."""
    tensors = side.tensors
    return np.flatnonzero(
        tensors.output & ~tensors.parameter & ~tensors.constant & (tensors.named != 0)
    )


def learnt_names(side: Side) -> Words:
    """Names of parameters that get gradients."""
    return distinct(side.tensors.named[gradient_rows(side)])


def _gradients(side: Side) -> dict[int, Sketch]:
    """What the backward passes of the first step in which a parameter gets a gradient leave of it
    (else what is made of it there), of each that gets one: what else begins as zeros is a buffer.
    """
    rows = gradient_rows(side)
    backward = side.in_phase("backward")[side.tensors.call[rows]]
    return _of_first_steps(side, rows[~backward]) | _of_first_steps(side, rows[backward])


def _left(side: Side, first: dict[int, int]) -> dict[int, Sketch]:
    """What the first step that writes to a parameter, once it was read, leaves of it."""
    tensors, calls = side.tensors, side.calls
    written = tensors.output & tensors.parameter & (tensors.named != 0)
    rows = np.flatnonzero(written & calls.leaf[tensors.call] & np.isfinite(tensors.l2norm))
    names = tensors.named[rows].tolist()
    after = np.array([first.get(name, len(tensors)) for name in names], dtype=np.int64)
    return _of_first_steps(side, rows[rows > after])


def _of_first_steps(side: Side, rows: Ints) -> dict[int, Sketch]:
    """For each name of some rows the last of them of the step of its first."""
    places, last = dict[int, tuple[int, int]](), dict[int, int]()
    names = side.tensors.named[rows].tolist()
    for row, name, place in zip(rows.tolist(), names, places_of(side, rows), strict=True):
        if places.setdefault(name, place) == place:
            last[name] = row
    return {name: sketch(side, [row]) for name, row in last.items()}


def kept_names(side: Side, first: dict[int, int]) -> set[int]:
    """Names of what is written to between its first reading and the first backward pass, as norms
    write to the mean that they keep.
    """
    tensors = side.tensors
    backward = side.in_phase("backward")
    end = int(np.argmax(backward)) if backward.any() else len(backward)
    written = tensors.output & tensors.parameter & computing(side)[tensors.call]
    rows = np.flatnonzero(written & (tensors.named != 0) & (tensors.call < end))
    names = zip(rows.tolist(), tensors.named[rows].tolist(), strict=True)
    return {name for row, name in names if row > first.get(name, len(tensors))}


def _of_one_content(
    names: tuple[list[int], list[int]], known: list[Known], *, strictly: bool = False
) -> list[Names]:
    """Parameters of one content, as norms and biases begin with, and a copy that is averaged beside
    what is trained: by their first gradients where those agree, then by what the first step leaves,
    else by the order in which they are read; those that get no gradient apart. strictly: those that
    get gradients by these alone.
    """
    if len(names[0]) == len(names[1]) == 1:
        return [((names[0][0],), (names[1][0],))]
    learnt, states = [each.gradient for each in known], [each.left for each in known]
    partners = _of_one_state(names, learnt, LEARNT)
    for own in (True, False)[strictly:] if all(learnt) else (False,):
        mine, theirs = (
            [name for name in side if (name in some and all(learnt)) == own and name not in gone]
            for side, some, gone in zip(names, learnt, _settled(partners), strict=True)
        )
        if len(mine) != len(theirs):
            # one that is tied has no one copy of the other side's for a partner; of another nobody
            # may know that it gets a gradient
            rest = [
                [name for name in side if own and name not in gone]
                for side, gone in zip(names, _settled(partners), strict=True)
            ]
            if found := _of_one_state(
                (_told(rest[0], states[0]), _told(rest[1], states[1])), states, LEFT
            ):
                return [*partners, *found]
            continue
        alike = _of_one_state((mine, theirs), states, LEFT if own else KEPT)
        rest = [
            [name for name in side if name not in gone]
            for side, gone in zip((mine, theirs), _settled(alike), strict=True)
        ]
        partners += [
            *alike,
            *(((name,), (partner,)) for name, partner in zip(*rest, strict=True)),
        ]
    return partners


def _told(names: list[int], states: dict[int, Sketch]) -> list[int]:
    """Those of names that no other of them is mistaken for by its state."""
    known = [name for name in names if name in states][:MOST]
    return [
        name
        for name in known
        if all(states[name].error(states[other]) > LEFT for other in known if other != name)
    ]


def _of_one_state(
    names: tuple[list[int], list[int]], states: list[dict[int, Sketch]], near: float
) -> list[Names]:
    """Those of which the states are nearest to each other, and near enough; by the order in which
    they are read where that is all the same.
    """
    mine, theirs = (
        [name for name in side if name in known][:MOST]
        for side, known in zip(names, states, strict=True)
    )
    errors = sorted(
        (
            max(states[0][parameter].error(states[1][partner]), SAME),
            abs(at - other),
            at,
            other,
        )
        for at, parameter in enumerate(mine)
        for other, partner in enumerate(theirs)
    )
    partner_of: dict[int, int] = {}
    for error, _, at, other in errors:
        parameter, partner = mine[at], theirs[other]
        if error <= near and parameter not in partner_of and partner not in partner_of.values():
            partner_of[parameter] = partner
    return [
        ((parameter,), (partner_of[parameter],)) for parameter in mine if parameter in partner_of
    ]


def _alike(sketches: dict[int, Sketch], digits: int) -> dict[tuple[float, ...], list[int]]:
    groups: dict[tuple[float, ...], list[int]] = defaultdict(list)
    for name, content in sketches.items():
        squares = float(f"{content.squares:.{digits}e}")
        least, most = (float(f"{end:.{DIGITS}e}") for end in (content.least, content.most))
        groups[content.size, squares, least, most].append(name)
    return groups


def _windows(
    wholes: dict[int, Sketch], parts: dict[int, Sketch], known: list[Known], near: float
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Parameters that hold what several neighbours of the other side do together, each once: what
    begins as a copy of another layer follows it in the order in which they are read. What is filled
    with one number is no whole, but may be a part.
    """
    names, used = list(parts), set[int]()
    sizes = np.array([part.size for part in parts.values()])
    squares = np.array([part.squares for part in parts.values()])
    for whole, held in wholes.items():
        if held.filled:
            continue
        best: tuple[tuple[bool, bool, float], tuple[int, ...]] | None = None
        several = False
        for positions in _candidates(sizes, squares, held, near):
            count = _window((parts[names[at]] for at in positions), held, near)
            window = tuple(names[at] for at in positions[:count])
            if not window or used.intersection(window) or _padded(whole, window, parts, known):
                continue
            found = _unlike(whole, window, known), window
            if found[0][0] and LEFT < found[0][2] < float("inf"):
                continue  # a copy: one alone is trained, and both are written to, otherwise
            several, best = best is not None, min(best or found, found)
            if best[0] <= (False, False, LEFT):
                break
        if best is None:
            continue
        chance = several and all(parts[name].filled for name in best[1])
        if not (chance and LEFT < best[0][2] < float("inf")):  # gains and biases of another norm
            used.update(best[1])
            yield whole, best[1]


def _candidates(
    sizes: Ints, squares: Floats, whole: Sketch, near: float
) -> Iterator[Sequence[int]]:
    """Places at which the parts of a whole may stand, from each place on: at strides that are near,
    or, as of layers that are stacked, a few beside each other, and as many as far behind, as far
    behind those and so on, if they hold as much together.
    """
    for start in range(len(sizes)):
        for stride in STRIDES:
            yield range(start, len(sizes), stride)[:PARTS]
        reach, size = 0, 0
        while size < whole.size and start + reach < len(sizes) and reach < MOST_BESIDE:
            size, reach = size + int(sizes[start + reach]), reach + 1
            groups, rest = divmod(whole.size, size)
            if rest or groups < 2 or groups * reach > PARTS:
                continue
            further = np.arange(reach, (len(sizes) - start - reach) // (groups - 1) + 1)
            beside = np.arange(start, start + reach)
            places = further[:, None, None] * np.arange(groups)[:, None] + beside
            fits = (sizes[places] == sizes[beside]).all(axis=(1, 2))
            held = squares[places].sum(axis=(1, 2))
            fits &= np.abs(held - whole.squares) <= near * whole.squares
            yield from places[fits].reshape(-1, groups * reach).tolist()


def _padded(
    whole: int, window: tuple[int, ...], parts: dict[int, Sketch], known: list[Known]
) -> bool:
    """Whether all but one of some parts are zeros, and no gradient tells that these belong to it: a
    table without the row of its padding, beside a bias that is as long.
    """
    gradients = [each.gradient for each in known]
    alone = sum(parts[name].reach > 0 for name in window) == 1
    return alone and not _error(whole, window, gradients) <= LEARNT


def _unlike(whole: int, window: tuple[int, ...], known: list[Known]) -> tuple[bool, bool, float]:
    """Whether one of a whole and its parts gets a gradient and the other does not, whether both get
    one that is another, and how far what the first step leaves of them is apart.
    """
    learnt = [each.gradient for each in known]
    of_parts = [name in learnt[1] for name in window]
    alone = not all(of_parts) if whole in learnt[0] else any(of_parts)
    otherwise = LEARNT < _error(whole, window, learnt) < float("inf")
    return alone and all(learnt), otherwise, _error(whole, window, [each.left for each in known])


def _error(whole: int, window: tuple[int, ...], states: list[dict[int, Sketch]]) -> float:
    """How far a state of a whole is from that of its parts; inf where one is not known."""
    if whole not in states[0] or not all(name in states[1] for name in window):
        return float("inf")
    return states[0][whole].error(together([states[1][name] for name in window]))


def _window(parts: Iterator[Sketch], whole: Sketch, near: float) -> int:
    """How many of the parts are the whole, within near; 0: no number of them."""
    size, total, squares = 0, 0.0, 0.0
    for count, part in enumerate(parts, 1):
        size, total, squares = size + part.size, total + part.total, squares + part.squares
        if size >= whole.size:
            scale = (whole.squares * whole.size) ** 0.5
            alike = abs(squares - whole.squares) <= near * whole.squares
            alike &= abs(total - whole.total) <= max(near, 1e-6) * scale
            return count if size == whole.size and alike and count > 1 else 0
    return 0
