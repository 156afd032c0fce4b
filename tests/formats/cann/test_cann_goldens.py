# SPDX-License-Identifier: Apache-2.0
"""`opscope compare` of a device's dump with goldens of TensorFlow: files
NAME.OUTPUT.TIMESTAMP.npy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cann_dumps import dump, operator

from opscope.cli import main

VALUES = np.random.default_rng(0).standard_normal((1, 1, 4, 5)).astype(np.float32)


def document(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    code = main(["compare", *map(str, words), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def device(root: Path, wrong: float = 1.0) -> Path:
    """A chain of operators as a device dumps them; a multiplication by 3 is wrong by a factor."""
    value = VALUES
    for number, (kind, name, factor) in enumerate(
        (("Relu", "net/a", 1), ("Mul", "net/mul_10", 3 * wrong), ("Mul", "net/mul_2", 0.5)), 1
    ):
        following = (np.maximum(value, 0) if kind == "Relu" else value * np.float32(factor)).astype(
            np.float32
        )
        operator(
            root / f"{kind}.{name.replace('/', '_')}.{number}.1.{1650000000000000 + number}",
            [dump(value, "NCHW", value.shape)],
            [dump(following, "NCHW", following.shape)],
        )
        value = following
    return root


def goldens(root: Path) -> Path:
    """Outputs of the same chain as TensorFlow's goldens, in another layout."""
    root.mkdir()
    value = np.maximum(VALUES, 0)
    for number, (name, factor) in enumerate((("net_a", 1), ("net_mul_10", 3), ("net_mul_2", 0.5))):
        value = (value * np.float32(factor)).astype(np.float32)
        np.save(root / f"{name}.0.{1640000000000000 + number}.npy", value.transpose(0, 2, 3, 1))
    return root


@pytest.mark.parametrize("wrong", [1.0, 1.2])
def test_goldens_of_tensorflow_are_partners_of_a_devices_operators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: float
) -> None:
    code, found = document(capsys, device(tmp_path / "npu", wrong), goldens(tmp_path / "gold"))
    assert found["summary"]["calls"]["matched"] == 3
    if wrong == 1.0:
        assert (code, found["summary"]["tensors"]["same"]) == (0, 3)
    else:
        first = found["findings"][0]
        assert (code, first["call"], first["confidence"]) == (1, "net_mul_10", "suspected")
        assert (
            "golden is" in first["reasons"][-1]
            or "what it reads was not recorded" in first["reasons"][0]
        )


def graph(path: Path) -> Path:
    """Three operators: one stands for two originals, one is renamed, one is new."""

    def op(name: str, originals: list[str], origin: str | None) -> dict[str, Any]:
        said = [
            {"key": "_datadump_origin_name", "value": {"s": origin}},
            {"key": "_datadump_origin_output_index", "value": {"i": 1}},
        ]
        attributes = [{"key": "_datadump_original_op_names", "value": {"list": {"s": originals}}}]
        return {
            "name": name,
            "type": "Op",
            "input": [],
            "attr": attributes,
            "output_desc": [{"attr": said if origin else []}],
        }

    ops = [
        op("net/a", ["model/conv", "model/relu"], "model/relu"),
        op("net/mul_10", ["model/scale"], "model/scale"),
        op("net/mul_2", [], None),
    ]
    path.write_text(json.dumps({"graph": [{"name": "net", "op": ops}]}))
    return path


@pytest.mark.parametrize("wrong", [1.0, 1.2])
def test_a_graph_names_the_originals_of_fused_operators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: float
) -> None:
    golden = tmp_path / "gold"
    golden.mkdir()
    relu = np.maximum(VALUES, 0)
    for name, output, values in (
        ("model_conv", 0, VALUES),
        ("model_relu", 0, VALUES),
        ("model_relu", 1, relu),
        ("model_scale", 1, relu * 3),
        ("net_mul_2", 0, VALUES),
    ):
        np.save(golden / f"{name}.{output}.1640000000000000.npy", values)
    words = (device(tmp_path / "npu", wrong), golden, "--mapping", graph(tmp_path / "net.json"))
    code, found = document(capsys, *words)
    assert found["summary"]["calls"]["matched"] == 2
    assert found["summary"]["tensors"]["same"] == (2 if wrong == 1.0 else 1)
    assert [finding["call"] for finding in found["findings"]] == (
        [] if wrong == 1.0 else ["net_mul_10"]
    )
    assert code in ({0, 3} if wrong == 1.0 else {1})


def test_a_graph_joins_two_dumps_of_one_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = tmp_path / "gold"
    relu = np.maximum(VALUES, 0)
    other = dump(VALUES, "NCHW", VALUES.shape)
    for number, (name, values) in enumerate(
        (("model_relu", relu), ("model_scale", relu * np.float32(3)))
    ):
        operator(
            golden / f"Op.{name}.{number}.1.{1650000000000000 + number}",
            [other],
            [other, dump(values, "NCHW", values.shape)],
        )
    _, found = document(
        capsys, device(tmp_path / "npu"), golden, "--mapping", graph(tmp_path / "net.json")
    )
    assert found["summary"]["calls"]["matched"] == 2
    assert found["summary"]["tensors"]["same"] >= 2
