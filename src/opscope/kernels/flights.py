# SPDX-License-Identifier: Apache-2.0
"""Collectives that were begun and have not arrived: the reference of native/recorder_flights.cpp.

Their outputs are read once, when the work has completed, before a call reads or writes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from threading import get_ident
from typing import Any

from opscope.kernels.calls import (
    Draft,
    Facts,
    Flight,
    Landing,
    Observed,
    Storage,
    covering,
    written,
)

# What a compiled graph was seen to write to, which nobody had said before it ran.


class GraphWrites:
    """The part of the bookkeeper that is told so while the graph's call is open."""

    _open: dict[int, list[Draft]]

    def wrote(self, slots: Sequence[str]) -> None:
        """The graph that is running in this thread has written to these of its inputs too."""
        calls = reversed(self._open.get(get_ident(), []))
        draft = next((each for each in calls if each.operator.graph), None)
        if draft is None:
            return
        for seen in draft.inputs:
            new = seen.slot in slots and not written(draft.operator, seen.slot)
            if new and seen.storage is not None:
                seen.storage.steady -= 1
        draft.operator = replace(draft.operator, writes=draft.operator.writes | {*slots})


MOST_FLIGHTS = 64  # a program may begin collectives for ever and wait for none
MOST_STEPS = 2


class Flights(GraphWrites, ABC):
    """The part of the bookkeeper that hears of calls after they began: it waits for collectives."""

    active: bool
    step: int
    binding: Any

    def __init__(self) -> None:
        self._finished: list[Draft] = []
        self._flights: list[Flight] = []
        self._waiting: dict[
            int, int
            # by thread: what is called while it waits for a collective is the backend's own work
        ] = {}

    @abstractmethod
    def _read_version(self, seen: Observed) -> None: ...

    def begin_wait(self, work: Any) -> bool:
        """The program waits for a c10d Work: whether it is one of ours; then end_wait follows."""
        if not self.active or self._flight_of(work) is None:
            return False
        self._waiting[get_ident()] = self._waiting.get(get_ident(), 0) + 1
        return True

    def end_wait(self, work: Any, arrived: bool) -> None:  # noqa: FBT001 - as the compiled one takes it
        """The waiting is over, and what the collective gives has arrived or not."""
        self._waiting[get_ident()] -= 1
        flight = self._flight_of(work)
        if flight is not None and arrived:
            self._land(flight)

    def _flight_of(self, work: Any) -> Flight | None:
        return next(
            (flight for flight in self._flights if flight.work is not None and flight.work is work),
            None,
        )

    def _take_off(self, draft: Draft, result: Any) -> None:
        """After the outputs were observed: takes their versions out of the storages until they
        arrive.
        """
        if not draft.operator.begins:
            return
        work = self.binding.work_of(result)
        if work is None and not draft.operator.functional:
            return
        operator = draft.operator
        given = [
            (seen.storage, covering(seen.facts)[0])
            for seen in draft.inputs
            if seen.storage and not written(operator, seen.slot)
        ]
        outputs = (
            draft.outputs
            if draft.selected
            else [seen for seen in draft.inputs if written(draft.operator, seen.slot)]
        )
        flight = Flight(work, self.step, [], draft if draft.selected else None)
        for seen in outputs:
            storage = seen.storage
            if storage is None:
                continue
            key = covering(seen.facts)[0]
            if not any(storage is one and key == other for one, other in given):
                storage.versions.pop(key, None)
                storage.awaited += 1
                flight.landings.append(
                    Landing(storage, key, seen.version, seen.tensor, seen.facts.extent)
                )
        if flight.landings:
            self._flights.append(flight)
            if len(self._flights) > MOST_FLIGHTS:
                self._give_up(self._flights[0])

    def _awaited(self, storage: Storage, extent: range) -> bool:
        """Whether what a tensor covers is still being filled by a collective; one that has
        completed lands.
        """
        waiting = False
        for flight in [each for each in self._flights if each.meets(storage, extent)]:
            if self._completed(flight):
                self._land(flight)
            else:
                waiting = True
        return waiting

    def _overwrite(self, storage: Storage, extent: range) -> None:
        """A call wrote where a collective's result was to arrive: what that was will not be
        known.
        """
        for flight in [
            each for each in self._flights if storage.awaited and each.meets(storage, extent)
        ]:
            self._give_up(flight)

    def _land_awaited(self, draft: Draft) -> None:
        """wait_tensor: what was begun on the storages of its arguments has arrived."""
        awaited = [
            (seen.storage, seen.facts.extent)
            for seen in draft.inputs
            if seen.storage is not None and seen.storage.awaited
        ]
        for storage, extent in awaited:
            begun = [flight for flight in self._flights if flight.work is None]
            for flight in [flight for flight in begun if flight.meets(storage, extent)]:
                self._land(flight)

    def _completed(self, flight: Flight) -> bool:
        """On a device the program's own streams see to the order; what functional collectives began
        is waited for.
        """
        if flight.work is None:
            return False
        if any(self.binding.facts(landing.tensor).staged for landing in flight.landings):
            return True
        with suppress(Exception):  # a backend's own
            if flight.work.is_completed() is True:
                return True
        if flight.futureless:
            return False
        try:
            return (
                flight.work.get_future().done() is True
            )  # a future is told of what arrived before its work is
        except Exception:  # noqa: BLE001 - works that have none
            flight.futureless = True
            return False

    def _land(self, flight: Flight) -> None:
        if not self._depart(flight):
            return
        for landing in flight.landings:
            landing.storage.make(landing.extent)
            if landing.version is not None and self.binding.whole(landing.tensor):
                landing.storage.versions[landing.key] = landing.version
                facts: Facts = self.binding.facts(landing.tensor)
                _, order, copies = covering(facts)
                seen = Observed(
                    "output",
                    "",
                    landing.tensor,
                    facts,
                    landing.storage,
                    landing.version,
                    copies,
                    order,
                )
                self._read_version(seen)
        self._append(flight)

    def _give_up(self, flight: Flight) -> None:
        if self._depart(flight):
            self._append(flight)

    def _depart(self, flight: Flight) -> bool:
        if flight not in self._flights:
            return False
        self._flights.remove(flight)
        for landing in flight.landings:
            landing.storage.awaited -= 1
        return True

    def _append(self, flight: Flight) -> None:
        if flight.draft is not None:
            self._finished.append(flight.draft)

    def _settle(self, *, everything: bool) -> None:
        """Before rows leave: what has completed meanwhile is read; nobody has touched it, or it
        would have landed.
        """
        for flight in list(self._flights):
            if self._completed(flight):
                self._land(flight)
            elif everything or flight.step < self.step - MOST_STEPS:
                self._give_up(flight)
