# SPDX-License-Identifier: Apache-2.0
"""A run as a trace: JSON, every slice closed, modules around their operators, counters of results."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from tests.view.view_runs import overflowing

from opscope.view.trace import trace


def events(**more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads("".join(trace(overflowing(), **more)))
    return found


def test_slices_nest_as_calls_do_and_all_are_closed() -> None:
    run = overflowing()
    parents = {call.index: call.parent for call in run.rows("calls")}
    names = {call.index: call.name for call in run.rows("calls")}
    open_calls: list[str] = []
    inside = {}
    for event in events():
        if event["ph"] == "B":
            inside[event["args"]["call"], event["args"]["step"]] = open_calls[-1:]
            open_calls.append(event["args"]["call"])
        elif event["ph"] == "E":
            open_calls.pop()
    assert open_calls == []
    assert len(inside) == len(names)
    for call in run.rows("calls"):
        parent = parents[call.index]
        assert inside[call.name, call.step] == ([] if parent is None else [names[parent]])


def test_time_never_goes_back_and_counters_say_where_elements_were_lost() -> None:
    found = events()
    times = [event["ts"] for event in found]
    assert times == sorted(times)
    lost = [e["args"]["elements"] for e in found if e["ph"] == "C" and e["name"] == "not finite"]
    assert lost[0] == 0
    assert max(lost) > 0
    largest = [e["args"]["value"] for e in found if e.get("name") == "largest magnitude"]
    assert 65504.0 in largest


def test_what_is_redacted_is_not_there_and_names_cannot_break_out() -> None:
    kept = "".join(trace(overflowing(name='a"]}\n<script>')))
    assert json.loads(kept)
    text = "".join(trace(overflowing(), redact=frozenset({"values", "sources"})))
    assert '"C"' not in text
    assert '"source"' not in text
    assert msgspec.json.decode(text)
