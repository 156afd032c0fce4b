# SPDX-License-Identifier: Apache-2.0
"""What `opscope compare` says of inputs that have little in common, lack values, or were recorded
at other levels.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.cli import main

CHAIN = ("linear", "gelu", "layer_norm")
CLASSES = {"linear": "Linear", "gelu": "GELU", "layer_norm": "LayerNorm"}


def asked(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the verb."""
    code = main(["compare", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def values_of(seed: int) -> list[np.ndarray[Any, Any]]:
    """What flows through the chain: input, output of each call."""
    random = np.random.default_rng(seed)
    return [random.standard_normal((4, 8)).astype(np.float32) for _ in range(len(CHAIN) + 1)]


def leaf(folder: Path | None, name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """A tensor in dump.json, its file beside it where a folder is given."""
    about = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(array.shape),
        "Max": float(array.max()),
        "Min": float(array.min()),
        "Mean": float(array.mean()),
        "Norm": float(np.linalg.norm(array)),
        "requires_grad": False,
    }
    if folder is not None:
        np.save(folder / f"{name}.npy", array)
        about["data_name"] = f"{name}.npy"
    return about


def dump(
    folder: Path,
    values: list[np.ndarray[Any, Any]],
    *,
    level: str,
    tensors: bool = False,
    chain: tuple[str, ...] = CHAIN,
) -> Path:
    """The chain as msprobe dumps it at level L0, L1 or mix."""
    place = folder / "step0" / "rank0"
    kept = place / "dump_tensor_data" if tensors else None
    (kept or place).mkdir(parents=True)
    data, construct = {}, {}
    for number, op in enumerate(chain):
        module, api = (
            f"Module.net.{op}.{CLASSES.get(op, op)}.forward.0",
            f"Functional.{op}.0.forward",
        )
        names = [
            name
            for name, levels in ((api, ("L1", "mix")), (module, ("L0", "mix")))
            if level in levels
        ]
        for name in names:
            data[name] = {
                "input_args": [leaf(kept, f"{name}.input.0", values[number])],
                "input_kwargs": {},
                "output": [leaf(kept, f"{name}.output.0", values[number + 1])],
            }
            construct[name] = module if level == "mix" and name == api else None
    header = {
        "task": "tensor" if tensors else "statistics",
        "level": level,
        "framework": "pytorch",
        "dump_data_dir": None,
    }
    (place / "dump.json").write_text(json.dumps({**header, "data": data}), encoding="utf-8")
    (place / "construct.json").write_text(
        json.dumps(construct if level != "L1" else {}), encoding="utf-8"
    )
    return folder


@pytest.mark.parametrize(
    "levels",
    [("L0", "L1"), ("L1", "mix"), ("L0", "mix"), ("mix", "L0"), ("mix", "L1"), ("L1", "L0")],
)
def test_levels_are_aligned_by_what_they_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], levels: tuple[str, str]
) -> None:
    values = values_of(1)
    target, golden = (
        dump(tmp_path / f"{side}{level}", values, level=level)
        for side, level in zip("tg", levels, strict=True)
    )
    code, out, _ = asked(capsys, target, golden, "--json")
    document = json.loads(out)
    assert document["findings"] == []
    assert document["summary"]["calls"]["matched"] == len(CHAIN)
    assert document["summary"]["tensors"]["same"] == 2 * len(CHAIN)
    assert code == 0


@pytest.mark.parametrize(
    "levels",
    [("L0", "L1"), ("L1", "mix"), ("L0", "mix"), ("mix", "L0"), ("mix", "L1"), ("L1", "L0")],
)
def test_the_origin_is_found_at_the_level_of_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], levels: tuple[str, str]
) -> None:
    values = values_of(1)
    wrong = [*values[:2], values[2] * 1.5, values[3] * 0.7]
    target, golden = (
        dump(tmp_path / f"{side}{level}", own, level=level)
        for side, level, own in zip("tg", levels, (wrong, values), strict=True)
    )
    code, out, _ = asked(capsys, target, golden, "--json")
    first = json.loads(out)["findings"][0]
    assert code == 1
    assert (first["kind"], first["op"]) in {
        ("divergence-origin", "GELU"),
        ("divergence-origin", "Functional.gelu"),
    }


