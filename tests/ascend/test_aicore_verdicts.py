# SPDX-License-Identifier: Apache-2.0
"""Verdicts by the manual's tree, over small collections: addresses, values, hardware, the
operator's own line; and what is missing.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.cli import main

from .aicore_case import (
    INPUT,
    KERNEL,
    OUTPUT,
    collection,
    entry,
    kernel_json,
    log,
    sound,
    write_dump,
)
from .aicore_logs import arguments, classic, failed, head, info, stars
from .conftest import part

Aicore = Callable[..., tuple[int, dict[str, Any]]]


def verdicts(finding: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (record["cause"], record["confidence"])
        for record in finding["evidence"]
        if record["part"] == "verdict"
    ]


def test_the_node_its_original_operators_and_its_producer(aicore: Aicore, tmp_path: Path) -> None:
    code, document = aicore(collection(tmp_path))
    assert code == 1
    (finding,) = document["findings"]
    node = part(finding, "node")
    assert node["original"] == ["loss/L2Loss_1", "loss/L2Loss_2"]
    assert node["producers"] == [
        {
            "slot": 0,
            "name": "conv1/weights/read",
            "index": 0,
            "type": "TransData",
            "original": ["conv1/weights"],
        }
    ]
    assert (node["inputs"][0]["origin_shape"], node["inputs"][0]["origin_format"]) == (
        [62, 62],
        "NHWC",
    )
    assert [check["status"] for check in part(finding, "addresses")["checks"]] == ["ok", "ok"]
    assert finding["inputs"][0]["shape"] == [62, 62]
    assert verdicts(finding) == [("addresses", "suspected")]  # by the bit alone


BAD = [
    (INPUT, 1024, "", "out of range", "ends 14352 bytes beyond"),
    (INPUT + 0x20000, 65536, "", "not allocated", "in no allocation"),
    (INPUT, 65536, info(0.5, f"DevFree: mem={INPUT}"), "freed", "freed at"),
    (0, 65536, "", "null", "null"),
    (INPUT + 2, 65536, "", "unaligned", "multiple of the 4 bytes"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[3])
def test_a_bad_address_is_named(
    aicore: Aicore, tmp_path: Path, bad: tuple[int, int, str, str, str]
) -> None:
    at, size, before, status, words = bad
    _, document = aicore(collection(tmp_path, text=log(at=at, size=size, before=before)))
    (finding,) = document["findings"]
    check = part(finding, "addresses")["checks"][0]
    assert (check["tensor"], check["status"]) == ("input 0", status)
    assert words in check["text"]
    cause, confidence = verdicts(finding)[0]
    assert cause == "addresses"
    assert confidence in ("proven", "likely")


def test_memory_freed_after_the_error_or_given_out_again_is_no_fault(
    aicore: Aicore, tmp_path: Path
) -> None:
    again = info(0.4, f"DevFree: mem={INPUT}") + info(
        0.5, f"DevMalloc: Succ, size=65536, type=2, moduleId=45, ptr={INPUT}"
    )
    _, document = aicore(
        collection(tmp_path, text=log(before=again, after=info(9, f"DevFree: mem={INPUT}")))
    )
    assert [check["status"] for check in part(document["findings"][0], "addresses")["checks"]] == [
        "ok",
        "ok",
    ]


def test_memory_of_another_allocator_accuses_nobody(aicore: Aicore, tmp_path: Path) -> None:
    text = log().replace(f"ptr={INPUT}", "ptr=4096").replace(f"ptr={OUTPUT}", "ptr=8192")
    _, document = aicore(collection(tmp_path, text=text))
    (finding,) = document["findings"]
    assert [check["status"] for check in part(finding, "addresses")["checks"]] == [
        "unknown",
        "unknown",
    ]
    assert verdicts(finding) == [("addresses", "suspected")]


def test_bad_values_name_the_producer(aicore: Aicore, tmp_path: Path) -> None:
    values = sound()
    values[3, 4], values[5, 6] = np.nan, np.inf
    values[0, 0] = 1e-40
    _, document = aicore(collection(tmp_path, values=values, text=log(code="0x40000000000000")))
    (finding,) = document["findings"]
    dumped = part(finding, "dump")["tensors"][0]
    assert dumped["troubles"] == ["1 NaN", "1 Inf"]
    assert dumped["denormal"] == 1
    assert finding["inputs"][0]["stats"]["nan"] == 1
    (first, *_) = [record for record in finding["evidence"] if record["part"] == "verdict"]
    assert (first["cause"], first["confidence"], first["code"]) == ("input values", "likely", 104)
    assert "conv1/weights/read" in first["text"]


def test_the_outcome_of_the_case_decides(aicore: Aicore, tmp_path: Path) -> None:
    place = collection(tmp_path / "a", values=sound())
    _, document = aicore(place, "--case-result", "reproduced")
    assert verdicts(document["findings"][0])[0] == ("operator", "proven")
    _, document = aicore(place, "--case-result", "not-reproduced")
    assert verdicts(document["findings"][0])[0] == ("addresses", "likely")
    bad = sound()
    bad[0, 0] = np.nan
    _, document = aicore(collection(tmp_path / "b", values=bad), "--case-result", "reproduced")
    assert verdicts(document["findings"][0])[0] == ("input values", "likely")
    assert main(["aicore", str(place), "--case-result", "maybe"]) == 2


def test_the_outcome_is_read_from_the_cases_own_logs(aicore: Aicore, tmp_path: Path) -> None:
    place = collection(tmp_path / "a", values=sound())
    again, fine = tmp_path / "again", tmp_path / "fine"
    again.mkdir()
    fine.mkdir()
    (again / "plog.log").write_text(
        classic(1.0) + failed(1.1, "case", function=f"{KERNEL}__kernel0")
    )
    (fine / "plog.log").write_text(info(1.0, "ProcessEnd: fine"))
    assert (
        part(aicore(place, "--case-result", again)[1]["findings"][0], "error")["case_result"]
        == "reproduced"
    )
    assert (
        part(aicore(place, "--case-result", fine)[1]["findings"][0], "error")["case_result"]
        == "not-reproduced"
    )


def test_ecc_is_hardware(aicore: Aicore, tmp_path: Path) -> None:
    _, document = aicore(collection(tmp_path, values=sound(), text=log(code="0x100")))
    assert verdicts(document["findings"][0])[0] == ("hardware", "likely")


def test_an_accumulating_kernel_that_nobody_zeroed(aicore: Aicore, tmp_path: Path) -> None:
    dynamic = {"compileInfo": {}, "parameters": [None, {"dtype": "float32", "init_value": 0}]}
    _, document = aicore(collection(tmp_path / "a", **dynamic))
    assert ("memset missing", "suspected") in verdicts(document["findings"][0])
    others = info(0.9, "LaunchKernel: AtomicLaunchKernelWithFlag_Other start", module="GE")
    _, document = aicore(collection(tmp_path / "c", text=log(before=others), **dynamic))
    assert ("memset missing", "likely") in verdicts(document["findings"][0])
    cleaned = info(0.9, "LaunchKernel: AtomicLaunchKernelWithFlag_L2Loss start", module="GE")
    _, document = aicore(collection(tmp_path / "b", text=log(before=cleaned), **dynamic))
    assert "memset missing" not in dict(verdicts(document["findings"][0]))


def test_arguments_that_change_while_the_kernel_runs(aicore: Aicore, tmp_path: Path) -> None:
    text = log(after=arguments(1.3, [INPUT, OUTPUT + 64], when="before"))
    _, document = aicore(collection(tmp_path, text=text))
    assert ("args overwritten", "likely") in verdicts(document["findings"][0])


def test_a_trap_of_the_compilers_check(aicore: Aicore, tmp_path: Path) -> None:
    (tmp_path / "plog-1.log").write_text(
        stars(1.0, code="0", aic_cond="0x5a5a0002") + failed(1.1, "1_0_A")
    )
    _, document = aicore(tmp_path)
    assert verdicts(document["findings"][0])[0] == ("operator", "proven")


def test_a_faulting_address_has_an_owner(aicore: Aicore, tmp_path: Path) -> None:
    fault = f"{head(1.3)}smmu: page fault va={INPUT + 62 * 62 * 4 + 16:#x}\n"
    _, document = aicore(collection(tmp_path, text=log(after=fault)))
    (owner,) = part(document["findings"][0], "addresses")["owners"]
    assert owner["text"] == "16 bytes behind the end of input 0"


BRIEF = f"{KERNEL}_17"


def _brief(tmp_path: Path, *, failed_copy: str = "", code: str = "0x200000000") -> Path:
    """A brief dump (L0): no types in log and dump, the kernel's description has them."""
    lines = []
    for index, (address, kind) in enumerate(((INPUT, 2), (OUTPUT, 3))):
        start = f"{head(1.2)}[Dump][Exception] "
        lines += [
            (
                f"{start}begin to load normal tensor, index:{index}, tensor type:{kind}(X), "
                "pointer type:1(L1_POINTER)\n"
            )
        ]
        lines += [f"{start}exception info dump args data, addr:{address:#x}; size:16 bytes\n"]
        lines += [f"{start}{failed_copy}\n"] if failed_copy and index == 0 else []
        lines += [f"{start}end to load normal tensor, index:{index}\n"]
    lines += [
        (
            f"{head(1.3)}[Dump][Exception] dump exception to file, file: "
            "/x/extra-info/data-dump/0/exception_info.5.3.20240506070801000\n"
        )
    ]
    text = (
        stars(1.0, code=code)
        + failed(1.1, BRIEF, stream=5, task=3)
        + arguments(1.15, [INPUT, OUTPUT])
        + "".join(lines)
    )
    return collection(
        tmp_path,
        text=text,
        supportInfo={
            "inputs": [{"name": "x", "index": 0, "dtype": "float16"}],
            "outputs": [{"name": "y", "index": 0, "dtype": "float32"}],
        },
        kernelList=[{"kernelName": BRIEF}],
    )


