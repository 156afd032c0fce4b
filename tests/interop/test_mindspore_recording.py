# SPDX-License-Identifier: Apache-2.0
"""`opscope run` on MindSpore programs: nothing changes for them, every kernel is in the run, the
overflow has its line.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opscope
from opscope.run.protocol import Run
from opscope.run.query import calls, tensors_of

PYTHON = os.environ.get("OPSCOPE_MINDSPORE_PYTHON")
NET = Path(__file__).with_name("mindspore_net.py")
LOOP = Path(__file__).with_name("mindspore_loop.py")
RANKS = Path(__file__).with_name("mindspore_ranks.py")
TRAIN = Path(__file__).with_name("mindspore_train.py")
RAISES = Path(__file__).with_name("mindspore_raises.py")
MIXED = Path(__file__).with_name("mindspore_mixed.py")
COMPLEX = Path(__file__).with_name("mindspore_complex.py")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_MINDSPORE_PYTHON names no interpreter"),
]


def watched(
    place: Path, program: Path, *words: str, options: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "-o",
        str(place / "run"),
        *options,
        "--",
        str(PYTHON),
        str(program),
        *words,
    ]
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def losses(text: str) -> list[str]:
    return [line for line in text.splitlines() if line[:1].isdigit()]


def steps(run: Run) -> list[int]:
    return sorted({call.step for call in calls(run)})


@pytest.mark.parametrize("net", ["conv", "half", "attention"])
def test_every_kernel_of_every_step(net: str, tmp_path: Path) -> None:
    done = watched(tmp_path, NET, net)
    assert done.returncode == 0, done.stderr
    run = opscope.open_run(tmp_path / "run")
    assert run.info.format == "opscope"
    assert run.problems == ()
    assert steps(run) == [0, 1, 2]
    assert not list((tmp_path / "run").rglob("*.npy"))  # reduced as they landed
    line = next(
        number for number, text in enumerate(NET.read_text().splitlines(), 1) if "<- origin" in text
    )
    findings = opscope.scan(run).findings
    if net == "half":
        assert (findings[0].op, findings[0].source) == ("Mul", f"{NET}:{line}")
        assert "opscope repro" in done.stderr
    else:
        assert findings == ()


def test_losses_are_what_they_were_and_edges_join_graphs(tmp_path: Path) -> None:
    plain = subprocess.run(
        [str(PYTHON), str(LOOP)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout
    done = watched(tmp_path, LOOP)
    assert losses(done.stdout) == losses(plain)
    run = opscope.open_run(tmp_path / "run")
    assert steps(run) == list(range(40))
    versions = [
        row.version
        for call in calls(run)
        for row in tensors_of(run, call)
        if row.io == "output" and row.version is not None
    ]
    assert versions
    indices = [call.index for call in calls(run)]
    assert len(set(indices)) == len(indices)


def test_statistics_on_cpu_equal_numpy(tmp_path: Path) -> None:
    """saved_data statistic, which MindSpore refuses on CPU; checked against values kept in the same
    run.
    """
    settings = {
        "dump_mode": 0, "path": str(tmp_path / "tree"), "net_name": "Net", "iteration": "1",
        "saved_data": "statistic", "input_output": 0,
        "kernels": [], "support_device": [0, 1, 2, 3, 4, 5, 6, 7], "op_debug_mode": 0,
        "statistic_category": ["max", "min", "avg", "count"],
    }  # fmt: skip
    config = tmp_path / "data_dump.json"
    config.write_text(
        json.dumps(
            {
                "common_dump_settings": settings,
                "e2e_dump_settings": {"enable": True, "trans_flag": True},
            }
        )
    )
    done = watched(tmp_path, NET, "conv", options=("--config", str(config), "--values", "full"))
    assert done.returncode == 0, done.stderr
    run = opscope.open_run(tmp_path / "run")
    assert steps(run) == [1]
    checked = 0
    for call in calls(run):
        for row in tensors_of(run, call):
            if row.value is None or row.size in (None, 0) or row.dtype == "bool":
                continue
            values = run.value(row).astype(np.float64)
            assert (row.size, row.max, row.min) == (values.size, values.max(), values.min())
            assert row.mean == pytest.approx(values.mean(), rel=1e-12, abs=1e-300)
            checked += 1
    assert checked > 50


def test_around_a_step_ends_the_program_cleanly(tmp_path: Path) -> None:
    done = watched(tmp_path, LOOP, "slow", options=("--around", "5"))
    assert done.returncode == 0, done.stderr
    assert len(losses(done.stdout)) < 40
    assert steps(opscope.open_run(tmp_path / "run")) == [4, 5]


def test_a_program_that_fails_is_still_ingested(tmp_path: Path) -> None:
    done = watched(tmp_path, LOOP, "raise")
    assert done.returncode == 1
    assert "ValueError: no more data" in done.stderr
    assert steps(opscope.open_run(tmp_path / "run")) == [0, 1, 2]


@pytest.mark.parametrize("word", ["kill", "interrupt"])
def test_a_program_that_is_stopped_is_still_ingested(word: str, tmp_path: Path) -> None:
    plain = subprocess.run(
        [str(PYTHON), str(LOOP), word],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    done = watched(tmp_path, LOOP, word)
    assert plain.returncode < 0
    assert done.returncode == 128 - plain.returncode  # MindSpore answers Ctrl-C with SIGTERM
    run = opscope.open_run(tmp_path / "run")
    assert steps(run)[:2] == [0, 1]  # what the last step had not written when it was killed is lost
    assert len(losses(done.stdout)) == 3
    assert [
        finding.kind
        for finding in opscope.scan(run).findings
        if finding.kind == "crash" and finding.level == "operator"
    ] == []
    assert not list((tmp_path / "run").rglob("*.npy"))


def test_paths_that_mindspore_refuses(tmp_path: Path) -> None:
    """MindSpore takes letters, digits, '-' and '_' in the path of a dump; the user's folders have
    what they have.
    """
    place = tmp_path / "a b 模型 'it\"s"
    place.mkdir()
    program = place / "train 一.py"
    program.write_text(LOOP.read_text())
    done = watched(place, program)
    assert done.returncode == 0, done.stderr
    assert len(losses(done.stdout)) == 40
    run = opscope.open_run(place / "run")
    assert steps(run) == list(range(40))
    assert {call.source.rpartition(":")[0] for call in calls(run) if call.source} == {str(program)}


def test_a_full_disk_ends_the_recording_and_not_the_program(tmp_path: Path) -> None:
    """No file may grow beyond 64 KiB: what is written to the run fails as on a full disk."""
    command = [
        sys.executable,
        "-m",
        "opscope",
        "run",
        "-o",
        str(tmp_path / "run"),
        "--",
        str(PYTHON),
        str(LOOP),
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)),
    )
    assert done.returncode == 0, done.stderr
    assert len(losses(done.stdout)) == 40
    assert "Traceback" not in done.stderr
    assert "recording ended, the program goes on" in done.stderr
    assert steps(opscope.open_run(tmp_path / "run"))[:1] == [0]


def test_parts_that_are_compiled_from_bytecode(tmp_path: Path) -> None:
    program = tmp_path / "bytecode.py"
    program.write_text(MIXED.read_text().replace("@ms.jit\n", '@ms.jit(capture_mode="bytecode")\n'))
    plain = subprocess.run(
        [str(PYTHON), str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout
    done = watched(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == losses(plain)
    run = opscope.open_run(tmp_path / "run")
    assert steps(run) == [0, 1, 2, 3]
    first = opscope.scan(run).findings[0]
    assert (first.op, first.step) == ("Exp", 2)


def test_a_dump_the_user_switched_on_stays_his(tmp_path: Path) -> None:
    common = {
        "dump_mode": 0, "path": str(tmp_path / "dump"), "net_name": "Mine", "iteration": "0",
        "saved_data": "tensor", "input_output": 0,
        "kernels": [], "support_device": [0], "op_debug_mode": 0,
    }  # fmt: skip
    config = tmp_path / "data_dump.json"
    config.write_text(
        json.dumps(
            {
                "common_dump_settings": common,
                "e2e_dump_settings": {"enable": True, "trans_flag": True},
            }
        )
    )
    done = watched(tmp_path, NET, "half", MINDSPORE_DUMP_CONFIG=str(config))
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "dump/rank_0/Mine/0/0").glob("*.npy"))
    assert steps(opscope.open_run(tmp_path / "run")) == [0]


def test_pynative_forward_and_gradient_beside_compiled_parts(tmp_path: Path) -> None:
    """Primitives of Cells come from MindSpore's dispatch mode, the compiled optimizer from its
    dump: one run, equal losses.
    """
    program = Path(__file__).with_name("mindspore_pynative.py")
    plain = subprocess.run(
        [str(PYTHON), str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout
    done = watched(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == losses(plain)
    run = opscope.open_run(tmp_path / "run")
    found = list(calls(run))
    assert {call.phase for call in found} >= {"forward", "backward"}
    assert {call.op for call in found} >= {"MatMul", "Exp", "ReluGrad", "SGD"}
    assert {call.module for call in found} >= {"blocks.0.fc", "blocks.1.act", "head"}
    line = next(
        number
        for number, text in enumerate(program.read_text().splitlines(), 1)
        if "<- origin" in text
    )
    first = opscope.scan(run).findings[0]
    assert (first.op, first.step, first.source) == ("Exp", 1, f"{program}:{line}")


def test_compiled_parts_of_pynative_are_one_program_with_it(tmp_path: Path) -> None:
    """One process; kernels of @jit Cells, functions and the optimizer between the primitives around
    them, joined by edges.
    """
    plain = subprocess.run(
        [str(PYTHON), str(MIXED)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout
    done = watched(tmp_path, MIXED)
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == losses(plain)
    run = opscope.open_run(tmp_path / "run")
    assert len(run.processes) == 1
    found = [call for call in calls(run) if call.step == 1]
    modules = [(call.level, call.op.rpartition(".")[2], call.module, call.phase) for call in found]
    inside = modules.index(("module", "Mid", "mid", "forward"))
    assert modules[inside + 1 : inside + 4] == [
        ("operator", op, "mid", "forward") for op in ("Mul", "Tanh", "Add")
    ]
    assert [call.parent for call in found[inside + 1 : inside + 4]] == [found[inside].index] * 3
    assert [
        call.op for call in found if call.phase == "optimizer" and call.level == "operator"
    ].count("SGD") == 4
    assert ("operator", "TanhGrad", "", "backward") in modules
    made = {
        row.version: call.op
        for call in found
        for row in tensors_of(run, call)
        if row.io == "output" and call.level == "operator"
    }
    reads = {
        call.op: [made.get(row.version) for row in tensors_of(run, call) if row.io == "input"]
        for call in found
    }
    assert reads["TanhGrad"] == ["Tanh", "MatMul"]
    (add,) = [call for call in found if call.op == "Add"]
    (head,) = [
        call
        for call in found
        if call.op == "MatMul" and call.phase == "forward" and call.module == "head"
    ]
    assert tensors_of(run, head)[0].version in {
        row.version for row in tensors_of(run, add) if row.io == "output"
    }
    line = next(
        number
        for number, text in enumerate(MIXED.read_text().splitlines(), 1)
        if "<- origin" in text
    )
    first = opscope.scan(run).findings[0]
    assert (first.op, first.step, first.source) == ("Exp", 2, f"{MIXED}:{line}")


@pytest.mark.parametrize("words", [(), ("step",)])
def test_around_a_step_of_pynative(words: tuple[str, ...], tmp_path: Path) -> None:
    done = watched(tmp_path, MIXED, *words, options=("--around", "1"))
    assert done.returncode == 0, done.stderr
    assert len(losses(done.stdout)) < 4
    assert steps(opscope.open_run(tmp_path / "run")) == [0, 1]


def test_a_cell_and_an_operator_that_the_program_chose(tmp_path: Path) -> None:
    assert watched(tmp_path, MIXED, "choose", options=("--set-dump",)).returncode == 0
    found = {(call.module, call.op) for call in calls(opscope.open_run(tmp_path / "run"))}
    assert {module for module, _ in found} == {"mid", ""}
    assert {op for module, op in found if not module} == {"ReduceMean"}


def test_a_cell_of_a_graph_that_the_program_chose(tmp_path: Path) -> None:
    """In graph mode the launcher takes the dump: it knows the choice from a file, and the Cell from
    the scope of the kernels.
    """
    assert (
        watched(tmp_path, LOOP, "choose", options=("--set-dump", "--steps", "1|2")).returncode == 0
    )
    run = opscope.open_run(tmp_path / "run")
    assert steps(run) == [1, 2]
    assert {call.op for call in calls(run) if call.phase == "forward"} == {"MatMul", "BiasAdd"}
    assert all("dense-Dense" in call.name for call in calls(run))


def without_launcher(place: Path, program: Path, *words: str, **environment: str) -> str:
    """Run a program with the launcher's opscope importable, as if it were installed there; what it
    prints on stdout.
    """
    path = str(Path(opscope.__file__).parents[1])
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPSCOPE")} | {
        "PYTHONPATH": path,
        **environment,
    }
    return subprocess.run(
        [str(PYTHON), str(program), *words],
        env=env,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout


def test_a_with_block_of_the_program(tmp_path: Path) -> None:
    without_launcher(tmp_path, MIXED, "record", "own")
    run = opscope.open_run(tmp_path / "own")
    assert steps(run) == [0, 1, 2, 3]
    assert {"Tanh", "MatMul", "SGD"} <= {call.op for call in calls(run)}
    assert opscope.scan(run).findings[0].op == "Exp"


def test_the_environment_alone(tmp_path: Path) -> None:
    program = tmp_path / "loop.py"
    program.write_text(
        LOOP.read_text().replace("import mindspore as ms", "import mindspore as ms\nimport opscope")
    )
    printed = without_launcher(tmp_path, program, OPSCOPE="-o alone")
    assert len(losses(printed)) == 40
    run = opscope.open_run(tmp_path / "alone")
    assert steps(run) == list(range(40))
    assert not list((tmp_path / "alone").rglob("*.npy"))


def test_the_overflow_fails_alone(tmp_path: Path) -> None:
    assert watched(tmp_path, NET, "half").returncode == 0
    run = opscope.open_run(tmp_path / "run")
    (call,) = [
        call
        for call in calls(run)
        if call.step == 0 and call.name.endswith("_backbone-HalfNet/Mul-op0")
    ]
    opscope.repro(run, call, tmp_path / "case")
    script = [str(PYTHON), str(tmp_path / "case/repro.py")]
    alone = subprocess.run(script, capture_output=True, text=True, timeout=600, check=False)
    assert alone.returncode == 1, alone.stderr
    assert "reproduced: output 0" in alone.stdout
    wider = subprocess.run(
        [*script, "--dtype", "float64"], capture_output=True, text=True, timeout=600, check=False
    )
    assert wider.returncode == 0
    smaller = subprocess.run(
        [str(PYTHON), "-c", MINIMIZE, str(tmp_path / "case"), str(tmp_path / "small")],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(Path(opscope.__file__).parents[1])},
        check=True,
    )
    assert "MINIMIZED 65 2 reproduced" in smaller.stdout


@pytest.mark.parametrize(
    ("word", "op", "said"),
    [("eager", "Gather", "but got 4"), ("dies", "Custom", "died in this call of signal 11")],
)
def test_a_primitive_of_pynative_that_fails(word: str, op: str, said: str, tmp_path: Path) -> None:
    """Kernels run after their primitive returned: the error reaches the program as without opscope,
    and has a row; so has a death.
    """
    done = watched(tmp_path, RAISES, word)
    assert done.returncode == (1 if word == "eager" else 128 + 11)
    assert len(done.stdout.splitlines()) == 2
    line = next(
        number
        for number, text in enumerate(RAISES.read_text().splitlines(), 1)
        if text.endswith(f"# <- {word}")
    )
    first = opscope.scan(opscope.open_run(tmp_path / "run")).findings[0]
    assert (first.kind, first.op, first.source) == ("crash", op, f"{RAISES}:{line}")
    assert said in first.reasons[0]


@pytest.mark.parametrize(
    ("word", "op", "step"),
    [
        ("gather", "Gather", 2),
        ("solve", "MatrixSolve", 2),
        ("segment", "UnsortedSegmentSum", 2),
        ("first", "Gather", 0),
        ("jit_cell", "Gather", 0),
        ("jit_function", "Gather", 0),
    ],
)
def test_the_kernel_of_a_graph_that_raised_with_its_inputs(
    word: str, op: str, step: int, tmp_path: Path
) -> None:
    """op_debug_mode 4: MindSpore dumps a kernel after it ran; the one that raised is named all the
    same, and raises alone.
    """
    settings = {
        "dump_mode": 0, "path": str(tmp_path / "tree"), "net_name": "Net", "iteration": "all",
        "saved_data": "tensor", "input_output": 0,
        "kernels": [], "support_device": [0, 1, 2, 3, 4, 5, 6, 7], "op_debug_mode": 4,
    }  # fmt: skip
    config = tmp_path / "data_dump.json"
    config.write_text(
        json.dumps(
            {
                "common_dump_settings": settings,
                "e2e_dump_settings": {"enable": True, "trans_flag": True},
            }
        )
    )
    done = watched(
        tmp_path, RAISES, word, options=("--config", str(config), "--layout", "mindspore")
    )
    assert done.returncode == 1
    run = opscope.open_run(tmp_path / "run")
    line = next(
        number
        for number, text in enumerate(RAISES.read_text().splitlines(), 1)
        if text.endswith(f"# <- {word}")
    )
    (first,) = opscope.scan(run).findings
    assert (first.kind, first.op, first.step, first.source) == (
        "crash",
        op,
        step,
        f"{RAISES}:{line}",
    )
    (call,) = [call for call in calls(run) if call.error is not None and call.level == "operator"]
    assert all(row.io == "input" and row.value is not None for row in tensors_of(run, call))
    kept = {
        row.index for each in calls(run) for row in tensors_of(run, each) if row.value is not None
    }
    assert kept == {call.index}
    files = list((tmp_path / "tree").rglob(f"{op}.*.npy"))
    assert (
        len(files)
        == len(tensors_of(run, call))
        == len(
            [path for path in (tmp_path / "tree").rglob("*.npy") if "Parameter." not in path.name]
        )
    )
    opscope.repro(run, call, tmp_path / "case")
    alone = subprocess.run(
        [str(PYTHON), str(tmp_path / "case/repro.py")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert alone.returncode == 1, alone.stdout + alone.stderr
    assert "reproduced: raises" in alone.stdout


@pytest.mark.parametrize("words", [(), ("sink",), ("pynative",), ("pynative", "sink")])
def test_model_train_on_a_dataset(words: tuple[str, ...], tmp_path: Path) -> None:
    plain = subprocess.run(
        [str(PYTHON), str(TRAIN), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout
    done = watched(tmp_path, TRAIN, *words)
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == losses(plain)
    assert len(losses(plain)) == 8
    run = opscope.open_run(tmp_path / "run")
    assert steps(run) == list(range(8))
    counts = {
        step: sum(call.step == step and call.level == "operator" for call in calls(run))
        for step in range(8)
    }
    assert len(set(counts.values())) == 1
    assert opscope.scan(run).findings == ()


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_two_ranks_under_msrun(mode: str, tmp_path: Path) -> None:
    """Each rank dumps for itself; the rank whose exponential overflowed is named, not the one that
    received the sum.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    msrun = [
        str(Path(str(PYTHON)).with_name("msrun")),
        "--worker_num=2",
        "--local_worker_num=2",
        f"--master_port={port}",
        "--join=True",
        f"--log_dir={tmp_path / 'logs'}",
        str(RANKS),
        mode,
    ]
    command = [sys.executable, "-m", "opscope", "run", "-o", str(tmp_path / "run"), "--", *msrun]
    path = f"{Path(str(PYTHON)).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = opscope.open_run(tmp_path / "run")
    assert {
        (process.rank, process.world) for process in run.processes if process.world is not None
    } == {(0, 2), (1, 2)}
    operators = [
        [call.op for call in calls(run) if call.rank == rank and call.level == "operator"]
        for rank in (0, 1)
    ]
    assert operators[0] == operators[1]
    assert operators[0].count("AllReduce") == 3
    line = next(
        number
        for number, text in enumerate(RANKS.read_text().splitlines(), 1)
        if "<- origin" in text
    )
    first = opscope.scan(run).findings[0]
    assert (first.op, first.rank, first.source) == ("Exp", 1, f"{RANKS}:{line}")


