# SPDX-License-Identifier: Apache-2.0
"""A back end of torch.compile whose code nobody sees, as inductor's, without a C++ compiler."""

from __future__ import annotations

from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch.utils._python_dispatch import _disable_current_modes


def hiding(module: Any, inputs: Any) -> Any:
    """Runs the graph that AOTAutograd made, forward or backward, below all modes."""

    def run(given: list[Any]) -> Any:
        arguments = list(given)
        given.clear()  # as generated code frees what it was given
        with _disable_current_modes():
            return module.forward(*arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


hidden = aot_autograd(fw_compiler=hiding)

# By this name torch knows it as a back end that is not for debugging, as its own are.
OPAQUE = "opaque_of_tests"
register_backend(hidden, name=OPAQUE, tags=())
