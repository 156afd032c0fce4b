# SPDX-License-Identifier: Apache-2.0
"""`opscope compare` on small dumps of msprobe, as files lie on a user's disk."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from opscope.cli import main


def tensor(value: float, *, shape: tuple[int, ...] = (2, 4), **more: Any) -> dict[str, Any]:
    """A tensor in dump.json whose statistics come from one number."""
    about = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(shape),
        "requires_grad": True,
    }
    return {**about, "Max": value, "Min": -value, "Mean": value / 10, "Norm": 1.5 * value, **more}


def dump(
    folder: Path,
    values: list[float],
    *,
    names: list[str] | None = None,
    weight: float = 1.0,
    steps: int = 1,
) -> Path:
    """A statistics dump of calls in a chain, the second with a weight."""
    for step in range(steps):
        data: dict[str, Any] = {}
        for place, (before, after) in enumerate(pairwise(values)):
            name = names[place] if names else f"Functional.relu.{place}.forward"
            inputs = [tensor(before)] + ([tensor(weight, shape=(4, 4))] if place == 1 else [])
            data[name] = {"input_args": inputs, "input_kwargs": {}, "output": [tensor(after)]}
        place_of_step = folder / f"step{step}" / "rank0"
        place_of_step.mkdir(parents=True)
        text = {"task": "statistics", "level": "L1", "dump_data_dir": None, "data": data}
        (place_of_step / "dump.json").write_text(json.dumps(text), encoding="utf-8")
    return folder


def asked(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the verb."""
    code = main(["compare", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return dump(tmp_path / "golden +1", [1.0, 2.0, 3.0, 4.0])


def test_equal_dumps_agree_and_exit_0(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = asked(capsys, dump(tmp_path / "t", [1.0, 2.0, 3.0, 4.0]), golden)
    assert (code, err) == (0, "")
    assert out.startswith("opscope  the runs agree: 3 of 3 calls matched")


def test_the_origin_is_named_with_the_next_command(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = dump(tmp_path / "t", [1.0, 2.0, 3.5, 4.5])
    code, out, _ = asked(capsys, target, golden)
    assert code == 1
    assert "first divergence origin  step 0  Functional.relu" in out
    assert f"next  opscope show {target} Functional.relu.1.forward" in out
    assert max(map(len, out.splitlines()[:-1])) <= 80


def test_json_is_one_document_and_nothing_else(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = asked(
        capsys, dump(tmp_path / "t", [1.0, 2.0, 3.0, 4.0], weight=7.0), golden, "--json"
    )
    document = json.loads(out)
    assert (code, err) == (1, "")
    assert document["verb"] == "compare"
    assert document["verdict"] == "found"
    assert [finding["kind"] for finding in document["findings"]] == ["divergence-origin"]
    assert document["findings"][0]["call"] == "Functional.relu.1.forward"
    assert document["summary"]["calls"]["matched"] == 3


def test_fail_on_decides_the_exit_code(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = dump(
        tmp_path / "t",
        [1.0, 2.0, 3.0, 4.0, 5.0],
        names=[f"Functional.{op}.0.forward" for op in ("relu", "gelu", "silu", "tanh")],
    )
    other = dump(
        tmp_path / "g",
        [1.0, 2.0, 3.0, 4.0],
        names=[f"Functional.{op}.0.forward" for op in ("relu", "gelu", "silu")],
    )
    assert asked(capsys, longer, other)[0] == 1
    assert asked(capsys, longer, other, "--fail-on", "divergence")[0] == 0
    wrong = dump(tmp_path / "w", [1.0, 2.0, 3.5, 4.0])
    assert asked(capsys, wrong, golden, "--fail-on", "divergence")[0] == 1
    assert asked(capsys, wrong, golden, "--fail-on", "never")[0] == 0


def test_a_missing_step_is_incomplete(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = asked(capsys, dump(tmp_path / "t", [1.0, 2.0, 3.0, 4.0], steps=2), golden)
    assert code == 3
    assert "golden has no step 1" in out
    assert "no difference found in what could be compared" in out


@pytest.mark.parametrize("order", [("nowhere", "golden"), ("golden", "nowhere")])
def test_what_cannot_be_read_is_one_line_and_exit_2(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str], order: tuple[str, str]
) -> None:
    places = {"nowhere": tmp_path / "nowhere", "golden": golden}
    code, out, err = asked(capsys, *(places[name] for name in order))
    assert (code, out) == (2, "")
    assert "nowhere: no such file or directory" in err
    assert err.count("\n") == 1


def test_an_output_that_cannot_be_written_is_said_before_anything_is_compared(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = asked(capsys, golden, golden, "-o", tmp_path / "rows.docx")
    assert (code, out) == (2, "")
    assert ".csv" in err


def test_rows_are_written_as_a_table(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = dump(tmp_path / "t", [1.0, 2.0, 3.5, 4.5])
    assert asked(capsys, target, golden, "-o", tmp_path / "rows.csv")[0] == 1
    lines = (tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("NPU Name,Bench Name,")
    assert len(lines) == 8


MAPPING = {
    "own": "operators: {Functional.silu: Functional.swish}\n",
    "api": "- ms_api: Functional.silu  # of the target\n  pt_api: Functional.swish\n  ms_args: "
    "[0]\n  pt_args: [0]\n",
    "api calls": "- ms_api: Functional.silu.0.forward\n  pt_api: Functional.swish.0.forward\n",
    "data": "Functional.silu.0.forward.input.0: Functional.swish.0.forward.input.0\n",
    "json": '{"calls": {"Functional.silu.0.forward": "Functional.swish.0.forward"}}',
}


@pytest.mark.parametrize("form", MAPPING)
def test_a_mapping_matches_calls_of_other_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    names = [
        [f"Functional.{op}.0.forward" for op in ("relu", word, "tanh")]
        for word in ("silu", "swish")
    ]
    target = dump(tmp_path / "t", [1.0, 2.0, 3.0, 4.0], names=names[0])
    golden = dump(tmp_path / "g", [1.0, 2.0, 3.0, 4.0], names=names[1])
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(MAPPING[form], encoding="utf-8")
    without = json.loads(asked(capsys, target, golden, "--json")[1])
    assert without["summary"]["calls"]["matched"] == 2
    code, out, _ = asked(capsys, target, golden, "--json", "--mapping", mapping)
    assert json.loads(out)["summary"]["calls"]["matched"] == 3
    assert code == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &anchor b\n", "line 1"),
        ("a:\n\tb: c\n", "a tab in the indentation"),
        ("- pt_api: x\n", "needs ms_api and pt_api"),
        ("just words\n", "expected `key: value`"),
        ("a: b\na: c\n", "stands there twice"),
        ("{not json", "neither JSON nor"),
    ],
)
def test_a_bad_mapping_names_its_line(
    tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(text, encoding="utf-8")
    code, out, err = asked(capsys, golden, golden, "--mapping", mapping)
    assert (code, out) == (2, "")
    assert reason in err
