# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from opscope.report.table import fitted, write_csv
from opscope.run.printable import printable

cells = st.text("ab注, \"'", max_size=40)


@given(st.lists(st.lists(cells, min_size=3, max_size=3), max_size=5), st.integers(10, 90))
def test_columns_fit_or_are_given_up(rows: list[list[str]], width: int) -> None:
    names = ["a", "long name", "注意"]
    widths = fitted(names, rows, width)
    if widths is None:
        assert width < 30
        return
    assert sum(widths) + 4 <= width
    natural = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    assert all(0 < given <= needed for given, needed in zip(widths, natural, strict=True))
    if sum(natural) + 4 <= width:
        assert widths == natural


values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_characters="\x00\r", exclude_categories=["Cs"]))
)


@given(
    st.lists(
        st.tuples(values, values).map(lambda pair: {"a": pair[0], "=b": pair[1]}),
        min_size=1,
        max_size=5,
    )
)
def test_csv_comes_back_and_holds_no_formula(rows: list[dict[str, Any]]) -> None:
    file = io.StringIO(newline="")
    write_csv(rows, file)
    read = list(csv.reader(io.StringIO(file.getvalue(), newline="")))
    assert read[0] == ["a", "'=b"]
    for row, texts in zip(rows, read[1:], strict=True):
        for value, text in zip(row.values(), texts, strict=True):
            if isinstance(value, str):
                plain = "\n".join(
                    "\t".join(map(printable, line.split("\t"))) for line in value.split("\n")
                )
                assert text in (plain, f"'{plain}")
                assert not text.startswith(("=", "+", "-", "@", "\t"))
            elif isinstance(value, float):
                assert math.isnan(value) or float(text) == value
            else:
                assert text == ("" if value is None else str(value))
