# SPDX-License-Identifier: Apache-2.0
"""Pictures of values and of differences: bytes by powers of two, of what falls together the largest."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from view_runs import overflowing

from opscope.report.json import json_text
from opscope.run.memory import MemoryRun
from opscope.run.schema import ValueRef
from opscope.scan.api import scan
from opscope.view.documents import Documents
from opscope.view.pictures import BINS, histogram, picture


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.0, 2.0, 3.0]), np.array([np.inf, 1.0, np.nan]), np.array([5, 5]),
        np.array([True, False]), np.array([1 + 2j]), np.array([-1.7e308, 1.7e308]),
        np.float16([65504, -65504]),
    ],
)  # fmt: skip
def test_a_histogram_counts_every_finite_element_once(array: np.ndarray[Any, Any]) -> None:
    found = histogram(array)
    assert sum(found["counts"]) == np.isfinite(array).sum()
    assert len(found["counts"]) == BINS
    assert found["edges"] == sorted(found["edges"])


def test_a_histogram_of_nothing_finite_is_empty() -> None:
    assert histogram(np.array([np.nan])) == {"counts": [], "edges": []}


def test_values_that_were_kept_are_drawn_on_their_call_and_redacted_where_asked() -> None:
    run = overflowing()
    tensors = list(run.rows("tensors"))
    tensors[-6] = msgspec.structs.replace(tensors[-6], value=ValueRef("s", "k"))
    array = np.arange(16, dtype=np.float16).reshape(4, 4)
    kept = MemoryRun(
        run.info,
        run.processes,
        run.rows("calls"),
        tensors,
        run.rows("stacks"),
        value=lambda _: array,
    )
    documents = Documents(kept, scan(kept)).whole()
    drawn = documents["calls"]["0.6"]["tensors"][1]["picture"]
    assert drawn["largest"] == 15
    assert sum(drawn["counts"]) == 16
    assert json.loads(json_text(documents))
    hidden = Documents(kept, scan(kept), redact=frozenset({"values"})).whole()
    assert not hidden["calls"]["0.6"]["tensors"][1]["picture"]


def test_a_picture_says_which_rows_differ() -> None:
    ours = np.zeros((4, 96, 128), dtype=np.float32)
    theirs = ours.copy()
    theirs[1, 5] = 2.0
    theirs[3, 0, 0] = 0.5
    theirs[3, 95, 127] = np.inf
    found = picture(ours, theirs)
    cells = np.frombuffer(base64.b64decode(found["cells"]), dtype=np.uint8)
    matrix = cells.reshape(found["down"], found["across"])
    assert matrix.shape == (48, 64)
    assert set(matrix[(96 + 5) // 8]) == {254}
    assert matrix[36, 0] == 254 - 8  # a quarter of the largest: two octaves
    assert matrix[47, 63] == 255
    assert found["differing"] == 128 + 2
    assert found["largest"] == 2.0


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 1, 5), (200, 1)])
def test_pictures_of_small_and_odd_shapes(shape: tuple[int, ...]) -> None:
    found = picture(np.ones(shape), np.zeros(shape))
    cells = base64.b64decode(found["cells"])
    assert len(cells) == found["across"] * found["down"]
    assert set(cells) == {254}
