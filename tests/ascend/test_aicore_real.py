# SPDX-License-Identifier: Apache-2.0
"""The three published errors and the manual's own: every field that their logs, graphs and kernels
hold.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from .aicore_logs import MANUAL, REAL, manual_text
from .conftest import part

pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="the published logs are not here")
Aicore = Callable[..., tuple[int, dict[str, Any]]]


def test_gatherv2_on_910a(aicore: Aicore) -> None:
    code, document = aicore(REAL / "gatherv2_910a")
    assert code == 1
    (finding,) = document["findings"]
    assert (finding["kind"], finding["op"], finding["call"], finding["status"]) == (
        "aicore-error",
        "GatherV2",
        "GatherV2",
        "0x10",
    )
    assert finding["reasons"][0].startswith("ccu_illegal_instr")
    error = part(finding, "error")
    assert (error["device"], error["stream"], error["task"], error["kernel"]) == (
        0,
        2,
        6,
        "2_0_11_GatherV2",
    )
    assert error["failure"]["hash"] == "15656883929986130445"
    (core,) = part(finding, "cores")["cores"]
    assert core["registers"] == {
        "pc start": "0x1000124080064000",
        "current": "0x124080067d2c",
        "vec error info": "0x1791239f",
        "mte error info": "0x46",
        "ifu error info": "0x3fb773783ef80",
        "ccu error info": "0x2020c0f00324442",
        "cube error info": "0x2f",
        "biu error info": "0x0",
        "aic error mask": "0x65000200d000288",
        "para base": "0x1240c0340000",
    }
    assert core["extend"]["axi clamp state"] == "0x1717"
    assert core["extend"]["run stall"] == "0x1"
    assert (core["serial"], core["pc"]["offset"]) == (367, "0x3d2c")
    assert (
        core["message"] == "Illegal instruction, which is usually caused by unaligned UUB addresses"
    )
    assert [code["code"] for code in part(finding, "returned")["codes"]] == [
        "0x26",
        "0x7150026",
        "507015",
    ]


def test_gatherv2_comes_from_its_node_and_its_addresses_are_checked(aicore: Aicore) -> None:
    _, document = aicore(REAL / "gatherv2_910a")
    (finding,) = document["findings"]
    node = part(finding, "node")
    assert node["file"].endswith("ge_proto_00000001_Build.txt")
    assert node["attributes"] == {
        "batch_dims": 0,
        "is_preprocessed": False,
        "negative_index_support": False,
    }
    made = node["producers"][0]
    assert (made["slot"], made["name"], made["type"]) == (0, "Unique", "Unique")
    assert [one["shape"] for one in node["inputs"]] == [[-1], [2], []]
    assert node["input_names"] == ["x", "indices", "axis"]
    tensors = part(finding, "arguments")["tensors"]
    assert [(one["label"], one["dtype"], one["shape"], one["address"]) for one in tensors] == [
        ("input 0", "float32", [64], "0x124080044000"),
        (
            "input 1",
            "int32",
            [2],
            "0x124080024000",
        ),  # the log has the host's copy, the argument words the device's
        ("input 2", "int32", [], "0x124080034000"),
        ("output 0", "float32", [2], "0x124080054000"),
    ]
    addresses = part(finding, "addresses")
    assert [check["status"] for check in addresses["checks"]] == ["ok"] * 4
    assert addresses["allocations"] == 16
    tiling = part(finding, "tiling")
    assert (tiling["word"], tiling["held"], tiling["size"], tiling["cut"]) == (14, 224, 256, True)
    assert tiling["words32"][:9:2] == [4, 1, 64, 1, 2]
    kernel = part(finding, "kernel")
    assert kernel["document"]["sha256"].startswith("6f36abeb")
    assert kernel["dynamic"]
    causes = [record["cause"] for record in finding["evidence"] if record["part"] == "verdict"]
    assert (
        "args overwritten" not in causes
    )  # the words after are those of a host buffer, as the log says


def test_addcustom_on_910b(aicore: Aicore) -> None:
    code, document = aicore(REAL / "addcustom_910b")
    (finding,) = document["findings"]
    assert (code, finding["op"], finding["status"]) == (1, "AddCustom", "0x200000000")
    cores = part(finding, "cores")["cores"]
    assert sorted(core["core"] for core in cores) == list(range(14, 22))
    assert {core["pc"]["fixed"] for core in cores} == {"0x12c0c002e5a8"}
    assert {(core["pc"]["offset"], core["pc"]["heuristic_offset"]) for core in cores} == {
        ("0x5a8", "0x5a8")
    }
    assert [bit["name"] for bit in cores[0]["bits"]] == ["mte_gdma_write_overflow"]
    assert cores[1]["extend"] == {
        "fixp_error0 info": "0x1a06a",
        "fixp_error1 info": "0xb9",
        "fsmId": 0,
        "tslot": 1,
        "thread": 0,
        "ctxid": 0,
        "blk": 3,
        "sublk": 0,
        "subErrType": 4,
    }
    tiling = part(finding, "tiling")
    assert (tiling["word"], tiling["words32"]) == (7, [16384, 8, 0, 0xA5A5A5A5])
    assert [
        (one["label"], one["name"], one["dtype"], one["shape"])
        for one in part(finding, "arguments")["tensors"][:3]
    ] == [
        ("input 0", "x", "float16", [16384]),
        ("input 1", "y", "float16", [16384]),
        ("output 0", "z", "float16", [16384]),
    ]
    assert part(finding, "kernel")["file"].endswith(
        "AddCustom_ab1b6750d7f510985325b603cb06dc8b.json"
    )
    assert [item["what"] for item in part(finding, "error")["dump_files"]] == [
        "exception",
        "host kernel",
        "kernel json",
        "kernel",
    ]


def test_flashattention_on_910b(aicore: Aicore) -> None:
    log = (
        REAL
        / "flashattention_910b"
        / "dfx/log/host/cann/debug/plog/plog-1592007_20240912164003456.log"
    )
    code, document = aicore(log)
    (finding,) = document["findings"]
    assert (code, finding["op"], finding["status"]) == (1, "FlashAttentionScore", "0")
    assert finding["reasons"] == ["timeout or trap: no error bit is set"]
    error = part(finding, "error")
    assert (error["tiling_key"], error["dump_level"]) == ("10000000000022420943", "L0")
    arguments = part(finding, "arguments")
    assert (arguments["block_dim"], arguments["args_size"], len(arguments["words_after"])) == (
        20,
        2464,
        308,
    )
    first = arguments["tensors"][0]
    assert (first["position"], first["size"]) == (1, 268448256)
    assert len(arguments["tensors"]) == 17
    tiling = part(finding, "tiling")
    assert (tiling["word"], tiling["address"], tiling["held"]) == (20, "0x12c0405690a0", 1440)
    (core,) = part(finding, "cores")["cores"]
    assert (core["kind"], core["extend"]["blk"], core["extend"]["subErrType"]) == (
        "fftsplus aivector error",
        5,
        2,
    )


def test_two_copies_of_a_log_are_one_error(aicore: Aicore) -> None:
    _, document = aicore(REAL / "flashattention_910b")
    (finding,) = document["findings"]
    assert len(part(finding, "error")["files"]) == 2
    assert any("other argument words" in text for text in part(finding, "error")["warnings"])


def test_the_manuals_error_from_stdin(aicore: Aicore, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pasted:
        buffer = io.BytesIO(manual_text().encode())

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr("sys.stdin", Pasted())
    code, document = aicore("-")
    assert code == 1
    _is_l2loss(document["findings"])


def test_the_manuals_own_page(aicore: Aicore) -> None:
    _is_l2loss(aicore(MANUAL)[1]["findings"])


def _is_l2loss(findings: list[dict[str, Any]]) -> None:
    (finding,) = findings
    assert (finding["op"], finding["call"], finding["status"]) == ("L2Loss", "L2Loss", "0x800000")
    error = part(finding, "error")
    function = "te_l2loss_c0c615ce55e6d3f96950bca0ea39a9ba178f78dab0e17f9096acb313f6057d65_d5135fe39437a0d0_0__kernel0"
    assert (error["function"], error["kernel"], error["stream"], error["task"]) == (
        function,
        "0_11_L2Loss",
        5,
        3,
    )
    (bit,) = part(finding, "cores")["cores"][0]["bits"]
    assert (bit["number"], bit["name"]) == (23, "mte_biu_rdwr_resp")
    assert "global memory" in finding["reasons"][0]
