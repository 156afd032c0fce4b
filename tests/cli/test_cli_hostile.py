# SPDX-License-Identifier: Apache-2.0
"""Text that a run or a path holds reaches a terminal, a spreadsheet and a file only as text."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import opscope
from opscope.cli import main, msaccucmp
from opscope.report.table import write_csv

HERE = Path(opscope.__file__).parent
ESCAPE = "\x1b[2J\x9b31m\u202e"
ROOMS = ("cli", "report", "scan", "compare", "questions", "ascend")
PRINTERS = {
    "cli/__init__.py",  # the version
    "cli/completion.py",  # a script for a shell, of no run
    "cli/failing.py",
    "cli/printing.py",
    "report/console.py",
    "cli/prepare.py",
}  # prepare asks in words of its own


@pytest.mark.parametrize(
    "words",
    [
        ["scan", f"{ESCAPE}x"],
        ["show", f"{ESCAPE}x"],
        ["query", f"{ESCAPE}x", "select 1"],
        ["compare", f"{ESCAPE}x", "y"],
        [f"{ESCAPE}scan"],
        ["scan", f"--{ESCAPE}"],
        ["repro", f"{ESCAPE}x"],
        ["minimize", f"{ESCAPE}x"],
        ["replay", f"{ESCAPE}x"],
        ["convert", f"{ESCAPE}x", "-o", "y"],
        ["aicore", f"{ESCAPE}x"],
        ["aicore", "--code", f"{ESCAPE}x"],
        ["prepare", f"{ESCAPE}x"],
        ["run", "--", f"{ESCAPE}x"],
        ["run", "--config", f"{ESCAPE}x", "--", "true"],
        ["bisect", "--", f"{ESCAPE}x"],
    ],
    ids=lambda words: words[0].removeprefix(ESCAPE),
)
def test_error_lines_hold_no_control_characters(
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) != 0
    said = capsys.readouterr()
    assert (said.out + said.err).replace("\n", "").isprintable()
    assert r"\x1b[2J" in said.err


def test_the_other_tool_says_it_so_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert msaccucmp.main(["convert", "-d", f"{ESCAPE}x"]) != 0
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_csv_holds_no_escapes_and_no_formulas() -> None:
    class Lines(list[str]):
        write = list.append

    lines = Lines()
    write_csv(
        [{f"=a{ESCAPE}": f"=1+1{ESCAPE}", "b": "＝1", "c": "x\r\ny", "d": "-inf", "e": -1.5}], lines
    )  # type: ignore[arg-type]
    first, second = "".join(lines).split("\n", 1)
    assert first == r"'=a\x1b[2J\x9b31m\u202e,b,c,d,e"
    assert second == "'=1+1" + r"\x1b[2J\x9b31m\u202e,'＝1," + '"x\\r\ny",-inf,-1.5\n'


def _prints(tree: ast.AST) -> list[int]:
    """Lines where something is written to a terminal past the one escape; print(json_text(…)) is
    ASCII, print(printable(…)) escaped, a literal the code's own.
    """
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        safe = ("json_text(", "printable(")
        plain = called == "print" and all(
            isinstance(argument, ast.Constant) or ast.unparse(argument).startswith(safe)
            for argument in node.args
        )
        if (called == "print" and not plain) or called in ("sys.stdout.write", "sys.stderr.write"):
            found.append(node.lineno)
    return found


def test_everything_printed_goes_through_one_escape() -> None:
    files = [
        path
        for room in ROOMS
        for path in (HERE / room).rglob("*.py")
        if "scripts" not in path.parts
    ]
    past = {
        str(path.relative_to(HERE)): lines
        for path in files
        if (lines := _prints(ast.parse(path.read_text())))
    }
    assert {name: lines for name, lines in past.items() if name not in PRINTERS} == {}


@pytest.mark.parametrize("what", ["file", "folder", "up"])
def test_a_link_out_of_a_dump_is_not_followed(
    what: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    np.save(tmp_path / "mine" / "Secret.secret.0.output.0.npy", np.arange(3.0))
    dump = tmp_path / "dump"
    dump.mkdir()
    np.save(dump / "Add.add.1.output.0.npy", np.ones(3))
    (dump / "inside.npy").symlink_to("Add.add.1.output.0.npy")
    assert main(["show", str(dump)]) == 0
    link = {"file": "Mul.mul.2.output.0.npy", "folder": "step1", "up": "more"}[what]
    target = {
        "file": tmp_path / "mine" / "Secret.secret.0.output.0.npy",
        "folder": tmp_path / "mine",
        "up": Path("../mine"),
    }[what]
    (dump / link).symlink_to(target)
    capsys.readouterr()
    assert main(["show", str(dump)]) == 2
    said = capsys.readouterr()
    assert str(dump / link) in said.err
    assert "secret" not in said.out
    assert main(["show", str(dump / "Add.add.1.output.0.npy")]) == 0


def test_a_comparison_replaces_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "Add.add.1.output.0.npy", np.ones(3) + (name == "b"))
    mine = tmp_path / "mine.csv"
    mine.write_text("mine")
    (tmp_path / "mine-2.csv").symlink_to(tmp_path / "nowhere")
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(mine)]) == 1
    assert (mine.read_text(), (tmp_path / "nowhere").exists()) == ("mine", False)
    assert (tmp_path / "mine-3.csv").read_text() != ""
    assert "mine-3.csv" in capsys.readouterr().err
