# SPDX-License-Identifier: Apache-2.0
"""The dumped outputs of an error held against a CPU reference of its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opscope.ascend.dumps import Dump, values_of
from opscope.ascend.graphs import Node
from opscope.ascend.kernels import Kernel
from opscope.ascend.tensors import KernelTensor

if TYPE_CHECKING:
    from opscope.ascend.references.judge import Judged

_MAX = 1 << 30  # bytes of a call that are computed again


def attributes_of(node: Node | None, kernel: Kernel | None) -> dict[str, Any]:
    """Attributes of the operator, from the graph, else as the kernel was compiled with them."""
    if node is not None:
        return dict(node.operator_attributes)
    known = kernel.attributes if kernel is not None else ()
    return {
        str(attribute["name"]): attribute["value"]
        for attribute in known
        if attribute.get("name") and attribute.get("value") is not None
    }


def check(
    operator: str, dump: Dump, tensors: Sequence[KernelTensor], attributes: Mapping[str, Any]
) -> Judged | None:
    """What the reference says of a dump; None where the dump does not hold every input with its
    type.
    """
    from opscope.ascend.references.judge import judge

    inputs = _side(dump, tensors, "input")
    outputs = _side(dump, tensors, "output")
    whole = all(array is not None for array in inputs) and any(
        array is not None for array in outputs
    )
    if not whole or not inputs or sum(tensor.size for tensor in dump.tensors) > _MAX:
        return None
    dtypes = [
        tensor.dtype or ""
        for tensor in sorted(
            (tensor for tensor in dump.tensors if tensor.io == "output"),
            key=lambda tensor: tensor.index,
        )
    ]
    return judge(operator, inputs, outputs, attributes, dtypes)


def _side(dump: Dump, tensors: Sequence[KernelTensor], io: str) -> list[Any]:
    """The numbers of one side, as far as they were dumped."""
    from opscope.narrow import widened

    dumped = sorted(
        (tensor for tensor in dump.tensors if tensor.io == io), key=lambda tensor: tensor.index
    )
    values = [
        None if tensor.zeroed or tensor.partial else values_of(dump.file, tensor, tensors)
        for tensor in dumped
    ]
    return [None if array is None else widened(array) for array in values]