def _untyped(payload: bytes, **more: Any) -> tuple[Any, bytes]:
    one, _ = entry(np.frombuffer(payload, np.uint8))
    return type(one)(size=len(payload), **more), payload


def test_a_brief_dump_gets_its_types_from_the_kernel(aicore: Aicore, tmp_path: Path) -> None:
    place = _brief(tmp_path)
    x = np.array([1, 2, np.nan, 4, 5, 6, 7, 8], np.float16).tobytes()
    y = np.array([1, 2, 3, 4], np.float32).tobytes()
    write_dump(
        place / "dump" / "exception_info.5.3.20240506070801000",
        [_untyped(x, input_type=2), _untyped(y, input_type=3, arg_index=1)],
        [],
    )
    _, document = aicore(place)
    (finding,) = document["findings"]
    first, second = part(finding, "dump")["tensors"]
    assert (first["label"], first["dtype"], first["shape"], first["troubles"]) == (
        "input 0",
        "float16",
        [8],
        ["1 NaN"],
    )
    assert (second["label"], second["dtype"], second["statistics"]["max"]) == (
        "output 0",
        "float32",
        4.0,
    )
    assert part(finding, "kernel")["functions"] == [BRIEF]


def test_zeros_of_a_copy_that_failed_are_no_values(aicore: Aicore, tmp_path: Path) -> None:
    place = _brief(tmp_path, failed_copy="the address maybe invalid, check addr info failed")
    write_dump(
        place / "dump" / "exception_info.5.3.20240506070801000",
        [_untyped(bytes(16)), _untyped(bytes(16))],
        [],
    )
    _, document = aicore(place)
    (finding,) = document["findings"]
    assert part(finding, "dump")["tensors"][0]["zeroed"]
    assert part(finding, "addresses")["checks"][0]["status"] == "unreadable"
    assert verdicts(finding)[0][0] == "addresses"


