# SPDX-License-Identifier: Apache-2.0
"""The real command line, of each verb something in a process of its own."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import Command, environment
from rich.cells import cell_len

import opscope
from opscope.cli import main


def only_line(text: str) -> str:
    (line,) = text.splitlines()
    assert line.startswith("opscope: ")
    return line.removeprefix("opscope: ")


# -- all verbs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scna", "x"], 'unknown command "scna". Did you mean "scan"?'),
        (["frob"], 'unknown command "frob"; see opscope --help'),
        (["bisect"], "write: opscope bisect [options] -- python train.py"),
        (["run", "--", "/"], "/: no such command"),
        (["scan"], 'command "scan" parameter RUN requires an argument'),
        (["scan", "nowhere"], "nowhere: no such file or directory"),
        (["scan", "x", "--josn"], "unknown option: --josn. Did you mean --json?"),
        (["scan", "x", "--fail-on", "all"], 'invalid value "all" for --fail-on'),
        (["scan", "."], "no known dump or run: an empty directory"),
        (["show", "odd://x/y"], "odd://x/y: Protocol not known: odd"),
        (["query", "x"], 'command "query" parameter SQL requires an argument'),
        (["query", "x", "select 1", "--json", "--csv"], "--json and --csv exclude one another"),
        (["run"], "no command given; write: opscope run [options] -- python train.py"),
        (
            ["run", "--valeus", "full", "--", "true"],
            "unknown option: --valeus. Did you mean --values?",
        ),
        (
            ["run", "--values", "al", "--", "true"],
            "--values 'al': not one of none, anomaly, overflow, sample, full",
        ),
        (
            ["run", "--steps", "8-5", "--", "true"],
            "steps '8-5': the range '8-5' runs backwards or is too large",
        ),
        (["run", "--", "pyhton"], "pyhton: no such command"),
        (["run", "-o"], "-o requires an argument"),
        (["replay", "x", "--limit", "-3"], "--limit -3: wants a number above 0"),
        (["repro", "x", "y", "--repeat", "0"], "--repeat 0: wants a number above 0"),
        (["repro", "x", "y", "--timeout", "nan"], "--timeout nan: wants a number above 0"),
        (["repro", "x", "y", "--python", "/nowhere"], "--python /nowhere: no such program"),
        (["minimize", "x", "--timeout", "-1"], "--timeout -1: wants a number above 0"),
        (["bisect", "--trials", "0", "--", "true"], "--trials 0: wants a number above 0"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(
    called: Command, words: list[str], message: str
) -> None:
    done = called(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message.lower() in only_line(done.stderr).lower()


def test_a_call_that_lay_in_what_cannot_be_read_is_not_just_unknown(
    command: Command, run: Path
) -> None:
    (table,) = run.glob("processes/p-*/calls.arrow")
    table.unlink()
    done = command("repro", run, "blocks.0:mm#1")
    missing, unknown = done.stderr.splitlines()
    assert done.returncode == 2
    assert "0 of the 4 rows that were written are here" in missing
    assert "no call of that name" in unknown


@pytest.mark.zoo
def test_repro_of_no_call_takes_the_first_findings(
    command: Command, run: Path, tmp_path: Path
) -> None:
    done = command("repro", run, "-o", tmp_path / "case")
    assert only_line(done.stderr) == "blocks.0:mm#1: the call of the first finding"
    assert (tmp_path / "case" / "repro.py").exists()
    assert done.returncode == 125, "this run holds no values"


def test_nothing_asked_is_help(command: Command) -> None:
    done = command()
    assert done.returncode == 0
    verbs = ["run", "scan", "repro", "show", "query", "doctor"]
    assert [
        verb for line in done.stdout.splitlines() for verb in verbs if line.startswith(f"│ {verb} ")
    ] == verbs
    assert max(map(cell_len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("verb", ["run", "scan", "show", "query", "doctor"])
def test_help_of_a_verb(called: Command, verb: str) -> None:
    done = called(verb, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: opscope {verb}" in done.stdout
    assert max(map(cell_len, done.stdout.splitlines())) <= 80


def test_version(command: Command) -> None:
    assert command("--version").stdout == f"opscope {opscope.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["scan", "RUN", "--json"],
        ["show", "RUN", "--json"],
        ["query", "RUN", "select 1 x", "--json"],
        ["doctor", "--json"],
    ],
)
def test_json_is_one_document_and_nothing_else(
    command: Command, run: Path, words: list[str]
) -> None:
    done = command(*[str(run) if word == "RUN" else word for word in words])
    assert isinstance(json.loads(done.stdout), dict)


def test_a_closed_pipe_is_quiet(run: Path, tmp_path: Path) -> None:
    many = (
        "with recursive n(a) as (select 1 union all select a + 1 from n where a < 20000) "
        "select a, printf('%.70c', 'x') from n"
    )
    for words in (
        ["query", str(run), many],
        ["query", str(run), many, "--json"],
        ["query", str(run), many, "--csv"],
    ):
        line = (
            f"{shlex.join([sys.executable, '-m', 'opscope', *words])} | head -2 >/dev/null; "
            f"echo ${{PIPESTATUS[0]}}"
        )
        done = subprocess.run(
            ["bash", "-c", line],
            env=environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stdout, done.stderr) == ("141\n", "")


def test_a_closed_stdout_changes_no_exit_code(run: Path, tmp_path: Path) -> None:
    line = f"{shlex.join([sys.executable, '-m', 'opscope', 'scan', str(run)])} >&-"
    done = subprocess.run(
        ["bash", "-c", line],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_that_finds_no_room(run: Path, tmp_path: Path) -> None:
    line = f"{shlex.join([sys.executable, '-m', 'opscope', 'scan', str(run)])} >/dev/full"
    done = subprocess.run(
        ["bash", "-c", line],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "opscope: No space left on device\n")


def test_output_that_cannot_be_encoded_is_escaped(command: Command, run: Path) -> None:
    done = command("scan", run, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert done.returncode == 1
    assert "x\\u2208[" in done.stdout


# A job that a shell started in the background inherits an ignored SIGINT; a terminal's command does
# not.
TELLS_WHEN_IT_ASKS = """
import signal, sys
from opscope.run.database import Database
from opscope.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
ask = Database.ask
def told(database, *given):
    print("asking", flush=True)
    yield from ask(database, *given)
