# SPDX-License-Identifier: Apache-2.0
"""Programs that call operators: torch's own samples of each operator (OpInfo), in several layouts
and around vector borders, with special values, forward and backward; and one step of each
optimizer.

torch's samples need its testing packages (`pip install expecttest scipy`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

import torch

from opscope.errors import UnavailableError, UsageError
from opscope.operators.catalogue import family

# Elements before, at and after one and two vectors of 128, 256 and 512 bits, a tail of each kind,
# and more than one thread's part.
SIZES = (1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67, 129)
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
SAMPLES = 24  # of torch's own for an operator and type
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.complex128,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


@dataclass(frozen=True)
class Program:
    """A piece of code that calls an operator, of one element type."""

    name: str
    dtype: torch.dtype
    run: Callable[[], Any]


OPTIMIZERS = "optimizers"  # the name that all programs of optimizers go by


def names(op: str | None) -> list[str]:
    """The names of torch's samples that may call an operator, each once; None for all that torch
    has. UsageError for an operator that neither samples nor torch know.
    """
    chosen = list(dict.fromkeys(info.name for info in op_infos() if op is None or meant(info, op)))
    if op is not None and not chosen:
        check_registered(op)
    steps = op is None or not chosen or family(op).startswith(("_fused_", "_foreach_"))
    return [*chosen, *([OPTIMIZERS] if steps else [])]


def check_registered(op: str) -> None:
    """UsageError, with the nearest names, for an operator that is not registered with torch."""
    known = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    if op not in known:
        near = get_close_matches(op, sorted(known), n=3)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise UsageError(f"torch has no operator {op}{hint}")


def programs(name: str, dtypes: Sequence[torch.dtype], device: str) -> Iterator[Program]:
    """Programs of this name, in each of these types that it knows."""
    if name == OPTIMIZERS:
        for dtype in dtypes:
            yield from of_optimizers(dtype, device) if dtype.is_floating_point else ()
    for info in op_infos() if name != OPTIMIZERS else ():
        for dtype in dtypes if info.name == name else ():
            if info.supports_dtype(dtype, torch.device(device).type):
                yield from of_info(info, dtype, device)


def op_infos() -> list[Any]:
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise UnavailableError(
            f"torch's samples of operators need its testing packages ({error}); pip install "
            "expecttest scipy"
        ) from error
    return list(op_db)


def meant(info: Any, op: str) -> bool:
    """Whether an entry of torch's is about an operator: by its name, or by that of an operator that
    its gradient calls.
    """
    wanted = family(op).removesuffix("_backward").removeprefix("_")
    spoken = {
        info.name,
        info.name.rpartition(".")[2],
        getattr(info, "aten_name", "") or "",
        *(str(each.name) for each in info.aliases),
    }
    words = {each.rpartition(".")[2].removeprefix("_") for each in spoken if each} | {
        each.replace(".", "_") for each in spoken
    }
    return wanted in words or any(
        len(word) > 3 and (wanted == f"native_{word}" or word in wanted.split("_with_"))
        for word in words
    )


def of_info(info: Any, dtype: torch.dtype, device: str) -> Iterator[Program]:
    """An operator on torch's samples, each as given, not contiguous, and in the layout of pictures;
    elementwise ones on values of ours.
    """
    gradient = dtype.is_floating_point and info.supports_autograd
    torch.manual_seed(0)
    for sample in itertools.islice(
        info.sample_inputs(device, dtype, requires_grad=gradient), SAMPLES
    ):
        for given in layouts(sample):
            yield Program(info.name, dtype, partial(called, info, given, gradient))
    if type(info).__name__ == "UnaryUfuncInfo" and not dtype.is_complex:
        for x in values(dtype, device):
            yield Program(info.name, dtype, partial(info.op, x))


def layouts(sample: Any) -> Iterator[Any]:
    yield sample
    if all(tensor.layout is torch.strided for tensor in tensors_of(sample)):
        yield sample.noncontiguous()
    if any(tensor.dim() in FORMATS for tensor in tensors_of(sample)):
        yield sample.transform(
            lambda each: in_format(each) if isinstance(each, torch.Tensor) else each
        )


def tensors_of(sample: Any) -> list[torch.Tensor]:
    return [each for each in (sample.input, *sample.args) if isinstance(each, torch.Tensor)]


def in_format(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the layout of pictures, a leaf where it was one."""
    form = FORMATS.get(tensor.dim())
    return (
        tensor
        if form is None
        else tensor.detach().clone(memory_format=form).requires_grad_(tensor.requires_grad)
    )


def called(info: Any, sample: Any, gradient: bool) -> None:  # noqa: FBT001
    """The operator, and its gradient for a drawn one that comes in."""
    result = info.op(sample.input, *sample.args, **sample.kwargs)
    if not gradient:
        return
    outputs = [
        each
        for each in (result if isinstance(result, (tuple, list)) else [result])
        if isinstance(each, torch.Tensor)
    ]
    outputs = [each for each in outputs if each.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.randn_like(each) for each in outputs])


def values(dtype: torch.dtype, device: str) -> Iterator[torch.Tensor]:
    """Ordinary, large and special values, in every size, and strided."""
    if not dtype.is_floating_point:
        for size in SIZES:
            yield torch.arange(size, device=device).sub(size // 2).to(dtype)
        return
    largest = torch.finfo(dtype).max
    special = torch.tensor(
        [
            math.nan,
            math.inf,
            -math.inf,
            0.0,
            -0.0,
            torch.finfo(dtype).tiny,
            largest,
            -largest,
            1.0,
            -1.0,
        ],
        dtype=dtype,
    )
    for size in SIZES:
        yield torch.linspace(-4, 4, size, device=device).to(dtype)
    for low, high in ((-100, 100), (0.01, 0.99), (-1e4, 1e4), (-13, -5), (5, 13)):
        yield torch.linspace(low, high, 67, device=device).to(dtype)
    yield torch.linspace(-4, 4, 134, device=device).to(dtype)[::2]
    yield special.repeat(7).to(device)
    yield special[:3].to(device)


def of_optimizers(dtype: torch.dtype, device: str) -> Iterator[Program]:
    """Three steps of every optimizer in each of its implementations."""
    try:
        from torch.testing._internal.common_optimizers import optim_db
    except ImportError as error:
        raise UnavailableError(
            f"torch's samples of optimizers need its testing packages ({error})"
        ) from error
    for info in optim_db:
        for settings in info.optim_inputs_func(device=device):
            for form in ("foreach", "fused"):
                if form in info.supported_impls and settings.params is None:
                    chosen = {**settings.kwargs, form: True}
                    name = f"{getattr(info.optim_cls, '__name__', info.optim_cls)}({form})"
                    yield Program(
                        name, dtype, partial(steps, info.optim_cls, chosen, dtype, device)
                    )


def steps(optimizer: Any, settings: dict[str, Any], dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    parameters = [
        torch.nn.Parameter(torch.randn(size, device=device).to(dtype))
        for size in ((67,), (8, 3), (16,))
    ]
    stepping = optimizer(parameters, **settings)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        stepping.step()
