# SPDX-License-Identifier: Apache-2.0
"""A graph's run beside a PyTorch recording of the same model, written row by row: what is one, what
differs, what is left out.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.questions.builder import Builder, state

from opscope.compare.api import compare
from opscope.compare.side.lowering import world
from opscope.compare.tell.comparison import Comparison
from opscope.operators.catalogue import kin

GRAPH_LINE, TORCH_LINE = "/home/me/net_ms.py:9", "/home/me/net_pt.py:9"
PARAMETER = {"role": "parameter"}
WEIGHTS = {"conv.weight": (8, 3, 3, 3), "conv.bias": (8,), "fc.weight": (4, 128), "fc.bias": (4,)}
NUMBERS = {name: 10.0 + place for place, name in enumerate(WEIGHTS)}


def tensor(version: int, shape: tuple[int, ...], number: float, **changes: Any) -> dict[str, Any]:
    """Statistics that one number tells; no digest, no values. Kernels of two frameworks differ in
    the eighth digit.
    """
    size = 1
    for one in shape:
        size *= one
    statistics = {
        "min": -number,
        "max": number,
        "mean": number / 10,
        "l2norm": number * size**0.5 / 2,
        "size": size,
    }
    return state(version, shape=shape, **{**statistics, **changes})


def parameter(version: int, name: str, **changes: Any) -> dict[str, Any]:
    return tensor(
        version,
        changes.pop("shape", WEIGHTS[name]),
        NUMBERS[name],
        tensor_name=name,
        **PARAMETER,
        **changes,
    )


def graph(
    *, relu: float = 3.0, fc: float = 5.0, pool: float = 3.5, skip: str = "", after: str = ""
) -> Builder:
    """What MindSpore's back end runs: bias apart, the weight as it lies, scalars as constant
    tensors, casts where it likes.
    """
    built = Builder()
    at: dict[str, Any] = {"source": GRAPH_LINE}
    constant = {"slot": "2", "dtype": "int64", "role": "constant", **tensor(90, (), 0.0)}
    built.call(
        "Conv2D",
        [tensor(1, (2, 3, 8, 8), 1.0), parameter(2, "conv.weight")],
        [tensor(10, (2, 8, 8, 8), 2.0)],
        module="conv",
        **at,
    )
    read = [tensor(10, (2, 8, 8, 8), 2.0), parameter(3, "conv.bias"), constant]
    built.call("BiasAdd", read, [tensor(11, (2, 8, 8, 8), 2.5)], module="conv", **at)
    version, number = 11, 2.5
    if skip != "ReLU":
        built.call(
            "ReLU",
            [tensor(11, (2, 8, 8, 8), 2.5)],
            [tensor(12, (2, 8, 8, 8), relu)],
            module="relu",
            **at,
        )
        version, number = 12, relu
    built.call(
        "MaxPool",
        [tensor(version, (2, 8, 8, 8), number)],
        [tensor(13, (2, 8, 4, 4), pool)],
        module="pool",
        **at,
    )
    built.call(
        "Flatten",
        [tensor(13, (2, 8, 4, 4), pool)],
        [tensor(14, (2, 128), pool)],
        module="flatten",
        **at,
    )
    built.call(
        "MatMul",
        [tensor(14, (2, 128), pool), parameter(4, "fc.weight")],
        [tensor(15, (2, 4), 4.0)],
        module="fc",
        **at,
    )
    built.call(
        "BiasAdd",
        [tensor(15, (2, 4), 4.0), parameter(5, "fc.bias")],
        [tensor(16, (2, 4), fc)],
        module="fc",
        **at,
    )
    if after:
        built.call(after, [tensor(16, (2, 4), fc)], [tensor(17, (2, 4), 0.5)], module="", **at)
    return built


def torch(noise: float = 1e-8) -> Builder:
    """What PyTorch records: parameters initialised and overwritten, bias inside, the weight turned,
    indices beside the maximum.
    """
    built = Builder()
    at: dict[str, Any] = {"source": TORCH_LINE}
    grown = 1 + noise
    for version, (name, shape) in enumerate(WEIGHTS.items(), start=30):
        place = {"storage": version, "tensor_name": name, **PARAMETER}
        built.call("empty", [], [tensor(version, shape, 0.0, storage=version)], module="", **at)
        built.call(
            "uniform_",
            [tensor(version, shape, 0.0, **place)],
            [tensor(version + 10, shape, 0.7, **place)],
            module="",
            **at,
        )
        read = [
            tensor(version + 10, shape, 0.7, **place),
            tensor(version + 20, shape, NUMBERS[name]),
        ]
        built.call("copy_", read, [parameter(version + 30, name, storage=version)], module="", **at)
    weights = [parameter(60, "conv.weight"), parameter(61, "conv.bias")]
    x = tensor(1, (2, 3, 8, 8), 1.0)
    built.call(
        "convolution", [x, *weights], [tensor(70, (2, 8, 8, 8), 2.5 * grown)], module="conv", **at
    )
    built.call(
        "relu",
        [tensor(70, (2, 8, 8, 8), 2.5 * grown)],
        [tensor(71, (2, 8, 8, 8), 3.0 * grown)],
        module="relu",
        **at,
    )
    indices = tensor(73, (2, 8, 4, 4), 60.0, dtype="int64")
    read = [tensor(71, (2, 8, 8, 8), 3.0 * grown)]
    built.call(
        "max_pool2d_with_indices",
        read,
        [tensor(72, (2, 8, 4, 4), 3.5 * grown), indices],
        module="pool",
        **at,
    )
    built.call(
        "view",
        [tensor(72, (2, 8, 4, 4), 3.5 * grown)],
        [tensor(72, (2, 128), 3.5 * grown)],
        module="flatten",
        **at,
    )
    built.call(
        "t",
        [parameter(62, "fc.weight")],
        [parameter(62, "fc.weight", shape=(128, 4))],
        module="fc",
        **at,
    )
    read = [
        parameter(63, "fc.bias"),
        tensor(72, (2, 128), 3.5 * grown),
        parameter(62, "fc.weight", shape=(128, 4)),
    ]
    built.call("addmm", read, [tensor(74, (2, 4), 5.0 * grown)], module="fc", **at)
    return built


def told(comparison: Comparison) -> list[tuple[str, str | None]]:
    return [(finding.kind, finding.op) for finding in comparison.findings]


def test_one_model_in_two_frameworks_is_clean_and_matched() -> None:
    for target, golden in ((graph().run(), torch().run()), (torch().run(), graph().run())):
        comparison = compare(target, golden)
        assert told(comparison) == []
        assert comparison.document.complete
        assert comparison.document.summary["calls"] == {
            "target": 4,
            "golden": 4,
            "matched": 4,
            "only_target": 0,
            "only_golden": 0,
        }
        assert comparison.document.summary["warnings"] == []


@pytest.mark.parametrize(
    ("changes", "op"),
    [({"relu": 3.3}, "ReLU"), ({"fc": 5.6}, "MatMul"), ({"pool": 3.9}, "MaxPool")],
    ids=["relu", "product", "pool"],
)
def test_the_first_operator_that_differs_is_named_with_its_line(
    changes: dict[str, float], op: str
) -> None:
    finding = compare(graph(**changes).run(), torch().run()).first()
    assert finding is not None
    assert (finding.kind, finding.op, finding.source) == ("divergence-origin", op, GRAPH_LINE)


def test_the_other_way_round_the_recorded_operator_is_named() -> None:
    finding = compare(torch().run(), graph(fc=5.6).run()).first()
    assert finding is not None
    assert (finding.op, finding.source) == ("aten::addmm.default", TORCH_LINE)


def test_an_operator_that_one_side_lacks_and_that_changes_values_is_named() -> None:
    finding = compare(graph(skip="ReLU", pool=3.2).run(), torch().run()).first()
    assert finding is not None
    assert (finding.kind, finding.op) == ("divergence-origin", "aten::relu.default")


def test_what_only_one_side_runs_behind_the_model_is_a_remark() -> None:
    comparison = compare(graph(after="Softmax").run(), torch().run())
    assert told(comparison) == []
    assert any("_softmax" in line for line in comparison.document.summary["warnings"])


def test_another_weight_is_named() -> None:
    built = graph()
    place = next(at for at, one in enumerate(built.tensors) if one.tensor_name == "fc.weight")
    values = {"min": -14.0, "max": 14.0, "l2norm": 200.0}
    built.tensors[place] = msgspec.structs.replace(built.tensors[place], **values)
    finding = compare(built.run(), torch().run()).first()
    assert finding is not None
    assert finding.op == "MatMul"
    assert "fc.weight" in finding.reasons[0]


def test_another_batch_is_named_where_modules_have_no_names() -> None:
    """Graphs of CANN and TensorFlow know no modules: the weight tells which convolution reads the
    batch.
    """
    built = graph()
    built.calls = [msgspec.structs.replace(call, module=None) for call in built.calls]
    other = {1: 1.5, 10: 2.8, 11: 3.1, 12: 3.9, 13: 4.4, 14: 4.4, 15: 5.2, 16: 6.1}
    for place, one in enumerate(built.tensors):
        if one.version in other and one.shape is not None:
            fresh = tensor(one.version, one.shape, other[one.version])
            values = {name: fresh[name] for name in ("min", "max", "mean", "l2norm")}
            built.tensors[place] = msgspec.structs.replace(one, **values)
    finding = compare(built.run(), torch().run()).first()
    assert finding is not None
    assert (finding.kind, finding.op) == ("divergence-origin", "Conv2D")


def test_gradients_in_another_order_find_their_partners() -> None:
    """The products that give the gradients by weight and by input do not depend on each other."""
    sides = []
    for order in ((0, 1), (1, 0)):
        built = graph() if order[0] else torch()
        op, version = ("MatMul" if order[0] else "mm"), 100
        for place in order:
            shape, number = (((4, 128), 7.0), ((2, 128), 8.0))[place]
            read = [
                tensor(version, (2, 4), 0.3),
                tensor(version + 1, (4, 128) if place else (2, 128), 13.0 if place else 3.5),
            ]
            built.call(
                op,
                read,
                [tensor(version + 2 + place, shape, number)],
                module="fc",
                phase="backward",
            )
        sides.append(built.run())
    comparison = compare(sides[0], sides[1])
    assert told(comparison) == []
    assert comparison.document.summary["calls"]["matched"] == 6


def test_words_of_all_worlds() -> None:
    alike = [
        ("Conv2D", "aten::convolution.default"), ("Conv2DD", "Functional.conv2d"),
        ("MatMulV2", "aten::addmm.default"), ("Dense", "aten::mm.default"),
        ("BiasAddD", "aten::add.Tensor"), ("Relu", "aten::relu_.default"),
        ("MaxPoolWithArgmax", "aten::max_pool2d_with_indices.default"),
        ("ReluGrad", "aten::threshold_backward.default"), ("BiasAddGrad", "aten::sum.dim_IntList"),
        ("Cast", "aten::_to_copy.default"), ("SoftmaxV2", "aten::_softmax.default"),
        ("tf::MatMul", "aten::addmm.default"), ("tf::BatchMatMulV2", "aten::bmm.default"),
        ("tf::FusedBatchNormV3", "aten::native_batch_norm.default"),
        ("tf::Conv2DBackpropFilter", "aten::convolution_backward.default"),
        ("tf::Sum", "aten::sum.dim_IntList"), ("tf::Mean", "aten::mean.dim"),
        ("tf::Max", "aten::amax.default"), ("tf::GatherV2", "aten::embedding.default"),
        ("tf::SelectV2", "aten::where.self"), ("tf::BiasAdd", "aten::add.Tensor"),
    ]  # fmt: skip
    assert [(kin(one), kin(other)) for one, other in alike if kin(one) != kin(other)] == []
    assert (
        world("Conv2D"),
        world("aten::mm.default"),
        world("Functional.relu.0"),
        world("relu"),
        world("tf::Relu"),
    ) == ("graph", "torch", "torch", "", "tf")
    assert kin("Mul") != kin("MatMul")


def test_one_sum_of_three_beside_two_sums_of_two_is_no_difference() -> None:
    """The gradients of branches: the order in which they are added up is each framework's own."""
    parts = [tensor(at, (2, 4), number) for at, number in ((200, 7.0), (201, 8.0), (202, 9.0))]
    mine, theirs = graph(), torch()
    for built, names in (
        (mine, ("ReluGrad", "TanhGrad", "SigmoidGrad")),
        (theirs, ("sigmoid_backward", "tanh_backward", "threshold_backward")),
    ):
        order = parts if built is mine else parts[::-1]
        for name, part in zip(names, order, strict=True):
            built.call(name, [tensor(300, (2, 4), 0.3)], [part], phase="backward", module="fc")
    mine.call(
        "AddN",
        [{**part, "slot": str(at)} for at, part in enumerate(parts)],
        [tensor(210, (2, 4), 24.0)],
        phase="backward",
        module="fc",
    )
    theirs.call(
        "add", [parts[0], parts[2]], [tensor(209, (2, 4), 16.0)], phase="backward", module="fc"
    )
    theirs.call(
        "add",
        [tensor(209, (2, 4), 16.0), parts[1]],
        [tensor(210, (2, 4), 24.0)],
        phase="backward",
        module="fc",
    )
    assert told(compare(mine.run(), theirs.run())) == []
    assert told(compare(theirs.run(), mine.run())) == []


def test_parameters_gradients_and_an_optimizers_step() -> None:
    """A step of an optimizer is one call; what it makes of a parameter tells, and the finding
    stands on it.
    """
    sides = []
    for op, rate in (("ApplyMomentum", 1.0), ("add_", 1.0), ("add_", 1.4)):
        built = graph() if op[0].isupper() else torch()
        gradient = tensor(220, (4, 128), 0.5)
        built.call(
            "MatMul" if op[0].isupper() else "mm",
            [tensor(221, (2, 4), 0.2), tensor(222, (2, 128), 3.5)],
            [gradient],
            phase="backward",
        )
        after = {"tensor_name": "fc.weight", **PARAMETER}
        read = [
            tensor(4 if op[0].isupper() else 62, (4, 128), NUMBERS["fc.weight"], **after),
            gradient,
        ]
        built.call(
            op, read, [tensor(230, (4, 128), 11.0 * rate, **after)], phase="optimizer", module=""
        )
        sides.append(built.run())
    assert told(compare(sides[0], sides[1])) == []
    finding = compare(sides[0], sides[2]).first()
    assert finding is not None
    assert (finding.op, finding.phase) == ("ApplyMomentum", "optimizer")