def test_a_dynamic_kernel_without_a_dump_is_told_with_the_alternative(
    aicore: Aicore, tmp_path: Path
) -> None:
    _, document = aicore(collection(tmp_path, compileInfo={}))
    (item,) = [
        item
        for item in part(document["findings"][0], "missing")["items"]
        if item["what"] == "exception dump"
    ]
    assert "dynamic shape" in item["how"]
    assert "lite_exception" in item["how"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.parametrize(
    "linked", [["-shared", "-fPIC", "-nostdlib"], ["-c"]], ids=["linked", "relocatable"]
)
def test_the_line_of_the_counter(aicore: Aicore, tmp_path: Path, linked: list[str]) -> None:
    pytest.importorskip("elftools")
    place = collection(tmp_path)
    meta = place / "kernel_meta"
    source = meta / f"{KERNEL}.c"
    source.write_text(
        "int other(int a) { return a; }\n"
        f"int {KERNEL}__kernel0(int a) {{\n  int b = a * 3;\n  return b + 7;\n}}\n"
    )
    command = ["gcc", "-g", "-O0", *linked, source.name, "-o", f"{KERNEL}.o"]
    subprocess.run(command, cwd=meta, check=True, capture_output=True)
    shutil.move(source, meta / f"{KERNEL}.cce")
    _, document = aicore(place)
    found = part(document["findings"][0], "place")
    assert (
        found["symbol"] == f"{KERNEL}__kernel0" or found["symbol"] is None
    )  # 0x100 lies behind so small a function
    text = log().replace("current: 0x124080060100", "current: 0x124080060008")
    (place / "log" / "plog-4711_1.log").write_text(text)
    (meta / f"{KERNEL}_loc.json").write_text(
        json.dumps(
            [
                {
                    "cce_full_path": f"/a/{KERNEL}.c",
                    "cce_line2loc": [
                        {"cce_line": str(n), "loc": ["l2_loss.py", str(100 + n)]} for n in (2, 3, 4)
                    ],
                }
            ]
        )
    )
    _, document = aicore(place)
    found = part(document["findings"][0], "place")
    assert (found["symbol"], found["symbol_offset"]) == (f"{KERNEL}__kernel0", 8)
    assert found["source"].endswith((f"{KERNEL}.c:2", f"{KERNEL}.c:3"))
    assert found["python"] == f"l2_loss.py:{100 + int(found['source'][-1])}"
    assert document["findings"][0]["source"] == found["python"]


def test_the_disassemblys_line(aicore: Aicore, tmp_path: Path) -> None:
    place = collection(tmp_path)
    (place / "kernel_meta" / f"{KERNEL}.o.txt").write_text(
        f"0000 <{KERNEL}>:\n/a/{KERNEL}.cce:10\n   f0: nop\n; /a/{KERNEL}.cce:17\n      100: "
        f"12 34\n/a/{KERNEL}.cce:18\n"
    )
    (place / "kernel_meta" / f"{KERNEL}.cce").write_text("\n" * 16 + "copy_gm_to_ubuf(a, b);\n")
    _, document = aicore(place)
    found = part(document["findings"][0], "place")
    assert found["source"] == f"/a/{KERNEL}.cce:17"
    assert found["text"] == "copy_gm_to_ubuf(a, b);"
    assert found["instructions"][-1] == "      100: 12 34"
    assert main(["aicore", str(place), "-o", str(tmp_path / "out")]) == 1
    assert "          100: 12 34" in (tmp_path / "out" / "info.txt").read_text()


def test_places_given_apart(aicore: Aicore, tmp_path: Path) -> None:
    place = collection(tmp_path / "all", values=sound())
    shutil.move(place / "graph", tmp_path / "g")
    shutil.move(place / "dump", tmp_path / "d")
    shutil.move(place / "kernel_meta", tmp_path / "k")
    _, document = aicore(place)
    assert {item["what"] for item in part(document["findings"][0], "missing")["items"]} == {
        "graph",
        "kernel json",
        "kernel .o",
        "exception dump",
    }
    _, document = aicore(
        place, "--graphs", tmp_path / "g", "--kernel-meta", tmp_path / "k", "--dump", tmp_path / "d"
    )
    assert {item["what"] for item in part(document["findings"][0], "missing")["items"]} == {
        "kernel .o"
    }
    assert main(["aicore", str(place), "--graphs", str(tmp_path / "d")]) == 2


def test_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = log().replace(
        "errorStr: something is wrong", "errorStr: <script>alert(1)</script>\x1b[31m"
    )
    place = collection(tmp_path / "c", values=sound(), text=evil)
    assert main(["aicore", str(place), "-o", str(tmp_path / "out")]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert all(len(line) <= 80 or max(map(len, line.split())) > 60 for line in out.splitlines())
    text = (tmp_path / "out" / "info.txt").read_text()
    for section in (
        "1. Basic information",
        "2. AI Core DFX Register",
        "3. Operator Error Line Number",
        "4. Input/Output Memory",
        "5. Dump File Parsing",
    ):
        assert f"***{section}***" in text
    page = (tmp_path / "out" / "info.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert json.loads((tmp_path / "out" / "document.json").read_text())["verb"] == "aicore"


def test_nothing_found_and_nothing_there(
    aicore: Aicore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_text(info(1, "all is well"))
    (logs / "b.txt").write_text("epoch 1 loss 0.1\n")
    code, document = aicore(logs)
    assert (code, document["verdict"], document["summary"]["text"]) == (
        0,
        "clean",
        "no AI Core error in 2 files",
    )
    garbage = tmp_path / "garbage"
    garbage.mkdir()
    (garbage / "x.bin").write_bytes(bytes(range(256)) * 100)
    (garbage / "y").write_bytes(b"\x7fELF" + bytes(100))
    (garbage / "z.json").write_text("{")
    assert main(["aicore", str(garbage)]) == 2
    assert main(["aicore", str(tmp_path / "absent")]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 2


def test_other_codes_of_a_screen_are_explained(aicore: Aicore, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(
        "EI0006: [PID: 176930] Getting socket times out. Reason: Remote Rank did not send the "
        "data in time.\n"
    )
    code, document = aicore(tmp_path)
    assert code == 0
    assert [one["code"] for one in document["summary"]["codes"]] == ["EI0006"]


@pytest.mark.parametrize("break_it", ["graph", "json", "dump", "o", "loc"])
def test_torn_companions_lower_confidence_and_stop_nothing(
    aicore: Aicore, tmp_path: Path, break_it: str
) -> None:
    place = collection(tmp_path, values=sound())
    targets = {
        "graph": next((place / "graph").iterdir()),
        "json": place / "kernel_meta" / f"{KERNEL}.json",
        "dump": next((place / "dump").iterdir()),
        "o": place / "kernel_meta" / f"{KERNEL}.o",
        "loc": place / "kernel_meta" / f"{KERNEL}_loc.json",
    }
    target = targets[break_it]
    data = target.read_bytes() if target.exists() else b"\x7fELF\x02\x01\x01" + bytes(20)
    target.write_bytes(data[: len(data) * 2 // 3])
    code, document = aicore(place)
    assert code == 1
    assert document["findings"][0]["op"] == "L2Loss"


def test_hundreds_of_errors_stay_in_order(aicore: Aicore, tmp_path: Path) -> None:
    text = "".join(
        stars(second / 10, serial=second)
        + failed(second / 10 + 0.01, f"1_0_K{second}", task=second)
        for second in range(100, 400)
    )
    (tmp_path / "plog-1.log").write_text(text)
    _, document = aicore(tmp_path)
    assert [finding["call"] for finding in document["findings"]] == [
        f"K{second}" for second in range(100, 400)
    ]


def test_stdin_and_a_folder_together(
    aicore: Aicore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen's block and the process log tell of one error."""
    place = collection(tmp_path)

    class Pasted:
        buffer = io.BytesIO(
            b"The device(0), core list[0-0], error code is:\ncoreId( 0):        0x800000    "
            b"\nAicore kernel execute failed, device_id=0, stream_id=5,"
            b" task_id=3, fault kernel_name=0_11_L2Loss, program id=3\n"
        )

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr("sys.stdin", Pasted())
    _, document = aicore(place, "-")
    (finding,) = document["findings"]
    assert len(part(finding, "error")["files"]) == 2
    assert kernel_json()["binFileName"] == part(finding, "kernel")["binary"]


def test_confidence_falls_with_what_is_missing(aicore: Aicore, tmp_path: Path) -> None:
    """The address alone, without graph, kernel and dump, is a suspicion less sure than with
    them.
    """
    text = log(at=INPUT, size=1024)
    _, document = aicore(collection(tmp_path / "all", values=sound(), text=text))
    assert document["findings"][0]["confidence"] == "proven"
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "plog-1.log").write_text(text)
    _, document = aicore(tmp_path / "alone")
    assert verdicts(document["findings"][0])[0] == ("addresses", "likely")
    assert {"graph", "kernel json", "exception dump"} <= {
        item["what"] for item in part(document["findings"][0], "missing")["items"]
    }


def test_a_runtime_code_without_an_error_of_a_core_is_explained(
    aicore: Aicore, tmp_path: Path
) -> None:
    line = (
        f"{head(1)}rtStreamSynchronize:ErrCode=107002, desc=[context pointer null], "
        "InnerCode=0x7070001\n"
    )
    (tmp_path / "plog-1.log").write_text(line)
    code, document = aicore(tmp_path)
    assert code == 0
    assert [one["code"] for one in document["summary"]["codes"]] == ["107002"]
    assert "aclrtSetDevice" in document["summary"]["codes"][0]["meaning"]


def test_the_kind_of_the_access_stands_in_the_reason(aicore: Aicore, tmp_path: Path) -> None:
    (tmp_path / "plog-1.log").write_text(
        classic(1.0, mte_error_info="0x6000052") + failed(1.1, "1_0_A")
    )
    _, document = aicore(tmp_path)
    assert document["findings"][0]["reasons"][0].endswith("the MTE info says write bus error")


def test_a_fault_of_the_memory_is_hardware_and_a_trap_is_the_operators(
    aicore: Aicore, tmp_path: Path
) -> None:
    for name, line, cause, confidence in (
        (
            "ras",
            "Fault RAS occurs in the system: [event_id:0x80e18400] New uncorrectable ECC",
            "hardware",
            "likely",
        ),
        ("code", "rtStreamSynchronize failed, runtime result = 507054.", "hardware", "likely"),
        ("trap", "rtStreamSynchronize failed, runtime result = 507042.", "operator", "proven"),
    ):
        place = collection(tmp_path / name, text=log(after=head(1.3) + line + "\n"))
        _, document = aicore(place)
        verdicts = [
            record for record in document["findings"][0]["evidence"] if record["part"] == "verdict"
        ]
        assert (verdicts[0]["cause"], verdicts[0]["confidence"]) == (cause, confidence), name


def test_the_case_is_named_after_the_function_not_the_task(tmp_path: Path) -> None:
    place = collection(tmp_path / "c", values=sound())
    for path in (place / "kernel_meta").iterdir():
        path.unlink()
    assert main(["aicore", str(place), "-o", str(tmp_path / "out")]) == 1
    assert f"kernel_meta/{KERNEL}.o" in (tmp_path / "out" / "case" / "main.py").read_text()


def test_equal_addresses_of_two_devices_accuse_nobody(aicore: Aicore, tmp_path: Path) -> None:
    """A process with two devices logs both under one pid, and their addresses are the same."""
    other = "".join(
        info(second, f"DevMalloc: Succ, size=512, type=2, moduleId=45, ptr={address}")
        for second, address in ((0.3, INPUT), (0.4, OUTPUT))
    )
    _, document = aicore(collection(tmp_path / "small", text=log(before=other)))
    assert [check["status"] for check in part(document["findings"][0], "addresses")["checks"]] == [
        "ok",
        "ok",
    ]
    freed = other + "".join(
        info(second, f"DevFree: mem={address:#x}")
        for second, address in ((0.5, INPUT), (0.6, OUTPUT))
    )
    _, document = aicore(collection(tmp_path / "freed", text=log(before=freed)))
    assert [check["status"] for check in part(document["findings"][0], "addresses")["checks"]] == [
        "ok",
        "ok",
    ]


def test_of_several_errors_the_logs_of_a_case_decide_their_own(
    aicore: Aicore, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "plog-1_1.log").write_text(
        classic(1.0) + failed(1.1, "A") + classic(20.0, serial=8) + failed(20.1, "B", task=7)
    )
    for name, text, wanted in (
        ("named", classic(1.0, pid=2) + failed(1.1, "B", pid=2), [None, "reproduced"]),
        ("nameless", classic(1.0, pid=2), ["reproduced", "reproduced"]),
        ("none", info(1.0, "all is well", pid=2), ["not-reproduced", "not-reproduced"]),
    ):
        (tmp_path / f"{name}.log").write_text(text)
        _, document = aicore(tmp_path / "in", "--case-result", tmp_path / f"{name}.log")
        assert [
            part(finding, "error")["case_result"] for finding in document["findings"]
        ] == wanted, name


def _pasted(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pasted.txt"
    path.write_text(text, encoding="utf-8")
    return path


ASSERTED = (
    "[ASSERT] [CANN_VERSION : 8.1][TimeStamp : 0] /opp/pick/pick_base.h:40: Assertion `(0 "
    "<= at\n&& at < size_)' {}!\n"
)


def test_an_assertion_the_kernel_printed_is_the_cause(aicore: Aicore, tmp_path: Path) -> None:
    text = stars(1.0, code="0") + failed(1.2, "Pick_0123456789abcdef0123456789abcdef_0")
    _, document = aicore(_pasted(tmp_path, ASSERTED.format("Index 9 out of range[0 9)") + text))
    verdict = part(document["findings"][0], "verdict")
    assert verdict["cause"] == "input values"
    assert "pick_base.h:40: (0 <= at && at < size_), Index 9 out of range[0 9)!" in verdict["text"]
    _, document = aicore(_pasted(tmp_path, ASSERTED.format("tile too large") + text))
    assert verdicts(document["findings"][0])[0] == ("operator", "proven")
    _, document = aicore(
        _pasted(
            tmp_path,
            ASSERTED.format("Index 9")
            + text.replace("error code = 0,", "error code = 0x8,").replace("(0, 0", "(0x8, 0"),
        )
    )
    assert (
        "assertion" not in part(document["findings"][0], "verdict")["text"]
    )  # another error than a trap


REMOTE = (
    f"{head(1.1)}GetError:Stream Synchronize failed, stream_id=3, retCode=0x222, [suspect "
    "remote error].\n"
)


def test_memory_of_another_device(aicore: Aicore, tmp_path: Path) -> None:
    combine = failed(1.2, "te_moedistributecombine_0123_static_bin")
    _, document = aicore(_pasted(tmp_path, stars(1.0) + REMOTE + combine))
    assert verdicts(document["findings"][0])[0] == ("remote device", "likely")
    for text in (
        stars(1.0) + combine,
        stars(1.0) + REMOTE + failed(1.2, "Add_0123456789abcdef0123456789abcdef_0"),
    ):
        _, document = aicore(_pasted(tmp_path, text))
        assert verdicts(document["findings"][0])[0] == ("remote device", "suspected")
    _, document = aicore(
        _pasted(
            tmp_path, stars(1.0) + failed(1.2, "MoeInitRouting_0123456789abcdef0123456789abcdef_0")
        )
    )
    assert verdicts(document["findings"][0])[0] == ("addresses", "suspected")


def test_a_kernel_that_did_not_end_in_time(aicore: Aicore, tmp_path: Path) -> None:
    late = (
        f"{head(1.1)}PreCheckTaskErr:Kernel task happen error, retCode=0x30, [vector core "
        "timeout].\n"
    )
    _, document = aicore(
        _pasted(
            tmp_path,
            stars(1.0, code="0") + late + failed(1.2, "Add_0123456789abcdef0123456789abcdef_0"),
        )
    )
    assert "did not end in time" in part(document["findings"][0], "verdict")["text"]


def test_an_argument_of_the_host(aicore: Aicore, tmp_path: Path) -> None:
    kernel = "RealDiv_0123456789abcdef0123456789abcdef_high_precision_21"
    device = [0x124201EA7400, 0x12420240CC00]

    def causes(words: list[int], name: str = kernel) -> list[tuple[str, str]]:
        _, document = aicore(_pasted(tmp_path, failed(1.0, name) + arguments(1.1, words)))
        return verdicts(document["findings"][0])

    assert causes([0x4F453840, *device, 1, 1]) == [("addresses", "suspected")]
    for words in (
        [*device, 0x4F453840],
        [0xE7FFC0009000, *device],
        [0, *device],
        [device[0], 0x4F453840],
    ):
        assert causes(words) == [("undecided", "suspected")]
    assert causes([0x4F453840, *device], name="my_own_kernel") == [
        ("undecided", "suspected")
    ]  # its arguments may be numbers


def test_a_bit_of_the_second_word(
    aicore: Aicore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code of the head is 0, its second word is not; and an empty info register moves no
    counter before the kernel.
    """
    text = stars(
        1.0,
        code="0",
        pc_start="0x124000000388",
        current="0x1240000005a0",
        ccu_error_info="0x1cc0000000000000",
    )
    path = _pasted(tmp_path, text.replace("errcode:(0, 0, 0)", "errcode:(0, 0x8000, 0)"))
    _, document = aicore(path)
    (core,) = part(document["findings"][0], "cores")["cores"]
    assert [bit["number"] for bit in core["bits"]] == [79]
    assert core["pc"]["offset"] == "0x218"
    assert main(["aicore", str(path)]) == 1
    assert "0x0, 0x8000, 0x0  ccu_bus_err" in capsys.readouterr().out
