# SPDX-License-Identifier: Apache-2.0
"""The forward passes of one step of two runs of other degrees, site by site."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opscope.compare.cause.results import endings
from opscope.compare.cause.walks import MAX_REGION
from opscope.compare.pair.meetings import AGREEING, COARSEST
from opscope.compare.pair.tensors import product_unit
from opscope.compare.pair.wholes import Wholes, distance, simple
from opscope.compare.side.reduced_products import reduced_products
from opscope.compare.side.tokens import bare_module
from opscope.operators.catalogue import family, traits_of

NORMALISED = "norm"  # how a normalisation carries errors, in the catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opscope.arrays import Ints
    from opscope.compare.pair.pairing import Pairing
    from opscope.compare.pair.sketches import Sketch
    from opscope.compare.pair.wholes import Site


class Wired(NamedTuple):
    """A call of a rank that reads what another one made than it does on other ranks."""

    call: int
    words: str


class Both:
    """What the ranks of either side hold together, and when that is the same."""

    def __init__(self, pairing: Pairing) -> None:
        self.mine = Wholes(pairing.target, pairing.flows[0])
        self.theirs = Wholes(pairing.golden, pairing.flows[1])
        sides = pairing.target, pairing.golden
        unit = max(2.0**-24, *map(product_unit, sides, map(reduced_products, sides)))
        self.limit = min(AGREEING * unit, COARSEST)

    @cached_property
    def endings(self) -> Ints:
        """Rows of golden's losses, and of what its model hands out where it has none."""
        return endings(self.theirs.side, self.theirs.flow.source_row)

    def error(self, mine: Sketch, theirs: Sketch, batches: tuple[int, int] = (1, 1)) -> float:
        """How far apart two are as wholes; inf where one is no simple multiple of the other."""
        return distance(mine, theirs) if self.fit(mine, theirs, batches) else float("inf")

    def fit(self, mine: Sketch, theirs: Sketch, batches: tuple[int, int] = (1, 1)) -> bool:
        """Whether ranks hold so many elements of a whole, in these numbers of parts."""
        most = len(self.mine.ranks) * batches[0], len(self.theirs.ranks) * batches[1]
        return simple(mine, theirs, most)


