# SPDX-License-Identifier: Apache-2.0
"""Statistics without values, as msprobe writes them: what equal ones prove, and what single numbers and integers can still tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opscope.analysis.compare import compare
from opscope.run.finding import Document

Entry = tuple[str, list[dict[str, Any]], list[dict[str, Any]]]


def tensor(norm: float, *, mean: float = 0.1, high: float = 3.0, shape: tuple[int, ...] = (4, 8)) -> dict[str, Any]:
    numbers = {"Max": high, "Min": -3.0, "Mean": mean, "Norm": norm}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape), **numbers, "requires_grad": True}


def ids(high: int, shape: tuple[int, ...]) -> dict[str, Any]:
    numbers = {"Max": high, "Min": 0, "Mean": None, "Norm": None}
    return {"type": "torch.Tensor", "dtype": "torch.int64", "shape": list(shape), **numbers, "requires_grad": False}


def dump(folder: Path, entries: list[Entry]) -> Path:
    data = {name: {"input_args": read, "input_kwargs": {}, "output": written} for name, read, written in entries}
    place = folder / "step0" / "rank0"
    place.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (place / "dump.json").write_text(json.dumps({**head, "data": data}))
    return folder


def compared(folder: Path, target: list[Entry], golden: list[Entry]) -> Document:
    return compare(dump(folder / "target", target), dump(folder / "golden", golden)).document


def test_a_part_of_what_is_as_close_as_the_rest_is_accused_of_nothing(tmp_path: Path) -> None:
    """Rounding has gone before: the whole has the statistics of golden's by chance, a half of it has not."""

    def run(off: float) -> list[Entry]:
        return [
            ("Functional.linear.0.forward", [tensor(9.0)], [tensor(17.0 * (1 + off))]),
            ("Tensor.__mul__.0.forward", [tensor(17.0 * (1 + off))], [tensor(11.0)]),
            ("Tensor.chunk.0.forward", [tensor(11.0)], [tensor(8.0, shape=(4, 4)), tensor(7.5 * (1 + off), shape=(4, 4))]),
        ]

    assert compared(tmp_path, run(3e-7), run(0.0)).findings == ()


def test_a_view_that_differs_while_nothing_did_before_is_named(tmp_path: Path) -> None:
    def run(norm: float) -> list[Entry]:
        return [("Tensor.chunk.0.forward", [tensor(11.0)], [tensor(8.0, shape=(4, 4)), tensor(norm, shape=(4, 4))])]

    (finding,) = compared(tmp_path, run(7.6), run(7.5)).findings
    assert finding.op == "Tensor.chunk"


def test_another_batch_is_named_where_it_is_first_computed_with(tmp_path: Path) -> None:
    """The labels are shaped first; their statistics are those of the words, which the embedding reads before the loss reads labels."""

    def run(high: int, norm: float) -> list[Entry]:
        return [
            ("Tensor.reshape.0.forward", [ids(high, (4, 6))], [ids(high, (24,))]),
            ("Functional.embedding.0.forward", [ids(high, (4, 6)), tensor(40.0, shape=(24, 8))], [tensor(norm, shape=(4, 6, 8))]),
            ("Functional.cross_entropy.0.forward", [tensor(norm, shape=(4, 6, 8)), ids(high, (24,))], [tensor(norm / 9, shape=())]),
        ]

    document = compared(tmp_path, run(23, 5.5), run(22, 5.1))
    assert document.findings[0].op == "Functional.embedding"


def test_a_single_number_is_followed_to_the_call_that_made_it(tmp_path: Path) -> None:
    """The loss with a penalty that one side alone adds: the addition is named, not the division that reads the sum."""

    def number(value: float) -> dict[str, Any]:
        return tensor(value, mean=value, high=value, shape=())

    def run(*, penalty: bool) -> list[Entry]:
        loss, added = 3.1415927, [("Tensor.__add__.0.forward", [number(3.1415927), number(0.7182818)], [number(3.8598745)])]
        read = number(3.8598745 if penalty else loss)
        return [
            ("Functional.cross_entropy.0.forward", [tensor(5.5)], [number(loss)]),
            *(added if penalty else []),
            ("Tensor.__truediv__.0.forward", [read], [number(1.9299373 if penalty else 1.5707963)]),
        ]

    first = compared(tmp_path, run(penalty=True), run(penalty=False)).findings[0]
    assert (first.kind, first.op) == ("divergence-origin", "Tensor.__add__")


def trained(*, loops: bool, model: str = "linear") -> list[Entry]:
    """A forward and a backward pass, and an optimizer that loops over parameters, or leaves no calls (lists, a fused kernel)."""
    forward: list[Entry] = [(f"Functional.{model}.{at}.forward", [tensor(9.0 + at)], [tensor(10.0 + at)]) for at in range(4)]
    backward: list[Entry] = [(f"Functional.{model}.{at}.backward", [tensor(5.0 - at)], [tensor(4.0 - at)]) for at in range(4)]
    updates: list[Entry] = [(f"Tensor.mul_.{at}.forward", [tensor(7.0 + at)], [tensor(6.9 + at)]) for at in range(9)]
    return [*forward, *backward[::-1], *(updates if loops else [])]


def test_an_optimizer_that_one_side_did_not_record_is_no_difference_but_said(tmp_path: Path) -> None:
    for number, (mine, theirs) in enumerate([(True, False), (False, True)]):
        document = compared(tmp_path / str(number), trained(loops=mine), trained(loops=theirs))
        assert (document.findings, document.complete) == ((), False)
        assert "recorded nothing of its optimizer: 9 calls" in document.summary["warnings"][0]


def test_two_models_whose_parameters_are_updated_alike_are_two_models(tmp_path: Path) -> None:
    document = compared(tmp_path, trained(loops=True), trained(loops=True, model="conv1d"))
    assert (document.findings, document.complete) == ((), False)
    assert "two different models" in document.summary["warnings"][0]


def test_what_one_side_writes_into_a_tensor_is_named_though_the_dump_has_no_output_of_it(tmp_path: Path) -> None:
    def run(*, written: bool) -> list[Entry]:
        over: list[Entry] = [("Tensor.__setitem__.0.forward", [tensor(8.0)], [])]
        return [
            ("Functional.gelu.0.forward", [tensor(9.0)], [tensor(8.0)]),
            *(over if written else []),
            ("Functional.linear.0.forward", [tensor(8.5 if written else 8.0)], [tensor(7.5 if written else 7.0)]),
        ]

    for number, written in enumerate((True, False)):
        (finding,) = compared(tmp_path / str(number), run(written=written), run(written=not written)).findings
        assert (finding.kind, finding.op) == ("divergence-origin", "Tensor.__setitem__")
