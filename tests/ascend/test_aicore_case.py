# SPDX-License-Identifier: Apache-2.0
"""The single-operator case: main.py against a stand-in of op_test_frame that checks its arguments,
repro.py by exit code and document.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.cli import main

from .aicore_case import KERNEL, collection, entry, log, sound, write_dump
from .aicore_logs import REAL, classic, described, failed
from .conftest import part

KEYS = {"shape", "dtype", "format", "ori_shape", "ori_format", "value"}
STAND_IN = '''
"""Checks what a case is given, as the manual describes it, and keeps it."""
import json
import os

import numpy

class OpUT:
    def __init__(self, op_type, op_module, func):
        assert isinstance(op_type, str) and op_module is None and func is None
        self.op_type, self.cases = op_type, []

    def add_direct_case(self, case):
        assert set(case) == {"params", "case_name", "bin_path"}, set(case)
        assert case["bin_path"].endswith(".o")
        for param in case["params"]:
            assert {"shape", "dtype", "format", "ori_shape", "ori_format"} <= set(param) <= KEYS
            assert isinstance(param["shape"], tuple) and isinstance(param["ori_shape"], tuple)
            if "value" in param:
                values = numpy.load(param["value"])
                assert values.shape == param["shape"] and values.dtype.name == param["dtype"]
        self.cases.append(case)

    def run(self, soc):
        assert soc == "all" and self.cases
        print(os.environ.get("STAND_IN_SAYS", "summary: 1 case, 1 success, 0 failed"))
        with open(os.environ["STAND_IN_OUT"], "w") as file:
            json.dump([self.op_type, self.cases], file)
'''


@pytest.fixture
def op_test_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in on sys.path, here and in processes; the path it writes to."""
    package = tmp_path / "frame" / "op_test_frame"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "ut.py").write_text(f"KEYS = {KEYS!r}\n{STAND_IN}")
    out = tmp_path / "given.json"
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("STAND_IN_OUT", str(out))
    monkeypatch.syspath_prepend(str(package.parent))
    for name in ("op_test_frame", "op_test_frame.ut"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return out


def written(place: Path, out: Path) -> Path:
    assert main(["aicore", str(place), "-o", str(out)]) == 1
    return out / "case"


def test_main_is_the_manuals(tmp_path: Path, op_test_frame: Path) -> None:
    values = sound()
    case = written(collection(tmp_path / "c", values=values), tmp_path / "out")
    runpy.run_path(str(case / "main.py"), run_name="__main__")
    op_type, ((given),) = json.loads(op_test_frame.read_text())
    assert (op_type, given["case_name"]) == ("L2Loss", KERNEL)
    first, second = given["params"]
    assert (first["shape"], first["dtype"], first["format"], first["ori_format"]) == (
        [62, 62],
        "float32",
        "ND",
        "NHWC",
    )
    assert np.array_equal(np.load(first["value"]), values)
    assert second == {
        "shape": [],
        "dtype": "float32",
        "format": "ND",
        "ori_shape": [],
        "ori_format": "ND",
    }
    assert (
        json.loads(Path(given["bin_path"]).with_suffix(".json").read_text())["binFileName"]
        == KERNEL
    )
    sys.modules.pop("op_test_frame.ut", None)


def _try(case: Path, *words: str, **environment: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [
            sys.executable,
            "-I" if not environment else "-B",
            str(case / "repro.py"),
            "--json",
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, **environment},
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_on_the_device_the_outcome_is_the_kernels(tmp_path: Path, op_test_frame: Path) -> None:
    case = written(collection(tmp_path / "c", values=sound()), tmp_path / "out")
    (case / "kernel_meta" / f"{KERNEL}.o").write_bytes(b"\x7fELF")
    code, document = _try(case, STAND_IN_SAYS="fine")
    assert (code, document["verdict"], document["device"]) == (0, "not reproduced", "npu")
    code, document = _try(
        case, "--repeat", "2", STAND_IN_SAYS="there is an aicore error exception, core id is 0"
    )
    assert (code, document["verdict"], document["shown"], document["tried"]) == (
        1,
        "reproduced",
        2,
        2,
    )
    del op_test_frame


def test_without_a_device_the_cpu_reference_decides(tmp_path: Path) -> None:
    case = written(collection(tmp_path / "right", values=sound()), tmp_path / "a")
    code, document = _try(case)
    assert (code, document["verdict"], document["device"]) == (0, "not reproduced", "cpu")
    wrong = collection(tmp_path / "wrong", values=sound())
    values = sound()
    write_dump(
        wrong / "dump" / "L2Loss.L2Loss.3.1638329841577837",
        [entry(values)],
        [entry(np.array(np.float32(7)))],
        op_name="L2Loss",
    )
    code, document = _try(written(wrong, tmp_path / "b"))
    assert (code, document["verdict"]) == (1, "reproduced")
    assert "output 0 differs" in document["reason"]
    empty = written(collection(tmp_path / "none"), tmp_path / "c")
    assert _try(empty)[0] == 125


def test_the_report_says_that_the_device_was_wrong(
    aicore: Callable[..., tuple[int, dict[str, Any]]], tmp_path: Path
) -> None:
    place = collection(tmp_path, values=sound())
    write_dump(
        place / "dump" / "L2Loss.L2Loss.3.1638329841577837",
        [entry(sound())],
        [entry(np.array(np.float32(7)))],
        op_name="L2Loss",
    )
    _, document = aicore(place)
    (finding,) = document["findings"]
    assert part(finding, "reference")["status"] == "differs"
    texts = [record["text"] for record in finding["evidence"] if record["part"] == "verdict"]
    assert any("device was wrong" in text for text in texts)
    _, document = aicore(collection(tmp_path / "right", values=sound()))
    assert part(document["findings"][0], "reference")["status"] == "agrees"


def test_text_of_a_log_is_never_code(tmp_path: Path, op_test_frame: Path) -> None:
    evil = 'X"); import os; os.system("touch owned") #'
    text = log().replace("node_type:L2Loss", f"node_type:{evil}")
    place = collection(tmp_path / "c", text=text)
    shutil.rmtree(place / "graph")
    case = written(place, tmp_path / "out")
    runpy.run_path(str(case / "main.py"), run_name="__main__")
    assert json.loads(op_test_frame.read_text())[0] == evil
    assert not Path("owned").exists()
    sys.modules.pop("op_test_frame.ut", None)


def test_several_errors_get_a_case_each_and_nothing_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = collection(tmp_path / "c")
    other = (
        log().replace("-07:08:0", "-07:09:0").replace("serial number is 7", "serial number is 9")
    )
    (place / "log" / "plog-4711_2.log").write_text(
        other.replace("task_id=3", "task_id=4").replace("task_id:3", "task_id:4")
    )
    assert main(["aicore", str(place), "-o", str(tmp_path / "out")]) == 1
    assert main(["aicore", str(place), "-o", str(tmp_path / "out")]) == 1
    for folder in ("out", "out-2"):
        assert {entry.name for entry in (tmp_path / folder).iterdir()} == {
            "info-1.txt",
            "info-2.txt",
            "info.html",
            "document.json",
            "case-1",
            "case-2",
        }
    assert "lacks" in capsys.readouterr().err


@pytest.mark.skipif(not REAL.is_dir(), reason="the published logs are not here")
def test_the_case_of_gatherv2(tmp_path: Path, op_test_frame: Path) -> None:
    case = written(REAL / "gatherv2_910a", tmp_path / "out")
    runpy.run_path(str(case / "main.py"), run_name="__main__")
    op_type, (given,) = json.loads(op_test_frame.read_text())
    assert op_type == "GatherV2"
    assert [(one["shape"], one["dtype"]) for one in given["params"]] == [
        ([64], "float32"),
        ([2], "int32"),
        ([], "int32"),
        ([2], "float32"),
    ]
    assert json.loads((case / "case.json").read_text())["attributes"] == {
        "batch_dims": 0,
        "is_preprocessed": False,
        "negative_index_support": False,
    }
    assert len((case / "tiling.bin").read_bytes()) == 224
    sys.modules.pop("op_test_frame.ut", None)


@pytest.mark.skipif(not REAL.is_dir(), reason="the published logs are not here")
def test_what_is_missing_for_a_case_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["aicore", str(REAL / "flashattention_910b"), "-o", str(tmp_path / "out")]) == 1
    assert (
        "lacks main.py: inputs and outputs are not known; give the graph, the kernel's .json"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out" / "case" / "main.py").exists()
    only = tmp_path / "only.log"
    only.write_text(classic(1.0) + failed(1.1, "0_11_L2Loss"))
    assert main(["aicore", str(only), "-o", str(tmp_path / "none")]) == 1
    assert "no case for L2Loss" in capsys.readouterr().err
    assert not (tmp_path / "none" / "case").exists()


def test_the_case_is_tried_at_once_and_completes_the_verdict(
    tmp_path: Path,
    op_test_frame: Path,
    aicore: Callable[..., tuple[int, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = collection(tmp_path / "c", values=sound())
    (place / "kernel_meta" / f"{KERNEL}.o").write_bytes(b"\x7fELF")
    monkeypatch.setenv("STAND_IN_SAYS", "there is an aicore error exception")
    _, document = aicore(place, "-o", tmp_path / "out", "--run-case")
    (finding,) = document["findings"]
    assert (part(finding, "case")["status"], part(finding, "case")["device"]) == (
        "reproduced",
        "npu",
    )
    assert (part(finding, "verdict")["cause"], finding["confidence"]) == ("operator", "proven")
    assert "reproduced" in (tmp_path / "out" / "info.txt").read_text()
    monkeypatch.setenv("STAND_IN_SAYS", "fine")
    _, document = aicore(place, "-o", tmp_path / "out", "--run-case")
    assert (
        part(document["findings"][0], "verdict")["cause"],
        part(document["findings"][0], "case")["status"],
    ) == (
        "addresses",
        "not-reproduced",
    )
    assert op_test_frame.exists()


def test_without_a_device_the_trial_is_told_and_decides_nothing(
    tmp_path: Path, aicore: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    _, document = aicore(
        collection(tmp_path / "c", values=sound()), "-o", tmp_path / "out", "--run-case"
    )
    (finding,) = document["findings"]
    assert (part(finding, "case")["status"], part(finding, "case")["device"]) == (
        "not-reproduced",
        "cpu",
    )
    assert part(finding, "error")["case_result"] is None


def test_a_private_format_is_given_as_it_lies_on_the_device(
    tmp_path: Path, op_test_frame: Path
) -> None:
    """OpUT wants the device's order; the CPU reference the host's."""
    host = np.arange(12, dtype=np.float16).reshape(1, 3, 2, 2) - 5
    device = np.zeros((1, 1, 2, 2, 16), np.float16)
    device[0, 0, :, :, :3] = np.moveaxis(host[0], 0, -1)
    lines = (
        log(shape="[1,1,2,2,16]")
        .replace("DT_FLOAT", "DT_FLOAT16")
        .replace("format:ND", "format:NC1HWC0")
        .replace("node_type:L2Loss", "node_type:Relu")
    )
    place = collection(
        tmp_path / "c", text=lines.replace("output:0;shape:[]", "output:0;shape:[1,1,2,2,16]")
    )
    shutil.rmtree(place / "graph")
    pieces = []
    for values in (device, np.maximum(device, 0)):
        one, data = entry(values)
        changed = type(one)(
            data_type=one.data_type,
            format=3,
            shape=one.shape,
            original_shape=type(one.shape)(dim=(1, 3, 2, 2)),
            size=one.size,
        )
        pieces.append((changed, data))
    write_dump(
        place / "dump" / "L2Loss.L2Loss.3.1638329841577837",
        pieces[:1],
        pieces[1:],
        op_name="L2Loss",
    )
    case = written(place, tmp_path / "out")
    runpy.run_path(str(case / "main.py"), run_name="__main__")
    op_type, ((given),) = json.loads(op_test_frame.read_text())
    assert op_type == "Relu"
    first = given["params"][0]
    assert (first["shape"], first["format"], first["ori_shape"]) == (
        [1, 1, 2, 2, 16],
        "NC1HWC0",
        [1, 3, 2, 2],
    )
    assert np.array_equal(np.load(first["value"]), device)
    assert np.array_equal(np.load(case / "inputs" / "input.0.host.npy"), host)
    sys.modules.pop("op_test_frame.ut", None)
    code, document = _try(case, "--reference")
    assert (code, document["verdict"]) == (0, "not reproduced")


def test_bfloat16_is_kept_as_its_bits(tmp_path: Path) -> None:
    import ml_dtypes

    values = np.linspace(-3, 3, 8).astype(ml_dtypes.bfloat16)
    text = (
        log(shape="[8]")
        .replace("DT_FLOAT", "DT_BF16")
        .replace("node_type:L2Loss", "node_type:Relu")
        .replace("output:0;shape:[]", "output:0;shape:[8]")
    )
    place = collection(tmp_path / "c", text=text)
    shutil.rmtree(place / "graph")
    right = np.maximum(values, ml_dtypes.bfloat16(0))
    write_dump(
        place / "dump" / "L2Loss.L2Loss.3.1638329841577837",
        [entry(values)],
        [entry(right)],
        op_name="L2Loss",
    )
    case = written(place, tmp_path / "out")
    assert np.load(case / "inputs" / "input.0.npy").dtype == np.uint16
    assert _try(case, "--reference")[0] == 0
    write_dump(
        place / "dump" / "L2Loss.L2Loss.3.1638329841577837",
        [entry(values)],
        [entry(values)],
        op_name="L2Loss",
    )
    assert _try(written(place, tmp_path / "out-wrong"), "--reference")[0] == 1


def test_repro_tries_a_case_an_output_and_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = collection(tmp_path / "c", values=sound())
    case = written(place, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    for words in (case,), (tmp_path / "out",), (place,), (place, "L2Loss"), (place, "1"):
        assert main(["repro", *map(str, words), "-o", str(tmp_path / "new"), "--json"]) == 0
        summary = json.loads(capsys.readouterr().out)["summary"]
        assert (summary["status"], summary["device"]) == ("not-reproduced", "cpu")
    assert main(["repro", str(place), "Conv2D"]) == 2
    assert "there are L2Loss" in capsys.readouterr().err
    assert (
        main(["repro", str(collection(tmp_path / "none")), "-o", str(tmp_path / "none-case")])
        == 125
    )
    assert main(["minimize", str(case)]) == 2
    assert "cannot shrink" in capsys.readouterr().err


def test_many_errors_of_one_call_share_a_case(tmp_path: Path) -> None:
    lines = tuple(
        f"{io}:0;shape:[2];format:ND;dtype:DT_FLOAT;addr:{at:#x}"
        for io, at in (("input", 1 << 45), ("output", 2 << 44))
    )
    log = "".join(
        classic(0.5 + second, serial=second)
        + failed(0.6 + second, "a", task=second)
        + described(0.7 + second, lines, node="a", op="Relu", task=second)
        for second in range(25)
    )
    (tmp_path / "plog-1_1.log").write_text(log)
    assert main(["aicore", str(tmp_path), "-o", str(tmp_path / "out")]) == 1
    assert [path.name for path in (tmp_path / "out").glob("case*")] == ["case-1"]
    findings = json.loads((tmp_path / "out" / "document.json").read_text())["findings"]
    assert {part(finding, "case")["folder"] for finding in findings} == {
        str(tmp_path / "out" / "case-1")
    }
