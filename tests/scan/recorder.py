# SPDX-License-Identifier: Apache-2.0
"""A small recorder of torch programs for these tests: the rows of docs/schema.md, nothing fast,
nothing on disk.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode

from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Process, Tensor

SUFFIX = {"forward": "", "backward": "~bwd", "optimizer": "~opt"}
LIMIT = {torch.float16: 0.9 * 65504, torch.float32: 65504.0, torch.bfloat16: 65504.0}
ALLOCATORS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


def record(program: Callable[[], object], **info: Any) -> MemoryRun:
    """Run a program under recording; an exception ends it quietly, as a crash of its process."""
    recorder = Recorder()
    exit_code = 0
    hooks = [
        register_optimizer_step_pre_hook(recorder.optimizer_begins),
        register_optimizer_step_post_hook(recorder.optimizer_ends),
    ]
    try:
        with recorder:
            program()
    except RuntimeError:
        exit_code = 1
    finally:
        for hook in hooks:
            hook.remove()
    process = Process(process=0, directory="p-test", exit_code=exit_code)
    about = RunInfo(path="test", format="test", **info)
    return MemoryRun(about, (process,), recorder.calls, recorder.tensors)


class Recorder(TorchDispatchMode):
    """Calls and tensors of every dispatched operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.tensors: list[Tensor] = []
        self.step = 0
        self.phase = "forward"
        self._held: dict[int, tuple[Any, int]] = {}  # address -> (storage, kept alive; number)
        self._writes: Counter[int] = Counter()
        self._versions: dict[Any, tuple[int, dict[str, Any]]] = {}
        self._roles: dict[int, tuple[str, str | None]] = {}
        self._blank: set[int] = set()
        self._names: Counter[Any] = Counter()
        self._forward: dict[int, int] = {}

    def optimizer_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.phase = "optimizer"

    def optimizer_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.phase = "forward"
        self.next_step()

    def next_step(self) -> None:
        self.step += 1
        self._names.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        index, node = len(self.calls), torch._C._current_autograd_node()
        name = func._schema.name.split("::")[1]
        phase = "backward" if node is not None else self.phase
        given = self._walk(args, kwargs)
        for slot, tensor in given:
            self._row(index, "input", slot, tensor)
        error = None
        try:
            result = func(*args, **kwargs)
        except RuntimeError as failure:
            error, result = f"RuntimeError: {failure}", None
            raise
        finally:
            self._link(index, node)
            short = (phase, name)
            self._names[short] += 1
            self.calls.append(
                Call(
                    process=0,
                    rank=0,
                    step=self.step,
                    index=index,
                    level="operator",
                    phase=phase,
                    op=f"aten::{name}.{func._overloadname}",
                    name=f"<root>:{name}{SUFFIX[phase]}#{self._names[short]}",
                    source=_line(),
                    args=_encode(args, kwargs),
                    error=error,
                    forward_index=None if node is None else self._forward.get(node._sequence_nr()),
                )
            )
        self._outputs(index, func, given, result, node)
        if name == "_amp_foreach_non_finite_check_and_unscale_" and args[1].item():
            self.next_step()
        return result

    def _outputs(
        self, index: int, func: Any, given: list[tuple[str, Any]], result: Any, node: Any
    ) -> None:
        written = [t for s, t in given if _is_written(func, s)]
        for tensor in written:
            self._writes[self._storage(tensor)] += 1
            self._blank.discard(self._storage(tensor))
        name = func._schema.name.split("::")[1]
        made = self._walk(result if isinstance(result, (tuple, list)) else (result,), {})
        accumulates = node is not None and "AccumulateGrad" in node.name()
        for slot, tensor in made:
            storage = self._storage(tensor)
            if name in ALLOCATORS:
                self._blank.add(storage)
            if accumulates:
                self._roles.setdefault(storage, ("gradient", None))
            self._row(index, "output", slot, tensor)
        for slot, tensor in given:
            if _is_written(func, slot) and not any(tensor is out for _, out in made):
                self._row(index, "output", slot, tensor)

    def _link(self, index: int, node: Any) -> None:
        number = torch._C._autograd._get_sequence_nr() - 1
        if node is None and torch.is_grad_enabled():
            self._forward.setdefault(number, index)

    def _storage(self, tensor: Any) -> int:
        storage = tensor.untyped_storage()
        return self._held.setdefault(storage._cdata, (storage, len(self._held)))[1]

    def _row(self, index: int, io: str, slot: str, tensor: Any) -> None:
        storage = self._storage(tensor)
        if isinstance(tensor, torch.nn.Parameter):
            self._roles[storage] = ("parameter", f"w{storage}")
        dims = tuple(
            sorted(
                (stride, size)
                for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
                if size > 1 and stride
            )
        )
        span = (
            tensor.storage_offset(),
            tensor.numel() if 0 not in tensor.stride() else dims,
            tensor.dtype,
        )
        where = (storage, self._writes[storage], span)
        if where not in self._versions:
            self._versions[where] = (
                len(self._versions),
                {} if storage in self._blank else statistics(tensor),
            )
        version, known = self._versions[where]
        role, label = self._roles.get(storage, (None, None))
        self.tensors.append(
            Tensor(
                process=0,
                index=index,
                io=io,
                slot=slot,
                version=version,
                storage=storage,
                offset=tensor.storage_offset(),
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                stride=tuple(tensor.stride()),
                role=role,
                tensor_name=label,
                **known,
            )
        )

    def _walk(self, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []

        def visit(value: Any, slot: str) -> None:
            if isinstance(value, torch.Tensor):
                found.append((slot, value))
            elif isinstance(value, (tuple, list)):
                for i, item in enumerate(value):
                    visit(item, f"{slot}.{i}")

        for i, value in enumerate(args):
            visit(value, str(i))
        for key, value in kwargs.items():
            visit(value, f"kwargs.{key}")
        return found


def statistics(tensor: torch.Tensor) -> dict[str, Any]:
    """The statistics columns of a tensor's row."""
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        values = tensor.detach()
        if values.is_floating_point() or values.is_complex():
            flat = (values.abs() if values.is_complex() else values).double().reshape(-1)
        else:
            flat = values.reshape(-1).double()
        finite = flat[flat.isfinite()]
        found: dict[str, Any] = {
            "size": flat.numel(),
            "nan": int(flat.isnan().sum()),
            "pos_inf": int((flat == math.inf).sum()),
            "neg_inf": int((flat == -math.inf).sum()),
            "zero": int((flat == 0).sum()),
            "neg": int((flat < 0).sum()),
            "pos": int((flat > 0).sum()),
            "near_limit": int((finite.abs() > LIMIT.get(tensor.dtype, math.inf)).sum()),
        }
        if finite.numel():
            found |= {
                "min": float(finite.min()),
                "max": float(finite.max()),
                "mean": float(finite.mean()),
                "l2norm": float(finite.norm()),
            }
            if not values.is_floating_point() and not values.is_complex():
                found |= {"min_int": int(values.min()), "max_int": int(values.max())}
        return found


def _is_written(func: Any, slot: str) -> bool:
    head = slot.split(".")[1] if slot.startswith("kwargs") else slot.split(".", maxsplit=1)[0]
    for i, argument in enumerate(func._schema.arguments):
        if head in (str(i), argument.name):
            info = argument.alias_info
            return (info is not None and info.is_write) or argument.name in {
                "running_mean",
                "running_var",
            }
    return False


def _line() -> str | None:
    frame: Any = sys._getframe(2)
    while frame is not None:
        if "/tests/scan/" in frame.f_code.co_filename and not frame.f_code.co_filename.endswith(
            "recorder.py"
        ):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _encode(args: Any, kwargs: Any) -> str:
    def tree(value: Any, slot: str) -> Any:
        if isinstance(value, torch.Tensor):
            return {"tensor": slot}
        if isinstance(value, (tuple, list)):
            return [tree(item, f"{slot}.{i}") for i, item in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        return (
            value
            if isinstance(value, (int, float, bool, str, type(None)))
            else {"other": str(value)}
        )

    whole = {
        "args": [tree(v, str(i)) for i, v in enumerate(args)],
        "kwargs": {k: tree(v, f"kwargs.{k}") for k, v in kwargs.items()},
    }
    return msgspec.json.encode(whole).decode()
