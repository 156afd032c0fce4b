# SPDX-License-Identifier: Apache-2.0
"""Where the nodes of a path stand."""

from __future__ import annotations

from itertools import combinations

from opscope.view.layout import FIRST, HEIGHT, LAST, WIDTH, lay_out, shown


def test_a_spine_goes_down_and_what_it_reads_stands_beside() -> None:
    found = lay_out([("a", 0), ("b", 0), ("c", 0)], {"a": ["p", "q"], "b": ["p"], "c": []})
    places = {node.id: (node.x, node.y) for node in found.nodes}
    assert [places[name][0] for name in "abc"] == [0, 0, 0]
    assert places["a"][1] < places["b"][1] < places["c"][1]
    assert places["p"][1] == places["a"][1]
    assert min(places["p"][0], places["q"][0]) > WIDTH
    assert {(edge.source, edge.target) for edge in found.edges} == {
        ("a", "b"), ("b", "c"), ("p", "a"), ("q", "a"), ("p", "b"),
    }  # fmt: skip


def test_no_two_nodes_overlap_and_all_lie_within() -> None:
    path = [(f"n{place}", 0) for place in range(12)]
    beside = {
        f"n{place}": [f"s{place}.{other}" for other in range(place % 4)] for place in range(12)
    }
    found = lay_out(path, beside)
    for one, other in combinations(found.nodes, 2):
        assert abs(one.x - other.x) >= WIDTH or abs(one.y - other.y) >= HEIGHT, (one, other)
    assert all(0 <= node.x <= found.width - WIDTH for node in found.nodes)
    assert all(0 <= node.y <= found.height - HEIGHT for node in found.nodes)


def test_a_long_path_is_folded_in_its_middle() -> None:
    path = [str(number) for number in range(500)]
    drawn = shown(path)
    assert len(drawn) == FIRST + LAST + 1
    assert [folded for _, folded in drawn if folded] == [500 - FIRST - LAST]
    assert drawn[0][0] == "0"
    assert drawn[-1][0] == "499"


def test_nothing_is_laid_out_of_nothing() -> None:
    assert lay_out([], {}).nodes == ()
