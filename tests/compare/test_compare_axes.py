# SPDX-License-Identifier: Apache-2.0
"""Arrays in one layout or another, and attributes of calls in the spelling of either framework."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from opscope.compare.pair.attributes import attributes, difference_across
from opscope.compare.verdict.axis_order import best_pair

RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (3, 2, 1, 0), (0, 1, 2, 3)])
def test_an_order_of_axes_is_no_difference(axes: tuple[int, ...]) -> None:
    golden = RANDOM.standard_normal((2, 3, 4, 5)).astype(np.float32)
    found = best_pair(np.ascontiguousarray(golden.transpose(axes)), golden)
    assert found is not None
    assert found.differing == 0


def test_a_square_weight_may_be_turned_and_a_feature_map_flattened() -> None:
    golden = RANDOM.standard_normal((6, 6)).astype(np.float32)
    turned, flat = best_pair(golden.T.copy(), golden), best_pair(golden.reshape(3, 2, 6), golden)
    assert turned is not None
    assert turned.differing == 0
    assert flat is not None
    assert flat.differing == 0


def test_other_values_stay_other_values() -> None:
    golden = RANDOM.standard_normal((4, 5)).astype(np.float32)
    found = best_pair(np.sort(golden, axis=1).T.copy(), golden)
    assert found is not None
    assert found.differing > 0
    assert best_pair(golden[:3], golden) is None


def test_axes_may_be_merged_and_turned_at_once() -> None:
    golden = RANDOM.standard_normal((32, 12)).astype(np.float32)
    for target in (golden.T.reshape(2, 6, 32), golden.T.reshape(6, 2, 32)):
        for one, other in ((target, golden), (golden, target)):
            found = best_pair(one, other)
            assert found is not None
            assert found.differing == 0


def test_any_order_holds_only_where_it_is_asked_for() -> None:
    golden = RANDOM.standard_normal((4, 5)).astype(np.float32)
    mixed = RANDOM.permutation(golden.reshape(-1)).reshape(4, 5)
    found, loose = best_pair(mixed, golden), best_pair(mixed, golden, any_order=True)
    assert found is not None
    assert found.differing > 0
    assert loose is not None
    assert loose.differing == 0


def test_attributes_of_one_convolution_in_both_spellings() -> None:
    torch: dict[str, Any] = {
        "args": [{"tensor": "0"}, {"tensor": "1"}, None, [1, 1], [2, 0], [1, 1], False, [0, 0], 4],
        "kwargs": {},
    }
    graph = {
        "args": [{"tensor": "0"}],
        "kwargs": {
            "pad_list": [2, 2, 0, 0],
            "stride": [1, 1, 1, 1],
            "dilation": [1, 1, 1, 1],
            "groups": 4,
        },
    }
    assert attributes("convolution", json.dumps(torch), world="torch") == attributes(
        "convolution", json.dumps(graph), world="graph"
    )
    assert attributes("convolution", json.dumps(torch), world="torch")["padding"] == (2.0, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[",
        "[1]",
        "{}",
        '{"args": 3, "kwargs": [1]}',
        '{"kwargs": {"pad": ["x"], "stride": {}}}',
    ],
)
def test_what_is_no_attribute_says_nothing(text: str | None) -> None:
    assert attributes("convolution", text, world="torch") == {}


def test_padding_by_mode_is_not_guessed() -> None:
    assert "padding" not in attributes(
        "max_pool2d", '{"kwargs": {"pad_mode": "SAME", "kernel_size": [1, 1, 2, 2]}}', world="graph"
    )
    assert attributes("max_pool2d", '{"kwargs": {"pad_mode": "VALID"}}', world="graph")[
        "padding"
    ] == (
        0.0,
        0.0,
    )


@pytest.mark.parametrize(
    ("pads", "padding"), [([1, 2, 1, 2], (1, 2)), ([0, 1, 2, 3], (0, 2, 1, 3)), ([3, 3], (3, 3))]
)
def test_onnx_names_the_begins_of_all_axes_before_their_ends(
    pads: list[int], padding: tuple[int, ...]
) -> None:
    text = json.dumps({"args": [], "kwargs": {"pads": pads, "group": 4, "kernel_shape": [3, 3]}})
    found = attributes("convolution", text, world="onnx")
    assert (found["padding"], found["groups"]) == (padding, (4.0,))
    assert attributes("max_pool2d", text, world="onnx")["kernel_size"] == (3.0, 3.0)


@pytest.mark.parametrize(
    ("pads", "padding"),
    [([[1, 1], [2, 2]], (1, 2)), ([[0, 2], [1, 3]], (0, 2, 1, 3)), ([[3, 3]], (3, 3))],
)
def test_jax_names_both_ends_of_each_axis(pads: list[list[int]], padding: tuple[int, ...]) -> None:
    named = {"padding": pads, "feature_group_count": 4, "window_strides": [2, 2]}
    text = json.dumps({"args": [], "kwargs": named | {"rhs_dilation": [1, 3]}})
    found = attributes("convolution", text, world="jax")
    assert (found["padding"], found["groups"], found["stride"]) == (padding, (4.0,), (2.0, 2.0))
    assert found["dilation"] == (1.0, 3.0)


def test_attributes_of_two_worlds_are_held_against_each_other() -> None:
    norm = {"args": [{"tensor": "0"}, {"tensor": "1"}, {"tensor": "2"}], "kwargs": {"epsilon": 0.1}}
    eager = {"args": [{"tensor": "0"}, [8], {"tensor": "1"}, {"tensor": "2"}, 1e-5], "kwargs": {}}
    texts, worlds = (json.dumps(norm), json.dumps(eager)), ("onnx", "torch")
    told = difference_across("native_layer_norm", texts, worlds)
    assert told == "argument epsilon is 0.1, golden has 1e-05"
    assert difference_across("native_layer_norm", texts[:1] * 2, worlds[:1] * 2) == ""
