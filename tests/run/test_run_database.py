# SPDX-License-Identifier: Apache-2.0
"""Runs in SQLite: what a query reads is there, and nothing else can be done to it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.errors import UsageError
from opscope.formats.registry import open_run
from opscope.run.arrow import encode_rows
from opscope.run.database import Database
from opscope.run.keys import key
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.query import call_at, keys_where, records_of, rows_of, which
from opscope.run.schema import Call, Tensor, ValueRef
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter

NAMES = ("a", "b", "c")
LARGEST = (1 << 64) - 1


def call(index: int, op: str = "aten::mm.default", **more: object) -> Call:
    facts = {"process": 0, "rank": 0, "step": 0, "level": "operator", "phase": "forward"}
    return Call(**{**facts, "index": index, "op": op, "name": f"<root>:{op}#{index}", **more})


def tensor(index: int, io: str = "output", **more: object) -> Tensor:
    return Tensor(
        **{"process": 0, "index": index, "io": io, "slot": "0", "dtype": "float32", **more}
    )


CALLS = [call(1), call(2, "aten::relu.default", error="it's \u4e2d"), call(4)]
TENSORS = [
    tensor(1, shape=(2, 3), digest=LARGEST, requires_grad=True, max=np.inf, version=5),
    tensor(2, "input", shape=(), digest=7, requires_grad=False, version=5),
    tensor(2, value=ValueRef("values-00000.safetensors", "ab"), version=6),
    tensor(4, "input", version=6),
]


@pytest.fixture(params=["native", "memory"])
def run(request, tmp_path: Path):
    info = RunInfo(path="here", format="test")
    if request.param == "memory":
        return MemoryRun(
            info, [msgspec.structs.replace(process_facts(), process=0)], CALLS, TENSORS
        )
    path = create_run(tmp_path / "run", command=["train.py"])
    writer = ProcessWriter(path, process_facts(), keep=None)
    for table, rows in (("calls", CALLS), ("tensors", TENSORS)):
        for row in rows:  # a batch each
            writer.append(table, encode_rows(table, [row]), step=0)
    writer.close(0)
    seal_run(path)
    return open_run(path)


def rows(database: Database, query: str, parameters=()) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in database.ask(query, parameters)]


def test_columns_come_back_as_they_are(run):
    with Database(run) as database:
        query = "SELECT shape, digest, requires_grad, max, value FROM tensors"
        assert rows(database, query) == [
            ([2, 3], LARGEST, True, np.inf, None),
            ([], 7, False, None, None),
            (None, None, None, None, {"shard": "values-00000.safetensors", "key": "ab"}),
            (None, None, None, None, None),
        ]
        assert rows(database, "SELECT error FROM calls WHERE error IS NOT NULL") == [
            ("it's \u4e2d",)
        ]
        assert rows(database, "SELECT rank FROM processes") == [(0,)]


def test_tables_are_joined_by_columns_that_nobody_names(run):
    with Database(run) as database:
        assert rows(database, "SELECT count(*) FROM tensors") == [(4,)]
        query = 'SELECT op, io FROM calls JOIN tensors USING (process, "index") ORDER BY version'
        assert rows(database, query)[0] == ("aten::mm.default", "output")
        assert len(rows(database, query)) == 4
        assert (
            rows(database, "SELECT op FROM calls NATURAL JOIN tensors") == []
        )  # no device is known


def test_lists_and_large_numbers_are_asked_for(run):
    with Database(run) as database:
        some = 'SELECT "index" FROM calls WHERE op IN (SELECT value FROM json_each(?))'
        assert rows(database, some, [["aten::relu.default", "o'"]]) == [(2,)]
        for digest in (LARGEST, np.uint64(LARGEST)):
            query = 'SELECT "index" FROM tensors WHERE digest = ?'
            assert rows(database, query, [digest]) == [(1,)]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT opp FROM calls", "no such column: opp; did you mean op"),
        ("SELECT op FROM cals", "did you mean calls"),
        ("SELECT name FROM tensors", "name in what is asked; it is a column of calls"),
        ("SELEC op", "syntax error"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("SELECT op FROM calls WHERE step = ?", "bindings"),
        ("DELETE FROM calls", "reads the tables"),
        ("ATTACH '/tmp/other' AS other", "reads the tables"),
        ("PRAGMA writable_schema = 1", "reads the tables"),
        ("CREATE TABLE mine (a)", "reads the tables"),
        ("INSERT INTO calls (op) SELECT op FROM calls", "reads the tables"),
        ("SELECT load_extension('/tmp/x.so')", "query: "),
    ],
)
def test_what_is_no_question_is_refused_in_one_line(run, query, reason):
    with Database(run) as database:
        with pytest.raises(UsageError, match=reason) as caught:
            list(database.ask(query))
        assert "\n" not in str(caught.value)
        assert rows(database, "SELECT count(*) FROM calls") == [(3,)]


def test_rows_of_a_question_by_column(run):
    with Database(run) as database:
        rows = database.ask('SELECT "index", op AS operator, 7 AS "index" FROM calls ORDER BY 1')
        assert next(rows) == {"index": 1, "operator": "aten::mm.default", "index_2": 7}
        assert list(database.ask("SELECT op FROM calls WHERE step > 7")) == []


def test_functions_of_numbers_are_there_in_every_python(run):
    with Database(run) as database:
        query = "SELECT greatest(1, NULL, 3), least(2, 1), log2(8), sqrt(-1), floor(-1.5), exp(1e9)"
        assert rows(database, query) == [(3, 1, 3.0, None, -2, None)]


def test_a_column_that_is_a_keyword_is_asked_for_as_any_other(run):
    with Database(run) as database:
        query = "SELECT INDEX, 'the index' AS \"my index\" FROM calls c JOIN tensors USING (process, index)"
        assert next(database.ask(query)) == {"index": 1, "my index": "the index"}


ENDLESS = "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n"


def test_a_question_that_takes_long_is_interrupted():
    program = f"""
