# SPDX-License-Identifier: Apache-2.0
"""Exports the models of onnx_nets.py into a folder, and copies of them with one fault each.

python onnx_write.py FOLDER     writes NAME.onnx, NAME-old.onnx (by the exporter before Dynamo's)
                                and NAME-FAULT.onnx
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from onnx_nets import SHAPES, inputs, net

Edit = Callable[[Any], None]


def nodes(model: Any, op: str) -> list[Any]:
    return [node for node in model.graph.node if node.op_type == op]


def attribute(op: str, name: str, value: object, place: int = 0) -> Edit:
    """Another attribute of a node."""

    def edit(model: Any) -> None:
        node = nodes(model, op)[place]
        kept = [each for each in node.attribute if each.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return edit


def weight(op: str, slot: int, change: Callable[[Any], Any], place: int = 0) -> Edit:
    """Other numbers where a node reads a constant."""

    def edit(model: Any) -> None:
        name = nodes(model, op)[place].input[slot]
        (held,) = (each for each in model.graph.initializer if each.name == name)
        before = numpy_helper.to_array(held)
        after = np.ascontiguousarray(change(before.copy()), before.dtype)
        held.CopyFrom(numpy_helper.from_array(after, name))

    return edit


def operator(old: str, new: str) -> Edit:
    """Another operator in the place of a node's."""

    def edit(model: Any) -> None:
        nodes(model, old)[0].op_type = new

    return edit


def exchanged(model: Any) -> None:
    node = nodes(model, "Concat")[0]
    node.input[0], node.input[1] = node.input[1], node.input[0]


def gates(weights: Any) -> Any:
    """Those of an LSTM, the second and the third in each other's place."""
    first, second, third, last = np.split(weights, 4, axis=1)
    return np.concatenate([first, third, second, last], axis=1)


FAULTS: dict[str, dict[str, Edit]] = {
    "UNet": {
        "eps": attribute("InstanceNormalization", "epsilon", 1e-2),
        "corners": attribute("Resize", "coordinate_transformation_mode", "align_corners"),
        "order": exchanged,
        "flipped": weight("ConvTranspose", 1, lambda kernel: kernel[..., ::-1]),
        "gate": operator("Sigmoid", "HardSigmoid"),
        "bias": weight("Conv", 2, np.zeros_like, 1),
    },
    "Recurrent": {
        "gates": weight("LSTM", 1, gates),
        "mean": operator("ReduceMean", "ReduceSum"),
        "rows": weight("Gather", 0, lambda rows: rows[::-1]),
    },
    "Gpt": {
        "eps": attribute("LayerNormalization", "epsilon", 1e-3, 2),
        "gelu": attribute("Gelu", "approximate", "tanh"),
        "axis": attribute("Softmax", "axis", 2),
        "head": weight("MatMul", 1, lambda held: held * 1.01, -1),
    },
    "Encoder": {"log": attribute("LogSoftmax", "axis", 1)},
    "Mobile": {
        "swish": operator("HardSwish", "HardSigmoid"),
        "pads": attribute("Conv", "pads", [0, 0, 2, 2]),
        "mean": operator("ReduceMean", "ReduceMax"),
    },
    "Boxes": {
        "leaky": attribute("LeakyRelu", "alpha", 0.01),
        "best": attribute("TopK", "largest", 0),
        "axis": attribute("Softmax", "axis", 1),
    },
}


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    for name in SHAPES:
        for ending, dynamo in (("", True), ("-old", False)):
            path = str(folder / f"{name}{ending}.onnx")
            torch.onnx.export(net(name), (inputs(name)[0],), path, dynamo=dynamo, verbose=False)
        for fault, edit in FAULTS[name].items():
            model = onnx.load(str(folder / f"{name}.onnx"))
            edit(model)
            onnx.save(model, str(folder / f"{name}-{fault}.onnx"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
