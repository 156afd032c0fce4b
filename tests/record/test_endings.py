# SPDX-License-Identifier: Apache-2.0
"""However a program ends, its run can be read, and its exit code is its own: through the real
command line.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.oldest import COMPILES_AGAIN, not_in_oldest
from tests.record.recorded import Recorded, read

pytestmark = pytest.mark.zoo

PATIENCE = 240.0  # seconds; a busy machine may be that slow
TRAINING = """
import os, sys, torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    opt.zero_grad()
    loss = net(torch.randn(3, 4)).square().mean()
    loss.backward()
    opt.step()
    return loss.item().hex()
"""


def command(folder: Path, program: str, *options: str, name: str = "train.py") -> list[str]:
    script = folder / name
    script.write_text(TRAINING + textwrap.dedent(program), encoding="utf-8")
    return [sys.executable, "-m", "opscope", "run", *options, "--", sys.executable, str(script)]


def run(
    folder: Path, program: str, *options: str, output: str = "run"
) -> tuple[subprocess.CompletedProcess[str], Recorded]:
    words = command(folder, program, "-o", str(folder / output), *options)
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, cwd=folder, check=False
    )
    return done, read(folder / output)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("exit()", 0),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("torch.ones(2, 3) @ torch.ones(2, 3)", 1),
    ],
)
def test_exit_codes_and_whole_runs(tmp_path: Path, ending: str, code: int) -> None:
    """Below a path with blanks, quotes and Chinese. The exception ends a program too, and its call
    has it.
    """
    folder = tmp_path / "a b++ 中文 'x\""
    folder.mkdir()
    done, found = run(
        folder,
        f"for i in range(3):\n    print(step(), flush=True)\n{ending}\n",
        output="run 一 'q'",
    )
    assert done.returncode == code, done.stderr
    assert len(done.stdout.splitlines()) == 3
    assert {call.step for call in found.calls} >= {0, 1, 2}
    assert found.run.problems == ()
    failed = [(call.op, (call.error or "").partition(":")[0]) for call in found.calls if call.error]
    assert failed == ([("aten::mm.default", "RuntimeError")] if code == 1 else [])
    (process,) = found.run.processes
    assert (process.uncaught is not None) == (code == 1)


def test_the_exception_that_ended_a_program_is_kept_with_the_users_own_line(tmp_path: Path) -> None:
    ending = """
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError
    def load():
        import json
        return json.loads("{" if len(sys.argv) < 2 else "1")
    step()
    try:
        load()
    except ValueError as error:
        raise Odd("?") from error
    """
    done, found = run(tmp_path, ending)
    assert done.returncode == 1
    assert found.run.problems == ()
    line = 1 + (tmp_path / "train.py").read_text().splitlines().index(
        '    raise Odd("?") from error'
    )
    assert found.run.processes[0].uncaught == f"Odd ({tmp_path / 'train.py'}:{line})"


@pytest.mark.parametrize(
    "sign", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.sample)]
)
def test_killed(tmp_path: Path, sign: signal.Signals) -> None:
    """Killed once three steps have been flushed: they are seen from outside, however long that
    takes.
    """
    program = (
        "print(os.getpid(), flush=True)\nimport time\nwhile True:\n    step(); time.sleep(0.01)\n"
    )
    words = command(tmp_path, program, "-o", str(tmp_path / "run"), "--keep", "all")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            wait_for_steps(tmp_path / "run", {0, 1, 2})
        finally:
            os.kill(child, sign)
        assert process.wait(timeout=PATIENCE) == 128 + sign
    found = read(tmp_path / "run")
    assert {call.step for call in found.calls} >= {0, 1, 2}


def wait_for_steps(run: Path, wanted: set[int]) -> None:
    end = time.monotonic() + PATIENCE
    while not {call.step for call in read(run).calls} >= wanted:
        assert time.monotonic() < end, f"{run} has no rows of steps {wanted}"
        time.sleep(0.1)


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    words = command(tmp_path, "print(step())\n", "-o", str(tmp_path / "file" / "run"))
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert "not recording" in done.stderr


def test_a_full_disk_ends_recording_only(tmp_path: Path) -> None:
    program = """
    import resource
    for _ in range(2):
        step()
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for _ in range(200):
        print(step())
    """
    done, found = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 200
    assert done.stderr.count("recording ended:") == 1
    assert "in what could be read" in " ".join(done.stderr.split())
    assert found.calls
    assert any(
        "recording ended before the process did" in line and "File too large" in line
        for line in found.run.problems
    )


def test_stop_on_overflow_and_after_the_last_step(tmp_path: Path) -> None:
    done, found = run(
        tmp_path,
        "for i in range(6):\n    step()\n    if i == 1: torch.full((2,), 1e38) * 1e38\n    "
        "print(i)\n",
        "--on-overflow",
        "stop",
    )
    assert done.returncode == 1
    assert max(call.step for call in found.calls) == 2
    done, found = run(
        tmp_path,
        "for i in range(6):\n    print(step())\n",
        "--steps",
        "0|2",
        "--stop-after",
        output="second",
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    assert {call.step for call in found.calls} == {0, 2}


def test_a_block_in_a_program_that_is_recorded_already_and_what_the_run_says_of_it(
    tmp_path: Path,
) -> None:
    """A with-block joins the outer recording; seeds, determinism and the tag are facts of the run,
    whose path is said.
    """
    program = """
    import opscope, random
    with opscope.record("inner") as recording:
        torch.ones(2) + 1
        recording.step()
    torch.ones(2) * 2
    print(recording.path, torch.are_deterministic_algorithms_enabled(), random.random(), torch.initial_seed())
    """
    words = command(tmp_path, program, "--tag", "mine", "--seed", "7", "--deterministic")
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert not (tmp_path / "inner").exists()
    assert run.name.startswith("mine-20")
    assert f"recording into {run.relative_to(tmp_path)}" in done.stderr
    path, deterministic, number, _ = done.stdout.split()
    assert (Path(path), deterministic, float(number)) == (run, "True", random.Random(7).random())
    found = read(run)
    assert [
        (call.step, call.phase) for name in ("add.Tensor", "mul.Tensor") for call in found.all(name)
    ] == [
        (0, "forward"),
        (1, "forward"),
    ]
    assert (found.run.info.seed, found.run.info.deterministic) == (7, True)


def test_workers_of_a_data_loader_are_left_alone(tmp_path: Path) -> None:
    program = """
    from torch.utils.data import DataLoader, TensorDataset
    loader = DataLoader(TensorDataset(torch.arange(8.0).reshape(4, 2)), num_workers=2)
    for (x,) in loader:
        print((x * 2).sum().item())
    """
    done, found = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert len(found.run.processes) == 1
    assert len(found.all("aten::mul")) == 4


def test_ranks_of_torchrun(tmp_path: Path) -> None:
    """Each rank is a process of the run and prints whole lines; that the losses are the same to the
    bit is tested by the zoo.
    """
    program = """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(2):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4) * (dist.get_rank() + 1)).square().mean()
        loss.backward()
        optimizer.step()
        total = torch.ones(1)
        dist.all_reduce(total)
        os.write(1, f"{dist.get_rank()} {i} {total.item()}\\n".encode())
    dist.barrier()  # gloo aborts a rank whose partner has gone
    dist.destroy_process_group()
    os._exit(0)  # and one whose threads outlive the interpreter
    """
    script = command(tmp_path, program)[-1]
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        script,
    ]
    watched = [sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / "run"), "--", *words]
    done = subprocess.run(
        watched, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"{rank} {step} 2.0" for rank in (0, 1) for step in (0, 1)
    ]
    found = read(tmp_path / "run")
    assert {call.rank for call in found.calls if call.op == "aten::addmm.default"} == {0, 1}
    ranks = sorted(
        process.rank for process in found.run.processes if Path(process.argv[0]).name == "train.py"
    )
    assert ranks == [0, 1]


@not_in_oldest(COMPILES_AGAIN)
def test_compilation_goes_on(tmp_path: Path) -> None:
    """One graph of one frame, as without opscope; that the losses are the same to the bit is tested
    by the zoo.
    """
    program = """
    compiled = torch.compile(net, backend="aot_eager")
    opt2 = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        opt2.zero_grad()
        loss = compiled(torch.randn(3, 4)).square().mean()
        loss.backward()
        opt2.step()
        print(loss.item().hex())
    import torch._dynamo.utils as dynamo
    print(dynamo.counters["stats"]["unique_graphs"], dynamo.counters["frames"]["ok"])
    """
    done, found = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    losses, compiled = done.stdout.splitlines()[:3], done.stdout.splitlines()[3]
    assert len(set(losses)) == 3
    assert compiled == "1 1"
    assert found.run.info.hidden_calls > 0
