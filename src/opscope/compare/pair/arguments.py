# SPDX-License-Identifier: Apache-2.0
"""Arguments of matched calls: which differ, fetched when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.pair.attributes import difference_across
from opscope.compare.side.lowering import world
from opscope.operators.catalogue import kin
from opscope.questions.arguments import difference
from opscope.questions.rows import rows_of_calls

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.run.protocol import Run


class Arguments:
    """Texts of column args, fetched for all calls whose arguments differ when the first is asked
    for.
    """

    def __init__(self, pairing: Pairing, *, limit: int = 50_000) -> None:
        self._pairing = pairing
        self._limit = limit
        self._texts: tuple[Texts, Texts] | None = None

    def differing(self, target: int, golden: int) -> str:
        """How the arguments of two calls differ, "" when they do not or are not known."""
        if self._pairing.between is not None:
            return self._pairing.between.unlike.get(target, "")
        if self._texts is None:
            self._texts = self._fetched()
        key_t, key_g = (
            int(self._pairing.target.calls.key[target]),
            int(self._pairing.golden.calls.key[golden]),
        )
        texts = self._texts[0].get(key_t), self._texts[1].get(key_g)
        return _told(self._pairing, (target, golden), texts)

    def _fetched(self) -> tuple[Texts, Texts]:
        target, golden, match = (
            self._pairing.target,
            self._pairing.golden,
            self._pairing.match.target,
        )
        partner = np.maximum(match, 0)
        if not len(golden.calls) or target.run.info.format != golden.run.info.format:
            return {}, {}
        chosen = np.flatnonzero((match >= 0) & (target.calls.args != golden.calls.args[partner]))[
            : self._limit
        ]
        return _texts(
            (target.run, golden.run), (target.calls.key[chosen], golden.calls.key[match[chosen]])
        )


def difference_of(pairing: Pairing, target: int, golden: int) -> str:
    """How the arguments of any two calls differ, "" when they do not or are not known."""
    keys = pairing.target.calls.key[[target]], pairing.golden.calls.key[[golden]]
    mine, theirs = _texts((pairing.target.run, pairing.golden.run), keys)
    given = mine.get(int(keys[0][0])), theirs.get(int(keys[1][0]))
    return _told(pairing, (target, golden), given)


def _told(
    pairing: Pairing, calls: tuple[int, int], given: tuple[_Text | None, _Text | None]
) -> str:
    """How two texts differ: by the attributes that both worlds have, where they are of two."""
    if given[0] is None or given[1] is None:
        return ""
    ops = pairing.target.operator(calls[0]), pairing.golden.operator(calls[1])
    worlds = world(ops[0]), world(ops[1])
    texts = given[0].args, given[1].args
    if "" in worlds or worlds[0] == worlds[1]:
        ranks = given[0].rank, given[1].rank
        return difference(ops[0], *texts, ranks=ranks if all(ranks) else None)
    words = kin(ops[0]), kin(ops[1])
    return difference_across(words[0], texts, worlds) if words[0] == words[1] else ""


class _Text(NamedTuple):
    """The arguments of a call, and how many dimensions its tensors have at most; 0: not known."""

    args: str
    rank: int


Texts = dict[int, _Text]


def _texts(runs: tuple[Run, Run], keys: tuple[Ints, Ints]) -> tuple[Texts, Texts]:
    """The arguments of pairs of calls, by key; how many dimensions are asked only of pairs of which
    one may count some from the end.
    """
    texts = [
        dict(rows_of_calls(run, np.unique(wanted), "args"))
        for run, wanted in zip(runs, keys, strict=True)
    ]
    from_end = [
        "-" in f"{texts[0].get(mine)}{texts[1].get(theirs)}"
        for mine, theirs in zip(keys[0].tolist(), keys[1].tolist(), strict=True)
    ]
    ranks = [_ranks(run, wanted[from_end]) for run, wanted in zip(runs, keys, strict=True)]
    mine, theirs = (
        {key: _Text(args, known.get(key, 0)) for key, args in some.items() if args is not None}
        for some, known in zip(texts, ranks, strict=True)
    )
    return mine, theirs


def _ranks(run: Run, keys: Ints) -> dict[int, int]:
    ranks: dict[int, int] = {}
    for key, shape in rows_of_calls(run, np.unique(keys), "shape", table="tensors"):
        ranks[key] = max(ranks.get(key, 0), len(shape or ()))
    return ranks
