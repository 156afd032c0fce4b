# SPDX-License-Identifier: Apache-2.0
"""What the arguments of operators are called."""

from __future__ import annotations

import pytest

from opscope.operators.argument_names import argument_name


@pytest.mark.parametrize(
    ("op", "place", "name"),
    [
        ("aten::native_batch_norm", 7, "eps"),
        ("aten::native_batch_norm.default", 6, "momentum"),
        ("aten::convolution.default", 3, "stride"),
        ("aten::native_batch_norm", 8, ""),
        ("aten::native_batch_norm", -1, ""),
        ("mine::native_batch_norm", 7, ""),
        ("torch.nn.functional.batch_norm", 7, ""),
        ("BatchNorm", 7, ""),
        ("", 0, ""),
    ],
)
def test_an_argument_has_the_name_that_torch_gives_it(op: str, place: int, name: str) -> None:
    assert argument_name(op, place) == name
