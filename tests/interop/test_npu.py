# SPDX-License-Identifier: Apache-2.0
"""Programs under the real torch_npu, on a stand-in of CANN (npu/), in the interpreter that
OPSCOPE_NPU_PYTHON names: recorded as they run, faults named on their lines, nothing accused.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("OPSCOPE_NPU_PYTHON")
ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "npu" / "programs.py"
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_NPU_PYTHON names no interpreter"),
]

# How torch_npu launches: itself, by its queue, by its queue with preparing there too; the device at
# once, or some time later.
LAUNCHES = {
    "blocking": {"ASCEND_LAUNCH_BLOCKING": "1"},
    "no queue": {"TASK_QUEUE_ENABLE": "0", "NPU_DELAY_US": "50"},
    "queue": {"TASK_QUEUE_ENABLE": "1", "NPU_DELAY_US": "50"},
    "second queue": {"TASK_QUEUE_ENABLE": "2", "NPU_DELAY_US": "500"},
}


LARGE = "transformer, float32, width 512"
SATURATING = {"NPU_SATURATE": "1", "INF_NAN_MODE_FORCE_DISABLE": "1"}


def execute(folder: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The interpreter with the stand-in found as CANN is."""
    assert PYTHON is not None
    settings = {
        "LD_LIBRARY_PATH": str(Path(PYTHON).parents[1] / "cann"),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "OMP_NUM_THREADS": "1",
    }
    given = {key: each for key, each in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [PYTHON, *map(str, words)],
        cwd=folder,
        env={**given, **settings, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def recorded(
    folder: Path, program: str, *options: str, **environment: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """What a program under `opscope run` printed, and the document that scan gives of it."""
    command = ("-m", "opscope", "run", "-o", "run", *options, "--")
    done = execute(folder, *command, PYTHON, PROGRAMS, program, **environment)
    told = execute(folder, "-m", "opscope", "scan", "--json", "run")
    assert told.stdout, done.stderr + told.stderr
    return done, json.loads(told.stdout)


def line_of(mark: str, program: str) -> int:
    """The line of a program that ends with this mark."""
    lines = PROGRAMS.read_text(encoding="utf-8").splitlines()
    start = lines.index(f"def {program}() -> Step:")
    return next(n for n, line in enumerate(lines, 1) if n > start and line.endswith(f"# {mark}"))


def first(document: dict[str, Any], mark: str, program: str) -> dict[str, Any]:
    """The first finding, which stands at this line."""
    found: dict[str, Any] = document["findings"][0]
    assert found["source"] == f"{PROGRAMS}:{line_of(mark, program)}", found
    return found


@pytest.mark.parametrize(
    "program",
    [
        *("mlp", "conv", "transformer", "transformer_float16", "transformer_bfloat16"),
        "fused_attention",
    ],
)
def test_a_healthy_program_runs_as_without_and_is_accused_of_nothing(
    program: str, tmp_path: Path
) -> None:
    bare = execute(tmp_path, PROGRAMS, program)
    done, document = recorded(tmp_path, program, "--check")
    assert (bare.returncode, done.returncode) == (0, 0), bare.stderr + done.stderr
    assert done.stdout == bare.stdout
    assert document["verdict"] == "clean"
    (checked,) = document["summary"]["checked"].values()
    assert checked["checked"] > 0.6 * checked["calls"], "too few were judged"


@pytest.mark.parametrize("launch", LAUNCHES)
def test_however_kernels_are_launched(launch: str, tmp_path: Path) -> None:
    bare = execute(tmp_path, PROGRAMS, "transformer_float16", **LAUNCHES[launch])
    done, document = recorded(tmp_path, "transformer_float16", **LAUNCHES[launch])
    assert done.stdout == bare.stdout
    assert document["verdict"] == "clean"
    again = tmp_path / "again"
    again.mkdir()
    _, document = recorded(again, "half_overflow", **LAUNCHES[launch])
    assert first(document, "HERE", "half_overflow")["op"] == "aten::matmul.default"


@pytest.mark.parametrize(
    ("program", "phase"),
    [("nan_backward", "backward"), ("division", "forward"), ("trained_away", "forward")],
)
def test_a_fault_is_named_on_its_line(program: str, phase: str, tmp_path: Path) -> None:
    _, document = recorded(tmp_path, program)
    found = first(document, "HERE", program)
    assert (found["kind"], found["phase"]) == ("overflow-origin", phase)
    assert "division by zero" in " ".join(found["reasons"])
    case = execute(tmp_path, "-m", "opscope", "repro", "run", "-o", "case")
    assert "reproduced 3/3" in case.stdout, case.stderr
    assert "invented" not in case.stdout, "what it read lay with the host still"


def test_a_saturated_result(tmp_path: Path) -> None:
    _, document = recorded(tmp_path, "half_overflow", **SATURATING)
    found = first(document, "HERE", "half_overflow")
    assert "saturated at 65504" in " ".join(found["reasons"])
    assert "the device raised its overflow status in step 0" in found["reasons"]
    assert found["confidence"] == "proven"


def test_a_saturated_result_of_which_only_the_device_tells(tmp_path: Path) -> None:
    _, document = recorded(tmp_path, "half_exponential", **SATURATING)
    found = first(document, "HERE", "half_exponential")
    assert "the device raised its overflow status in step 0" in found["reasons"]
    assert found["confidence"] == "likely"


def test_the_program_has_its_overflow_status(tmp_path: Path) -> None:
    """A GradScaler that begins too high finds its scale by the status that recording must leave."""
    bare = execute(tmp_path, PROGRAMS, "scaled_too_much", 6, **SATURATING)
    done, document = recorded(tmp_path, "scaled_too_much", **SATURATING)
    assert done.stdout == bare.stdout[: len(done.stdout)] != ""
    assert (document["verdict"], len(document["summary"]["skipped_steps"])) == ("clean", 3)


def what_it_read_is_kept(folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    """The case of a run's first finding is cut out with the values of that run."""
    assert not [line for line in done.stderr.splitlines() if line.startswith("or ")]
    case = execute(folder, "-m", "opscope", "repro", "run", "-o", "case")
    assert "reproduced 3/3" in case.stdout, case.stderr
    assert "bit for bit the recorded output" in case.stdout
    assert "invented" not in case.stdout


@pytest.mark.parametrize(
    ("program", "op", "options"),
    [
        ("large_overflow", "aten::matmul.default", ()),
        ("large_division", "aten::div.Tensor", ()),
        ("deep", "aten::div.Tensor", ("--device-ring", "8MiB")),
        ("little_memory", "aten::matmul.default", ()),
    ],
)
def test_what_a_large_origin_read_is_kept_by_the_ring_of_its_device(
    program: str, op: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    bare = execute(tmp_path, PROGRAMS, program)
    done, document = recorded(tmp_path, program, *options)
    assert (done.stdout, done.returncode) == (bare.stdout, bare.returncode)
    assert first(document, "HERE", program if program != "little_memory" else "large_overflow")
    assert document["findings"][0]["op"] == op
    assert "unkept" not in json.dumps(document)
    assert ("too little memory" in done.stderr) == (program == "little_memory")
    what_it_read_is_kept(tmp_path, done)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_ring_turns_however_kernels_are_launched(launch: str, tmp_path: Path) -> None:
    given = ("--device-ring", "8MiB")
    bare = execute(tmp_path, PROGRAMS, "deep", **LAUNCHES[launch])
    done, _ = recorded(tmp_path, "deep", *given, **LAUNCHES[launch])
    assert done.stdout == bare.stdout
    what_it_read_is_kept(tmp_path, done)


def test_what_a_large_origin_read_is_kept_by_the_second_run_that_is_proposed(
    tmp_path: Path,
) -> None:
    done, document = recorded(tmp_path, "large_overflow", "--device-ring", "0")
    found = first(document, "HERE", "large_overflow")
    (proposed,) = (line for line in done.stderr.splitlines() if line.startswith("or "))
    assert f"--steps {found['step']} --ops aten::matmul.default --values full -- CMD" in proposed
    options = proposed.partition("opscope run ")[2].partition(" -- CMD")[0].split()
    again = tmp_path / "again"
    again.mkdir()
    second, document = recorded(again, "large_overflow", *options)
    assert first(document, "HERE", "large_overflow")["op"] == "aten::matmul.default"
    what_it_read_is_kept(again, second)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_an_ai_core_error_is_named_where_it_happened(launch: str, tmp_path: Path) -> None:
    given = {"NPU_BREAK": "aclnnSoftmax:error", **LAUNCHES[launch]}
    bare = execute(tmp_path, PROGRAMS, "products", **given)
    done, document = recorded(tmp_path, "products", **given)
    assert (bare.returncode, done.returncode) == (1, 1)
    assert "507015" in done.stderr
    found = first(document, "SOFTMAX", "products")
    assert (found["kind"], found["op"]) == ("crash", "aten::_softmax.default")


def kernel_case_is_filled_in(folder: Path) -> None:
    """`opscope aicore` with what CANN would have logged of the process: the kernel's name alone."""
    (process,) = (folder / "run" / "processes").glob("*/process.json")
    pid = json.loads(process.read_text())["pid"]
    kernel = "SoftmaxV2_" + "0a" * 16 + "_1"
    (folder / "logs").mkdir()
    (folder / "logs" / f"plog-{pid}_1.log").write_text(
        f"[ERROR] RUNTIME({pid},python):2026-11-26-10:00:01.000.000 [stream.cc:1] {pid} "
        "PrintErrorInfo:Aicore kernel execute failed, device_id=0, stream_id=2, report_stream_id=2,"
        f" task_id=6, flip_num=0, fault kernel_name={kernel}, fault kernel info ext=none, "
        "program id=1, hash=15656883929986130445.\n"
    )
    done = execute(folder, "-m", "opscope", "aicore", "logs", "run", "-o", "kernel")
    assert f"{PROGRAMS}:{line_of('SOFTMAX', 'products')}" in " ".join(done.stdout.split())
    main = (folder / "kernel" / "case" / "main.py").read_text()
    assert "Called as aten::_softmax.default(float32[32, 16], -1, False)" in main
    assert '"shape": (32, 16), "dtype": "float32"' in main
    assert '"value": str(HERE / "inputs/input.0.npy")' in main


def test_an_ai_core_error_is_cut_out_by_the_command_that_scan_proposes(tmp_path: Path) -> None:
    broken = {"NPU_BREAK": "aclnnSoftmax:error"}
    done, _ = recorded(tmp_path, "products", **broken)
    (proposed,) = (line for line in done.stderr.splitlines() if line.startswith("next"))
    assert "opscope run --sync --journal aten::_softmax.default -- CMD" in proposed
    again = tmp_path / "again"
    again.mkdir()
    journal = ("--sync", "--journal", "aten::_softmax.default")
    _, document = recorded(again, "products", *journal, **broken)
    assert first(document, "SOFTMAX", "products")["confidence"] == "proven"
    kernel_case_is_filled_in(again)
    cut = execute(again, "-m", "opscope", "repro", "run", "-o", "case", **broken)
    assert "\nreproduced: " in cut.stdout, "a device that has stopped makes no second trial"
    assert execute(again, "case/repro.py", **broken).returncode == 1
    assert execute(again, "case/repro.py").returncode == 0


def test_a_device_that_failed_leaves_calls_without_values(tmp_path: Path) -> None:
    given = {"NPU_BREAK": "aclnnSoftmax:error"}
    _, document = recorded(tmp_path, "products", "--values", "full", **given)
    assert first(document, "SOFTMAX", "products")["op"] == "aten::_softmax.default"
    assert "could not be recorded" not in json.dumps(document)


def test_a_broken_kernel_is_named_and_cut_out(tmp_path: Path) -> None:
    broken = {"NPU_BREAK": "aclnnSoftmax:scale"}
    _, document = recorded(tmp_path, "products", "--check", **broken)
    found = first(document, "SOFTMAX", "products")
    assert (found["kind"], found["op"]) == ("replay-mismatch", "aten::_softmax.default")
    cut = execute(tmp_path, "-m", "opscope", "repro", "run", "-o", "case", **broken)
    assert "reproduced" in cut.stdout, cut.stderr
    assert execute(tmp_path, "case/repro.py", **broken).returncode == 1
    assert execute(tmp_path, "case/repro.py").returncode == 0, "it fails with a sound kernel, too"


def test_a_broken_kernel_is_bisected(tmp_path: Path) -> None:
    oracle = "python3 -c 'import sys; sys.exit(float(sys.stdin.read().split()[-1]) > 0.21)'"
    command = ("-m", "opscope", "bisect", "--json", "--oracle", oracle, "--")
    done = execute(tmp_path, *command, PYTHON, PROGRAMS, "products", NPU_BREAK="aclnnSoftmax:scale")
    found = json.loads(done.stdout)["findings"]
    assert [finding["op"] for finding in found] == ["aten::_softmax.default"], done.stderr


def test_a_broken_kernel_beside_the_program_on_the_cpu(tmp_path: Path) -> None:
    def compared(**given: str) -> dict[str, Any]:
        recorded(tmp_path, "transformer", **given)
        (tmp_path / "run").rename(tmp_path / "npu")
        done = execute(tmp_path, "-m", "opscope", "compare", "--json", "npu", "golden")
        (tmp_path / "npu").rename(tmp_path / f"old{len(given)}")
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    recorded(tmp_path, "transformer", DEVICE="cpu")
    (tmp_path / "run").rename(tmp_path / "golden")
    assert compared()["verdict"] == "clean"
    document = compared(NPU_BREAK="aclnnGelu:scale")
    assert document["findings"][0]["op"] == "aten::gelu.default"


def test_what_recording_asks_of_the_device() -> None:
    table = execute(
        ROOT,
        *("benchmarks/npu.py", "--counters", "NPU_COUNTS"),
        *("--only", "MLP", "one small version", "one large version", LARGE),
    )
    assert table.returncode == 0, table.stderr
    rows = {
        name: dict(zip(("own", "added", "each", "h2d", "d2h", "KiB", "waits", "peak"), row))
        for name, *row in (line.strip("| ").split(" | ") for line in table.stdout.splitlines()[2:])
    }
    for name in ("MLP", "one small version"):
        assert (float(rows[name]["added"]), float(rows[name]["peak"])) == (0, 0)
    assert float(rows["one large version"]["added"]) <= 9
    assert float(rows[LARGE]["each"]) <= 3
    assert float(rows[LARGE]["peak"]) <= (64 << 10) + 13000, "KiB of the ring and of statistics"
    for row in rows.values():
        assert (row["h2d"], row["waits"]) == ("0", "1.00")


def test_doctor_measures_every_type(tmp_path: Path) -> None:
    done = execute(tmp_path, "-m", "opscope", "doctor", "--device", "npu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing differs from the host" in done.stdout
