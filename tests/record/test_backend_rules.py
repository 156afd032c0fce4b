# SPDX-License-Identifier: Apache-2.0
"""Rules that say which backend compiles which graphs and nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.errors import UsageError
from opscope.record.backend_rules import backend_rule_for, parse_backend_rules
from opscope.run.printable import spans


def test_rules_of_graphs_and_of_nodes() -> None:
    rules = parse_backend_rules("graph_0_0/3-5,8=eager; graph_1_*=aot_eager;")
    nodes, whole = (backend_rule_for(rules, name) for name in ("graph_0_0", "graph_1_7"))
    assert nodes is not None
    assert (nodes.backend, nodes.places) == ("eager", {3, 4, 5, 8})
    assert whole is not None
    assert (whole.backend, whole.places) == ("aot_eager", None)
    assert backend_rule_for(rules, "graph_2_0") is None


@given(st.lists(st.integers(0, 5000), min_size=1))
def test_places_are_read_back_as_they_were_written(places: list[int]) -> None:
    (rule,) = parse_backend_rules(f"g/{','.join(spans(places))}=eager")
    assert rule.places == set(places)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ; ",
        "graph_0_0",
        "=eager",
        "graph_0_0=",
        "graph_0_0/=eager",
        "graph_0_0/5-3=eager",
        "graph_0_0/1-=x y",
        "graph_0_0/-1=eager",
        "graph_0_0/0-99999999999=eager",
        "graph_0_0=__import__('os')",
        "x" * (1 << 20) + "=eager",
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--backend"):
        parse_backend_rules(text)