def test_calls_without_a_counterpart_at_any_level_are_said_and_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module that runs what is no API of msprobe's list, as an LSTM does."""
    values = values_of(1)
    golden = dump(tmp_path / "g", values, level="L1", chain=("linear", "gelu"))
    target = dump(tmp_path / "t", values, level="mix")
    path = target / "step0" / "rank0" / "dump.json"
    text = json.loads(path.read_text())
    del text["data"]["Functional.layer_norm.0.forward"]
    path.write_text(json.dumps(text))
    code, out, _ = asked(capsys, target, golden)
    assert code == 3
    assert (
        "golden recorded no modules: 1 calls of target were compared with nothing: LayerNorm"
        in " ".join(out.split())
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("side", ["target", "golden"])
@pytest.mark.parametrize("count", [1, 8])
def test_values_that_one_side_lost_are_never_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], side: str, count: int
) -> None:
    sides = {
        name: dump(tmp_path / name, values_of(1), level="L1", tensors=True)
        for name in ("target", "golden")
    }
    files = sorted((sides[side] / "step0" / "rank0" / "dump_tensor_data").iterdir())
    for file in files[:count]:
        file.unlink()
    code, out, _ = asked(capsys, sides["target"], sides["golden"], "-o", tmp_path / "all.csv")
    found = [row for row in rows(tmp_path / "all.csv") if row["Result"] != "pass"]
    lost = min(count, len(files))
    assert code == 3
    assert f"{side}: the values of {lost} tensor" in " ".join(out.split())
    assert len(found) == lost
    assert {row["Result"] for row in found} == {"N/A"}
    assert all(
        ("NPU" if side == "target" else "Bench") + " does not have data file." in row["Err_message"]
        for row in found
    )


def test_statistics_beside_values_are_said_to_be_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, golden = (
        dump(tmp_path / name, values_of(1), level="L1", tensors=kept)
        for name, kept in (("t", False), ("g", True))
    )
    code, out, _ = asked(capsys, target, golden)
    assert code == 0
    assert (
        "6 pairs of tensors were compared by statistics alone: target has no values of them"
        in " ".join(out.split())
    )


def test_two_models_are_said_to_be_two_and_nobody_is_accused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = dump(tmp_path / "t", values_of(1), level="L1")
    golden = dump(tmp_path / "g", values_of(2), level="L1", chain=("conv2d", "relu", "softmax"))
    code, out, _ = asked(capsys, target, golden)
    assert code == 3
    assert out.startswith("opscope  two different models: 0 of 3 calls matched")
    assert "first" not in out
    assert code == asked(capsys, golden, target)[0]


@pytest.mark.parametrize("empty", ["target", "golden", "both"])
def test_a_run_without_calls_is_nothing_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], empty: str
) -> None:
    sides = [
        dump(
            tmp_path / side,
            values_of(1),
            level="L1",
            chain=() if empty in (side, "both") else CHAIN,
        )
        for side in ("target", "golden")
    ]
    code, out, err = asked(capsys, *sides)
    assert (code, err) == (3, "")
    assert out.startswith("opscope  nothing could be compared")
    assert f"warning  {'target' if empty == 'both' else empty}:" in out


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return dump(tmp_path / "t", values_of(1), level="L1"), dump(
        tmp_path / "g", values_of(2), level="L1"
    )


def test_a_folder_in_the_place_of_the_output_is_said_before_anything_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pair: tuple[Path, Path]
) -> None:
    (tmp_path / "all.csv").mkdir()
    code, out, err = asked(capsys, *pair, "-o", tmp_path / "all.csv")
    assert (code, out) == (2, "")
    assert "all.csv: a folder" in err


@pytest.mark.parametrize("suffix", [".csv", ".xlsx", ".html", ".json"])
def test_a_disk_that_refuses_leaves_what_was_there_and_the_verdict_on_the_screen(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    pair: tuple[Path, Path],
    suffix: str,
) -> None:
    from opscope.view import compare_files

    def refuse(comparison: object, path: Path, metrics: object) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(compare_files.WRITERS, suffix, refuse)
    path = tmp_path / f"all{suffix}"
    path.write_text("old")
    code, out, err = asked(capsys, *pair, "-o", path)
    assert code == 2
    assert "divergence origin" in out
    assert err.endswith(": cannot be written: No space left on device\n")
    assert path.read_text() == "old"
    assert {entry.name for entry in tmp_path.iterdir() if entry.is_file()} == {path.name}
    assert [entry.name for entry in tmp_path.iterdir() if "partial" in entry.name] == []
