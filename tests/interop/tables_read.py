# SPDX-License-Identifier: Apache-2.0
"""Hands the tables of the run that it is given to pandas, polars and pyarrow, and holds the three
to the same cells.
"""

from __future__ import annotations

import math
import sys

import pandas as pd

import opscope

run = opscope.open_run(sys.argv[1])
for name in ("calls", "tensors", "stacks", "judgements"):
    table = getattr(run, name)
    wide = table.to_pandas()
    arrow, polars = table.arrow(), table.to_polars()
    assert list(wide.columns) == arrow.column_names == polars.columns == list(table.columns)
    assert len(wide) == arrow.num_rows == polars.height
    lists = {"shape", "stride", "sample", "frames", "reasons"}
    for column in set(table.columns) - lists - {"value"}:
        cells = [None if cell is pd.NA else cell for cell in wide[column].tolist()]
        cells = [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in cells]
        assert cells == arrow.column(column).to_pylist() == polars[column].to_list(), column
    print(name, len(wide))
