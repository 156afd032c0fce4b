# SPDX-License-Identifier: Apache-2.0
"""The text of ONNX Runtime's node dumps."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.errors import FormatError
from opscope.formats.onnxruntime import FORMAT
from opscope.formats.registry import open_run
from opscope.run.protocol import Run
from opscope.run.schema import Tensor
from opscope.scan.api import scan
from opscope.testing import FormatTests

TEXT = Path(__file__).parent / "data" / "onnxruntime.txt"


class TestOnnxRuntime(FormatTests):
    format = FORMAT

    @staticmethod
    def samples() -> list[Path]:
        return [TEXT]


def rows(run: Run) -> dict[tuple[int, str, str], Tensor]:
    return {(row.index, row.io, row.slot): row for row in run.rows("tensors")}  # type: ignore[attr-defined]


def output(folder: Path, *lines: str, shape: str = "4") -> Tensor:
    """The output row of one node of which these lines are printed."""
    text = [
        "-----------",
        "Exp node: e",
        "-----------",
        "Output 0 Name: y",
        f" Shape: {{{shape}}}",
        *lines,
        "",
    ]
    (folder / "log.txt").write_text("\n".join(text))
    return rows(open_run(folder / "log.txt"))[0, "output", "0"]


def test_the_first_node_that_makes_a_nan_is_found() -> None:
    (finding,) = scan(open_run(TEXT)).findings
    assert (finding.op, finding.call) == ("Log", "/Log")


def test_names_of_tensors_are_edges_within_a_step() -> None:
    run = open_run(TEXT)
    found = rows(run)
    assert [(call.step, call.name) for call in run.rows("calls")] == [
        (0, "/fc/MatMul"),
        (0, "/Log"),
        (0, "Clip"),
        (1, "/fc/MatMul"),
    ]  # type: ignore[attr-defined]
    assert found[0, "output", "0"].version == found[1, "input", "0"].version
    assert found[0, "input", "0"].version != found[3, "input", "0"].version
    assert found[0, "input", "0"].tensor_name == "x"


def test_elements_are_counted_where_all_are_printed(tmp_path: Path) -> None:
    row = output(tmp_path, "nan, -inf", "inf, 1e-05", "", shape="2,2")
    assert (row.shape, row.nan, row.pos_inf, row.neg_inf, row.size) == ((2, 2), 1, 1, 1, 4)
    row = output(tmp_path, "nan, 1, 2, ... , 4, 5, 6", "", shape="600")
    assert (row.nan, row.pos_inf) == (None, None)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Min=-1,Max=2", (0, 0, 0, -1.0, 2.0)),
        ("Min=-1,Max=inf,Inf=3", (0, 3, 0, -1.0, None)),
        ("Min=-inf,Max=1,Inf=2,NaN=1", (1, 0, 2, None, 1.0)),
        ("Min=-inf,Max=inf,Inf=5", (0, 1, 1, None, None)),
        ("Min=nan,Max=nan,Inf=5,NaN=2,Zero=1", (2, None, None, None, None)),
    ],
)
def test_statistics_say_what_they_prove(
    line: str, expected: tuple[float | None, ...], tmp_path: Path
) -> None:
    row = output(tmp_path, line, shape="600")
    assert (row.nan, row.pos_inf, row.neg_inf, row.min, row.max) == expected


def test_types_are_not_in_the_text(tmp_path: Path) -> None:
    assert output(tmp_path, "1, 2, 3, 4").dtype == "unknown"


def test_a_text_without_nodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("hello\n")
    with pytest.raises(FormatError, match="no nodes of ONNX Runtime"):
        FORMAT.open(tmp_path / "log.txt")


@given(
    st.lists(
        st.sampled_from(
            [
                "-----------",
                "Exp node: e",
                "Input 0 Name: x",
                "Output 1 Name: y",
                " Shape: {2,3}",
                "Min=1,Max=nan,Inf=2",
                "1, inf",
                "...",
            ]
        )
        | st.text(max_size=20)
    )
)
def test_any_lines_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("ort") / "log.txt"
    path.write_text(
        "-----------\nExp node: e\nInput 0 Name: x\n" + "\n".join(lines),
        encoding="utf-8",
        errors="replace",
    )
    run = FORMAT.open(path)
    assert run.problems == ()
    assert len(rows(run)) >= 1
