# SPDX-License-Identifier: Apache-2.0
"""SQL, ordered calls, tensors of a call, single columns, and names of calls."""

from __future__ import annotations

import re
import textwrap
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from run_rows import call, tensor

from opscope.errors import UsageError
from opscope.formats.registry import BUILTIN, Format, Unavailable, formats, open_run
from opscope.run.arrow import encode_rows
from opscope.run.database import sql
from opscope.run.keys import key
from opscope.run.memory import MemoryRun
from opscope.run.names import parse_call_name, resolve
from opscope.run.protocol import Run, RunInfo
from opscope.run.query import (
    arrow_columns,
    calls,
    columns,
    records_at,
    tensors_of,
)
from opscope.run.schema import TABLES, Call, Process, Tensor, ValueRef
from opscope.run.selection import parse_selection
from opscope.run.store.layout import create_run, process_facts
from opscope.run.store.reader import NativeRun
from opscope.run.store.writer import ProcessWriter

INFO = RunInfo(path="somewhere", format="test")


def rows() -> tuple[list[Call], list[Tensor]]:
    """Two ranks, three steps, four calls a step; outer rows come after inner ones."""
    found = []
    for process in (1, 0):
        for step in range(3):
            for i in (1, 2, 3, 0):
                op, level = (
                    ("torch.nn.Linear", "module")
                    if i == 0
                    else (f"aten::op{i}.default", "operator")
                )
                phase = "backward" if i == 3 else "forward"
                columns = {
                    "process": process,
                    "rank": process,
                    "level": level,
                    "op": op,
                    "phase": phase,
                    "module": f"fc{i}",
                    "name": f"fc{i}:op{i}#1",
                }
                found.append(call(step * 4 + i, step=step, **columns))
    tensors = [
        tensor(c.index, process=c.process, io=io, nan=c.index % 5, value=ValueRef("s", "k"))
        for c in found
        for io in ("input", "output")
    ]
    return found, tensors


class BareRun:
    """A run with nothing but the protocol, as another package may write one."""

    def __init__(self, run: MemoryRun) -> None:
        self.info, self.processes, self.problems, self.table, self.value = (
            run.info,
            run.processes,
            run.problems,
            run.table,
            run.value,
        )


def memory_run(_: Path) -> Run:
    found, tensors = rows()
    return MemoryRun(
        INFO,
        [Process(process=i, directory=f"p{i}", rank=i, argv=("a", "b")) for i in range(2)],
        found,
        tensors,
    )


def bare_run(path: Path) -> Run:
    return BareRun(memory_run(path))  # type: ignore[arg-type]


def native_run(directory: Path) -> Run:
    path = create_run(directory / "run")
    found, tensors = rows()
    for number in range(2):
        writer = ProcessWriter(path, process_facts(rank=number))
        writer.append(
            "calls", encode_rows("calls", [row for row in found if row.process == number]), step=0
        )
        writer.append(
            "tensors",
            encode_rows("tensors", [row for row in tensors if row.process == number]),
            step=0,
        )
        writer.close(0)
    return NativeRun(path)


@pytest.fixture(params=[memory_run, bare_run, native_run])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    make: Callable[[Path], Run] = request.param
    return make(tmp_path)


class TestSql:
    def test_tables_join_themselves_and_each_other(self, run: Run) -> None:
        joined = """calls c JOIN tensors t USING (process, "index")
            JOIN calls d USING (process, "index")"""
        query = f"SELECT c.rank, count(*) AS n FROM {joined} GROUP BY c.rank ORDER BY 1"
        assert list(sql(run, query)) == [{"rank": 0, "n": 24}, {"rank": 1, "n": 24}]

    def test_every_table_is_there(self, run: Run) -> None:
        for table in TABLES:
            assert [row["n"] for row in sql(run, f"SELECT count(*) AS n FROM {table}")] == [
                {"calls": 24, "tensors": 48}.get(table, 0)
            ]
        assert [row["rank"] for row in sql(run, "SELECT rank FROM processes ORDER BY rank")] == [
            0,
            1,
        ]

    def test_parameters_are_data(self, run: Run) -> None:
        assert list(sql(run, "SELECT ? AS x", ["'; DROP TABLE calls; --"])) == [
            {"x": "'; DROP TABLE calls; --"}
        ]

    @pytest.mark.parametrize(
        "query",
        [
            "SELECT * FROM '{file}'",
            "SELECT readfile('{file}')",
            "SELECT writefile('{directory}/out', 'x')",
            "SELECT edit('x', 'touch {directory}/out')",
            "ATTACH '{directory}/out.db' AS other",
            "VACUUM INTO '{directory}/out.db'",
            "SELECT load_extension('{file}')",
            "PRAGMA temp_store_directory = '{directory}'",
            "CREATE VIRTUAL TABLE mine USING csv(filename='{file}')",
            ".read {file}",
            "SELECT * FROM secret",
            "SELEC 1",
            "SELECT nothing FROM calls",
        ],
    )
    def test_what_a_query_may_not_do(self, run: Run, tmp_path: Path, query: str) -> None:
        (tmp_path / "file.csv").write_text("a\n1\n")
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(UsageError) as caught:
            list(sql(run, query.format(file=tmp_path / "file.csv", directory=tmp_path)))
        assert "\n" not in str(caught.value)
        assert sorted(tmp_path.rglob("*")) == before

    def test_rows_are_fetched_as_they_are_asked_for(self, run: Run) -> None:
        endless = "WITH RECURSIVE n(a) AS (SELECT 0 UNION ALL SELECT a + 1 FROM n) SELECT a FROM n"
        found = sql(run, endless)
        assert [next(found)["a"] for _ in range(3)] == [0, 1, 2]
        found.close()


