# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import nanoarrow
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_rows import call, rows_of, tensor

from opscope.errors import MissingValueError, RecordError
from opscope.run.arrow import (
    RowsTable,
    column_array,
    column_of_view,
    column_values,
    decode_stream,
    encode_column,
    encode_columns,
    encode_rows,
    sliced,
    struct_columns,
    table_schema,
    taken,
)
from opscope.run.memory import MemoryRun
from opscope.run.protocol import Run, RunInfo
from opscope.run.schema import RECORDS, TABLES, Judgement, Process, Stack, ValueRef
from opscope.run.store.tables import checked_batch

INFO = RunInfo(path="somewhere", format="test")


@pytest.mark.parametrize("table", list(TABLES))
@given(data=st.data())
@settings(deadline=None)
def test_rows_come_back_as_they_went(table: str, data: st.DataObject) -> None:
    rows = data.draw(rows_of(table))
    run = MemoryRun(INFO, **{table: rows})
    assert repr(list(decode_stream(table, run.table(table)))) == repr(
        rows
    )  # repr: NaN equals itself


@pytest.mark.parametrize("table", list(TABLES))
def test_columns_are_those_of_the_record_in_order(table: str) -> None:
    assert list(TABLES[table]) == list(RECORDS[table].__struct_fields__)
    schema = table_schema(table)
    assert [schema.child(i).name for i in range(schema.n_children)] == list(TABLES[table])


@settings(deadline=None)
@given(
    st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=40),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_slices_of_other_producers_are_read(
    values: list[int | None], first: int, length: int
) -> None:
    whole = encode_column("int32", values)
    first = min(first, len(values))
    length = min(length, len(values) - first)
    view = nanoarrow.c_array(nanoarrow.Array(whole)).view()
    column = column_of_view("int32", view)
    sliced = type(column)(
        column.type, length, first, column.validity, column.buffers, column.children
    )
    assert column_values(sliced) == values[first : first + length]


@pytest.mark.parametrize("table", list(TABLES))
@given(data=st.data())
@settings(deadline=None)
def test_rows_are_taken_out_of_columns_of_any_type(table: str, data: st.DataObject) -> None:
    rows = data.draw(rows_of(table))
    first = data.draw(st.integers(0, len(rows)))
    places = data.draw(st.lists(st.integers(0, len(rows) - first - 1))) if first < len(rows) else []
    numbers = np.array(places, dtype=np.int64)
    batch = encode_rows(table, rows)  # columns are views of it
    for whole in struct_columns(TABLES[table], batch):
        column = sliced(whole, first, len(rows) - first)
        values = column_values(column)
        # repr: NaN equals itself
        assert repr(column_values(taken(column, numbers))) == repr([values[at] for at in places])


def test_large_tables_are_cut_into_batches() -> None:
    rows = [call(i, module=None if i % 3 else "中文") for i in range(20_000)]
    run = MemoryRun(INFO, calls=rows)
    with nanoarrow.c_array_stream(run.table("calls")) as stream:
        assert [batch.length for batch in stream] == [8192, 8192, 3616]
    assert list(decode_stream("calls", run.table("calls"))) == rows


def test_a_table_that_is_read_again_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []

    def counted(types: dict[str, str], columns: Any) -> Any:
        encoded.append(types)
        return encode_columns(types, columns)

    monkeypatch.setattr("opscope.run.arrow.encode_columns", counted)
    rows = [call(1), call(2)]
    table = RowsTable("calls", rows)
    first = nanoarrow.c_array_stream(table)
    assert list(decode_stream("calls", table)) == list(decode_stream("calls", first)) == rows
    assert list(decode_stream("calls", table)) == rows
    assert len(encoded) == 1


def test_text_that_is_no_unicode_is_written_readable() -> None:
    rows = [call(0, source="/home/\udce4bc/train.py:1")]
    [back] = decode_stream("calls", MemoryRun(INFO, calls=rows).table("calls"))
    assert back.source == "/home/\\udce4bc/train.py:1"


def test_a_number_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(OverflowError):
        encode_rows("calls", [call(2**63)])


def test_arrays_of_columns() -> None:
    batch = encode_rows(
        "tensors",
        [tensor(1, nan=3, min=1.5), tensor(2, requires_grad=True, value=ValueRef("a", "b"))],
    )
    columns = dict(zip(TABLES["tensors"], struct_columns(TABLES["tensors"], batch), strict=True))
    assert column_array(columns["index"]).tolist() == [1, 2]
    nan = column_array(columns["nan"])
    assert isinstance(nan, np.ma.MaskedArray)
    assert nan.filled(-1).tolist() == [3, -1]
    assert column_array(columns["shape"]).tolist() == [(2, 3), (2, 3)]
    assert column_array(columns["value"]).tolist() == [None, ValueRef("a", "b")]
    assert np.ma.filled(column_array(columns["requires_grad"]), False).tolist() == [False, True]


def test_a_batch_with_other_columns_is_refused() -> None:
    with pytest.raises(RecordError, match="columns of docs/schema"):
        checked_batch("calls", encode_rows("tensors", [tensor(1)]), table_schema("calls"))


class TestMemoryRun:
    def test_it_is_a_run(self) -> None:
        assert isinstance(MemoryRun(INFO), Run)

    def test_tables_and_values(self) -> None:
        rows: dict[str, list[Any]] = {
            "calls": [call(1), call(2)],
            "tensors": [tensor(1), tensor(2), tensor(1, io="output")],
            "stacks": [Stack(process=0, stack=0, frames=("a.py:1 in f",))],
            "judgements": [
                Judgement(process=0, index=1, kind="replay-mismatch", error=float("inf"))
            ],
        }
        run = MemoryRun(
            INFO,
            [Process(process=0, directory="p")],
            **rows,
            value=lambda row: np.full(row.shape, row.index),
            problems=["one"],
        )
        for table, expected in rows.items():
            assert list(decode_stream(table, run.table(table))) == expected
        assert run.tensors_of(0, 1) == (rows["tensors"][0], rows["tensors"][2])
        assert run.tensors_of(1, 1) == ()
        assert run.value(rows["tensors"][1]).tolist() == [[2, 2, 2], [2, 2, 2]]
        assert run.problems == ("one",)

    def test_values_that_were_not_kept(self) -> None:
        with pytest.raises(MissingValueError, match="#7"):
            MemoryRun(INFO).value(tensor(7))

    def test_a_table_can_be_read_many_times(self) -> None:
        table = MemoryRun(INFO, calls=[call(1)]).table("calls")
        assert [list(decode_stream("calls", table)) for _ in range(2)] == [[call(1)]] * 2