import signal, sys
from opscope.run.database import sql
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    list(sql(MemoryRun(RunInfo(path="x", format="x")), {ENDLESS!r}))
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_rows_of_calls_without_a_database(run):
    keys = np.array([key(0, 2)])
    assert list(rows_of(run, "tensors", ("io", "digest"), keys)) == [("input", 7), ("output", None)]
    assert list(records_of(run, "tensors", keys)) == TENSORS[1:3]
    assert list(rows_of(run, "calls", ("index",))) == [(1,), (2,), (4,)]
    assert call_at(run, 0, 4) == CALLS[2]
    assert call_at(run, 0, 3) is None


def test_calls_are_found_by_what_their_rows_tell(run):
    relus = keys_where(run, "calls", ("op",), lambda b: which(b["op"], lambda op: "relu" in op))
    assert relus.tolist() == [key(0, 2)]
    read = keys_where(run, "tensors", ("io",), lambda b: b["io"] == "input")
    assert read.tolist() == [key(0, 2), key(0, 4)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from(NAMES),
            st.none() | st.floats(allow_nan=False),
            st.none() | st.integers(0, LARGEST),
            st.text(max_size=4),
        ),
        max_size=12,
    )
)
def test_any_rows_are_answered_as_a_database_of_their_own_does(cells):
    tensors = [
        tensor(index, slot=slot, max=largest, digest=digest, tensor_name=name)
        for index, slot, largest, digest, name in cells
    ]
    run = MemoryRun(RunInfo(path="here", format="test"), [], [], tensors)
    with Database(run) as database, sqlite3.connect(":memory:") as own:
        own.execute('CREATE TABLE tensors ("index" INT, slot TEXT, max REAL, tensor_name TEXT)')
        own.executemany(
            "INSERT INTO tensors VALUES (?, ?, ?, ?)",
            [(at, slot, most, name) for at, slot, most, _, name in cells],
        )
        query = "SELECT slot, count(*), max(max), max(tensor_name) FROM tensors GROUP BY slot"
        assert rows(database, query) == own.execute(query).fetchall()
        digests = [(digest,) for *_, digest, _ in cells]
        assert rows(database, "SELECT digest FROM tensors") == digests
