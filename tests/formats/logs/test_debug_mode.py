# SPDX-License-Identifier: Apache-2.0
"""The text of PyTorch's DebugMode."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.errors import FormatError
from opscope.formats.debug_mode import FORMAT
from opscope.formats.debug_mode_text import TensorText, Word, dtype_name, read_call, read_keyed
from opscope.formats.registry import open_run
from opscope.run.protocol import Run
from opscope.run.schema import Call, Tensor
from opscope.scan.api import scan
from opscope.testing import FormatTests

TEXT = Path(__file__).parent / "data" / "debug_mode.txt"


class TestDebugMode(FormatTests):
    format = FORMAT

    @staticmethod
    def samples() -> list[Path]:
        return [TEXT]


def written(folder: Path, text: str) -> Run:
    """A run of a text."""
    (folder / "log.txt").write_text(text)
    return open_run(folder / "log.txt")


def calls(run: Run) -> list[Call]:
    return list(run.rows("calls"))  # type: ignore[attr-defined]


def rows(run: Run) -> dict[tuple[int, str, str], Tensor]:
    return {(row.index, row.io, row.slot): row for row in run.rows("tensors")}  # type: ignore[attr-defined]


def test_the_first_nan_of_a_real_text_is_found() -> None:
    document = scan(open_run(TEXT))
    (finding,) = document.findings
    assert (finding.op, finding.source, finding.confidence) == (
        "aten::log.default",
        "/home/net/net.py:8",
        "proven",
    )
    assert finding.evidence[0]["reached"] == "loss"


def test_modules_apis_and_operators_lie_within_each_other() -> None:
    run = open_run(TEXT)
    known = {call.index: call for call in calls(run)}
    (weight,) = (
        call for call in known.values() if call.op == "aten::addmm.default" and call.module == "b"
    )
    chain = []
    parent = weight.parent
    while parent is not None:
        chain.append((known[parent].level, known[parent].op, known[parent].module))
        parent = known[parent].parent
    assert chain == [
        ("api", "torch._C._nn.linear", "b"),
        ("module", "torch.nn.Module", "b"),
        ("module", "Net", ""),
    ]


def test_what_runs_in_backward_is_backward_with_the_line_of_its_forward() -> None:
    run = open_run(TEXT)
    (division,) = (call for call in calls(run) if call.op == "aten::div.Tensor")
    assert (division.phase, division.source) == ("backward", "/home/net/net.py:8")
    assert {call.phase for call in calls(run) if call.module} == {"forward"}


def test_numbers_of_tensors_are_edges() -> None:
    run = open_run(TEXT)
    found = rows(run)
    (log,) = (call for call in calls(run) if call.op == "aten::log.default")
    (add,) = (call for call in calls(run) if call.name == "aten::add.Tensor#0")
    assert (
        found[log.index, "output", "0"].version
        == found[add.index, "input", "0"].version
        is not None
    )
    assert found[log.index, "output", "0"].nan == 1
    assert found[log.index, "input", "0"].nan == 0


def test_without_ids_there_are_no_edges(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        "    aten::relu(t: f32[2])  ->  t: f32[2]\n    aten::neg(t: f32[2])  ->  t: f32[2]\n",
    )
    assert [row.version for row in rows(run).values()] == [None] * 4


def test_a_write_in_place_makes_other_states_unknown(tmp_path: Path) -> None:
    lines = [
        "    aten::relu(t$0: f32[2])  ->  t$1: f32[2]",
        "    aten::view(t$1: f32[2], [1, 2])  ->  t$2: f32[1, 2]",
        "    aten::add_.Tensor(t$2: f32[1, 2], 1)  ->  t$2: f32[1, 2]",
        "    aten::neg(t$1: f32[2])  ->  t$3: f32[2]",
        "    aten::neg(t$2: f32[1, 2])  ->  t$4: f32[1, 2]",
        "    aten::add.out(t$4: f32[1, 2], t$4: f32[1, 2], out=t$2: f32[1, 2])  ->  t$2: f32[1, 2]",
        "    aten::neg(t$4: f32[1, 2])  ->  t$5: f32[1, 2]",
    ]
    found = rows(written(tmp_path, "\n".join(lines)))
    made = found[0, "output", "0"].version
    assert found[1, "input", "0"].version == made
    assert found[3, "input", "0"].version != made
    assert (
        found[4, "input", "0"].version
        == found[2, "output", "0"].version
        != found[2, "input", "0"].version
    )
    assert found[6, "input", "0"].version != found[4, "output", "0"].version


def test_hashes_prove_nothing_while_none_is_nan(tmp_path: Path) -> None:
    """A hash that puts numbers in the place of NaN would be finite too."""
    fine = "    aten::relu(t: f32[2])  ->  t: f32[2]  # {'input_hash': ((1.5,), {}), 'hash': 1.5}\n"
    run = written(tmp_path, fine)
    assert [row.nan for row in rows(run).values()] == [None, None]
    both = (
        fine + "    aten::log(t: f16[2])  ->  t: f16[2]  # {'input_hash': (((0.0, 12),), {}), "
        "'hash': (inf, 7)}\n"
    )
    found = rows(written(tmp_path, both))
    assert [(row.nan, row.pos_inf) for row in found.values()] == [(0, 0), (0, 0), (0, 0), (None, 1)]


def test_hashes_of_integers_prove_nothing(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        "    aten::log(t: i64[2])  ->  t: f32[2]  # {'input_hash': ((3.0,), {}), 'hash': nan}\n",
    )
    assert [row.nan for row in rows(run).values()] == [None, 1]


def test_triton_kernels_have_states_before_and_after(tmp_path: Path) -> None:
    lines = [
        "    aten::neg(t: f32[2])  ->  t: f32[2]",
        "    [triton] fused_0(x=t: f32[2], y=t: f32[2], n=2)",
        "      # pre-kernel hashes: {x: 1.0, y: 0.0}",
        "      # post-kernel hashes: {x: 1.0, y: nan}",
        "",
    ]
    run = written(tmp_path, "\n".join(lines))
    assert calls(run)[1].op == "triton::fused_0"
    found = rows(run)
    assert (found[1, "output", "x"].nan, found[1, "output", "y"].nan) == (0, 1)


def test_files_of_a_folder_are_processes(tmp_path: Path) -> None:
    for rank in (3, 1):
        (tmp_path / f"rank{rank}.txt").write_text("    aten::neg(t: f32[2])  ->  t: f32[2]\n")
    (tmp_path / "notes.txt").write_text("nothing\n")
    run = open_run(tmp_path)
    assert [process.rank for process in run.processes] == [1, 3]
    assert [call.rank for call in calls(run)] == [1, 3]


def test_values_are_read_and_nothing_is_evaluated() -> None:
    text = (
        "torch.cat(['t$0: f32[5, 4]', 'it\\'s'], {'k': [1, -2.5]}, nan, None, (1,), t: "
        "bf16[s0], dt$7: f8e4m3fn[8, 8]| S(0), "
        "dtype=torch.float16, device=cuda:0, fn=<function f at 0x7f>, flag=True)  ->  ('t: "
        "i64[]', None)"
    )
    call = read_call(text)
    assert call is not None
    assert call.args[0] == [TensorText("t", 0, "float32", (5, 4)), "it\\'s"]
    assert call.args[1] == {"k": [1, -2.5]}
    assert math.isnan(call.args[2])
    assert call.args[3:6] == [None, [1], TensorText("t", None, "bfloat16", None)]
    assert call.args[6] == TensorText("dt", 7, "float8_e4m3fn", (8, 8))
    assert call.kwargs == {
        "dtype": Word("torch.float16"),
        "device": Word("cuda:0"),
        "fn": Word("<function f at 0x7f>"),
        "flag": True,
    }
    assert call.output == [TensorText("t", None, "int64", ()), None]


def test_arguments_are_in_the_form_of_the_schema(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        "    aten::clamp(t: f32[2], inf, [1, 2], dtype=torch.float16, layout=torch.strided)  "
        "->  t: f32[2]\n",
    )
    assert msgspec.json.decode(calls(run)[0].args or "") == {
        "args": [{"tensor": "0"}, {"float": "inf"}, [1, 2]],
        "kwargs": {"dtype": {"dtype": "float16"}, "layout": {"object": "torch.strided"}},
    }


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("b8", "bool"),
        ("bf16", "bfloat16"),
        ("c64", "complex64"),
        ("u8", "uint8"),
        ("f8e5m2", "float8_e5m2"),
    ],
)
def test_abbreviations(short: str, name: str) -> None:
    assert dtype_name(short) == name


@pytest.mark.parametrize(
    "text",
    [
        "aten::x(",
        "aten::x(t: f32[2]",
        "aten::x(]",
        "x(" + "[" * 5000,
        "aten::x('",
        "plain words",
        "x(a b)  ->  ",
    ],
)
def test_torn_lines_are_no_calls(text: str) -> None:
    assert read_call(text) is None


@given(st.text(alphabet="aten:: ()[]{}'\",=->t$0f32#\\.nai<>|", max_size=200))
def test_any_text_is_read_or_not(text: str) -> None:
    call = read_call(text)
    assert call is None or call.name
    assert isinstance(read_keyed(text), dict)


def test_a_text_without_calls_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("hello\n")
    with pytest.raises(FormatError, match="no lines of PyTorch's DebugMode"):
        FORMAT.open(tmp_path / "log.txt")


def test_a_line_without_end_is_left_out(tmp_path: Path) -> None:
    fine = "    aten::neg(t: f32[2])  ->  t: f32[2]\n"
    run = written(tmp_path, fine + "    aten::cat([" + "x, " * 500_000 + "\n" + fine)
    assert [call.name for call in calls(run)] == ["aten::neg.default#0", "aten::neg.default#1"]
