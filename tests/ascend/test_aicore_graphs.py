# SPDX-License-Identifier: Apache-2.0
"""Graph dumps in each form: text of both kinds, a model as JSON, names that need escapes, torn
files, several graphs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.ascend import graphs, texts
from opscope.ascend.graphs import find_nodes
from opscope.errors import FormatError

from .aicore_case import GRAPH, KERNEL

MODEL = {
    "graph": [{
        "name": "g",
        "op": [
            {"name": "conv1/weights/read", "type": "TransData"},
            {
                "name": "L2Loss", "type": "L2Loss", "input": ["conv1/weights/read:0",
                    "control:-1"], "id": 4,
                "attr": [
                    {"key": "_datadump_original_op_names",
                        "value": {"list": {"s": ["loss/L2Loss_1"]}}}, {"key": "L2Loss_kernelname",
                        "value": {"s": f"{KERNEL}__kernel0"}}, {"key": "epsilon",
                        "value": {"f": 0.5}},
                ],
                "input_desc": [{
                    "dtype": "DT_FLOAT", "layout": "ND", "shape": {"dim": [62, 62]},
                    "attr": [{"key": "origin_shape", "value": {"list": {"i": [62, 62]}}},
                        {"key": "origin_format", "value": {"s": "NHWC"}}],
                }],
                "output_desc": [{"dtype": "DT_FLOAT", "layout": "ND", "shape": {}}],
            },
        ],
    }]
}  # fmt: skip


def test_a_model_as_json(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(MODEL))
    for wanted in ({"names": ["L2Loss"]}, {"names": [], "kernels": [f"{KERNEL}__kernel0"]}):
        (node,) = find_nodes(path, form=graphs.JSON, **wanted)
        assert (node.type, node.id, node.original, node.operator_attributes) == (
            "L2Loss",
            4,
            ("loss/L2Loss_1",),
            {"epsilon": 0.5},
        )
        assert [(made.slot, made.name, made.type) for made in node.producers] == [
            (0, "conv1/weights/read", "TransData")
        ]
        assert (node.inputs[0].shape, node.inputs[0].origin_format) == ((62, 62), "NHWC")


def test_text_is_found_by_name_and_by_kernel(tmp_path: Path) -> None:
    path = tmp_path / "ge_proto_00000001_Build.txt"
    path.write_text(GRAPH.format(kernel=KERNEL))
    assert graphs.kind(path) == graphs.PROTO
    (by_name,) = find_nodes(path, names=["L2Loss"])
    (by_kernel,) = find_nodes(path, names=[], kernels=[KERNEL])
    assert by_name == by_kernel
    assert by_name.kernels == (f"{KERNEL}__kernel0",)
    assert find_nodes(path, names=["absent"]) == []


ONNX = """ir_version: 6
producer_name: "GE"
graph {
  node {
    input: "x:0"
    input: "ctrl:-1"
    output: "a\\"b:0"
    name: "a\\"b"
    op_type: "ge:Add"
    attribute {
      name: "input_desc_nums"
      i: 1
      type: INT
    }
    attribute {
      name: "input_desc_dtype:0"
      s: "DT_FLOAT16"
      type: STRING
    }
    attribute {
      name: "input_desc_shape:0"
      ints: 4
      ints: -1
      type: INTS
    }
    attribute {
      name: "sub"
      g {
        node {
          name: "inner"
          op_type: "ge:Mul"
        }
      }
    }
  }
}
"""


def test_onnx_text_with_a_quoted_name_and_a_subgraph(tmp_path: Path) -> None:
    path = tmp_path / "ge_onnx_00000001_graph_1_Build.pbtxt"
    path.write_text(ONNX)
    assert graphs.kind(path) == graphs.ONNX
    (node,) = find_nodes(path, names=['a"b'])
    assert (node.type, node.inputs[0].dtype, node.inputs[0].shape) == ("Add", "DT_FLOAT16", (4, -1))
    assert [made.name for made in node.producers] == ["x"]
    (inner,) = find_nodes(path, names=["inner"])
    assert inner.type == "Mul"


def test_a_torn_graph_still_gives_the_nodes_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "ge_proto_00000001_Build.txt"
    text = GRAPH.format(kernel=KERNEL)
    path.write_text(text[: text.index("output_desc")])
    assert [node.name for node in find_nodes(path, names=["conv1/weights/read", "L2Loss"])] == [
        "conv1/weights/read"
    ]


@pytest.mark.parametrize("text", ["}", "a: 1 }", "a {", "1: 2", "a: @", "a {" * 300 + "}" * 300])
def test_what_is_no_protobuf_text(text: str) -> None:
    with pytest.raises(FormatError):
        texts.parse(text, "x.txt")


@given(
    st.recursive(
        st.one_of(st.integers(-(2**63), 2**63), st.text(max_size=20), st.booleans()),
        lambda inner: st.dictionaries(
            st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
            st.lists(inner, min_size=1, max_size=3),
            max_size=4,
        ),
        max_leaves=12,
    ).filter(lambda value: isinstance(value, dict))
)
def test_protobuf_text_round_trips(message: dict[str, list[object]]) -> None:
    assert texts.parse(_written(message), "x.txt") == message


def _written(message: dict[str, list[object]]) -> str:
    rows = []
    for name, values in message.items():
        for value in values:
            if isinstance(value, dict):
                rows.append(f"{name} {{\n{_written(value)}}}\n")
            elif isinstance(value, bool):
                rows.append(f"{name}: {'true' if value else 'false'}\n")
            elif isinstance(value, str):
                escaped = "".join(
                    f"\\{byte:03o}" for byte in value.encode("utf-8", "surrogatepass")
                )
                rows.append(f'{name}: "{escaped}"\n')
            else:
                rows.append(f"{name}: {value}\n")
    return "".join(rows)
