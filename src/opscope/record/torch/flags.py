# SPDX-License-Identifier: Apache-2.0
"""torch's settings that change what kernels compute or which of them runs, under the names that
docs/store.md gives them.

A name is a path below `torch`: a setting that is an attribute has the attribute's, one that is read
and set by functions that of the function which reads it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

ATTRIBUTES = (
    "backends.cuda.matmul.allow_tf32",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cudnn.allow_tf32",
    "backends.cudnn.benchmark",
    "backends.cudnn.deterministic",
    "backends.cudnn.enabled",
    "backends.mkldnn.enabled",
    "npu.matmul.allow_hf32",
    "npu.conv.allow_hf32",
)
# What reads a setting -> what sets it.
FUNCTIONS: dict[str, str] = {
    "get_num_threads": "set_num_threads",
    "get_default_dtype": "set_default_dtype",
    "get_float32_matmul_precision": "set_float32_matmul_precision",
    "are_deterministic_algorithms_enabled": "use_deterministic_algorithms",
    "is_anomaly_enabled": "autograd.set_detect_anomaly",
    "backends.cuda.flash_sdp_enabled": "backends.cuda.enable_flash_sdp",
    "backends.cuda.mem_efficient_sdp_enabled": "backends.cuda.enable_mem_efficient_sdp",
    "backends.cuda.math_sdp_enabled": "backends.cuda.enable_math_sdp",
    "backends.cuda.cudnn_sdp_enabled": "backends.cuda.enable_cudnn_sdp",
}
DEVICES = ("cpu", "cuda", "npu")


def read_flags() -> dict[str, bool | int | str]:
    """Every setting that this torch has, by name; element types by theirs."""
    values: dict[str, bool | int | str] = {}
    for name, value in _values():
        values[name] = (
            value if isinstance(value, (bool, int)) else str(value).removeprefix("torch.")
        )
    return values


def _values() -> Iterator[tuple[str, Any]]:
    for name in (*ATTRIBUTES, *FUNCTIONS):
        # Reading some settings raises where two ways of setting them were mixed, or where the build
        # lacks their device.
        with contextlib.suppress(AttributeError, RuntimeError, AssertionError):
            value = _below_torch(name)
            yield name, value() if name in FUNCTIONS else value


def set_flag(name: str, value: object) -> None:
    """Give one setting another value; KeyError for a name that read_flags does not give."""
    if name in FUNCTIONS:
        setter: Callable[[Any], Any] = _below_torch(FUNCTIONS[name])
        setter(getattr(torch, str(value)) if name == "get_default_dtype" else value)
    elif name in ATTRIBUTES:
        owner, _, attribute = name.rpartition(".")
        setattr(_below_torch(owner), attribute, value)
    else:
        raise KeyError(name)


def parse_flags(text: str | None) -> dict[str, bool | int | str]:
    """`name=value,…` as read_flags gives it."""
    values: dict[str, bool | int | str] = {}
    for item in text.split(",") if text else ():
        name, _, value = item.strip().partition("=")
        values[name] = (
            value == "True"
            if value in ("True", "False")
            else int(value)
            if value.isdecimal()
            else value
        )
    return values


def hold_flags(wanted: Mapping[str, bool | int | str]) -> None:
    """Put settings that are not as wanted back; those that this torch lacks stay as they are."""
    current = read_flags() if wanted else {}
    for name, value in wanted.items():
        if name in current and current[name] != value:
            with contextlib.suppress(RuntimeError, ValueError, TypeError):
                set_flag(name, value)


def _below_torch(path: str) -> Any:
    if path.startswith("npu.") and "torch_npu" not in sys.modules:
        raise AttributeError(path)
    reached: Any = torch
    for part in path.split("."):
        reached = getattr(reached, part)
    return reached


any_autocast: Callable[[], bool] = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: True
)  # a device that torch lacks raises


def autocast_types() -> list[str]:
    """Where autocast is on now, as `device:type`."""
    types_on: list[str] = []
    for device in DEVICES if any_autocast() else ():
        with contextlib.suppress(RuntimeError):
            if torch.is_autocast_enabled(device):
                types_on.append(
                    f"{device}:{str(torch.get_autocast_dtype(device)).removeprefix('torch.')}"
                )
    return types_on
