# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from opscope.report.oneline import one_line, row_statistics
from opscope.run.dtypes import DTYPES, short_dtype
from opscope.run.printable import number
from opscope.run.schema import Tensor


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("float16", "f16"),
        ("torch.bfloat16", "bf16"),
        ("float8_e4m3fn", "f8e4m3fn"),
        ("float6_e3m2", "f6e3m2"),
        ("hifloat8", "hif8"),
        ("uint8", "u8"),
        ("complex64", "c64"),
        ("bool", "bool"),
        ("no such", "no such"),
    ],
)
def test_short_names_of_types(name: str, short: str) -> None:
    assert short_dtype(name) == short


def test_short_names_are_all_different() -> None:
    assert len({short_dtype(dtype.name) for dtype in DTYPES}) == len(DTYPES)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-310.0, "-310"),
        (65504.0, "65504"),
        (-0.0, "0"),
        (0.1 + 0.2, "0.3"),
        (3.4028234e38, "3.4e38"),
        (1e-9, "1e-9"),
        (298.46, "298"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ("inf", "inf"),
    ],
)
def test_numbers(value: float | str, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("dtype", "shape", "stats", "line", "full"),
    [
        ("float16", (32, 128), {"min": -310.0, "max": 298.0}, "f16[32, 128] x∈[-310, 298]", None),
        (
            "float16",
            (4,),
            {"min": -1.0, "max": 2.0, "pos_inf": 37},
            "f16[4] 37 inf",
            "f16[4] x∈[-1, 2] 37 inf",
        ),
        (
            "float32",
            (4,),
            {"pos_inf": 1, "neg_inf": 2, "nan": 3},
            "f32[4] 1 inf, 2 -inf, 3 nan",
            None,
        ),
        (
            "int64",
            (),
            {"min_int": -(2**63), "max_int": 2**63 - 1},
            "i64[] x∈[-9223372036854775808, 9223372036854775807]",
            None,
        ),
        ("complex64", (1,), {"min": 0.5, "max": 2.0}, "c64[1] |x|∈[0.5, 2]", None),
        ("float32", (0, 3), {"size": 0}, "f32[0, 3] empty", None),
        ("float32", None, {}, "f32[…]", None),
        ("float32", (2,), {}, "f32[2]", None),
    ],
)
def test_a_tensor_in_one_line(
    dtype: str, shape: tuple[int, ...] | None, stats: dict[str, float], line: str, full: str | None
) -> None:
    assert one_line(dtype, shape, stats) == line
    assert one_line(dtype, shape, stats, full=True) == (full or line)


def test_statistics_of_a_row() -> None:
    row = Tensor(process=0, index=1, io="input", slot="0", dtype="float32", size=3, nan=0, min=-1.0)
    assert row_statistics(row) == {"size": 3, "nan": 0, "min": -1.0}
