# SPDX-License-Identifier: Apache-2.0
"""What is told of an element type in several rooms is the same: a room may not import up, and a
case stands alone.
"""

from __future__ import annotations

import ast
from pathlib import Path

import opscope
from opscope.judge import limits
from opscope.judge.tolerance import PRECISIONS
from opscope.kernels import bounds
from opscope.kernels.calls import STATISTICS
from opscope.run.schema import TENSOR_TYPES

SCRIPT = Path(opscope.__file__).parent / "repro" / "scripts" / "repro_mindspore.py"


def test_digits_of_the_significand_are_the_unit_roundoff() -> None:
    assert {name: 2.0**-digits for name, digits in limits._DIGITS.items()} == {
        name: PRECISIONS[name].unit for name in limits._DIGITS
    }


def test_the_largest_values_are_the_same() -> None:
    assert {name: limits.largest_finite(name) for name in bounds.LIMITS} == bounds.LIMITS


def test_a_case_of_mindspore_errs_by_the_same_units() -> None:
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    made = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "UNITS"
    )
    units = eval(ast.unparse(made), {})
    assert units == {name: PRECISIONS[name].unit for name in units}


def test_the_statistics_are_columns_of_the_table() -> None:
    columns = list(TENSOR_TYPES)
    first = columns.index(STATISTICS[0])
    assert tuple(columns[first : first + len(STATISTICS)]) == STATISTICS