Database.ask = told
sys.exit(main())
"""


def test_ctrl_c_is_clean(run: Path, tmp_path: Path) -> None:
    slow = "with recursive n(a) as (select 1 union all select a + 1 from n) select count(*) from n"
    line = [sys.executable, "-c", TELLS_WHEN_IT_ASKS, "query", str(run), slow]
    with subprocess.Popen(
        line,
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asking\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_bug_is_a_line_and_a_file(command: Command, tmp_path: Path) -> None:
    """A program that breaks opscope from inside: the traceback is kept, not shown."""
    broken = "import sys; import opscope.cli.app as app; from opscope.cli import main\n"
    broken += "app.dispatch = lambda words: {}['gone']\nsys.exit(main([]))"
    done = subprocess.run(
        [sys.executable, "-c", broken],
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout) == (101, "")
    message = only_line(done.stderr)
    assert message.startswith("this is a bug in opscope: KeyError: 'gone'; the traceback is in ")
    (file,) = tmp_path.glob("opscope-bug-*.txt")
    assert "Traceback" in file.read_text()


def test_main_answers_with_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["scan", "/nowhere"]) == 2
    assert capsys.readouterr().err == "opscope: /nowhere: no such file or directory\n"


def test_no_colour_but_on_a_terminal(run: Path, tmp_path: Path) -> None:
    for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        line = [sys.executable, "-m", "opscope", "scan", str(run)]
        process = subprocess.Popen(
            line, env=environment(TERM="xterm", **more), cwd=tmp_path, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            said += piece
        os.close(ours)
        assert process.wait(timeout=240) == 1
        assert (b"\x1b[1;31mfirst" in said) == coloured


# -- scan ------------------------------------------------------------------------------------------


def test_scan_draws_the_verdict(command: Command, run: Path) -> None:
    done = command("scan", run.name)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("opscope  2 steps, 2 calls a step, 1 rank")
    assert lines[0].endswith("运行 a+b's")
    assert lines[1] == "first overflow  step 1  aten::mm  forward  blocks.0"
    assert lines[2] == "  我的 models/train.py:5   scores = q @ k.T"
    assert lines[3].startswith("  in   f16[2, 4] x∈[300, 300]   f16[2, 4] x∈[301, 301]")
    assert (
        lines[-1] == "next  opscope repro " + shlex.join([run.name, "blocks.0:mm#1"]) + " -o case"
    )
    assert max(map(cell_len, lines[:-1])) <= 80


def test_scan_json(command: Command, run: Path) -> None:
    document = json.loads(command("scan", run, "--json").stdout)
    assert (document["verb"], document["verdict"], document["complete"], document["runs"]) == (
        "scan",
        "found",
        True,
        [str(run)],
    )
    (finding,) = document["findings"]
    assert (finding["call"], finding["step"], finding["status"]) == ("blocks.0:mm#1", 1, "0x400")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--steps", "0"], 0),
        (["--steps", "1"], 1),
        (["--fail-on", "reached"], 0),
        (["--ops", "mm"], 1),
    ],
)
def test_scan_exit_codes(called: Command, run: Path, words: list[str], code: int) -> None:
    assert called("scan", run, *words).returncode == code


def test_scan_of_a_torn_clean_run_is_incomplete(command: Command, run: Path) -> None:
    (tensors,) = run.glob("processes/p-*/tensors.arrow")
    tensors.write_bytes(tensors.read_bytes()[:-100])
    done = command("scan", run, "--steps", "0")
    assert done.returncode == 3
    assert "in what could be read" in " ".join(done.stdout.split())
    shown = command("show", run)
    assert shown.returncode == 3
    assert "tensors.arrow" in only_line(shown.stderr)


# -- show ------------------------------------------------------------------------------------------


def test_show_lists_calls_with_their_tensors(called: Command, run: Path) -> None:
    done = called("show", run, "--steps", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "blocks.0:mm#1  aten::mm.default"
    assert lines[1] == "  step 1, #2, forward, 我的 models/train.py:5"
    assert lines[2] == "  in   0  f16[2, 4] x∈[300, 300]"
    assert lines[3].startswith("          values in processes/p-")
    assert (run / lines[3].split()[2]).is_file()
    assert any(line.startswith("  out  0  f16[2, 2] 4 inf") for line in lines)


def test_show_a_line_of_code(called: Command, run: Path) -> None:
    """Any frame of the stack: line 9 called what ran in lines 5 and 6."""
    for place, names in (
        ("train.py:5", ["mm"]),
        ("train.py:6", ["_softmax"]),
        ("我的 models/train.py:9", ["mm", "_softmax"]),
    ):
        document = json.loads(
            called("show", run, "--source", place, "--steps", "0", "--json").stdout
        )
        assert [call["name"] for call in document["calls"]] == [
            f"blocks.0:{name}#1" for name in names
        ]
        assert len(document["tensors"]) == {"mm": 3, "_softmax": 2}[names[0]] + (
            2 if len(names) > 1 else 0
        )


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("train.py:7", "no call came from that line; nearest lines that ran one: 6, 5"),
        ("rain.py:5", "no call of this run came from a file of that name"),
        ("train.py", "write FILE:LINE, train.py:41"),
    ],
)
def test_show_says_what_lines_there_are(
    called: Command, run: Path, place: str, message: str
) -> None:
    done = called("show", run, "--source", place)
    assert done.returncode == 2
    assert message in only_line(done.stderr)


def test_show_one_call_takes_the_first_findings_step(called: Command, run: Path) -> None:
    done = called("show", run, "blocks.0:mm#1", "--values")
    assert done.returncode == 0
    assert "taken from step 1 of the 2 steps" in only_line(done.stderr)
    for said in (
        "aten::mm.default",
        "rank 0, step 1, index 2",
        "scores = q @ k.T",
        "l2norm",
        "stack, innermost first",
        "[300. 300. 300. 300.]",
    ):
        assert said in done.stdout
    assert "not kept" in done.stdout


def test_show_json_has_the_rows_of_the_tables(called: Command, run: Path) -> None:
    document = json.loads(called("show", run, "s1/blocks.0:mm#1", "--json", "--values").stdout)
    assert [row["index"] for row in document["calls"]] == [2]
    assert [(row["io"], row["slot"], row["max"]) for row in document["tensors"]] == [
        ("input", "0", 300.0),
        ("input", "1", 301.0),
        ("output", "0", None),
    ]
    assert [row["elements"] for row in document["values"]] == [[300.0] * 8, [301.0] * 8, None]
    (process,) = document["processes"]
    assert (
        run / "processes" / process["directory"] / document["tensors"][0]["value"]["shard"]
    ).is_file()


@pytest.mark.parametrize(
    ("call", "message"),
    [("blocks.0:nm#1", "did you mean blocks.0:mm#1"), ("#99", "no call with that index")],
)
def test_show_an_unknown_call(called: Command, run: Path, call: str, message: str) -> None:
    done = called("show", run, call)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in only_line(done.stderr)


def test_show_nothing_selected_is_said(called: Command, run: Path) -> None:
    done = called("show", run, "--ops", "conv*")
    assert (done.returncode, done.stdout) == (0, "")
    assert (
        only_line(done.stderr) == "no call is selected; --ops 'conv*' matches nothing in this run"
    )


# -- query -----------------------------------------------------------------------------------------


def test_query_as_a_table(called: Command, run: Path) -> None:
    done = called(
        "query",
        run,
        "select op, count(*) as n, max(step) as last from calls group by op order by op",
    )
    assert (
        done.stdout
        == "op                      n  last\naten::_softmax.default  2     1\naten::mm.default   "
        "     2     1\n"
    )


def test_query_json_keeps_what_is_not_finite(called: Command, run: Path) -> None:
    done = called(
        "query",
        run,
        "select 9e999 a, -9e999 b, null c, 9007199254740993 d, shape e from tensors limit 1",
        "--json",
    )
    assert json.loads(done.stdout) == {
        "rows": [{"a": "inf", "b": "-inf", "c": None, "d": 9007199254740993, "e": [2, 4]}]
    }


def test_query_csv_is_harmless(called: Command, run: Path) -> None:
    done = called(
        "query",
        run,
        "select '=1+1' a, 'x,\"y\"' b, -5 c, '\t@x' d, shape e from tensors limit 1",
        "--csv",
    )
    assert list(csv.reader(io.StringIO(done.stdout))) == [
        ["a", "b", "c", "d", "e"],
        ["'=1+1", 'x,"y"', "-5", "'\t@x", "[2, 4]"],
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "selct 1",
        "select nothing from calls",
        "copy (select 1) to 'x.csv'",
        "select * from read_text('/etc/passwd')",
        "",
        "select 1; select 2",
    ],
)
def test_query_that_cannot_be(called: Command, run: Path, tmp_path: Path, sql: str) -> None:
    done = called("query", run, sql)
    assert (done.returncode, done.stdout) == (2, "")
    assert only_line(done.stderr).startswith("query: ")
    assert not (tmp_path / "x.csv").exists()


def test_query_fits_the_terminal(called: Command, run: Path) -> None:
    wide = called("query", run, "select printf('%.60c', '注') a, printf('%.60c', 'b') b, 1 c")
    assert [cell_len(line) for line in wide.stdout.splitlines()][1] <= 80
    assert "…" in wide.stdout
    everything = called("query", run, "select * from tensors limit 1").stdout.splitlines()
    assert any(line.split() == ["dtype", "float16"] for line in everything)


def test_query_text_of_a_run_is_not_obeyed(called: Command, run: Path) -> None:
    done = called("query", run, "select char(27) || '[31m' || '[bold]' a")
    assert done.stdout.splitlines()[1] == "\\x1b[31m[bold]"


# -- run -------------------------------------------------------------------------------------------


def test_run_passes_everything_through(command: Command, tmp_path: Path) -> None:
    code = "import sys; print('out'); print(sys.argv[1:]); sys.exit(7)"
    done = command(
        "run",
        "-o",
        "r 一",
        "--json-file",
        "d.json",
        sys.executable,
        "-c",
        code,
        "--steps",
        "3",
        "--",
        "-o",
    )
    assert done.returncode == 7
    assert done.stdout == "out\n['--steps', '3', '--', '-o']\n"
    assert (
        done.stderr
        == "opscope: recording into r 一\nopscope: nothing recorded: no process imported torch "
        "or mindspore\n"
    )
    document = json.loads((tmp_path / "d.json").read_text())
    assert (document["verb"], document["complete"], document["summary"]["exit_code"]) == (
        "run",
        False,
        7,
    )


def test_run_takes_options_from_the_environment_too(command: Command, tmp_path: Path) -> None:
    code = "import os; print(os.environ['OPSCOPE'])"
    done = command(
        "run",
        "--values",
        "none",
        "--",
        sys.executable,
        "-c",
        code,
        OPSCOPE="--values full --keep all -o one",
    )
    assert done.stdout == "--output=one --values=none --keep=all\n"
    assert (tmp_path / "one" / "run.json").is_file()


def test_a_document_that_cannot_be_written_is_not_the_commands_failure(command: Command) -> None:
    done = command(
        "run",
        "-o",
        "r",
        "--json-file",
        "no/such/place.json",
        "--",
        sys.executable,
        "-c",
        "raise SystemExit(4)",
    )
    assert done.returncode == 4
    assert "no/such/place.json" in done.stderr


# -- doctor ----------------------------------------------------------------------------------------


def test_doctor_says_what_is_here(command: Command) -> None:
    done = command("doctor")
    words = [line.split()[0] for line in done.stdout.splitlines()]
    assert words[:9] == [
        "opscope",
        "python",
        "platform",
        "torch",
        "torch_npu",
        "mindspore",
        "devices",
        "CANN",
        "kernels",
    ]
    assert done.returncode == int("problem" in words)
