# SPDX-License-Identifier: Apache-2.0
"""The .ir text and the .pb: operators, attributes, edges, source lines; old and new spellings; what
is torn.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from ms_dumps import IR, real

from opscope.errors import FormatError
from opscope.formats.mindspore.attributes import ValueText, split_top
from opscope.formats.mindspore.edges import Versions, wire
from opscope.formats.mindspore.graph import GraphParameter, Node, TensorType, is_fed
from opscope.formats.mindspore.ir import parse_ir, parse_type, read_ir
from opscope.formats.mindspore.pb import parse_pb, read_pb
from opscope.formats.mindspore.source import (
    module_of,
    phase_of,
    stack_frames,
    updates_alone,
    user_line,
)


def test_blocks_of_a_graph() -> None:
    graph = parse_ir(IR)
    assert graph.name == "kernel_graph0"
    assert [node.op for node in graph.kernels] == [
        "Mul",
        "Split",
        "Concat",
        "Print",
        "MulGrad",
        "ApplyMomentum",
    ]
    product = graph.kernels[0]
    assert product.name == "Default/net-Net/fc-Dense/Mul-op4"
    assert product.attrs == {"visited": True}
    assert product.primal == {"unique_id": "7"}
    assert [(kind.dtype, kind.shape) for kind in product.device_inputs or ()] == [
        ("float32", (2, 3)),
        ("float32", (3,)),
    ]
    assert user_line(product.trace) == "/home/me/net.py:31"
    assert stack_frames(product.trace) == (
        "/env/lib/python3.11/site-packages/mindspore/nn/layer/basic.py:803",
        "/home/me/net.py:31 in construct",
    )
    assert [(kind.dtype, kind.shape) for kind in graph.kernels[1].host_outputs] == [
        ("float32", (2, 1)),
        ("float32", (2, 2)),
    ]
    assert [(p.name, p.weight) for p in graph.parameters] == [("w", True), ("inputs0", False)]


def test_constant_tensors_go_on_over_several_lines() -> None:
    """As MindSpore 2.10 prints them: each row of values on a line of its own, in the middle of the
    operands.
    """
    values = "[[ 1.00000000e+00  1.00000000e+00]\n [ 1.00000000e+00  1.00000000e+00]]"
    block = (
        "  %90(CNode_28) = PrimFunc_RealDiv(Tensor(shape=[2, 2], dtype=Float32, "
        f"value=\n{values}), Tensor(shape=[], dtype=Float32, "
        "value=16)) primitive_attrs: {IsFeatureMapOutput: Bool(1)}\n"
        "      : (<Tensor[Float32], (2, 2), value=...>, <Tensor[Float32], (), value=...>) -> "
        "(<Tensor[Float32], (2, 2)>)\n"
        "      # Fullname with scope: (Gradients/Default/RealDiv-op0)\n"
    )
    start = IR.rindex("}")
    graph = parse_ir(IR[:start] + block + IR[start:])
    (node,) = [node for node in graph.kernels if node.op == "RealDiv"]
    assert graph.problems == ()
    assert (node.name, len(node.operands), node.attrs) == (
        "Gradients/Default/RealDiv-op0",
        2,
        {"IsFeatureMapOutput": True},
    )


def test_edges_pass_through_the_plumbing() -> None:
    """Load, MakeTuple and TupleGetItem are no kernels; a tuple of tensors is as many operands."""
    graph = parse_ir(IR)
    wiring = wire(graph, graph.kernels, Versions())
    nodes = {node.op: wiring[node.key] for node in graph.kernels}
    data, weight = nodes["Mul"].inputs
    assert (data.parameter, weight.parameter) == ("inputs0", "w")
    assert nodes["Split"].inputs[0].version == nodes["Mul"].outputs[0].version
    assert nodes["Split"].inputs[1].source is not None
    assert nodes["Split"].inputs[1].source.value == 1
    assert [slot.version for slot in nodes["Concat"].inputs] == [
        nodes["Split"].outputs[1].version
    ] * 2
    handed = {
        node.op: wire(graph, graph.kernels, Versions(), handed_on=True)[node.key]
        for node in graph.kernels
    }
    assert [slot.version is None for slot in handed["Mul"].inputs] == [
        True,
        False,
    ]  # what another graph may have made; a weight
    update = nodes["ApplyMomentum"]
    assert update.inputs[0].written
    assert update.outputs[0].version == update.inputs[0].version != weight.version


def test_the_old_spelling_is_read() -> None:
    """MindSpore 2.3, as its documentation prints it, without the types that HTML ate."""
    text = """subgraph @g() {
  %20(equivoutput) = Conv2D(%17, %19) {instance name: conv2d} primitive_attrs: {kernel_size: (3, 3), mode: 1, input_names: [
x, w], pad_mod: same, visited: true, group: 1} cnode_attrs: {}
      : (<Tensor[Float16], (32, 256, 13, 13)>, <Tensor[Float16], (384, 256, 3, 3)>) -> (<Tensor[Float16], (32, 384, 13, 13)>)
      : (<Float16xNC1HWC0[const vector]{32, 16, 13, 13, 16}>, <Float16xFracZ[const vector]{9, 1}>) -> (<Float32xNC1HWC0[const vector]{1, 2}>)
      : full_name_with_scope: (Default/network-WithLossCell/_backbone-AlexNet/conv3-Conv2d/Conv2D-op12)
      # In file ./tain_alexnet.py(175)/ x = self.conv3(x)/
}
"""
    (node,) = parse_ir(text.replace("[\nx, w]", "[x, w]")).kernels
    assert node.name.endswith("conv3-Conv2d/Conv2D-op12")
    assert (node.trace[0].path, node.trace[0].line, node.trace[0].code) == (
        "./tain_alexnet.py",
        175,
        "x = self.conv3(x)",
    )
    assert node.attrs["kernel_size"] == (3, 3)
    assert node.attrs["visited"] is True
    assert node.device_inputs is not None
    assert node.device_inputs[0].layout == "NC1HWC0"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I64(-3)", -3),
        ("F32(1e-05)", 1e-05),
        ("Bool(0)", False),
        ("true", True),
        ('"a, \\"b\\""', 'a, "b"'),
        ("(1, (2, 3))", (1, (2, 3))),
        ("[x, w]", ["x", "w"]),
        ("()", ()),
        ("F16", {"dtype": "float16"}),
        ("NCHW", "NCHW"),
        ("None", None),
        ("3.5", 3.5),
        ("F32(inf)", math.inf),
        ("Tensor(shape=[1], dtype=Int32, value=[1])", "Tensor(shape=[1], dtype=Int32, value=[1])"),
    ],
)
def test_values(text: str, value: object) -> None:
    assert ValueText(text).value() == value


def test_types() -> None:
    assert (
        parse_type("<Ref[Tensor[Float32]], (8), ref_key=:bn.beta, is_inplace>").ref_key == "bn.beta"
    )
    assert parse_type("<Ref[Tensor(F32)], (8), ref_key=bn.beta>").dtype == "float32"
    assert parse_type("<Float32xDefaultFormat[const vector]{}>").shape == ()
    assert parse_type("<UMonad, NoShape>").kind == "other"
    assert parse_type("<String, NoShape>").kind == "string"
    assert parse_type("<Tensor[BFloat16], (2, -1)>").shape is None
    assert split_top("<A, (1, 2)>, x -> y, 'z'") == ["<A, (1, 2)>", "x -> y", "'z'"]


def test_bad_blocks_become_lines_and_the_rest_is_read() -> None:
    text = IR.replace("  %2(c) = Split(%1, I64(1))", "  %2(c) = Split(%1, I64(1)\n  %2(x) = (((")
    graph = parse_ir(text, "g.ir")
    assert [node.op for node in graph.kernels] == [
        "Mul",
        "Concat",
        "Print",
        "MulGrad",
        "ApplyMomentum",
    ]
    assert len(graph.problems) == 2
    assert graph.problems[0].startswith("g.ir:18: not understood")


def test_cyclic_plumbing_ends() -> None:
    text = (
        "  %0(a) = Load(%1)\n  %1(b) = Depend(%0)\n  %2(c) = Add(%1, %1)\n  %3(d) = "
        "MakeTuple(%3)\n  %4(e) = AddN(%3)\n"
    )
    graph = parse_ir(text)
    assert set(wire(graph, graph.kernels, Versions())) == {"2", "4"}


def test_phases_and_modules() -> None:
    assert phase_of("Mul", "Default/a-B/Mul-op0", None) == "forward"
    assert phase_of("Mul", "Gradients/Default/a-B/Grad_Mul/Mul-op0", None) == "backward"
    assert phase_of("Mul", "Gradients_Default_a-B_Grad_Mul_Mul-op0", None) == "backward"
    assert phase_of("Mul", "recompute_Default/a-B/Mul-op0", None) == "recompute"
    for op in ("AllReduce", "NeighborExchangeV2", "Receive", "AllGatherV", "_ReduceScatter"):
        assert phase_of(op, f"Default/{op}-op0", None) == "communication"
    assert phase_of("ReduceSum", "Default/ReduceSum-op0", None) == "forward"
    assert phase_of("AssignAdd", "Default/optimizer-Adam/AssignAdd-op0", None) == "optimizer"
    assert module_of("Default/network-A/_b-C/fc1-Dense/MatMul-op0") == "network._b.fc1"
    assert module_of("Default_network-A_fc1-Dense_MatMul-op0") is None


@pytest.mark.parametrize(
    ("kernels", "alone"),
    [
        ({"Mul-op0": "Mul", "Adam-op0": "Adam"}, True),
        ({"Mul-op0": "Mul"}, False),
        ({"Grad_Mul/Mul-op0": "Mul", "optimizer-Adam/Adam-op0": "Adam"}, False),
    ],
)
def test_an_optimizer_that_is_compiled_by_itself(kernels: dict[str, str], alone: bool) -> None:
    scopes = {False: "Default", True: "Gradients/Default"}
    nodes = [
        Node(key=str(number), op=op, name=f"{scopes['Grad' in name]}/{name}")
        for number, (name, op) in enumerate(kernels.items())
    ]
    assert updates_alone(nodes) is alone


@pytest.mark.parametrize(
    ("name", "weight", "fed"),
    [
        ("_4732", False, True),
        ("fc.weight", True, False),
        ("inputs0", None, True),
        ("w", None, False),
    ],
)
def test_what_a_program_feeds_is_no_weight(name: str, weight: bool | None, fed: bool) -> None:
    assert is_fed(GraphParameter("para1", name, TensorType(None, None), weight)) is fed


@pytest.mark.parametrize("name", ["ms_half", "ms_conv"])
def test_the_two_forms_of_a_graph_agree(name: str) -> None:
    base = real(name) / "rank_0/graphs/ms_output_trace_code_graph_0"
    text, binary = read_ir(base.with_suffix(".ir")), read_pb(base.with_suffix(".pb"))
    names = (
        {node.key: node.name for node in text.nodes},
        {node.key: node.name for node in binary.nodes},
    )
    parameters = {parameter.key: parameter.name for parameter in text.parameters}
    others = {node.name: node for node in binary.kernels}
    assert [node.name for node in text.kernels] == [node.name for node in binary.kernels]
    for node in text.kernels:
        other = others[node.name]
        assert (node.op, node.from_forward) == (other.op, other.from_forward)
        ours = [(o.kind, names[0].get(o.key, parameters.get(o.key))) for o in node.operands]
        theirs = [(o.kind, names[1].get(o.key, o.key or None)) for o in other.operands]
        assert ours == theirs
        assert user_line(node.trace) == user_line(other.trace)
        assert node.attrs.keys() == other.attrs.keys()


def test_a_torn_pb_says_where() -> None:
    data = (real("ms_conv") / "rank_0/graphs/ms_output_trace_code_graph_0.pb").read_bytes()
    with pytest.raises(
        FormatError, match=r"x\.pb at byte \d+: a field of \d+ bytes where \d+ are left"
    ):
        parse_pb(data[:1000], "x.pb")
    with pytest.raises(FormatError, match="no graph inside"):
        parse_pb(b"\x08\x01", "x.pb")


def test_a_missing_graph_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        read_ir(tmp_path / "absent.ir")