class Forward:
    """The forward passes of one step, by sites."""

    def __init__(self, both: Both, step: int) -> None:
        self._both, self.step = both, step
        self._own, self.mine = both.mine.sites(step)
        self._site_of, self.theirs = both.theirs.sites(step)
        self._batches = both.mine.most_batches(step), both.theirs.most_batches(step)
        self._errors: dict[Site, float] = {}
        self._inside: dict[str, list[Site]] = {}
        for site in self.mine:
            self._inside.setdefault(site.module, []).append(site)

    def error(self, site: Site) -> float:
        """How far a site's results are from golden's; NaN where nothing is known."""
        if site not in self._errors:
            self._errors[site] = self._measured(site)
        return self._errors[site]

    def _known(self, site: Site) -> float:
        """The same, but where statistics agree that it makes alike of whatever it reads."""
        error = self.error(site)
        scaled = traits_of(f"aten::{site.op}").error == NORMALISED
        return float("nan") if scaled and error <= self._both.limit else error

    def _measured(self, site: Site) -> float:
        whole = self._sketch(self._both.theirs, self.theirs[site])
        if whole is None:
            return float("nan")
        nearest = float("nan")
        around = [site] if site in self.mine else []
        around += [sibling for sibling in self._inside.get(site.module, ()) if sibling != site]
        for other in around:
            mine = self._sketch(self._both.mine, self.mine[other])
            if mine is None:
                continue
            error = self._apart(mine, whole)
            if other == site:
                nearest = error
            if error <= self._both.limit:
                return error
        return nearest

    @staticmethod
    def _sketch(side: Wholes, calls: list[int]) -> Sketch | None:
        rows = side.results(calls)
        if not rows or max(int(side.side.tensors.size[row]) for row in rows) < 2:
            return None  # a number: the mean of parts is not that of a whole of other parts
        return side.of(rows)

    def _apart(self, mine: Sketch, theirs: Sketch) -> float:
        return self._both.error(mine, theirs, self._batches)

    def ends(self) -> list[Site]:
        """The last sites of golden of which something is known: nothing that is known reads them
        on the way to the loss, or out of the model.
        """
        way = self._way_back(lambda call: bool(np.isnan(self._known_of(call))))
        return list(
            dict.fromkeys(self._site_of[call] for call in way if not np.isnan(self._known_of(call)))
        )

    def start(self, limit: float) -> Site | None:
        """The first site, on the way to the ends, that is apart and reads nothing that is."""
        way = self._way_back(lambda call: not self._known_of(call) <= limit)
        apart = [call for call in way if self._known_of(call) > limit]
        return self._site_of[min(apart)] if apart else None

    def _known_of(self, call: int) -> float:
        """What is known of the site of a call of golden; NaN where it has none."""
        site = self._site_of.get(call)
        return float("nan") if site is None else self._known(site)

    def _way_back(self, goes_on: Callable[[int], bool]) -> Iterator[int]:
        """The calls of golden from the last ones back, each once, beyond those alone from which
        the way goes on.
        """
        waiting, seen = self._last(), set[int]()
        while waiting:
            call = waiting.pop()
            if call in seen:
                continue
            seen.add(call)
            yield call
            if goes_on(call):
                waiting.extend(self._above(self._both.theirs, call))

    def _last(self) -> list[int]:
        """The calls that made a loss, or what the model hands out where there is none."""
        side = self._both.theirs.side
        calls = side.tensors.call[self._both.endings]
        last: list[int] = calls[side.calls.step[calls] == self.step].tolist()
        return last

    def _above(self, side: Wholes, call: int) -> list[int]:
        """The calls of the step that made what a call reads, parameters left out: these are judged
        by themselves.
        """
        calls, parameter = side.side.calls, side.side.tensors.parameter
        made = [int(side.flow.producer[row]) for row in side.inputs(call) if not parameter[row]]
        return [
            producer
            for producer in made
            if producer >= 0 and int(calls.step[producer]) == self.step
        ]

    def before(self, calls: list[int]) -> list[int]:
        """The calls of the target on the way to some of a site, up to what is known to agree."""

        def parts(call: int) -> bool:
            site = self._own.get(call)
            return not (site in self.theirs and self._known(site) <= self._both.limit)

        return sorted(self._back(self._both.mine, calls, parts) - {*calls})

    def around(self, call: int) -> tuple[int, ...]:
        """A call of golden, and those before it of which nothing is known."""

        def unknown(call: int) -> bool:
            site = self._site_of.get(call)
            return site is None or bool(np.isnan(self._known(site)))

        return tuple(sorted(self._back(self._both.theirs, [call], unknown)))

    def _back(self, side: Wholes, calls: list[int], wanted: Callable[[int], bool]) -> set[int]:
        """Calls, and those before them as far as all on the way are wanted."""
        waiting, seen = list(calls), {*calls}
        while waiting and len(seen) < MAX_REGION:
            for made in self._above(side, waiting.pop()):
                if made not in seen and wanted(made):
                    seen.add(made)
                    waiting.append(made)
        return seen

    def some_ranks(self, call: int) -> set[int]:
        """The ranks that run a call, where others of those that run its module do not."""
        site = self._own.get(call)
        if site is None:
            return set()
        own = {self._both.mine.rank_of(member) for member in self.mine[site]}
        around = {
            self._both.mine.rank_of(member)
            for other in self._inside[site.module]
            for member in self.mine[other]
        }
        return own if own != around else set()

    def wired_otherwise(self, calls: list[int], golden: list[int]) -> Wired | None:
        """The first call of a site that does not read what the same calls made as on golden's side,
        where other ranks do; else as on most ranks.
        """
        read = {call: self._makers(self._both.mine, call) for call in calls}
        usual, times = Counter(read.values()).most_common(1)[0]
        theirs = self._makers(self._both.theirs, golden[0])
        if theirs in read.values():
            usual = theirs
        elif 2 * times <= len(calls):
            return None
        odd = [
            call for call, makers in read.items() if len(makers) == len(usual) and makers != usual
        ]
        if not odd:
            return None
        pairs = zip(read[odd[0]], usual, strict=True)
        own, other = next((own, other) for own, other in pairs if own != other)
        rank = self._both.mine.rank_of(odd[0])
        return Wired(odd[0], f"rank {rank} reads what {own} made, where others read {other}'s")

    @staticmethod
    def _makers(side: Wholes, call: int) -> tuple[str, ...]:
        """Who made each of what a call reads, parameters and numbers left out."""
        tensors, words, calls = side.side.tensors, side.side.words, side.side.calls
        rows = [r for r in side.inputs(call) if not tensors.parameter[r] and tensors.size[r] > 1]
        makers = [int(side.flow.producer[row]) for row in rows]
        return tuple(
            "nobody recorded"
            if maker < 0
            else f"{bare_module(words.get(int(calls.module[maker]), '')) or 'the program'}:"
            f"{family(words.get(int(calls.op[maker]), ''))}"
            for maker in makers
        )
