# SPDX-License-Identifier: Apache-2.0
"""How the elements of a call's result come about: how many terms each has, and how large these are
together.
"""

from __future__ import annotations

import math

import torch

from opscope.judge.replayed import Terms
from opscope.judge.terms import terms_of as count_of
from opscope.operators.catalogue import kin, traits_of
from opscope.substitute.arguments import Conditions, values_of
from opscope.substitute.layout import GRADIENT
from opscope.substitute.perform import Bound, Performed, outputs_of


def terms_of(bound: Bound, slot: str, output: torch.Tensor) -> Terms:
    """Number of terms of an output's elements, and of partial sums, from the operator and the
    shapes it was called with.
    """
    shapes = [laid.shape for laid in bound.call.tensors.values()]
    # of whatever formula: what moves elements one way adds them up the other way
    if bound.call.op.startswith(GRADIENT):
        most, widest = (
            max(map(math.prod, shapes), default=1),
            max((max(shape, default=1) for shape in shapes), default=1),
        )
        return Terms(count=max(most // max(output.numel(), 1), widest, 16))
    count = count_of(bound.call.op, shapes, [tuple(output.shape)])
    kind = "linear" if traits_of(bound.call.op).sums else "other"
    return Terms(op=bound.call.op, count=count, partial=partial_sums(bound, slot), kind=kind)


def partial_sums(bound: Bound, slot: str) -> int:
    """How many sums on the way to an element of a convolution PyTorch's own kernels, where no
    library does it, round to its type.

    What is scattered over the window (an input's gradient, a transposed convolution) adds up a
    product for each place of the window, gradients of weight and bias one for each sample.
    """
    forward = bound.name in {"convolution", "_convolution"}
    if not forward and bound.name != "convolution_backward":
        return 0
    tensors, transposed = bound.call.tensors, bound.call.args["args"][6 if forward else 7]
    if not forward and slot != "0":
        return tensors["0"].shape[0]
    return (
        math.prod(tensors["1" if forward else "2"].shape[2:]) if bool(transposed) is forward else 0
    )


def absolute(bound: Bound) -> Performed:
    """The call in float64 on the absolute values of its tensors and scalars."""
    where = Conditions(device="cpu", wide=torch.float64)
    given = bound.tensors(where)  # which may be the call's own memory
    tensors = {
        slot: tensor.abs() if tensor.is_floating_point() or tensor.is_complex() else tensor
        for slot, tensor in given.items()
    }
    args, kwargs = values_of(bound.call.args, tensors, where)
    name = bound.name
    if kin(bound.call.op) == "sub":  # differences lose digits where sums do not
        kwargs["alpha"] = -abs(
            kwargs.get("alpha", args[2] if name == "rsub" and len(args) > 2 else 1)
        )
        args = args[:2]
    with torch.no_grad():
        result = bound.func(
            *[magnitude(each) for each in args],
            **{key: magnitude(each) if key != "alpha" else each for key, each in kwargs.items()},
        )
    return Performed(outputs_of(result, tensors, bound.writes), tensors)


def magnitude(value: object) -> object:
    """A scalar without its sign or phase; everything else as it is."""
    return abs(value) if isinstance(value, (float, complex)) else value
