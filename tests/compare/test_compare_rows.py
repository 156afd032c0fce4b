# SPDX-License-Identifier: Apache-2.0
"""Comparisons of runs written row by row: alignment, verdicts, what is missing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from tests.questions.builder import Builder, state, unread

from opscope.compare.api import compare
from opscope.compare.tell.comparison import Comparison
from opscope.run.memory import MemoryRun
from opscope.run.store.reader import RECORDED

LINE = "/home/me/train.py:7"


def tensor(version: int | None, content: int, **changes: Any) -> dict[str, Any]:
    """A tensor whose content is one number: equal numbers are equal tensors, others differ by a
    tenth of their size.
    """
    value = 1.0 + content / 10
    statistics = {"min": -value, "max": value, "mean": 0.1 * value, "l2norm": 1.5 * value}
    return state(version, **{"digest": 1_000 + content, **statistics, **changes})


def chain(contents: list[int], ops: list[str] | None = None, **columns: Any) -> Builder:
    """A chain of calls, each reading what the one before wrote; contents are of the input and of
    every output.
    """
    built = Builder()
    for place, (before, after) in enumerate(pairwise(contents)):
        op = "relu" if ops is None else ops[place]
        built.call(op, [tensor(place, before)], [tensor(place + 1, after)], source=LINE, **columns)
    return built


def run(contents: list[int], ops: list[str] | None = None) -> MemoryRun:
    return chain(contents, ops).run()


def findings(comparison: Comparison) -> list[tuple[str, str | None]]:
    return [(finding.kind, finding.op) for finding in comparison.findings]


def test_identical_runs_are_clean() -> None:
    comparison = compare(run([0, 1, 2, 3]), run([0, 1, 2, 3]))
    assert comparison.document.verdict == "clean"
    assert comparison.document.complete
    assert comparison.first() is None
    assert comparison.worst() == []
    assert comparison.document.summary["tensors"]["same"] == 6


def test_the_first_call_whose_output_differs_is_the_origin() -> None:
    ops = ["relu", "mm", "tanh", "sigmoid"]
    comparison = compare(run([0, 1, 7, 8, 9], ops), run([0, 1, 2, 3, 4], ops))
    assert findings(comparison) == [("divergence-origin", "aten::mm.default")]
    first = comparison.findings[0]
    assert first.confidence == "proven"
    assert first.source == LINE
    verdicts = [
        detail.verdict
        for detail in comparison.details()
        if detail.target is not None and detail.target.io == "output"
    ]
    assert verdicts == ["same", "origin", "receiver", "receiver"]


def test_an_input_that_nobody_produced_makes_its_first_reader_the_origin() -> None:
    def made(weight: int, out: int) -> MemoryRun:
        built = Builder()
        built.call(
            "t", [tensor(5, weight, role="parameter", tensor_name="fc.weight")], [tensor(5, weight)]
        )
        built.call(
            "mm",
            [tensor(0, 0), tensor(5, weight, role="parameter", tensor_name="fc.weight")],
            [tensor(1, out)],
        )
        built.call("relu", [tensor(1, out)], [tensor(2, out + 1)])
        built.call(
            "mm",
            [tensor(2, out + 1), tensor(5, weight, role="parameter", tensor_name="fc.weight")],
            [tensor(3, out + 2)],
        )
        return built.run()

    comparison = compare(made(9, 20), made(1, 10))
    assert findings(comparison) == [("divergence-origin", "aten::mm.default")]
    assert "fc.weight" in comparison.findings[0].reasons[0]
    assert comparison.findings[0].index == 1


def test_an_inserted_call_is_named_and_everything_after_it_stays_aligned() -> None:
    ops = ["relu", "relu", "relu", "relu"]
    golden = run([0, 1, 2, 3, 4], ops)
    built = Builder()
    for place, content in enumerate([0, 1]):
        built.call("relu", [tensor(place, content)], [tensor(place + 1, content + 1)])
    built.call("mul", [tensor(2, 2)], [tensor(30, 2)])
    built.call("relu", [tensor(30, 2)], [tensor(3, 3)])
    built.call("relu", [tensor(3, 3)], [tensor(4, 4)])
    comparison = compare(built.run(), golden)
    assert findings(comparison) == [("structural-difference", "aten::mul.default")]
    assert comparison.document.summary["calls"] == {
        "target": 5,
        "golden": 4,
        "matched": 4,
        "only_target": 1,
        "only_golden": 0,
    }


def test_calls_inserted_in_every_step_are_one_finding() -> None:
    def made(*, inserted: bool) -> MemoryRun:
        built = Builder()
        for step in range(3):
            first = 5 * step
            built.call("relu", [tensor(first, step)], [tensor(first + 1, 5)], step=step)
            if inserted:
                built.call("sin", [tensor(first + 1, 5)], [tensor(first + 2, 6)], step=step)
                built.call("cos", [tensor(first + 2, 6)], [tensor(first + 3, 8)], step=step)
            built.call("tanh", [tensor(first + 1, 5)], [tensor(first + 4, 7)], step=step)
        return built.run()

    comparison = compare(made(inserted=True), made(inserted=False))
    assert findings(comparison) == [("structural-difference", "aten::sin.default")]
    assert (
        comparison.findings[0].reasons[0]
        == "only the target runs this call and 1 more after it, in 3 steps; the values around it "
        "agree"
    )


def test_a_call_that_repeats_another_is_an_insertion_unless_it_stands_amid_the_backward_pass() -> (
    None
):
    def made(*places: int) -> MemoryRun:
        built = Builder()
        for place in range(4):
            phase = "forward" if place < 2 else "backward"
            built.call(
                ["relu", "mul", "mul", "threshold_backward"][place],
                [tensor(place, place)],
                [tensor(place + 1, place + 1)],
                phase=phase,
            )
            if place in places:
                built.call("relu", [tensor(0, 0)], [tensor(40, 1)])
        return built.run()

    assert findings(compare(made(0), made())) == [("structural-difference", "aten::relu.default")]
    assert (
        findings(compare(made(2), made())) == []
    )  # recomputation, which its recorder did not tell as such


def test_an_inserted_call_that_changes_values_is_an_origin() -> None:
    golden = run([0, 1, 2, 3], ["relu", "tanh", "relu"])
    built = Builder()
    built.call("relu", [tensor(0, 0)], [tensor(1, 1)])
    built.call("mul", [tensor(1, 1)], [tensor(10, 5)])
    built.call("tanh", [tensor(10, 5)], [tensor(2, 6)])
    built.call("relu", [tensor(2, 6)], [tensor(3, 7)])
    comparison = compare(built.run(), golden)
    assert findings(comparison) == [("divergence-origin", "aten::mul.default")]
    assert findings(compare(golden, built.run())) == [("divergence-origin", "aten::mul.default")]
    assert compare(golden, built.run()).findings[0].evidence[0]["side"] == "golden"


def test_swapped_operands_are_told() -> None:
    def made(*, swapped: bool) -> MemoryRun:
        built = Builder()
        built.call("relu", [tensor(0, 0)], [tensor(1, 1)])
        built.call("tanh", [tensor(0, 0)], [tensor(2, 2)])
        operands = [tensor(1, 1), tensor(2, 2)]
        built.call("sub", operands[::-1] if swapped else operands, [tensor(3, 8 if swapped else 3)])
        return built.run()

    comparison = compare(made(swapped=True), made(swapped=False))
    assert findings(comparison) == [("divergence-origin", "aten::sub.default")]
    assert "swapped" in comparison.findings[0].reasons[0]


def test_independent_branches_in_another_order_are_the_same() -> None:
    def made(order: str) -> MemoryRun:
        built = Builder()
        for branch in order:
            at = 1 + "ab".index(branch)
            built.call("relu", [tensor(10 * at, at)], [tensor(10 * at + 1, 10 + at)])
            built.call("tanh", [tensor(10 * at + 1, 10 + at)], [tensor(10 * at + 2, 20 + at)])
        built.call("add", [tensor(12, 21), tensor(22, 22)], [tensor(99, 50)])
        return built.run()

    comparison = compare(made("ab"), made("ba"))
    assert comparison.document.verdict == "clean"
    assert comparison.document.summary["tensors"]["same"] == 11


def test_noise_within_rounding_is_no_finding() -> None:
    def made(off: float) -> MemoryRun:
        built = Builder()
        built.call(
            "mm", [tensor(0, 0), tensor(1, 0)], [tensor(2, 5, digest=int(off * 1e9), max=1.5 + off)]
        )
        built.call(
            "relu",
            [tensor(2, 5, digest=int(off * 1e9), max=1.5 + off)],
            [tensor(3, 6, digest=7 + int(off * 1e9), max=1.6 + off)],
        )
        return built.run()

    comparison = compare(made(1e-7), made(0.0))
    assert comparison.document.verdict == "clean"
    assert comparison.document.summary["tensors"]["within_tolerance"] == 3


def test_a_random_operator_is_recognised() -> None:
    ops = ["relu", "bernoulli_", "mul"]
    comparison = compare(run([0, 1, 6, 7], ops), run([0, 1, 2, 3], ops))
    assert findings(comparison) == [("divergence-origin", "aten::bernoulli_.default")]
    assert "random" in comparison.findings[0].reasons[0]


def test_scalar_arguments_that_differ_are_named() -> None:
    def made(eps: float, out: int) -> MemoryRun:
        built = Builder()
        built.call(
            "native_layer_norm",
            [tensor(0, 0)],
            [tensor(1, out)],
            args=f'{{"args": [{{"tensor": "0"}}, {eps}], "kwargs": {{}}}}',
        )
        return built.run()

    comparison = compare(made(1e-3, 2), made(1e-5, 1))
    assert (
        "argument 1 (normalized_shape) is 0.001, golden has 1e-05" in comparison.findings[0].reasons
    )


def test_other_numbers_of_nan_are_a_difference() -> None:
    comparison = compare(chain_with_nan(1), chain_with_nan(0))
    assert findings(comparison) == [("divergence-origin", "aten::log.default")]


def chain_with_nan(count: int) -> MemoryRun:
    built = Builder()
    built.call("relu", [tensor(0, 0)], [tensor(1, 1)])
    built.call("log", [tensor(1, 1)], [tensor(2, 2, nan=count, digest=50 + count)])
    return built.run()


def test_empty_runs_are_incomplete() -> None:
    empty = Builder().run()
    for target, golden in ((empty, run([0, 1])), (run([0, 1]), empty), (empty, empty)):
        document = compare(target, golden).document
        assert not document.complete
        assert document.verdict == "clean"
        assert any("no calls" in warning for warning in document.summary["warnings"])


def test_tensors_nobody_measured_are_said() -> None:
    def made() -> MemoryRun:
        built = Builder()
        built.call(
            "relu",
            [unread(None, storage=None, shape=(4,))],
            [unread(None, storage=None, shape=(4,))],
        )
        return built.run()

    document = compare(made(), made()).document
    assert document.summary["tensors"]["not_measured"] == 2
    assert not document.complete


def test_a_missing_rank_is_incomplete_and_the_rest_is_compared() -> None:
    def made(ranks: int) -> MemoryRun:
        built = Builder()
        for rank in range(ranks):
            built.call("relu", [tensor(0, 0)], [tensor(1, 1)], process=rank, rank=rank)
        return built.run()

    document = compare(made(1), made(2)).document
    assert not document.complete
    assert any("no rank 1" in warning for warning in document.summary["warnings"])
    assert document.summary["tensors"]["same"] == 2


def test_other_shapes_are_a_difference() -> None:
    def made(size: int) -> MemoryRun:
        built = Builder()
        built.call("relu", [tensor(0, 0)], [tensor(1, 1)])
        built.call(
            "constant_pad_nd", [tensor(1, 1)], [tensor(2, 2 + size, shape=(size,), size=size)]
        )
        return built.run()

    comparison = compare(made(6), made(5))
    assert findings(comparison) == [("divergence-origin", "aten::constant_pad_nd.default")]
    assert comparison.document.summary["tensors"]["shape_differs"] == 1


def test_two_different_models_are_said_to_be() -> None:
    document = compare(
        run([0, 1, 2, 3], ["relu", "tanh", "mm"]), run([20, 21, 22, 23], ["exp", "log", "bmm"])
    ).document
    assert not document.complete
    assert any("two different models" in warning for warning in document.summary["warnings"])


def test_a_difference_in_several_steps_is_one_finding() -> None:
    def made(out: int) -> MemoryRun:
        built = Builder()
        for step in range(3):
            built.step = step
            built.call("relu", [tensor(10 * step, 0)], [tensor(10 * step + 1, out)], source=LINE)
        return built.run()

    comparison = compare(made(5), made(1))
    assert len(comparison.findings) == 1
    assert comparison.findings[0].evidence[1]["again_in_steps"] == [1, 2]


def test_runs_not_seeded_alike_are_warned_of() -> None:
    runs = []
    for seed in (1, 2):
        made = chain([0, 1]).run(seed=seed)
        made.info = msgspec.structs.replace(made.info, format="opscope", coverage=RECORDED)
        runs.append(made)
    document = compare(*runs).document
    assert document.verdict == "clean"
    assert any("not seeded alike" in warning for warning in document.summary["warnings"])


def enclosed(inner: int, outer: int) -> MemoryRun:
    """A module with one recorded call inside, and something after it that nobody recorded."""
    built = Builder()
    built.call(
        "torch.nn.Block",
        [tensor(0, 0)],
        [tensor(9, outer)],
        level="module",
        module="block",
        name="block:Block#1",
    )
    built.call("relu", [tensor(0, 0)], [tensor(1, inner)], parent=0, module="block")
    built.call("tanh", [tensor(9, outer)], [tensor(10, outer + 1)])
    return built.run()


def test_a_module_is_named_only_where_nothing_inside_it_is_wrong() -> None:
    comparison = compare(enclosed(1, 7), enclosed(1, 2))
    assert [finding.call for finding in comparison.findings] == ["block:Block#1"]
    comparison = compare(enclosed(5, 7), enclosed(1, 2))
    assert findings(comparison) == [("divergence-origin", "aten::relu.default")]


def ranks(contents: tuple[int, int], summed: int) -> MemoryRun:
    """Two ranks whose gradients are summed."""
    built = Builder()
    for rank, content in enumerate(contents):
        built.call("mm", [tensor(0, 0)], [tensor(1, content)], process=rank, rank=rank)
        built.call(
            "c10d::allreduce_",
            [tensor(1, content)],
            [tensor(2, summed)],
            process=rank,
            rank=rank,
            phase="communication",
        )
        built.call("relu", [tensor(2, summed)], [tensor(3, summed + 1)], process=rank, rank=rank)
    return built.run()


def test_what_another_rank_sent_is_no_origin() -> None:
    comparison = compare(ranks((1, 8), 9), ranks((1, 2), 3))
    assert [(finding.rank, finding.op) for finding in comparison.findings] == [
        (1, "aten::mm.default")
    ]


def test_a_collective_that_sums_wrongly_is_an_origin() -> None:
    comparison = compare(ranks((1, 2), 9), ranks((1, 2), 3))
    assert {finding.op for finding in comparison.findings} == {"c10d::allreduce_"}


def test_names_are_escaped_in_notebooks() -> None:
    def made(out: int) -> MemoryRun:
        built = Builder()
        built.call("relu", [tensor(0, 0)], [tensor(1, out)], name="<script>alert(1)</script>")
        return built.run()

    page = compare(made(5), made(1))._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