class TestCalls:
    def test_they_come_in_order(self, run: Run) -> None:
        assert [(row.rank, row.step, row.index) for row in calls(run)] == [
            (rank, i // 4, i) for rank in range(2) for i in range(12)
        ]

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"steps": "1|2", "ranks": "0"}, list(range(4, 12))),
            ({"ops": "op2", "ranks": "1"}, [2, 6, 10]),
            ({"skip": "op*,fc0", "ranks": "0"}, []),
            ({"phases": "backward", "ranks": "0"}, [3, 7, 11]),
            ({"levels": "module,api", "ranks": "0"}, [0, 4, 8]),
            ({"steps": "7"}, []),
            ({"ops": "linear", "steps": "0", "ranks": "0"}, [0]),
            ({"ops": "fc1:*", "steps": "0-1", "ranks": "0"}, [1, 5]),
        ],
    )
    def test_only_the_wanted_ones(
        self, run: Run, options: dict[str, str], expected: list[int]
    ) -> None:
        assert [row.index for row in calls(run, parse_selection(**options))] == expected

    def test_tensors_of_a_call(self, run: Run) -> None:
        chosen = next(row for row in calls(run) if row.rank == 1 and row.index == 6)
        assert [(row.process, row.index, row.io) for row in tensors_of(run, chosen)] == [
            (1, 6, "input"),
            (1, 6, "output"),
        ]
        assert [row.io for row in tensors_of(run, chosen, io="output")] == ["output"]

    def test_single_columns(self, run: Run) -> None:
        found = list(columns(run, "tensors", ["process", "nan", "min", "io"]))
        assert sum(int(np.ma.filled(batch["nan"], 0).sum()) for batch in found) == 2 * 2 * sum(
            i % 5 for i in range(12)
        )
        assert {text for batch in found for text in batch["io"]} == {"input", "output"}
        assert all(np.ma.getmaskarray(batch["min"]).all() for batch in found)
        assert sorted(set(np.concatenate([batch["process"] for batch in found]).tolist())) == [0, 1]


class TestNames:
    def test_taking_apart(self) -> None:
        parsed = [
            parse_call_name(text)
            for text in (
                "fc:mm#1",
                "r1/fc:mm#1",
                "r0/s12/fc:mm#1",
                "s3/#77",
                " #4 ",
                "Default/r1/Conv2D-op1",
            )
        ]
        assert [(p.rank, p.step, p.name, p.index) for p in parsed] == [
            (None, None, "fc:mm#1", None),
            (1, None, "fc:mm#1", None),
            (0, 12, "fc:mm#1", None),
            (None, 3, None, 77),
            (None, None, None, 4),
            (None, None, "Default/r1/Conv2D-op1", None),
        ]
        for text in ("", "  "):
            with pytest.raises(UsageError):
                parse_call_name(text)

    def test_first_occurrence_or_the_step_of_the_finding(self, run: Run) -> None:
        first = resolve(run, "fc2:op2#1")
        assert (first.call.rank, first.call.step, first.call.index) == (0, 0, 2)
        of_steps = "step 0 of the 3 steps that have it; write s0/… to name one"
        of_ranks = "rank 0 of the 2 ranks that have it; write r0/… to name one"
        assert first.note == f"taken from {of_steps}, {of_ranks}"
        assert resolve(run, "fc2:op2#1", step=2).call.step == 2
        assert resolve(run, "fc2:op2#1", step=9).call.step == 0
        exact = resolve(run, "r1/s2/fc2:op2#1")
        assert (exact.call.rank, exact.call.step, exact.note) == (1, 2, None)
        assert resolve(run, "r1/#6").call.index == 6

    def test_names_that_do_not_exist(self, run: Run) -> None:
        with pytest.raises(UsageError, match=r"did you mean .*fc2:op2#1"):
            resolve(run, "fc2:op22#1")
        with pytest.raises(UsageError, match="r0/s0/fc2:op2#1"):
            resolve(run, "s9/fc2:op2#1")
        with pytest.raises(UsageError, match="no call with that index"):
            resolve(run, "#999")

    def test_a_foreign_name_that_looks_like_a_prefix(self) -> None:
        run = MemoryRun(INFO, calls=[call(1, name="s1/conv")])
        assert resolve(run, "s1/conv").call.index == 1

    def test_names_are_data(self) -> None:
        name = "x'; DROP VIEW calls; --"
        assert resolve(MemoryRun(INFO, calls=[call(1, name=name)]), name).call.name == name