def test_an_error_of_the_program_accuses_no_kernel(tmp_path: Path) -> None:
    done = watched(tmp_path, RAISES, "python")
    assert done.returncode == 1
    assert "ValueError: Gather no more data" in done.stderr
    assert opscope.scan(opscope.open_run(tmp_path / "run")).findings == ()


MINIMIZE = """
import sys
from pathlib import Path
from opscope.minimize.api import minimize
found = minimize(Path(sys.argv[1]), Path(sys.argv[2]))
print("MINIMIZED", found.before.elements, found.after.elements, found.outcome.status)
"""
EVERY_CASE = """
import contextlib, importlib.util, io, json, pathlib, sys
for place in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    spec = importlib.util.spec_from_file_location("case", place / "repro.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        module.main(["--json"])
    case = json.loads((place / "case.json").read_text())
    print("CASE", case["op"], case["failure"]["kind"], json.loads(told.getvalue().splitlines()[-1])["verdict"])
"""


@pytest.mark.parametrize(
    ("program", "word"),
    [("net", "conv"), ("net", "half"), ("operators", "graph"), ("operators", "pynative")],
)
def test_every_kernel_is_built_again(program: str, word: str, tmp_path: Path) -> None:
    """All kernels of a step, each rebuilt from its attributes: none is accused, nearly all can be
    called.
    """
    source = Path(__file__).with_name(f"mindspore_{program}.py")
    assert (
        watched(tmp_path, source, word, options=("--steps", "0", "--values", "full")).returncode
        == 0
    )
    run = opscope.open_run(tmp_path / "run")
    written = 0
    for call in calls(run):
        # kernels of MindSpore's own, or whose file held only a part
        with contextlib.suppress(opscope.OpscopeError):
            opscope.repro(run, call, tmp_path / "cases" / str(call.index))
            written += 1
    done = subprocess.run(
        [str(PYTHON), "-c", EVERY_CASE, str(tmp_path / "cases")],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    told = [line.split(" ", 3)[1:] for line in done.stdout.splitlines() if line.startswith("CASE")]
    assert len(told) == written > 15
    assert [
        op
        for op, kind, verdict in told
        if kind == "none" and verdict not in {"not reproduced", "cannot be tried"}
    ] == []
    assert [
        op for op, kind, verdict in told if kind == "nonfinite" and verdict == "not reproduced"
    ] == []
    assert sum(verdict != "cannot be tried" for _, _, verdict in told) >= 0.85 * written


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?(?:\d+\.\d+|nan|inf)", text)]


@pytest.mark.parametrize("kind", ["cell", "function", "beside", "gradient", "training"])
def test_a_graph_that_the_dump_itself_makes_fail_still_runs(kind: str, tmp_path: Path) -> None:
    bare = subprocess.run(
        [str(PYTHON), str(COMPLEX), kind],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout
    done = watched(tmp_path, COMPLEX, kind)
    assert done.returncode == 0, done.stderr
    assert numbers(done.stdout) == pytest.approx(numbers(bare), rel=1e-5, nan_ok=True)
    assert done.stdout.splitlines()[-1] == bare.splitlines()[-1]
    assert "MindSpore's dump fails on the graph of" in done.stderr
    line = next(
        number
        for number, text in enumerate(COMPLEX.read_text().splitlines(), 1)
        if "<- origin" in text
    )
    first = opscope.scan(opscope.open_run(tmp_path / "run")).findings[0]
    assert (first.op, first.source) == ("Log", f"{COMPLEX}:{line}")


def test_what_the_program_chooses_with_mindspores_own_set_dump(tmp_path: Path) -> None:
    settings = {
        "dump_mode": 2, "path": str(tmp_path / "tree"), "net_name": "Net", "iteration": "all",
        "saved_data": "tensor", "input_output": 0,
        "kernels": [], "support_device": [0], "op_debug_mode": 0,
    }  # fmt: skip
    (tmp_path / "data_dump.json").write_text(
        json.dumps({"common_dump_settings": settings, "e2e_dump_settings": {"enable": True}})
    )
    program = tmp_path / "chooses.py"
    program.write_text(
        "import mindspore as ms\nimport numpy as np\nfrom mindspore import "
        "nn\nms.set_context(mode=ms.GRAPH_MODE)\n"
        "net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))\nms.set_dump(net[0])\n"
        "print(net(ms.Tensor(np.ones((2, 3), np.float32))).shape)\n"
    )
    done = watched(tmp_path, program, options=("--config", str(tmp_path / "data_dump.json")))
    assert done.returncode == 0, done.stderr
    found = {call.module for call in calls(opscope.open_run(tmp_path / "run"))}
    assert found == {"0"}


@pytest.mark.parametrize("mode", ["pynative", "graph", "sink"])
def test_a_training_is_recorded_by_its_callback(mode: str, tmp_path: Path) -> None:
    said = []
    for words in ((mode,), (mode, "callback")):
        done = subprocess.run(
            [str(PYTHON), str(TRAIN), *words],
            env={**os.environ, "PYTHONPATH": str(Path(opscope.__file__).parents[1])},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        said.append([line for line in done.stdout.splitlines() if "0x" in line])
    assert said[0] == said[1]
    assert len(said[0]) == 8
    run = opscope.open_run(tmp_path / "run")
    assert run.problems == ()
    assert steps(run) == list(range(8))
    assert opscope.scan(run).complete
