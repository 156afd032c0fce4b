# SPDX-License-Identifier: Apache-2.0
"""What a call is made again with, by its name: operators, functions by the names that dumps of API
calls give them (Functional.linear, Tensor.add, Torch.cat, torch.nn.functional.gelu), and the
gradient of either, by autograd of its forward call: in such dumps a backward has no operator of its
own.

Dumps differ in what they call a function's gradient: what the autograd node of its result hands on,
in the node's order (of a function of several operators, that is the last one's), or what reaches
its arguments, in their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import get_overridable_functions

from opscope.errors import UnavailableError
from opscope.kernels.arguments import Tree
from opscope.substitute.kernels import KERNELS
from opscope.substitute.layout import ARGUMENTS, GRADIENT, GRADS, WANTED, Call
from opscope.substitute.perform import LEAVES, reference_for
from opscope.substitute.schema import find_operator

HOMES: dict[str, Any] = {
    "Functional": torch.nn.functional,
    "torch.nn.functional": torch.nn.functional,
    "Tensor": torch.Tensor,
    "torch.Tensor": torch.Tensor,
    "Torch": torch,
    "torch": torch,
    "VF": getattr(torch, "_VF", torch),
    "torch.linalg": torch.linalg,
    "torch.special": torch.special,
    "torch.fft": torch.fft,
}
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Leave the world of tensors, or run what they are given.
FORBIDDEN = frozenset(
    {
        "numpy",
        "tolist",
        "backward",
        "register_hook",
        "map_",
        "map2_",
        "apply_",
        "share_memory_",
        "storage",
        "set_",
        "__setstate__",
        "__reduce__",
        "__reduce_ex__",
        "__deepcopy__",
        "data_ptr",
        "from_file",
        "frombuffer",
        "record_stream",
    }
)


def function_of(call: Call) -> Callable[..., Any]:
    """The function to make a call again with on the CPU."""
    return reference_for(call) or function_named(call.op)


def function_named(op: str) -> Callable[..., Any]:
    """The operator, the function, or the gradient of either; UnavailableError for one that this
    process does not have.
    """
    if op.startswith(GRADIENT):
        return gradient_of(function_named(op.removeprefix(GRADIENT)))
    function: Callable[..., Any] = find_operator(op) if "::" in op else find_api(op)
    return function


def find_api(op: str) -> Callable[..., Any]:
    """The function of this name; UnavailableError for one that torch does not have or that is no
    tensor operation.
    """
    if op in KERNELS:
        return KERNELS[op]
    home, _, name = op.rpartition(".")
    known = HOMES.get(home)
    if known is None or NAME.fullmatch(name) is None:
        raise UnavailableError(
            f"{op} is not a function of PyTorch, and opscope has no substitute for it"
        )
    function = getattr(known, name, None)
    if not callable(function):
        raise UnavailableError(f"torch {torch.__version__} has no function {op}")
    if name in FORBIDDEN or function not in overridable():
        raise UnavailableError(f"{op} is not an operation on tensors")
    return function  # type: ignore[no-any-return]


def overridable() -> frozenset[Any]:
    """The functions of torch that take tensors, by torch's own list: none of them reads files or
    runs code.
    """
    return frozenset(
        function for functions in get_overridable_functions().values() for function in functions
    )


def gradient_of(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A function of the same arguments, the incoming gradients and the slots wanted, that returns
    the outgoing gradients.
    """

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        grads, wanted, wanted_arguments = (
            kwargs.pop(GRADS),
            kwargs.pop(WANTED),
            kwargs.pop(ARGUMENTS),
        )
        tensor_of = dict(Tree(LEAVES).find(args, kwargs))
        leaves = [tensor_of[slot].detach().requires_grad_() for slot in wanted]
        writes = may_write(
            function, kwargs
        )  # to a leaf or a view of one autograd lets nobody write
        with torch.enable_grad():
            fresh = {
                id(tensor_of[slot]): leaf.clone() if writes else leaf.view_as(leaf)
                for slot, leaf in zip(wanted, leaves, strict=True)
            }
            result = function(
                *put(args, fresh), **{key: put(value, fresh) for key, value in kwargs.items()}
            )
            outputs = [
                tensor for _, tensor in Tree(LEAVES).find_result(result) if tensor.requires_grad
            ]
            pairs = [
                (out, grad.to(out.dtype).reshape(out.shape))
                for out, grad in zip(outputs, grads, strict=False)
            ]
        if not wanted_arguments:
            return of_node(pairs)
        made = torch.autograd.grad(
            [out for out, _ in pairs], leaves, [grad for _, grad in pairs], allow_unused=True
        )
        return [
            torch.zeros_like(leaf) if each is None else each
            for leaf, each in zip(leaves, made, strict=True)
        ]

    return run


def may_write(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call may write to its first argument: `mul_`, `__iadd__` (and `__add__`, to which a
    copy does no harm), `inplace=True`.
    """
    return (
        getattr(function, "__name__", "").partition(".")[0].endswith("_")
        or kwargs.get("inplace") is True
    )


def of_node(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> list[Any]:
    """What the autograd node of the first output hands on, given the gradients of all outputs that
    are its own.
    """
    node: Any = pairs[0][0].grad_fn
    gradients: list[Any] = []
    hook = node.register_hook(lambda handed, _: gradients.extend(handed))
    own = [(out, grad) for out, grad in pairs if out.grad_fn is node]
    try:
        torch.autograd.backward([out for out, _ in own], [grad for _, grad in own])
    finally:
        hook.remove()
    return gradients


def put(value: Any, fresh: dict[int, torch.Tensor]) -> Any:
    """The same arguments with other tensors in place of some."""
    if isinstance(value, torch.Tensor):
        return fresh.get(id(value), value)
    if isinstance(value, (list, tuple)):
        return (
            [put(item, fresh) for item in value]
            if isinstance(value, list)
            else tuple(put(item, fresh) for item in value)
        )
    return value
