# SPDX-License-Identifier: Apache-2.0
"""Writers: every kind reads back with nothing lost, the layouts are those of the other tools, and
bad files do not stop anything.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import ms_dumps
import msgspec
import msprobe_dumps
import numpy as np
import pytest

import opscope
from opscope.errors import UsageError
from opscope.formats import mindspore, msprobe
from opscope.formats.convert import KINDS, Report, convert, convert_run
from opscope.formats.registry import open_run
from opscope.formats.writing.engine import Wanted, Written
from opscope.formats.writing.job import Job
from opscope.kernels.reference import statistics
from opscope.run.memory import MemoryRun
from opscope.run.protocol import Run, RunInfo
from opscope.run.query import records
from opscope.run.schema import Call, Process, Stack, Tensor, ValueRef
from opscope.run.selection import parse_selection

TABLES_ALONE = {"parquet"}
LOSSLESS = [kind for kind in KINDS if kind not in {"msnpy", "cann"}]
SOURCES = ("ms_half", "ms_conv", "mp_tensor_mix", "mp_stats_mix")


def source(name: str) -> Path:
    return ms_dumps.real(name) if name.startswith("ms_") else msprobe_dumps.real(name)


def run_job(path: Path, out: Path, kind: str, **fields: Any) -> Report:
    return convert(
        [path], Job(out=out, kind=kind, jobs=2, **fields), lambda what, done, total: None
    )


def rows(run: Run) -> dict[tuple[int, int, str, str], Tensor]:
    return {(row.process, row.index, row.io, row.slot): row for row in records(run, "tensors")}


def calls(run: Run) -> list[Call]:
    return sorted(records(run, "calls"), key=lambda call: (call.process, call.index))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("kind", LOSSLESS)
def test_nothing_is_lost(name: str, kind: str, tmp_path: Path) -> None:
    """Calls, stacks, rows with statistics and digests, and every value come back as they were, but
    for values where tables alone are written.
    """
    report = run_job(source(name), tmp_path / "out", kind)
    assert report.failures == []
    before, after = open_run(source(name)), open_run(tmp_path / "out")
    assert calls(before) == calls(after)
    assert set(records(before, "stacks")) == set(records(after, "stacks"))
    ours, theirs = rows(before), rows(after)
    assert ours.keys() == theirs.keys()
    for key, row in ours.items():
        assert msgspec.structs.replace(row, value=None) == msgspec.structs.replace(
            theirs[key], value=None
        )
        assert (row.value is None or kind in TABLES_ALONE) == (theirs[key].value is None)
    assert after.problems == ()


def test_values_are_the_same_bits(tmp_path: Path) -> None:
    run_job(source("ms_half"), tmp_path / "out", "txt")
    before, after = open_run(source("ms_half")), open_run(tmp_path / "out")
    for key, row in rows(before).items():
        if row.value is not None:
            assert before.value(row).tobytes() == after.value(rows(after)[key]).tobytes()


def test_text_keeps_the_name_of_the_npy_and_says_shape_and_type(tmp_path: Path) -> None:
    run_job(
        source("ms_conv"),
        tmp_path / "out",
        "txt",
        wanted=Wanted(selection=parse_selection(ops="Conv2D", steps="0")),
    )
    (path, *_) = sorted((tmp_path / "out").rglob("Conv2D.*output.0*.txt"))
    assert path.name.endswith(".output.0.DefaultFormat.Float32.npy.txt")
    lines = path.read_text().splitlines()
    assert lines[0] == "# shape=(2, 4, 8, 8) dtype=float32"
    assert len(lines) == 1 + 2 * 4 * 8 * 8
    assert np.loadtxt(path).size == 512


def test_selection_and_slots(tmp_path: Path) -> None:
    wanted = Wanted(selection=parse_selection(steps="2", ops="BatchNorm"), outputs=(0, 2))
    report = run_job(source("ms_conv"), tmp_path / "out", "npy", wanted=wanted)
    assert report.tensors == 2
    after = open_run(tmp_path / "out")
    assert {(call.step, call.op) for call in calls(after)} == {(2, "BatchNorm")}
    assert {(row.io, row.slot) for row in rows(after).values()} == {
        ("output", "0"),
        ("output", "2"),
    }


def test_bad_files_are_listed_and_the_rest_is_written(tmp_path: Path) -> None:
    folder = ms_dumps.sync(tmp_path / "dump")
    good = np.ones((2, 2), np.float32)
    ms_dumps.put(
        folder, "Add.Default_Add-op0.0.0.17000000000001.output.0.DefaultFormat.Float32.npy", good
    )
    torn = ms_dumps.put(
        folder, "Add.Default_Add-op1.0.0.17000000000002.output.0.DefaultFormat.Float32.npy", good
    )
    torn.write_bytes(torn.read_bytes()[:-3])
    report = run_job(tmp_path / "dump", tmp_path / "out", "npy")
    assert (report.tensors, len(report.problems)) == (1, 1)
    assert "cut short" in report.problems[0]
    both = convert(
        [tmp_path / "dump", tmp_path / "absent"],
        Job(out=tmp_path / "two"),
        lambda what, done, total: None,
    )
    assert both.tensors == 1
    assert any("absent: no such file" in line for line in both.failures)


def test_what_makes_no_sense_is_said(tmp_path: Path) -> None:
    for job, said in (
        (Job(out=tmp_path, kind="xml"), "known are npy"),
        (Job(out=source("ms_conv") / "rank_0"), "lies in the source"),
        (Job(out=tmp_path / "o", layout="NCHW"), "CANN dump files"),
        (Job(out=tmp_path / "o", kind="msnpy"), "msnpy is for CANN"),
    ):
        with pytest.raises(UsageError, match=said):
            convert([source("ms_conv")], job, lambda what, done, total: None)


# -- a run that neither world wrote ----------------------------------------------------------------

WEIGHT = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
VALUES = {
    1: np.ones((4, 2), ml_dtypes.bfloat16),
    2: WEIGHT,
    3: np.array([[1.0, np.inf, np.nan]] * 4, np.float32),
    4: np.array(3, np.int64),
    5: np.zeros((0, 3), np.float16),
}


STATISTICS = (
    "size", "nan", "pos_inf", "neg_inf", "zero", "neg", "pos", "near_limit", "min", "max", "mean",
    "l2norm", "min_int", "max_int", "digest",
)  # fmt: skip


def row(index: int, io: str, slot: str, number: int, **fields: Any) -> Tensor:
    """A row of one of VALUES."""
    values = VALUES[number]
    found = statistics(values)
    version = fields.pop("version", number + 100 * (index // 10))
    return Tensor(
        process=0,
        index=index,
        io=io,
        slot=slot,
        version=version,
        dtype=values.dtype.name,
        shape=values.shape,
        value=ValueRef("v", str(number)),
        **{name: getattr(found, name) for name in STATISTICS},
        **fields,
    )


def torch_like() -> MemoryRun:
    """Two steps of a module with two operators, one backward, names that file systems and graphs do
    not like.
    """
    made, tensors = [], []
    for step in (0, 1):
        first = step * 10
        about: dict[str, Any] = {"process": 0, "rank": 2, "step": step}
        made += [
            Call(
                index=first,
                level="module",
                phase="forward",
                op="torch.nn.Linear",
                module="",
                name="<root>:Linear#1",
                stack=0,
                **about,
            ),
            Call(
                index=first + 1,
                parent=first,
                level="operator",
                phase="forward",
                op="aten::addmm.default",
                module="fc",
                name="fc:addmm#1",
                stack=0,
                source="/home/me/a b.py:3",
                args='{"args":[{"tensor":"0"},{"tensor":"1"},1.5,{"float":"inf"}],'
                '"kwargs":{"dtype":{"dtype":"bfloat16"},"mode":"a\\"b"}}',
                **about,
            ),
            Call(
                index=first + 2,
                parent=first,
                level="operator",
                phase="forward",
                op="aten::split.Tensor",
                module="fc",
                name=f"fc:{'s' * 260}#1",
                **about,
            ),
            Call(
                index=first + 3,
                level="operator",
                phase="backward",
                op="aten::mm.default",
                module="fc",
                name="fc:mm~bwd#1",
                forward_index=first + 1,
                **about,
            ),
        ]
        tensors += [
            row(first, "input", "0", 1),
            row(first, "output", "0", 3),
            row(first + 1, "input", "0", 1),
            row(first + 1, "input", "1", 2, role="parameter", tensor_name="fc.weight"),
            row(first + 1, "output", "0", 3),
            row(first + 2, "input", "0", 3),
            row(first + 2, "input", "kwargs.n", 4, role="constant"),
            row(first + 2, "output", "0", 5),
            row(first + 2, "output", "1", 2, version=77 + first),
            row(first + 3, "input", "0", 2, version=77 + first),
            row(first + 3, "output", "0", 2, version=78 + first),
        ]
    stacks = [
        Stack(
            process=0,
            stack=0,
            frames=("/home/me/a b.py:3 in forward", "/home/me/main.py:9 in <module>"),
        )
    ]
    return MemoryRun(
        RunInfo(path="made", format="opscope", version="1"),
        [Process(process=0, directory="p", rank=2)],
        made,
        tensors,
        stacks,
        value=lambda tensor: VALUES[int(tensor.value.key)] if tensor.value else np.empty(0),
    )


@pytest.fixture
def made() -> MemoryRun:
    return torch_like()


def write_made(run: MemoryRun, out: Path, kind: str, *, wanted: Wanted = Wanted()) -> Written:
    return convert_run(run, Job(out=out, kind=kind, wanted=wanted), lambda done: None)


@pytest.mark.parametrize("kind", LOSSLESS)
def test_a_torch_run_in_every_kind(kind: str, made: MemoryRun, tmp_path: Path) -> None:
    report = write_made(made, tmp_path / "out", kind)
    assert report.failures == []
    after = open_run(tmp_path / "out")
    assert calls(after) == calls(made)
    theirs = rows(after)
    for key, row in rows(made).items():
        found = theirs[key]
        assert (found.dtype, found.shape, found.version, found.digest, found.role) == (
            row.dtype,
            row.shape,
            row.version,
            row.digest,
            row.role,
        )
        if kind not in TABLES_ALONE:
            assert after.value(found).tobytes() == made.value(row).tobytes()


def test_mindspores_layout(made: MemoryRun, tmp_path: Path) -> None:
    """Without opscope's own list: the graph gives names, edges and lines; statistic.csv, constants,
    arguments, mapping are there.
    """
    out = tmp_path / "out"
    write_made(made, out, "mindspore")
    (out / "opscope.jsonl").unlink()
    base = out / "rank_2"
    assert json.loads((base / ".dump_metadata/config.json").read_text())["device_target"] == "CPU"
    assert (base / "execution_order/ms_global_execution_order_graph_0.csv").read_text() == "0\n1\n"
    assert (base / "execution_order/ms_execution_order_graph_0.csv").read_text().splitlines()[
        1
    ] == "fc:addmm#1"
    assert len(list((base / "graphs").glob("*.ir"))) == 1
    assert list((base / "Net/0/constants").glob("Parameter.data-0.*.npy"))
    assert list((base / "Net/0/0").glob("Parameter.fc_weight.*.npy"))
    (arguments,) = (base / "Net/0/0").glob("*.json")
    assert json.loads(arguments.read_text())["mode"] == 'a"b'
    lines = list(csv.DictReader((base / "Net/0/0/statistic.csv").read_text().splitlines()))
    poisoned = next(
        line for line in lines if line["Op Name"] == "fc:addmm#1" and line["IO"] == "output"
    )
    assert (poisoned["NaN Count"], poisoned["Max Value"], poisoned["Shape"]) == (
        "4",
        "nan",
        "(4,3)",
    )
    assert len((base / "Net/0/0/mapping.csv").read_text().splitlines()) == 4
    bf16 = next((base / "Net/0/0").glob("*addmm*input.0.*.npy"))
    assert (bf16.name.rsplit(".", 2)[1], np.load(bf16).dtype) == ("BFloat16", np.float32)

    run = mindspore.FORMAT.open(out)
    assert run.problems == ()
    kernels = [call for call in calls(run) if call.level == "operator"]
    assert [(call.name, call.source, call.phase) for call in kernels if call.step == 0][:1] == [
        ("fc:addmm#1", "/home/me/a b.py:3", "forward")
    ]
    assert kernels[0].args is not None
    assert '"mode":"a\\"b"' in kernels[0].args
    assert '{"float":"inf"}' in kernels[0].args
    held = {
        (run_call.name, row.io, row.slot): row
        for run_call in kernels
        if run_call.step == 1
        for row in rows(run).values()
        if row.index == run_call.index
    }
    product, split = held["fc:addmm#1", "output", "0"], kernels[1].name
    assert held[split, "input", "0"].version == product.version
    assert held["fc:mm~bwd#1", "input", "0"].version == held[split, "output", "1"].version
    assert held["fc:addmm#1", "input", "0"].dtype == "bfloat16"
    assert held["fc:addmm#1", "input", "1"].tensor_name == "fc.weight"


def test_steps_that_differ_have_graphs_of_their_own(made: MemoryRun, tmp_path: Path) -> None:
    write_made(
        made,
        tmp_path / "out",
        "mindspore",
        wanted=Wanted(selection=parse_selection(ops="aten::addmm.default,aten::mm.default")),
    )
    assert len(list((tmp_path / "out/rank_2/graphs").iterdir())) == 1
    dump = tmp_path / "two"
    ms_dumps.put(
        ms_dumps.sync(dump, step=0),
        "Add.Default_Add-op0.0.0.1700000000000001.output.0.DefaultFormat.Float32.npy",
        WEIGHT,
    )
    ms_dumps.put(
        ms_dumps.sync(dump, step=1),
        "Mul.Default_Mul-op0.0.0.1700000000000002.output.0.DefaultFormat.Float32.npy",
        WEIGHT,
    )
    run_job(dump, tmp_path / "graphs", "mindspore")
    assert sorted(path.name for path in (tmp_path / "graphs/rank_0/Net").iterdir()) == ["0", "1"]


def test_msprobes_layout(made: MemoryRun, tmp_path: Path) -> None:
    """Names, nesting, Max of a tensor with NaN, files beside the json: as msprobe writes them, and
    read again without our list.
    """
    out = tmp_path / "out"
    write_made(made, out, "msprobe")
    (out / "opscope.jsonl").unlink()
    folder = out / "step0" / "rank2"
    dump = json.loads((folder / "dump.json").read_text())
    assert (dump["task"], dump["level"], dump["framework"]) == ("tensor", "mix", "pytorch")
    assert list(dump["data"]) == [
        f"Aten.{name}" for name in ("addmm.0.forward", "split.0.forward")
    ] + [
        "Module.Linear.forward.0",
        "Aten.mm.0.backward",
    ]
    output = dump["data"]["Aten.addmm.0.forward"]["output"][0]
    assert np.isnan(output["Max"])
    assert output["data_name"] == "Aten.addmm.0.forward.output.0.pt"
    assert dump["data"]["Aten.addmm.0.forward"]["input_args"][2] == {"type": "float", "value": 1.5}
    assert dump["data"]["Aten.mm.0.backward"]["input"][0]["shape"] == [2, 3]
    assert (
        json.loads((folder / "construct.json").read_text())["Aten.addmm.0.forward"]
        == "Module.Linear.forward.0"
    )
    assert (
        json.loads((folder / "stack.json").read_text())["0"][1][0]
        == "File /home/me/a b.py, line 3, in forward, \n "
    )

    run = msprobe.FORMAT.open(out)
    assert run.problems == ()
    assert Counter(call.level for call in calls(run)) == {"api": 6, "module": 2}
    module, product = calls(run)[0], calls(run)[1]
    assert (module.op, product.parent, product.source) == (
        "Linear",
        module.index,
        "/home/me/a b.py:3",
    )
    found = next(
        row
        for row in rows(run).values()
        if row.index == product.index and row.io == "input" and row.slot == "0"
    )
    assert found.dtype == "bfloat16"
    torch = pytest.importorskip("torch")
    loaded = torch.load(
        folder / "dump_tensor_data" / "Aten.addmm.0.forward.input.0.pt", weights_only=True
    )
    assert (loaded.dtype, tuple(loaded.shape)) == (torch.bfloat16, (4, 2))


# -- the command line ------------------------------------------------------------------------------


def command(*words: object) -> subprocess.CompletedProcess[str]:
    path = str(Path(opscope.__file__).parents[1])
    code = (
        f"import sys; sys.path.insert(0, {path!r}); from opscope.cli import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_verb(tmp_path: Path) -> None:
    done = command(
        "convert",
        source("ms_conv"),
        "-o",
        tmp_path / "out",
        "--type",
        "csv",
        "--steps",
        "0",
        "--ops",
        "MatMul",
        "--outputs",
        "0",
    )
    assert (done.returncode, done.stdout) == (0, f"3 tensors written to {tmp_path / 'out'}\n"), (
        done.stderr
    )
    assert len(list((tmp_path / "out").rglob("*.csv"))) == 3


def test_of_what_is_not_there_nothing_is_said_to_be_written(tmp_path: Path) -> None:
    done = command("convert", tmp_path / "absent", "-o", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "nothing was written\n")
    assert not (tmp_path / "out").exists()


def test_nothing_that_is_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "opscope.jsonl").write_text("mine")
    done = command("convert", source("ms_conv"), "-o", tmp_path / "out", "--steps", "0")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["opscope.jsonl"]
    assert (tmp_path / "out" / "opscope.jsonl").read_text() == "mine"
    assert f"out exists; written to {tmp_path / 'out-2'}" in done.stderr
    assert list((tmp_path / "out-2").rglob("*.npy"))


def test_the_verb_in_json_with_what_failed(tmp_path: Path) -> None:
    folder = ms_dumps.sync(tmp_path / "dump")
    ms_dumps.put(
        folder, "Add.Default_Add-op0.0.0.17000000000001.output.0.DefaultFormat.Float32.npy", WEIGHT
    ).write_bytes(b"\x93NUMPY")
    ms_dumps.put(
        folder, "Add.Default_Add-op1.0.0.17000000000002.output.0.DefaultFormat.Float32.npy", WEIGHT
    )
    done = command("convert", tmp_path / "dump", "-o", tmp_path / "out", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["tensors"], document["complete"], document["verb"]) == (
        3,
        1,
        False,
        "convert",
    )
    assert len(document["summary"]["warnings"]) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("{absent}", "-o", "{out}"), 2, "no such file"),
        (("{dump}", "-o", "{out}", "--inputs", "a"), 2, "no list of numbers"),
        (("{dump}", "-o", "{out}", "--jobs", "-1"), 2, "from 1 to 1024"),
        (("-o", "{out}"), 2, "name at least one dump"),
        (("{dump}", "-o", "{out}", "--layout", "NCWH"), 2, "no such layout"),
        (("{dump}", "-o", "{out}", "--outputs", "77"), 2, "holds no values of what is meant"),
        (("{dump}", "-o", "/dev/null/out"), 2, "/dev/null/out: Not a directory"),
        (("odd://host/dump", "-o", "{out}"), 2, "Protocol not known"),
    ],
)
def test_the_verb_says_what_is_wrong(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    names = {
        "absent": str(tmp_path / "absent"),
        "dump": str(source("ms_kernels")),
        "out": str(tmp_path / "out"),
    }
    done = command("convert", *(word.format(**names) for word in words))
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_text_of_a_dump_file_keeps_type_task_and_time(tmp_path: Path) -> None:
    """As the manual has it: the dump file becomes an .npy, that becomes text; a name that was too
    long comes back from mapping.csv.
    """
    dump = tmp_path / "dump"
    dump.mkdir()
    long = f"Pooling.{'p' * 100}.1147.1589195081588018.output.0.npy"
    np.save(dump / "12345678901234567.npy", np.ones(3, np.float32))
    (dump / "mapping.csv").write_text(f"12345678901234567.npy,{long}\n")
    run_job(dump, tmp_path / "out", "txt")
    assert [path.name for path in (tmp_path / "out").rglob("*.txt")] == [f"{long}.txt"]
