# SPDX-License-Identifier: Apache-2.0
"""How far two results of the same inputs may lie apart before a kernel is called
nondeterministic.
"""

from __future__ import annotations

import pytest
import torch

from opscope.record.torch.determinism import differences
from opscope.substitute.layout import Call, Laid


def call(op: str, *shapes: tuple[int, ...]) -> Call:
    tensors = {
        str(i): Laid(
            memory=i, dtype="float32", shape=shape, stride=torch.empty(shape).stride(), offset=0
        )
        for i, shape in enumerate(shapes)
    }
    return Call(
        op=op,
        args={"args": [{"tensor": slot} for slot in tensors], "kwargs": {}},
        tensors=tensors,
        memories=(),
    )


PRODUCT = call("aten::mm.default", (32, 4096), (4096, 16))
SUM = call("aten::add.Tensor", (32, 16), (32, 16))


@pytest.mark.parametrize(
    ("made", "roundings", "beyond"),
    [(PRODUCT, 40, False), (PRODUCT, 4000, True), (SUM, 8, False), (SUM, 40, True)],
)
def test_sums_of_many_terms_may_be_taken_in_another_order(
    made: Call, roundings: int, *, beyond: bool
) -> None:
    one = torch.ones(32, 16)
    other = one.clone()
    other[3, 4] += roundings * 2.0**-24
    (found,) = differences(made, {"0": one}, {"0": other})
    assert (found.slot, found.beyond_rounding) == ("0", beyond)
    assert differences(made, {"0": one}, {"0": one.clone()}) == []


def test_nan_elsewhere_and_other_integers_are_no_rounding() -> None:
    one, other = torch.ones(32, 16), torch.ones(32, 16)
    other[0, 0] = torch.nan
    assert [each.beyond_rounding for each in differences(PRODUCT, {"0": one}, {"0": other})] == [
        True
    ]
    assert [
        each.beyond_rounding
        for each in differences(PRODUCT, {"0": torch.tensor([1])}, {"0": torch.tensor([2])})
    ] == [True]
