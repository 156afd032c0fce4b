# SPDX-License-Identifier: Apache-2.0
"""Two dumps of msprobe that keep hashes and nothing else: equal hashes are equal, the first that
differs is named.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.compare.api import compare


def leaf(values: Any, form: str, **statistics: Any) -> dict[str, Any]:
    code = f"{zlib.crc32(values.tobytes()):08x}"
    if form == "xor":
        code = f"0x{int(np.bitwise_xor.reduce(values.reshape(-1).view(np.uint64))):016x}"
    known = dict.fromkeys(("Max", "Min", "Mean", "Norm")) | statistics
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(values.shape),
        **known,
        "requires_grad": False,
        "md5": code,
    }


def dump(
    folder: Path, form: str, *, broken: bool = False, framework: str = "pytorch", scale: float = 1.0
) -> Path:
    """Three calls in a chain; when broken the second computes something else, and so what the third
    reads differs.
    """
    rng, data = np.random.default_rng(0), {}
    flow = [rng.standard_normal((4, 4)).astype(np.float32) * np.float32(scale) for _ in range(4)]
    if broken:
        flow[2], flow[3] = flow[2][::-1].copy() + np.float32(0.5), flow[3] + 1
    for number, op in enumerate(("relu", "gelu", "tanh")):
        data[f"Functional.{op}.0.forward"] = {
            "input_args": [leaf(flow[number], form)],
            "input_kwargs": {},
            "output": [leaf(flow[number + 1], form)],
        }
    place = folder / "step0" / "rank0"
    place.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": framework, "dump_data_dir": None}
    (place / "dump.json").write_text(json.dumps({**head, "data": data}))
    return folder


@pytest.mark.parametrize("form", ["crc", "xor"])
def test_hashes_alone_name_the_first_difference(form: str, tmp_path: Path) -> None:
    golden = dump(tmp_path / "golden", form)
    same = compare(dump(tmp_path / "same", form), golden)
    assert (same.findings, same.document.complete) == ((), True)
    found = compare(dump(tmp_path / "broken", form, broken=True), golden)
    assert [finding.op for finding in found.findings] == ["Functional.gelu"]


@pytest.mark.parametrize(("form", "framework"), [("xor", "pytorch"), ("crc", "mindspore")])
def test_hashes_of_two_makers_tell_nothing(form: str, framework: str, tmp_path: Path) -> None:
    found = compare(dump(tmp_path / "a", "crc"), dump(tmp_path / "b", form, framework=framework))
    assert found.findings == ()
    assert not found.document.complete
