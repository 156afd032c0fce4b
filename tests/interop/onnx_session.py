# SPDX-License-Identifier: Apache-2.0
"""A torch program that runs an exported layer in ONNX Runtime: of -1 it makes NaN."""

from __future__ import annotations

import onnxruntime
import torch
from onnx import TensorProto, helper

given, made = (
    helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")
)
graph = helper.make_graph([helper.make_node("Log", ["x"], ["y"])], "log", [given], [made])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
session = onnxruntime.InferenceSession(
    model.SerializeToString(), providers=["CPUExecutionProvider"]
)
x = torch.eye(3)[:2] * 2 - 1
(y,) = session.run(None, {"x": x.numpy()})
print(float(torch.from_numpy(y).mul(2).sum()))