def test_a_run_larger_than_memory(tmp_path: Path) -> None:
    """200 MB of calls, written last step first, in order and in SQL with little memory."""
    path = create_run(tmp_path / "run")
    writer = ProcessWriter(path, process_facts(), keep=None)
    args = "x" * 2000
    count, batches = 2000, 50
    for number in reversed(range(batches)):
        batch = [call(number * count + i, step=number, args=args) for i in reversed(range(count))]
        writer.append("calls", encode_rows("calls", batch), step=number)
    writer.close(0)
    assert (writer.directory / "calls.arrow").stat().st_size > 200_000_000
    run = NativeRun(path)
    tracemalloc.start()
    for expected, row in enumerate(calls(run, parse_selection(steps="0-9|49"))):
        assert row.index == (expected if expected < 20_000 else expected + 39 * count)
    query = "SELECT count(DISTINCT name) AS names, max(length(args)) AS longest FROM calls"
    [row] = sql(run, query)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert expected == 11 * count - 1
    assert row == {"names": count * batches, "longest": 2000}
    assert peak < 30_000_000


def test_calls_of_overlapping_batches_are_merged(tmp_path: Path) -> None:
    """An outer call is written after the inner ones, perhaps many batches later."""
    path = create_run(tmp_path / "run")
    writer = ProcessWriter(path, process_facts())
    for batch in ([1, 2, 3], [5, 6, 4], [8, 9], [0, 10], [7, 11]):
        writer.append("calls", encode_rows("calls", [call(i, step=i // 8) for i in batch]), step=0)
    writer.close(0)
    assert [row.index for row in calls(NativeRun(path))] == list(range(12))


class TestRegistry:
    def test_the_native_run(self, tmp_path: Path) -> None:
        path = create_run(tmp_path / "run")
        assert open_run(path).info.format == "opscope"
        assert open_run(str(path)).info.path == str(path)

    def test_a_new_format_is_one_module_and_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = """
            from opscope.formats.registry import Format
            FORMAT = Format("mine", lambda path: path.suffix == ".mine", lambda path: ("opened", path))
            OTHER = 3
        """
        (tmp_path / "opscope_test_format.py").write_text(textwrap.dedent(module))
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / "a.mine").write_text("x")
        (tmp_path / "b.other").write_text("{}")
        builtin = (*BUILTIN, "opscope_test_format:FORMAT")
        assert open_run(tmp_path / "a.mine", builtin=builtin) == ("opened", tmp_path / "a.mine")
        with pytest.raises(Exception, match="begins like JSON text"):
            open_run(tmp_path / "b.other", builtin=BUILTIN[:1])
        found = list(
            formats(
                (
                    "opscope_test_format:OTHER",
                    "opscope_test_format:NOTHING",
                    "opscope_no_such_module:FORMAT",
                )
            )
        )
        assert [type(entry) for entry in found[:3]] == [Unavailable] * 3
        with pytest.raises(Exception, match="not tried: opscope_no_such_module:FORMAT"):
            open_run(tmp_path / "b.other", builtin=("opscope_no_such_module:FORMAT",))

    def test_every_built_in_format_loads(self) -> None:
        assert all(isinstance(entry, Format) for entry in formats())


def test_arrow_columns_and_records_at_number_rows_alike(run: Run) -> None:
    for table in ("calls", "tensors"):
        batches = list(arrow_columns(run, table))
        processes, indices = (
            np.concatenate([batch[name].buffers[0] for batch in batches])
            for name in ("process", "index")
        )
        wanted = [
            len(indices) - 1,
            0,
            20,
            2,
            22,
            19,
            0,
        ]  # near each other and far apart, in no order
        found = [(record.process, record.index) for record in records_at(run, table, wanted)]
        assert found == [(processes[row], indices[row]) for row in wanted]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT nope FROM calls", "no such column: nope"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELEC 1", "syntax error"),
        ("SELECT sum(op, 1) FROM calls", "sum"),
        ("SELECT abs(-9223372036854775807 - 1)", "overflow"),
    ],
)
def test_what_a_query_got_wrong_is_said_in_one_line_of_ours(query: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        list(sql(MemoryRun(RunInfo(path="x", format="x"), (), [], []), query))
    assert said in str(caught.value)
    assert not re.search(r"Error:|LINE \d|\^|\n", str(caught.value))


def test_batches_without_a_wanted_call_are_left_out(tmp_path: Path) -> None:
    path = create_run(tmp_path / "run")
    writer = ProcessWriter(path, process_facts())
    for first in (0, 10, 20):
        writer.append("calls", encode_rows("calls", [call(first + i) for i in (3, 1, 5)]), step=0)
    writer.close(0)
    run = NativeRun(path)
    for wanted, expected in (
        ([13], [13, 11, 15]),
        ([2, 25], [3, 1, 5, 23, 21, 25]),
        ([0, 6, 16, 30], []),
        ([], []),
    ):
        keys = np.array([key(0, index) for index in wanted], dtype=np.int64)
        batches = columns(run, "calls", ["index"], keys)
        assert [index for batch in batches for index in batch["index"]] == expected, wanted
