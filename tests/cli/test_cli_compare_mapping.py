# SPDX-License-Identifier: Apache-2.0
"""msprobe's mapping files on dumps as MindSpore's and PyTorch's msprobe write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.cli import main

RANDOM = np.random.default_rng(3)
X, W, V = (RANDOM.standard_normal(shape) for shape in ((4, 6), (6, 6), (6, 6)))
Y, Z = RANDOM.standard_normal((4, 6)), RANDOM.standard_normal((4, 6))


def leaf(array: np.ndarray[Any, Any], framework: str) -> dict[str, Any]:
    """A tensor as dump.json of a framework has it."""
    words = {
        "mindspore": ("mindspore.Tensor", "Float32"),
        "pytorch": ("torch.Tensor", "torch.float32"),
    }[framework]
    return {
        "type": words[0],
        "dtype": words[1],
        "shape": list(array.shape),
        "Max": float(array.max()),
        "Min": float(array.min()),
        "Mean": float(array.mean()),
        "Norm": float(np.linalg.norm(array)),
    }


def dump(
    folder: Path,
    framework: str,
    entries: dict[str, dict[str, Any]],
    construct: dict[str, Any] | None = None,
) -> Path:
    """Entries: args, kwargs, parameters, outputs, each of arrays."""
    place = folder / "step0" / "rank0"
    place.mkdir(parents=True)

    def every(value: Any) -> Any:
        return (
            {key: leaf(item, framework) for key, item in value.items()}
            if isinstance(value, dict)
            else [leaf(item, framework) for item in value]
        )

    data = {}
    for name, entry in entries.items():
        if "gradients" in entry:
            data[name] = {key: [leaf(item, framework)] for key, item in entry["gradients"].items()}
            continue
        data[name] = {
            "input_args": every(entry.get("args", [])),
            "input_kwargs": every(entry.get("kwargs", {})),
        }
        if "parameters" in entry:
            data[name]["parameters"] = every(entry["parameters"])
        data[name]["output"] = every(entry.get("outputs", []))
    header = {
        "task": "statistics",
        "level": "mix" if construct else "L1",
        "framework": framework,
        "dump_data_dir": None,
    }
    (place / "dump.json").write_text(json.dumps({**header, "data": data}), encoding="utf-8")
    (place / "construct.json").write_text(json.dumps(construct or {}), encoding="utf-8")
    return folder


def document(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert main(["compare", *map(str, words), "--json"]) in {0, 1, 3}
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def mapped(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mapping.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def swapped(tmp_path: Path) -> tuple[Path, Path]:
    """An operator that takes its operands, all of one shape, in another order, and gives its
    results in another order.
    """
    target = dump(
        tmp_path / "ms",
        "mindspore",
        {"Functional.odd.0.forward": {"args": [W, V, X[:, :6]], "outputs": [Y, Z]}},
    )
    golden = dump(
        tmp_path / "pt",
        "pytorch",
        {"Torch.strange.0.forward": {"args": [V, W, X[:, :6]], "outputs": [Z, Y]}},
    )
    return target, golden


def networks_of_apis(tmp_path: Path, wrong: float = 1.0) -> tuple[Path, Path]:
    """One program in the APIs of MindSpore and of PyTorch, as msprobe calls them."""
    found = []
    for framework, factor, names in (
        (
            "mindspore",
            wrong,
            (
                "Functional.dense",
                "MintFunctional.relu",
                "Mint.add",
                "Functional.swapaxes",
                "Mint.mul",
            ),
        ),
        (
            "pytorch",
            1.0,
            ("Functional.linear", "Functional.relu", "Torch.add", "Torch.transpose", "Torch.mul"),
        ),
    ):
        product = X @ W.T * factor
        kept = np.maximum(product, 0)
        total = kept + X
        flows = [
            ([X, W], product),
            ([product], kept),
            ([kept, X], total),
            ([total], total.T),
            ([total.T], total.T * 2),
        ]
        entries = {
            f"{name}.0.forward": {"args": args, "outputs": [out]}
            for name, (args, out) in zip(names, flows, strict=True)
        }
        if framework == "mindspore":
            entries["Tensor.asnumpy.0.forward"] = {"args": [total], "outputs": [total]}
        found.append(dump(tmp_path / framework, framework, entries))
    return found[0], found[1]


@pytest.mark.parametrize(
    "mapping", [None, "Functional.dense: Functional.linear\nFunctional.swapaxes: Torch.transpose\n"]
)
@pytest.mark.parametrize("wrong", [1.0, 1.3])
def test_apis_of_mindspore_and_pytorch_meet_with_and_without_the_table_of_msprobe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mapping: str | None, wrong: float
) -> None:
    given = () if mapping is None else ("--mapping", mapped(tmp_path, mapping))
    found = document(capsys, *networks_of_apis(tmp_path, wrong), *given)
    assert found["summary"]["calls"]["matched"] == 5 or wrong != 1.0
    assert [finding["op"] for finding in found["findings"]] == (
        [] if wrong == 1.0 else ["Functional.dense"]
    )


LISTS = "  ms_args: [0, 1, 2]\n  pt_args: [1, 0, 2]\n  ms_outputs: [0, 1]\n  pt_outputs: [1, 0]\n"


def test_api_mapping_pairs_arguments_and_outputs_by_its_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, golden = swapped(tmp_path)
    names = "- ms_api: Functional.odd\n  pt_api: Torch.strange\n"
    found = document(capsys, target, golden, "--mapping", mapped(tmp_path, names + LISTS))
    assert (
        found["summary"]["tensors"]["same"] + found["summary"]["tensors"]["within_tolerance"] == 5
    )
    assert found["findings"] == []


def test_api_mapping_in_the_words_that_the_code_of_msprobe_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, golden = swapped(tmp_path)
    text = ("- ms_api: Functional.odd\n  pt_api: Torch.strange\n" + LISTS).replace(
        "outputs", "output"
    )
    assert document(capsys, target, golden, "--mapping", mapped(tmp_path, text))["findings"] == []


def test_api_mapping_leaves_alone_what_its_lists_leave_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, golden = swapped(tmp_path)
    text = (
        "- ms_api: Functional.odd\n  pt_api: Torch.strange\n  ms_args: [2]\n  pt_args: [2]\n  "
        "ms_outputs: [0]\n  pt_outputs: [1]\n"
    )
    found = document(capsys, target, golden, "--mapping", mapped(tmp_path, text))
    tensors = found["summary"]["tensors"]
    assert tensors["same"] + tensors["within_tolerance"] == 2
    assert tensors["differ"] == 0


def test_api_mapping_pairs_keywords_with_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = dump(
        tmp_path / "ms", "mindspore", {"Functional.odd.0.forward": {"args": [W, X], "outputs": [Y]}}
    )
    golden = dump(
        tmp_path / "pt",
        "pytorch",
        {"Torch.strange.0.forward": {"args": [X], "kwargs": {"other": W}, "outputs": [Y]}},
    )
    text = (
        "- {ms_api: Functional.odd, pt_api: Torch.strange, ms_args: [0, 1], pt_args: [other, "
        "0], ms_outputs: [0], pt_outputs: [0]}\n"
    )
    found = document(capsys, target, golden, "--mapping", mapped(tmp_path, text))
    tensors = found["summary"]["tensors"]
    assert tensors["only_target"] == tensors["only_golden"] == tensors["differ"] == 0
    assert found["summary"]["calls"]["matched"] == 1


def test_api_mapping_lists_parameters_and_their_gradients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def side(kind: str, framework: str, kinds: tuple[str, str], first: Any, second: Any) -> Path:
        name = f"{kind}.net.Odd"
        return dump(
            tmp_path / framework,
            framework,
            {
                f"{name}.forward.0": {
                    "args": [X],
                    "parameters": {kinds[0]: first, kinds[1]: second},
                    "outputs": [Y],
                },
                f"{name}.parameters_grad": {
                    "gradients": {kinds[0]: first * 2, kinds[1]: second * 3}
                },
            },
            {f"{name}.forward.0": None},
        )

    target = side("Cell", "mindspore", ("one", "two"), W, V)
    golden = side("Module", "pytorch", ("two", "one"), W, V)
    text = (
        "- ms_api: Odd\n  pt_api: Odd\n  ms_parameters: [one, two]\n  pt_parameters: [two, one]\n"
    )
    more = "  ms_parameters_grad: [one, two]\n  pt_parameters_grad: [two, one]\n"
    found = document(capsys, target, golden, "--mapping", mapped(tmp_path, text + more))
    assert found["findings"] == []
    assert found["summary"]["tensors"]["differ"] == 0


def test_data_mapping_pairs_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, golden = swapped(tmp_path)
    rows = {
        "input.0": "input.1",
        "input.1": "input.0",
        "input.2": "input.2",
        "output.0": "output.1",
        "output.1": "output.0",
    }
    text = "".join(
        f"Functional.odd.0.forward.{one}: Torch.strange.0.forward.{other}\n"
        for one, other in rows.items()
    )
    assert document(capsys, target, golden, "--mapping", mapped(tmp_path, text))["findings"] == []


def networks(
    tmp_path: Path, target: str, golden: str, kinds: tuple[str, str] = ("Dense", "Linear")
) -> tuple[Path, Path]:
    """A cell and a module that compute the same under other paths; beside them another that only
    its path tells apart.
    """
    found = []
    for kind, framework, path, name in (
        ("Cell", "mindspore", target, kinds[0]),
        ("Module", "pytorch", golden, kinds[1]),
    ):
        entries = {
            f"{kind}.{place}.{name}.forward.0": {"args": [X], "outputs": [out]}
            for place, out in ((path, Y), ("other", Z))
        }
        if framework == "pytorch":
            entries = dict(reversed(entries.items()))
        found.append(dump(tmp_path / framework, framework, entries, dict.fromkeys(entries)))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("fc1.Dense: head.Linear\n", ("fc1", "head")),
        ("network.fc1: head\nDense: Linear\n", ("network.fc1", "head")),
        ("net.fc1.Dense: head.Linear\n", ("net.module.fc1", "module.head")),
        ("decoder: dec\nDense: Linear\n", ("net.decoder.fc", "net.dec.fc")),
    ],
)
def test_cell_mapping(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, paths: tuple[str, str]
) -> None:
    target, golden = networks(tmp_path, *paths)
    found = document(capsys, target, golden, "--mapping", mapped(tmp_path, text))
    assert found["summary"]["calls"]["matched"] == 2
    assert found["findings"] == []


@pytest.mark.parametrize("top", ["TopLayer", "Cell", "PipelineCell"])
def test_layer_mapping(tmp_path: Path, capsys: pytest.CaptureFixture[str], top: str) -> None:
    entries = {}
    for kind, framework, paths in (
        ("Cell", "mindspore", {"model.decoder.dense": Y, "model.decoder.up": Z}),
        ("Module", "pytorch", {"body.net.up_proj": Z, "body.net.proj": Y}),
    ):
        outer = {"mindspore": ("model", "model.decoder"), "pytorch": ("body", "body.net")}[
            framework
        ]
        calls = {f"{kind}.{outer[0]}.Model.forward.0": {"args": [X], "outputs": [W]}}
        calls |= {f"{kind}.{outer[1]}.Block.forward.0": {"args": [X], "outputs": [W]}}
        calls |= {
            f"{kind}.{path}.Fully.forward.0": {"args": [X], "outputs": [out]}
            for path, out in paths.items()
        }
        names = list(calls)
        parents = {names[0]: None, names[1]: names[0], **dict.fromkeys(names[2:], names[1])}
        entries[framework] = dump(tmp_path / framework, framework, calls, parents)
    text = (
        f"{top}:\n  model: body\nModel:\n  decoder: net(Block)\nBlock:\n  dense: proj\n  up: "
        "up_proj\n"
    )
    found = document(
        capsys, entries["mindspore"], entries["pytorch"], "--mapping", mapped(tmp_path, text)
    )
    assert found["summary"]["calls"]["matched"] == 4
    assert found["findings"] == []
    assert found["summary"]["tensors"]["differ"] == 0


BAD = {
    "lengths": (
        "- ms_api: a\n  pt_api: b\n  ms_args: [0, 1]\n  pt_args: [0]\n",
        "line 3: ms_args lists 2 and pt_args 1",
    ),
    "one list": ("- ms_api: a\n  pt_api: b\n  ms_args: [0]\n", "line 3: pt_args must be a list"),
    "twice": (
        "- ms_api: a\n  pt_api: b\n  ms_args: [0, 0]\n  pt_args: [0, 1]\n",
        "line 3: ms_args names a place twice",
    ),
    "no list": (
        "- ms_api: a\n  pt_api: b\n  ms_args: x\n  pt_args: [0]\n",
        "line 3: ms_args must be a list",
    ),
    "unknown key": (
        "- ms_api: a\n  pt_api: b\n  ms_arg: [0]\n",
        "line 3: 'ms_arg' is no key of an api mapping",
    ),
    "no pt_api": (
        "- ms_api: a\n  pt_api: b\n- ms_api: c\n",
        "line 3: entry 2 of an api mapping needs ms_api and pt_api",
    ),
    "no row": (
        "A.b.0.forward.input.0: C.d.0.forward.input.0\nnonsense: C.e.0.forward.input.1\n",
        "line 2: 'nonsense' is no row",
    ),
    "two partners": (
        (
            "A.b.0.forward.input.0: C.d.0.forward.input.0\nA.b.0.forward.input.1: "
            "C.e.0.forward.input.0\n"
        ),
        "line 2: A.b.0.forward is",
    ),
    "list for name": ("fc: [a, b]\n", "line 1: 'fc' needs one name behind it, not a list"),
    "nested layer": (
        "Block:\n  a:\n    b: c\n",
        "line 2: 'a' needs one name behind it, not a table",
    ),
    "layer and word": ("Block:\n  a: b\nother: c\n", "line 3: other must hold"),
    "empty": ("# nothing\n", "an empty mapping file"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_a_mapping_file_must_not_say_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    target, golden = swapped(tmp_path)
    text, reason = BAD[case]
    assert (
        main(["compare", str(target), str(golden), "--mapping", str(mapped(tmp_path, text))]) == 2
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert f"mapping.yaml: {reason}" in err


def test_calls_that_the_runs_do_not_have_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, golden = swapped(tmp_path)
    text = (
        "Functional.odd.0.forward.input.2: "
        "Torch.strange.0.forward.input.2\nFunctional.odd.7.forward.input.0: "
        "Torch.typo.0.forward.input.0\n"
    )
    found = document(capsys, target, golden, "--mapping", mapped(tmp_path, text))
    assert (
        "mapping: 2 of the calls it names are not in these runs, the first: "
        "Functional.odd.7.forward" in found["summary"]["warnings"]
    )
