# SPDX-License-Identifier: Apache-2.0
"""What the arguments of operators are called, and their defaults."""

from __future__ import annotations

import pytest

from opscope.operators.argument_names import arguments_of


@pytest.mark.parametrize(
    ("op", "place", "name", "default"),
    [
        ("aten::native_batch_norm", 7, "eps", ""),
        ("aten::native_batch_norm.default", 6, "momentum", ""),
        ("aten::convolution.default", 3, "stride", ""),
        ("aten::mean.dim", 2, "keepdim", "false"),
        ("aten::gelu", 1, "approximate", '"none"'),
        ("aten::add.Tensor", 2, "alpha", "1"),
    ],
)
def test_an_argument_has_the_name_and_the_default_that_torch_gives_it(
    op: str, place: int, name: str, default: str
) -> None:
    argument = arguments_of(op)[place]
    assert (argument.name, argument.default) == (name, default)


@pytest.mark.parametrize(
    "op",
    ["mine::native_batch_norm", "torch.nn.functional.batch_norm", "BatchNorm", "aten::nothing", ""],
)
def test_of_other_operators_nothing_is_known(op: str) -> None:
    assert arguments_of(op) == ()
