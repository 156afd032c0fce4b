# SPDX-License-Identifier: Apache-2.0
"""Arguments of matched calls: which differ, fetched when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opscope.compare.pair.attributes import difference_across
from opscope.compare.side.lowering import APART, world
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
        self._texts: tuple[dict[int, str], dict[int, str]] | None = None

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

    def _fetched(self) -> tuple[dict[int, str], dict[int, str]]:
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
        return _texts(target.run, target.calls.key[chosen]), _texts(
            golden.run, golden.calls.key[match[chosen]]
        )


def difference_of(pairing: Pairing, target: int, golden: int) -> str:
    """How the arguments of any two calls differ, "" when they do not or are not known."""
    keys = pairing.target.calls.key[[target]], pairing.golden.calls.key[[golden]]
    texts = _texts(pairing.target.run, keys[0]), _texts(pairing.golden.run, keys[1])
    args = texts[0].get(int(keys[0][0])), texts[1].get(int(keys[1][0]))
    return _told(pairing, (target, golden), args)


def _told(pairing: Pairing, calls: tuple[int, int], texts: tuple[str | None, str | None]) -> str:
    """How two texts differ: by the attributes that both worlds have, where they are of two."""
    ops = pairing.target.operator(calls[0]), pairing.golden.operator(calls[1])
    worlds = world(ops[0]), world(ops[1])
    if not APART & set(worlds) or worlds[0] == worlds[1]:
        return difference(ops[0], *texts)
    words = kin(ops[0]), kin(ops[1])
    return difference_across(words[0], texts, worlds) if words[0] == words[1] else ""


def _texts(run: Run, keys: Ints) -> dict[int, str]:
    return {
        key: args for key, args in rows_of_calls(run, np.unique(keys), "args") if args is not None
    }
