# SPDX-License-Identifier: Apache-2.0
"""record/launch.py and supervise.py with real commands; none of them imports torch."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import opscope
from opscope.errors import UsageError
from opscope.record.config import RecordConfig, parse_options
from opscope.record.launch import (
    BOOTSTRAP,
    LaunchResult,
    check_command,
    child_environment,
    default_path,
    isolating_flag,
    launch,
    packages,
    script_name,
    why_nothing,
)
from opscope.record.supervise import supervise

SOURCE = str(Path(opscope.__file__).parents[1])


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("OPSCOPE")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def python(code: str, *flags: str) -> list[str]:
    return [sys.executable, *flags, "-c", code]


def launched(code: str, options: str = "-o run", *flags: str) -> tuple[LaunchResult, list[str]]:
    said: list[str] = []
    return launch(parse_options(options), python(code, *flags), tell=said.append), said


def test_the_command_sees_its_options_and_its_run() -> None:
    names = [
        "OPSCOPE",
        "OPSCOPE_RUN",
        "OPSCOPE_RUN_ID",
        "OPSCOPE_HOME",
        "OPSCOPE_VERSION",
        "PYTHONPATH",
        "PYTHONHASHSEED",
    ]
    code = (
        f"import json, os\njson.dump({{n: os.environ.get(n) for n in {names}}}, "
        "open('seen.json', 'w'))"
    )
    result, said = launched(code, "-o '一 run' --seed 7 --values full")
    seen = json.loads(Path("seen.json").read_text())
    assert said == ["recording into 一 run"]
    assert result.run == Path("一 run")
    assert seen["OPSCOPE_RUN"] == str(Path("一 run").absolute())
    assert parse_options(seen["OPSCOPE"]) == parse_options("-o '一 run' --seed 7 --values full")
    assert seen["PYTHONPATH"].split(os.pathsep)[0] == str(BOOTSTRAP)
    assert (seen["OPSCOPE_HOME"], seen["OPSCOPE_VERSION"], seen["PYTHONHASHSEED"]) == (
        SOURCE,
        opscope.__version__,
        "7",
    )
    run = json.loads(Path("一 run/run.json").read_text())
    assert run["run_id"] == seen["OPSCOPE_RUN_ID"]
    assert run["command"] == [*python(code)[:-1], "***"]
    assert run["config"] == {"output": "一 run", "values": "full", "seed": "7"}
    assert (run["seed"], run["sealed"]) == (7, True)


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_commands(code: int) -> None:
    result, _ = launched(f"raise SystemExit({code})")
    assert (result.exit_code, result.processes) == (code, 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_signal_is_128_and_its_number(number: int) -> None:
    result, _ = launched(f"import os; os.kill(os.getpid(), {int(number)})")
    assert result.exit_code == 128 + number


def test_streams_are_the_commands(capfd: pytest.CaptureFixture[str]) -> None:
    launched("import sys; print('out'); print('err', file=sys.stderr)")
    assert capfd.readouterr() == ("out\n", "err\n")


def test_an_existing_run_gets_a_sibling() -> None:
    launched("")
    result, said = launched("")
    assert said == ["run exists, recording into run-2"]
    assert result.run == Path("run-2")


def test_a_run_that_cannot_be_made_is_told_and_the_command_runs() -> None:
    Path("file").write_text("")
    result, said = launched(
        "import os; raise SystemExit('OPSCOPE_RUN' in os.environ or 4)", "-o file/run"
    )
    assert (result.exit_code, result.run) == (4, None)
    assert len(said) == 1
    assert said[0].startswith("not recording: ")
    assert said[0].endswith("; the command runs without it")


def test_inside_another_recording_the_command_joins_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPSCOPE_RUN", str(tmp_path))
    monkeypatch.setenv("OPSCOPE_RUN_ID", "x")
    result, said = launched(
        "import os; raise SystemExit(3 if os.environ['OPSCOPE_RUN_ID'] == 'x' else 0)"
    )
    assert (result.exit_code, result.run) == (3, None)
    assert said == [f"joins the recording in {tmp_path}; its options hold"]


def test_nothing_recorded_without_torch() -> None:
    result, _ = launched("print(1)")
    assert result.nothing_recorded == "nothing recorded: no process imported torch or mindspore"
    assert sorted(path.name for path in Path("run").iterdir()) == ["processes", "run.json"]


def test_nothing_recorded_by_an_isolated_interpreter() -> None:
    result, _ = launched("print(1)", "-o run", "-I")
    assert result.nothing_recorded is not None
    assert "python -I skips sitecustomize" in result.nothing_recorded


def test_nothing_recorded_by_what_is_not_python() -> None:
    result = launch(parse_options("-o run"), ["true"], tell=lambda _: None)
    assert result.nothing_recorded is not None
    assert "true is no Python program" in result.nothing_recorded


def test_a_process_that_could_not_record_says_why() -> None:
    Path("torch.py").write_text("")
    code = (
        "import sys; sys.path.insert(0, '.'); sys.modules['opscope.record.join'] = None; "
        "import torch"
    )
    result, _ = launched(code)
    assert result.nothing_recorded is not None
    assert result.nothing_recorded.startswith("nothing recorded: ModuleNotFoundError: ")
    assert sys.executable in result.nothing_recorded
    assert len(result.notes) == 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "no command given; write: opscope run [options] -- python train.py"),
        (["pyhton", "x.py"], "pyhton: no such command; what follows -- is run as it stands"),
        (
            ["my train.py", "--lr", "3"],
            "my train.py is not a program; write: opscope run -- python 'my train.py' --lr 3",
        ),
        (
            ["./job"],
            "./job: may not be run; chmod +x it, or name the program that runs it before it",
        ),
    ],
)
def test_a_command_that_cannot_run_is_said(command: list[str], message: str) -> None:
    for name in ("my train.py", "job"):
        Path(name).write_text("")
    with pytest.raises(UsageError) as caught:
        check_command(command)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 3", "train"),
        ("torchrun --nproc-per-node 2 src/训练.py", "训练"),
        ("python -m package.train", "package.train"),
        ("./job.sh", "job.sh"),
    ],
)
def test_the_run_is_called_after_the_script(command: str, name: str) -> None:
    assert script_name(shlex.split(command)) == name
    assert default_path(RecordConfig(), shlex.split(command)).name.startswith(f"{name}-20")


@pytest.mark.parametrize(
    ("tag", "name"), [("a/../b", "a-..-b"), ("..", "run"), ("a\nb", "a-b"), ("标签 1", "标签 1")]
)
def test_a_tag_stays_one_name(tag: str, name: str) -> None:
    path = default_path(RecordConfig(tag=tag), ["python"])
    assert path.parent == Path("runs")
    assert path.name.startswith(f"{name}-20")


def test_the_users_pythonpath_stays_behind_ours() -> None:
    environment = {"PYTHONPATH": "/a::/b", "X": "1", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    child = child_environment(environment, parse_options("--deterministic"), Path("/run"), "id")
    assert child["PYTHONPATH"] == f"{BOOTSTRAP}:/a::/b"
    assert (child["X"], child["CUBLAS_WORKSPACE_CONFIG"]) == ("1", ":16:8")
    empty = child_environment({"PYTHONPATH": ""}, RecordConfig(), Path("/run"), "id")
    assert empty["PYTHONPATH"] == str(BOOTSTRAP)  # an empty entry would be the current directory
    assert "PYTHONHASHSEED" not in empty


def test_packages_are_those_of_our_own_interpreter_only() -> None:
    assert packages([sys.executable])["numpy"]
    assert packages(["true"]) == {}


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("python -I x.py", "-I"),
        ("/usr/bin/python3.11 -u -sE x.py", "-E"),
        ("torchrun python -S", "-S"),
        ("python x.py -I", None),
        ("python -m x -I", None),
        ("cp -S x y", None),
    ],
)
def test_the_flag_that_isolates_is_found(command: str, flag: str | None) -> None:
    assert isolating_flag(command.split()) == flag


def test_a_note_says_more_than_any_guess() -> None:
    assert (
        why_nothing(["python", "-I"], started=True, notes=("not recording: x",))
        == "nothing recorded: x"
    )


def test_an_option_mistaken_for_a_command_is_not_started() -> None:
    with pytest.raises(UsageError, match="no such command"):
        launch(RecordConfig(), ["--seed", "3"], tell=lambda _: None)
    assert not Path("runs").exists()


# -- signals ---------------------------------------------------------------------------------------

COUNTING = """
import signal, sys, time
count = 0
def handle(number, frame):
    global count
    count += 1
