# SPDX-License-Identifier: Apache-2.0
"""Statistics without values, as msprobe writes them: what equal ones prove, and what single numbers
and integers can still tell.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opscope.compare.api import compare
from opscope.run.finding import Document

Entry = tuple[str, list[dict[str, Any]], list[dict[str, Any]]]


def tensor(
    norm: float, *, mean: float = 0.1, high: float = 3.0, shape: tuple[int, ...] = (4, 8)
) -> dict[str, Any]:
    numbers = {"Max": high, "Min": -3.0, "Mean": mean, "Norm": norm}
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(shape),
        **numbers,
        "requires_grad": True,
    }


def ids(high: int, shape: tuple[int, ...]) -> dict[str, Any]:
    numbers = {"Max": high, "Min": 0, "Mean": None, "Norm": None}
    return {
        "type": "torch.Tensor",
        "dtype": "torch.int64",
        "shape": list(shape),
        **numbers,
        "requires_grad": False,
    }


def dump(folder: Path, entries: list[Entry]) -> Path:
    data = {
        name: {"input_args": read, "input_kwargs": {}, "output": written}
        for name, read, written in entries
    }
    place = folder / "step0" / "rank0"
    place.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (place / "dump.json").write_text(json.dumps({**head, "data": data}))
    return folder


def compared(folder: Path, target: list[Entry], golden: list[Entry]) -> Document:
    return compare(dump(folder / "target", target), dump(folder / "golden", golden)).document


def test_a_part_of_what_is_as_close_as_the_rest_is_accused_of_nothing(tmp_path: Path) -> None:
    """Rounding has gone before: the whole has the statistics of golden's by chance, a half of it
    has not.
    """

    def run(off: float) -> list[Entry]:
        return [
            ("Functional.linear.0.forward", [tensor(9.0)], [tensor(17.0 * (1 + off))]),
            ("Tensor.__mul__.0.forward", [tensor(17.0 * (1 + off))], [tensor(11.0)]),
            (
                "Tensor.chunk.0.forward",
                [tensor(11.0)],
                [tensor(8.0, shape=(4, 4)), tensor(7.5 * (1 + off), shape=(4, 4))],
            ),
        ]

    assert compared(tmp_path, run(3e-7), run(0.0)).findings == ()


def test_a_view_that_differs_while_nothing_did_before_is_named(tmp_path: Path) -> None:
    def run(norm: float) -> list[Entry]:
        return [
            (
                "Tensor.chunk.0.forward",
                [tensor(11.0)],
                [tensor(8.0, shape=(4, 4)), tensor(norm, shape=(4, 4))],
            )
        ]

    (finding,) = compared(tmp_path, run(7.6), run(7.5)).findings
    assert finding.op == "Tensor.chunk"


def test_another_batch_is_named_where_it_is_first_computed_with(tmp_path: Path) -> None:
    """The labels are shaped first; their statistics are those of the words, which the embedding
    reads before the loss reads labels.
    """

    def run(high: int, norm: float) -> list[Entry]:
        return [
            ("Tensor.reshape.0.forward", [ids(high, (4, 6))], [ids(high, (24,))]),
            (
                "Functional.embedding.0.forward",
                [ids(high, (4, 6)), tensor(40.0, shape=(24, 8))],
                [tensor(norm, shape=(4, 6, 8))],
            ),
            (
                "Functional.cross_entropy.0.forward",
                [tensor(norm, shape=(4, 6, 8)), ids(high, (24,))],
                [tensor(norm / 9, shape=())],
            ),
        ]

    document = compared(tmp_path, run(23, 5.5), run(22, 5.1))
    assert document.findings[0].op == "Functional.embedding"


def test_a_single_number_is_followed_to_the_call_that_made_it(tmp_path: Path) -> None:
    """The loss with a penalty that one side alone adds: the addition is named, not the division
    that reads the sum.
    """

    def number(value: float) -> dict[str, Any]:
        return tensor(value, mean=value, high=value, shape=())

    def run(*, penalty: bool) -> list[Entry]:
        loss, added = (
            3.1415927,
            [
                (
                    "Tensor.__add__.0.forward",
                    [number(3.1415927), number(0.7182818)],
                    [number(3.8598745)],
                )
            ],
        )
        read = number(3.8598745 if penalty else loss)
        return [
            ("Functional.cross_entropy.0.forward", [tensor(5.5)], [number(loss)]),
            *(added if penalty else []),
            ("Tensor.__truediv__.0.forward", [read], [number(1.9299373 if penalty else 1.5707963)]),
        ]

    first = compared(tmp_path, run(penalty=True), run(penalty=False)).findings[0]
    assert (first.kind, first.op) == ("divergence-origin", "Tensor.__add__")


def trained(*, loops: bool, model: str = "linear", off: float = 0.0) -> list[Entry]:
    """A forward and a backward pass, and an optimizer that loops over parameters, or leaves no
    calls (lists, a fused kernel).
    """
    forward: list[Entry] = [
        (f"Functional.{model}.{at}.forward", [tensor(9.0 + at + off)], [tensor(10.0 + at + off)])
        for at in range(4)
    ]
    backward: list[Entry] = [
        (f"Functional.{model}.{at}.backward", [tensor(5.0 - at + off)], [tensor(4.0 - at + off)])
        for at in range(4)
    ]
    updates: list[Entry] = [
        (f"Tensor.mul_.{at}.forward", [tensor(7.0 + at)], [tensor(6.9 + at)]) for at in range(9)
    ]
    return [*forward, *backward[::-1], *(updates if loops else [])]


def test_an_optimizer_that_one_side_did_not_record_is_no_difference_but_said(
    tmp_path: Path,
) -> None:
    for number, (mine, theirs) in enumerate([(True, False), (False, True)]):
        document = compared(tmp_path / str(number), trained(loops=mine), trained(loops=theirs))
        assert (document.findings, document.complete) == ((), False)
        assert "recorded nothing of its optimizer: 9 calls" in document.summary["warnings"][0]


def test_two_models_whose_parameters_are_updated_alike_are_two_models(tmp_path: Path) -> None:
    document = compared(tmp_path, trained(loops=True), trained(loops=True, model="conv1d", off=0.3))
    assert (document.findings, document.complete) == ((), False)
    assert "two different models" in document.summary["warnings"][0]


def test_what_one_side_writes_into_a_tensor_is_named_though_the_dump_has_no_output_of_it(
    tmp_path: Path,
) -> None:
    def run(*, written: bool) -> list[Entry]:
        over: list[Entry] = [("Tensor.__setitem__.0.forward", [tensor(8.0)], [])]
        return [
            ("Functional.gelu.0.forward", [tensor(9.0)], [tensor(8.0)]),
            *(over if written else []),
            (
                "Functional.linear.0.forward",
                [tensor(8.5 if written else 8.0)],
                [tensor(7.5 if written else 7.0)],
            ),
        ]

    for number, written in enumerate((True, False)):
        (finding,) = compared(
            tmp_path / str(number), run(written=written), run(written=not written)
        ).findings
        assert (finding.kind, finding.op) == ("divergence-origin", "Tensor.__setitem__")


def mask(shape: tuple[int, ...] = (6, 6)) -> dict[str, Any]:
    numbers = {"Max": True, "Min": False, "Mean": None, "Norm": None}
    return {
        "type": "torch.Tensor",
        "dtype": "torch.bool",
        "shape": list(shape),
        **numbers,
        "requires_grad": False,
    }


def scores() -> dict[str, Any]:
    return {
        **tensor(0.0, shape=(2, 6, 6)),
        "Min": float("-inf"),
        "Mean": float("-inf"),
        "Norm": float("inf"),
    }


def test_an_argument_whose_effect_statistics_do_not_show_is_named_before_the_call_at_which_values_part(
    tmp_path: Path,
) -> None:
    """A causal mask off by one: masks have no statistics to speak of, nor have scores that are
    infinite in part.
    """

    def run(diagonal: int, norm: float) -> list[Entry]:
        return [
            ("Tensor.tril.0.forward", [mask(), {"type": "int", "value": diagonal}], [mask()]),
            ("Tensor.masked_fill.0.forward", [tensor(9.0, shape=(2, 6, 6)), mask()], [scores()]),
            ("Tensor.softmax.0.forward", [scores()], [tensor(norm, shape=(2, 6, 6))]),
        ]

    (first,) = compared(tmp_path, run(1, 3.9), run(0, 4.6)).findings
    assert (first.op, first.reasons[0]) == ("Tensor.tril", "argument 1 is 1, golden has 0")


def test_a_call_of_one_side_alone_that_leaves_statistics_as_they_are_is_named(
    tmp_path: Path,
) -> None:
    """What is flipped has the statistics it had; the loss is where values part."""

    def run(*, flipped: bool) -> list[Entry]:
        flip: list[Entry] = [("Tensor.flip.0.forward", [tensor(11.0)], [tensor(11.0)])]
        loss = tensor(3.52 if flipped else 3.5, shape=())
        return [
            ("Functional.linear.0.forward", [tensor(9.0)], [tensor(11.0)]),
            *(flip if flipped else []),
            ("Functional.cross_entropy.0.forward", [tensor(11.0)], [loss]),
        ]

    for number, flipped in enumerate((True, False)):
        (finding,) = compared(
            tmp_path / str(number), run(flipped=flipped), run(flipped=not flipped)
        ).findings
        assert (finding.kind, finding.op) == ("divergence-origin", "Tensor.flip")


def test_a_gradient_that_nobody_recorded_is_of_the_call_that_one_side_alone_ran(
    tmp_path: Path,
) -> None:
    """The loss divided by two on one side alone, in a dump without the gradient of that
    division.
    """

    def run(*, divided: bool) -> list[Entry]:
        half: list[Entry] = [("Tensor.__truediv__.0.forward", [tensor(3.5)], [tensor(1.75)])]
        return [
            ("Functional.cross_entropy.0.forward", [tensor(9.0)], [tensor(3.5)]),
            *(half if divided else []),
            (
                "Functional.cross_entropy.0.backward",
                [tensor(0.5 if divided else 1.0)],
                [tensor(0.2 if divided else 0.4)],
            ),
        ]

    first = compared(tmp_path, run(divided=True), run(divided=False)).findings[0]
    assert (first.kind, first.op) == ("divergence-origin", "Tensor.__truediv__")


def test_a_gradient_of_another_node_of_autograd_is_no_difference(tmp_path: Path) -> None:
    """Pooling of another memory format is composed otherwise, and the tool hooks what comes first
    of it.
    """

    def run(read: tuple[int, ...]) -> list[Entry]:
        pooled = tensor(2.0, shape=(4, 8, 1, 1))
        return [
            (
                "Functional.adaptive_avg_pool2d.0.forward",
                [tensor(9.0, shape=(4, 8, 4, 4))],
                [pooled],
            ),
            ("Functional.adaptive_avg_pool2d.0.backward", [pooled], [tensor(2.0, shape=read)]),
        ]

    assert compared(tmp_path, run((4, 8, 1, 1)), run((4, 8, 4, 4))).findings == ()


def layers(*norms: float) -> list[Entry]:
    """Layers of equal calls, each with a weight of its own and a constant that all of them
    share.
    """
    found: list[Entry] = []
    read = 9.0
    for place, norm in enumerate(norms):
        table = ("Tensor.outer", [tensor(2.0, shape=(8,))], [tensor(4.0, shape=(8, 8))])
        found.append((f"{table[0]}.{place}.forward", table[1], table[2]))
        found.append(
            (
                f"Functional.linear.{place}.forward",
                [tensor(read), tensor(norm, shape=(8, 8))],
                [tensor(read + norm)],
            )
        )
        found.append((f"Tensor.relu.{place}.forward", [tensor(read + norm)], [tensor(read + norm)]))
        read += norm
    return found


def test_without_names_layers_are_told_by_their_weights(tmp_path: Path) -> None:
    """The layer that one side leaves out is the one whose weight the other side does not have."""
    document = compared(tmp_path, layers(1.0, 3.0, 4.0), layers(1.0, 2.0, 3.0, 4.0))
    first = document.findings[0]
    assert (first.kind, first.op, first.call) == (
        "divergence-origin",
        "Functional.linear",
        "Functional.linear.1.forward",
    )
    assert first.evidence[0]["side"] == "golden"


def fed(batch: int, *, width: int = 8) -> list[Entry]:
    """An embedding, a product and an activation of a batch of some words."""
    hidden = tensor(9.0 + batch, shape=(batch, 6, width))
    return [
        (
            "Functional.embedding.0.forward",
            [ids(22, (batch, 6)), tensor(40.0, shape=(24, width))],
            [hidden],
        ),
        ("Functional.linear.0.forward", [hidden, tensor(5.0, shape=(width, width))], [hidden]),
        (
            "Functional.leaky_relu.0.forward",
            [hidden],
            [tensor(4.0 + batch, shape=(batch, 6, width))],
        ),
        (
            "Functional.leaky_relu.0.backward",
            [tensor(1.0, shape=(batch, 6, width))],
            [tensor(1.5, shape=(batch, 6, width))],
        ),
    ]


def test_a_batch_of_another_size_is_one_finding(tmp_path: Path) -> None:
    (finding,) = compared(tmp_path, fed(3), fed(4)).findings
    assert (finding.op, finding.reasons[0]) == (
        "Functional.embedding",
        "the batch has another size: [3, 6], golden has [4, 6]",
    )


def test_a_wider_model_is_no_batch_of_another_size(tmp_path: Path) -> None:
    for finding in compared(tmp_path, fed(4, width=16), fed(4)).findings:
        assert "batch" not in " ".join(finding.reasons)
