# SPDX-License-Identifier: Apache-2.0
"""Integers that wrap: the origin of a NaN that comes of them, clean where wrapping is what was
wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import opscope
from opscope.judge.wrapping import follows
from opscope.operators.catalogue import family
from opscope.run.finding import Finding


def findings(program: Callable[[], object], place: Path) -> tuple[Finding, ...]:
    with opscope.record(place / "run"):
        program()
    return opscope.scan(opscope.open_run(place / "run")).findings


def learn(values: torch.Tensor) -> None:
    (values * nn.Parameter(torch.ones(2))).sum().backward()


def ints(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def square(n: torch.Tensor) -> torch.Tensor:
    return n * n


WRAPPED: dict[str, tuple[str, Callable[[], object]]] = {
    "magnitude": ("abs", lambda: learn(ints(-32768, 4, dtype=torch.int16).abs().float().sqrt())),
    "logarithm": ("mul", lambda: learn(square(ints(50000, 3)).float().log())),
    "logarithm of zero": ("mul", lambda: learn(square(ints(65536, 3)).float().log())),
    "through arithmetic": (
        "mul",
        lambda: learn((square(ints(50000, 3)).float() * 0.5 + 1.0).sqrt()),
    ),
    "through views": (
        "mul",
        lambda: learn(
            square(ints(50000, 3)).view(2, 1).to(torch.float64).flatten().rsqrt().float()
        ),
    ),
    "milliseconds": ("mul", lambda: learn(((ints(1700000000, 1) * 1000).float() / 1e9).sqrt())),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_what_wrapped_is_the_origin_of_what_comes_of_it(name: str, tmp_path: Path) -> None:
    op, program = WRAPPED[name]
    (finding,) = findings(program, tmp_path)
    assert (family(finding.op or ""), finding.evidence[0]["reached"]) == (op, "loss")
    assert finding.status in {"0x8", "0x10"}


def test_a_call_that_fails_unwrapped_too_is_the_origin_itself(tmp_path: Path) -> None:
    first, second = findings(
        lambda: learn(((ints(-70000, 3) * ints(70000, 3)).float() - 1e10).sqrt()), tmp_path
    )
    assert [family(one.op or "") for one in (first, second)] == ["sqrt", "mul"]


@pytest.mark.parametrize("op", ["aten::div.Tensor", "torch.true_divide", "torch.divide", "Divs"])
def test_every_quotient_is_followed(op: str) -> None:
    assert follows(op)


def test_a_remainder_ends_it(tmp_path: Path) -> None:
    found = findings(
        lambda: learn(((ints(900_000_000, 5) * 3).remainder(7).float() * 0).log()), tmp_path
    )
    assert [family(one.op or "") for one in found] == ["log", "mul"]


def knuth() -> None:
    buckets = (torch.randint(2**31 - 1, (64,), dtype=torch.int32) * -1640531535) >> 22
    nn.Embedding(1024, 4)(buckets & 1023).sum().backward()


def spatial_hash() -> None:
    parts = torch.randint(1000, (64, 3), dtype=torch.int32) * ints(1, -1640531535, 805459861)
    nn.Embedding(512, 4)(
        torch.remainder(parts[:, 0] ^ parts[:, 1] ^ parts[:, 2], 512)
    ).sum().backward()


def fowler_noll_vo() -> None:
    state = torch.full((4,), -2128831035, dtype=torch.int32)
    for _ in range(6):
        state = (state ^ torch.randint(97, 122, (4,), dtype=torch.int32)) * 16777619
    nn.Embedding(64, 4)(state & 63).sum().backward()


def rolling_hash() -> None:
    state = torch.zeros(4, dtype=torch.int32)
    for _ in range(12):
        state = state * 31 + torch.randint(97, 122, (4,), dtype=torch.int32)
    nn.Embedding(100, 4)(state.remainder(100)).sum().backward()


def generator(dtype: torch.dtype, factor: int, addend: int) -> None:
    state = torch.tensor([42, 7], dtype=dtype)
    for _ in range(5):
        state = state * factor + addend
    learn(state.float() / 2.0**31)


def generator_in_place() -> None:
    state = ints(42)
    for _ in range(5):
        state.mul_(69069).add_(1)


def byte_sum() -> None:
    data = torch.full((20,), 99, dtype=torch.uint8)
    total = torch.zeros((), dtype=torch.uint8)
    for byte in data:
        total = total + byte
    bool(total == 188)


MODULAR: dict[str, Callable[[], object]] = {
    "Knuth's hash": knuth,
    "spatial hash": spatial_hash,
    "FNV": fowler_noll_vo,
    "rolling hash": rolling_hash,
    "32 bits": lambda: generator(torch.int32, 1664525, 1013904223),
    "64 bits": lambda: generator(torch.int64, 6364136223846793005, 1442695040888963407),
    "in place": generator_in_place,
    "checksum": byte_sum,
}


@pytest.mark.parametrize("name", MODULAR)
def test_arithmetic_modulo_a_power_of_two_is_healthy(name: str, tmp_path: Path) -> None:
    assert findings(MODULAR[name], tmp_path) == ()


def test_quantised_products_that_wrap_are_a_finding(tmp_path: Path) -> None:
    a, b = torch.full((4, 4), 100, dtype=torch.int8), torch.full((4, 4), 3, dtype=torch.int8)
    (finding,) = findings(lambda: (a @ b).float().sum(), tmp_path)
    assert (finding.op, finding.status) == ("aten::mm.default", "0x10")