signal.signal(signal.SIGINT, handle); signal.signal(signal.SIGTERM, handle); signal.signal(signal.SIGUSR1, handle)
print("ready", flush=True)
end = time.monotonic() + 240
while not count and time.monotonic() < end: time.sleep(0.01)
time.sleep(0.3)
print("counted", count, flush=True)
sys.exit(9)
"""
LAUNCHING = (
    "import sys\nfrom opscope.record.config import parse_options\nfrom "
    "opscope.record.launch import launch\n"
)
LAUNCHING += "sys.exit(launch(parse_options('-o run'), sys.argv[1:]).exit_code)"


@pytest.fixture
def started() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A launcher in a terminal of its own, its command ready for signals."""
    ours, theirs = pty.openpty()
    in_terminal = "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    command = [*python(in_terminal + LAUNCHING), *python(COUNTING)]
    env = {**os.environ, "PYTHONPATH": SOURCE}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
    )
    os.close(theirs)
    read_until(ours, b"ready")
    yield process, ours
    process.kill()
    process.wait()
    os.close(ours)


def read_until(terminal: int, wanted: bytes) -> bytes:
    seen = b""
    end = time.monotonic() + 240
    while wanted not in seen and time.monotonic() < end:
        seen += os.read(terminal, 1024)
    return seen


def test_ctrl_c_reaches_the_command_once_and_the_launcher_waits(
    started: tuple[subprocess.Popen[bytes], int],
) -> None:
    process, terminal = started
    os.write(terminal, b"\x03")
    assert b"counted 1" in read_until(terminal, b"counted 1")
    assert process.wait(timeout=240) == 9
    assert json.loads(Path("run/run.json").read_text())["sealed"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_the_launcher_reaches_the_command(
    started: tuple[subprocess.Popen[bytes], int], number: int
) -> None:
    process, terminal = started
    process.send_signal(number)
    assert b"counted 1" in read_until(terminal, b"counted 1")
    assert process.wait(timeout=240) == 9


def test_the_command_has_the_signal_mask_of_its_launcher() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    ending = supervise(
        python("import signal, sys; sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"),
        os.environ,
    )
    assert ending.code == len(before)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_descriptor_of_the_shell_is_handed_over() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x")
    os.set_inheritable(reading, True)
    ending = supervise(
        python(f"import os, sys; sys.exit(os.read({reading}, 1) == b'x' and 5)"), os.environ
    )
    os.close(reading)
    os.close(writing)
    assert ending.code == 5
