# SPDX-License-Identifier: Apache-2.0
"""Functions by the names that dumps of API calls give them: Functional.linear, Tensor.add,
Torch.cat, torch.nn.functional.gelu.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import get_overridable_functions

from opscope.errors import UnavailableError
from opscope.substitute.kernels import KERNELS

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
