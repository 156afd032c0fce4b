# SPDX-License-Identifier: Apache-2.0
"""Definitions of ours agree with the operators that are right, and keep the digits that torch's own
lose.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from opscope.substitute.definition import DEFINITIONS, OF_COMPLEX

aten: Any = torch.ops.aten
double = torch.float64


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    x = torch.linspace(-4, 6, 101, dtype=double)
    torch.testing.assert_close(
        DEFINITIONS["aten::gelu"](x, approximate=approximate),
        aten.gelu(x, approximate=approximate),
        rtol=1e-10,
        atol=0,
    )
    tail = DEFINITIONS["aten::gelu"](torch.tensor([-12.0, math.inf, -math.inf], dtype=double))
    assert tail[0].item() == pytest.approx(-12 * 0.5 * math.erfc(12 / math.sqrt(2)), rel=1e-12)
    assert tail[1].item() == math.inf
    assert math.isnan(tail[2].item())


@pytest.mark.parametrize("name", ["i0", "special_i1"])
def test_bessel(name: str) -> None:
    x = torch.linspace(-50, 50, 101, dtype=double)
    torch.testing.assert_close(
        DEFINITIONS[f"aten::{name}"](x), getattr(aten, name)(x), rtol=1e-12, atol=1e-300
    )
    assert math.isfinite(DEFINITIONS[f"aten::{name}"](torch.tensor([713.0], dtype=double)).item())


def test_zeta_and_polygamma() -> None:
    x, q = (
        torch.tensor([2.0, 3.0, 2.0], dtype=double),
        torch.tensor([1.0, 2.5, math.inf], dtype=double),
    )
    found = DEFINITIONS["aten::special_zeta"](x, q)
    torch.testing.assert_close(found[:2], aten.special_zeta(x, q)[:2], rtol=1e-13, atol=0)
    assert found[2].item() == 0
    shape = torch.tensor([-1.0, 0.5, 3.0], dtype=double)
    assert DEFINITIONS["aten::polygamma"](1, shape)[0].item() == math.inf


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_and_their_gradient(mode: int) -> None:
    torch.manual_seed(0)
    weight, words, offsets = (
        torch.randn(9, 4, dtype=double),
        torch.randint(0, 9, (12,)),
        torch.tensor([0, 3, 3, 7]),
    )
    found = aten._embedding_bag(weight, words, offsets, False, mode)
    torch.testing.assert_close(
        DEFINITIONS["aten::_embedding_bag"](weight, words, offsets, False, mode)[0], found[0]
    )
    if mode == 2:
        return
    grad = torch.randn(4, 4, dtype=double)
    rest = (found[1], found[2], found[3], 9, False, mode, False, None)
    torch.testing.assert_close(
        DEFINITIONS["aten::_embedding_bag_backward"](grad, words, offsets, *rest),
        aten._embedding_bag_backward(grad, words, offsets, *rest),
    )


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions_of_no_number(name: str) -> None:
    a, x = torch.rand(9, dtype=double) + 1, torch.rand(9, dtype=double)
    torch.testing.assert_close(DEFINITIONS[f"aten::{name}"](a, x), getattr(aten, name)(a, x))
    infinite, none = (torch.tensor([each], dtype=double) for each in (math.inf, math.nan))
    assert DEFINITIONS[f"aten::{name}"](infinite, none).isnan().all()
    assert DEFINITIONS[f"aten::{name}"](none, infinite).isnan().all()


@pytest.mark.parametrize("name", ["add", "sub"])
def test_complex_sums_keep_their_parts_apart(name: str) -> None:
    x, y = (torch.randn(9, dtype=torch.complex128) for _ in range(2))
    torch.testing.assert_close(OF_COMPLEX[f"aten::{name}"](x, y), getattr(aten, name)(x, y))
    torch.testing.assert_close(OF_COMPLEX[f"aten::{name}"](x, 2.5), getattr(aten, name)(x, 2.5))
    infinite = torch.tensor([complex(math.inf, 0)], dtype=torch.complex128)
    assert OF_COMPLEX["aten::add"](infinite, infinite).item() == complex(math.inf, 0)
    with pytest.raises(NotImplementedError):
        OF_COMPLEX["aten::add"](x, y, alpha=1j)
