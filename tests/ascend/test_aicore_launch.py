# SPDX-License-Identifier: Apache-2.0
"""The kernel launched through acl: against a stand-in of the module that checks each call, by exit
code and sentence.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from opscope.cli import main

from .aicore_case import KERNEL, collection, sound
from .aicore_logs import REAL


def written(place: Path, out: Path) -> Path:
    assert main(["aicore", str(place), "-o", str(out)]) == 1
    return out / "case"


def with_binary(case: Path) -> Path:
    (case / "kernel_meta" / f"{KERNEL}.o").write_bytes(
        b"\x7fELF" + f"{KERNEL}__kernel0".encode() + bytes(64)
    )
    return case


def stand_in(folder: Path) -> str:
    folder.mkdir()
    shutil.copyfile(Path(__file__).with_name("acl_stand_in.py"), folder / "acl.py")
    return str(folder)


def run(script: Path, *, acl: str | None = None, **environment: str) -> tuple[int, str]:
    path = {"PYTHONPATH": acl} if acl is not None else {}
    done = subprocess.run(
        [sys.executable, "-B", str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, **path, **environment},
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def test_the_kernel_gets_its_arguments_and_its_output_is_kept(tmp_path: Path) -> None:
    values = sound()
    case = with_binary(written(collection(tmp_path / "c", values=values), tmp_path / "out"))
    code, text = run(case / "launch.py", acl=stand_in(tmp_path / "acl"))
    assert (code, text) == (0, "the kernel ran to its end and wrote nowhere beside its buffers")
    (out,) = (case / "outputs").glob("launched.*.bin")
    assert np.frombuffer(out.read_bytes(), np.float32) == pytest.approx(
        np.sum(values.astype(np.float64) ** 2) / 2, rel=1e-5
    )


def test_a_kernel_that_fails_or_writes_beside_is_told(tmp_path: Path) -> None:
    case = with_binary(written(collection(tmp_path / "c", values=sound()), tmp_path / "out"))
    acl = stand_in(tmp_path / "acl")
    assert run(case / "launch.py", acl=acl, STAND_IN_FAILS="507015") == (
        1,
        "the kernel failed: acl.rt.synchronize_stream gives 507015",
    )
    assert run(case / "launch.py", acl=acl, STAND_IN_BESIDE="1") == (
        1,
        "the kernel wrote behind output 0, outside its 4 bytes",
    )
    code, text = run(
        case / "launch.py", acl=acl, STAND_IN_FAILS="107002"
    )  # the call is at fault, not the kernel
    assert (code, "107002" in text) == (125, True)


def test_what_cannot_be_launched_says_why(tmp_path: Path) -> None:
    case = written(collection(tmp_path / "c", values=sound()), tmp_path / "out")
    code, text = run(case / "launch.py", acl=stand_in(tmp_path / "acl"))
    assert (code, f"{KERNEL}.o is missing" in text) == (125, True)
    code, text = run(with_binary(case) / "launch.py")
    assert (code, "acl is not installed" in text) == (125, True)
    (case / "kernel_meta" / f"{KERNEL}.o").write_bytes(b"\x7fELF" + bytes(64))
    code, text = run(case / "launch.py", acl=str(tmp_path / "acl"))
    assert (code, "has no function" in text) == (125, True)


def test_repro_takes_acl_where_op_test_frame_is_not(tmp_path: Path) -> None:
    case = with_binary(written(collection(tmp_path / "c", values=sound()), tmp_path / "out"))
    acl = stand_in(tmp_path / "acl")
    code, text = run(case / "repro.py", acl=acl, STAND_IN_FAILS="507015")
    assert (code, "reproduced: the kernel failed" in text) == (1, True)
    code, text = run(case / "repro.py", acl=acl)
    assert (code, "not reproduced: the kernel ran to its end" in text) == (0, True)
    code, text = run(
        case / "repro.py", acl=acl, STAND_IN_FAILS="107002"
    )  # no verdict of the device: the reference decides
    assert (code, "CPU reference" in text) == (0, True)


@pytest.mark.skipif(not REAL.is_dir(), reason="the published logs are not here")
def test_pointers_of_a_block_are_moved_and_values_stay(tmp_path: Path) -> None:
    case = written(REAL / "flashattention_910b", tmp_path / "out")
    launch = json.loads((case / "case.json").read_text())["launch"]
    words = [(word["kind"], word["value"]) for word in launch["words"]]
    assert len(words) == 308
    assert words[:2] == [("sync", 0), ("buffer", 0)]
    assert words[8:11] == [
        ("block", 0x640),
        ("block", 0x660),
        ("block", 0x800),
    ]  # lists inside the block itself
    assert (words[18], words[20]) == (("block", 20 * 8), ("value", 0x34))  # the tiling data
    assert [one["size"] for one in launch["buffers"][:3]] == [268448256, 54784, 54784]
    assert (
        launch["functions"][0]
        == "FlashAttentionScore_5881aeec01e51adb01fb1db8be1c04f0_10000000000022420943"
    )
    assert launch["block_dim"] == 20
    assert not (case / "main.py").exists()
    assert "kernel's .json" in (case / "README.md").read_text()


def test_values_that_were_not_dumped_are_said_to_be_invented(tmp_path: Path) -> None:
    case = with_binary(written(collection(tmp_path / "c"), tmp_path / "out"))
    code, text = run(case / "launch.py", acl=stand_in(tmp_path / "acl"))
    assert (
        code,
        text.endswith("(values of input 0 were not dumped: invented ones took their place)"),
    ) == (0, True)
    (out,) = (case / "outputs").glob("launched.*.bin")
    assert np.frombuffer(out.read_bytes(), np.float32) == pytest.approx(62 * 62 * 0.25 / 2)
