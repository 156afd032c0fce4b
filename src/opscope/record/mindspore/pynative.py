# SPDX-License-Identifier: Apache-2.0
"""Records MindSpore's PyNative mode: every primitive, forward and backward, through MindSpore's own dispatch mode.

MsDispatchMode (MindSpore 2.10) calls back for each primitive that PyNative runs, those of the gradient included; earlier versions
have no such hook, and only what they compile is recorded, by the dump. The Cells a call belongs to, its line and whether it
computes a gradient are read off Python's stack, so no class is patched. What is compiled (@jit, optimizers) comes from the dump.

A step ends when forward work begins again after a gradient was computed.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from opscope.formats.mindspore.arguments import tagged
from opscope.kernels import statistics
from opscope.record.mindspore.bits import is_origin, overflow_bits, unsound
from opscope.record.mindspore.frames import Site, caller, site_of
from opscope.run.arrow import encode_rows
from opscope.run.dtypes import dtype_of_numpy, find_dtype
from opscope.run.schema import Call, Stack, Tensor, ValueRef

if TYPE_CHECKING:
    from opscope.record.config import RecordConfig
    from opscope.run.store.writer import ProcessWriter

Array = np.ndarray[Any, Any]
BATCH = 256


class _Seen(msgspec.Struct, frozen=True):
    """What is known of the bytes at an address: their version, and the digest by which they are known again."""

    version: int
    digest: int | None


class Noted(msgspec.Struct, frozen=True):
    """A primitive that is about to run: name, site, column args, inputs as they are before it."""

    op: str
    site: Site
    args: str
    before: list[tuple[str, Any, Array | None]]


class Book:
    """The tables of one process: what each primitive read and wrote, versions by address and content."""

    def __init__(self, make_writer: Callable[[], ProcessWriter], config: RecordConfig) -> None:
        self.step = 0
        self.active = True
        self._make_writer = make_writer
        self._config = config
        self._index = 0
        self._versions: dict[tuple[int, int], _Seen] = {}
        self._next_version = 0
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._stacks: dict[tuple[str, ...], int] = {}
        self._waiting: dict[str, list[Any]] = {"stacks": [], "calls": [], "tensors": []}
        self._gradient_seen = False
        self._finding = False

    @cached_property
    def writer(self) -> ProcessWriter:
        """The tables, made with the first primitive: a program in graph mode has none."""
        return self._make_writer()

    @property
    def observing(self) -> bool:
        """Whether rows are still taken, and a wanted step is still to come."""
        last = self._config.selection.last_step
        return self.active and (last is None or self.step <= last)

    def close(self) -> None:
        """Write what is left; a second call does nothing."""
        if self.active and self._index:
            self.end_step()
            self.writer.close()
        self.active = False

    def give_up(self, error: Exception) -> None:
        """Recording ends, the program goes on."""
        print(f"opscope: recording of PyNative ended: {type(error).__name__}: {error}; the program goes on", file=sys.stderr)
        self.active = False
        if "writer" in self.__dict__:
            self.writer.close()

    def before(self, inputs: Sequence[tuple[str, Any]]) -> list[tuple[str, Any, Array | None]]:
        """The inputs as they are before the primitive runs, which may write to them."""
        keep = self._config.values != "none"
        return [(slot, tensor, _copied(array_of(tensor), keep=keep)) for slot, tensor in inputs]

    def turn(self, site: Site) -> None:
        """Notice where a step ends."""
        if site.phase == "backward":
            self._gradient_seen = True
        elif self._gradient_seen:
            self._gradient_seen = False
            self.end_step()

    def end_step(self) -> None:
        """A step is over: write it, and count names anew."""
        self.flush()
        if "writer" in self.__dict__:
            self.writer.end_step(self.step, finding=self._finding)
        self.step += 1
        self._finding = False
        self._counts.clear()

    def wanted(self, op: str, site: Site) -> bool:
        """Whether step, --ops, --skip and --phases let a call through."""
        selection = self._config.selection
        if not selection.wants_step(self.step) or (selection.phases is not None and site.phase not in selection.phases):
            return False
        return selection.wants_op(op, f"{site.module or '<root>'}:{op}", site.module)

    def add(self, noted: Noted, results: Sequence[tuple[str, Any]], error: str | None) -> None:
        """One finished primitive."""
        op, site = noted.op, noted.site
        index, self._index = self._index, self._index + 1
        inputs = [self._row(index, "input", slot, tensor, array) for slot, tensor, array in noted.before]
        outputs = [self._row(index, "output", slot, tensor, array_of(tensor)) for slot, tensor in results]
        rows = [row for row, _ in (*inputs, *outputs)]
        read, made = [row for row, _ in inputs], [row for row, _ in outputs]
        origin = is_origin(read, made)
        self._finding = self._finding or any(map(unsound, made))
        sampled = self._config.values == "sample" and index % self._config.sample == 0
        if self._config.values == "full" or sampled or (origin and self._config.values != "none"):
            rows = [self._kept(row, array) for row, array in (*inputs, *outputs)]
        device = next((row.device for row in rows if row.device), None)
        self._waiting["calls"].append(Call(
            process=self.writer.process.process, rank=self.writer.process.rank, step=self.step, index=index, level="operator",
            phase=site.phase, op=op, module=site.module, name=self._name(op, site), stack=self._stack(site), source=site.source,
            args=noted.args, device=device, error=error, status=overflow_bits(op, noted.args, read, made),
        ))  # fmt: skip
        self._waiting["tensors"] += [row for row in rows if self._config.selection.wants_io(row.io)]
        if len(self._waiting["calls"]) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand rows to the writer."""
        for table, rows in self._waiting.items():
            if rows:
                self.writer.append(table, encode_rows(table, rows), step=self.step)
        self._waiting = {"stacks": [], "calls": [], "tensors": []}

    def _name(self, op: str, site: Site) -> str:
        key = (site.phase, site.module, op)
        self._counts[key] += 1
        mark = {"backward": "~bwd"}.get(site.phase, "")
        return f"{site.module or '<root>'}:{op}{mark}#{self._counts[key]}"

    def _stack(self, site: Site) -> int:
        known = self._stacks.get(site.frames)
        if known is None:
            known = self._stacks[site.frames] = len(self._stacks)
            self._waiting["stacks"].append(Stack(process=self.writer.process.process, stack=known, frames=site.frames))
        return known

    def _row(self, index: int, io: str, slot: str, tensor: Any, array: Array | None) -> tuple[Tensor, Array | None]:
        shape = tuple(int(size) for size in tensor.shape)
        dtype = find_dtype(str(tensor.dtype))
        row = Tensor(
            process=self.writer.process.process, index=index, io=io, slot=slot, dtype=dtype.name if dtype else str(tensor.dtype).lower(),
            shape=shape, device=str(getattr(tensor, "device", "CPU")).lower().partition(":")[0], role=_role(tensor),
            tensor_name=getattr(tensor, "name", None) if _role(tensor) else None,
        )  # fmt: skip
        if array is None:
            return row, None
        try:
            found = statistics(array)
        except TypeError:  # text
            return row, None
        columns = {name: value for name, value in msgspec.structs.asdict(found).items() if name in Tensor.__struct_fields__}
        return msgspec.structs.replace(row, version=self._version(tensor, array, found.digest), **columns), array

    def _version(self, tensor: Any, array: Array, digest: int | None) -> int:
        """Bytes at one address that have not changed are one version."""
        key = (int(tensor.data_ptr()), array.nbytes)
        seen = self._versions.get(key)
        if seen is None or seen.digest != digest:
            seen = self._versions[key] = _Seen(self._next_version, digest)
            self._next_version += 1
        return seen.version

    def _kept(self, row: Tensor, array: Array | None) -> Tensor:
        if array is None:
            return row
        content = np.ascontiguousarray(array)
        value: ValueRef | None = self.writer.keep_value(content, dtype=dtype_of_numpy(content.dtype).name, shape=content.shape)
        return msgspec.structs.replace(row, value=value)


def _role(tensor: Any) -> str | None:
    return "parameter" if type(tensor).__name__ == "Parameter" else None


def array_of(tensor: Any) -> Array | None:
    """A tensor's elements in NumPy; None for what NumPy has no type for (bfloat16 of a MindSpore built for an older NumPy)."""
    try:
        return np.asarray(tensor.asnumpy())
    except (RuntimeError, TypeError, ValueError):
        return None


def _copied(array: Array | None, *, keep: bool) -> Array | None:
    """A copy where values may be kept: the primitive may write to its input."""
    return array.copy() if array is not None and keep else array


def tensors_in(value: Any, kind: type, slot: str = "") -> Iterator[tuple[str, Any]]:
    """Tensors of arguments or results, with their slots; a lone result has slot 0."""
    if isinstance(value, kind):
        yield slot or "0", value
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from tensors_in(item, kind, f"{slot}.{place}" if slot else str(place))


def arguments_text(args: Sequence[Any], kind: type) -> str:
    """Column args: tensors as {"tensor": SLOT}, the rest tagged."""

    def tree(value: Any, slot: str) -> Any:
        if isinstance(value, kind):
            return {"tensor": slot}
        if isinstance(value, (list, tuple)):
            return [tree(item, f"{slot}.{place}") for place, item in enumerate(value)]
        return tagged(value)

    return msgspec.json.encode({"args": [tree(value, str(place)) for place, value in enumerate(args)], "kwargs": {}}).decode()


def plain_call(args: Sequence[Any]) -> tuple[Any, ...]:
    """The operands of a primitive: older entry points hand over the primitive, its name and the operands as one tuple."""
    if len(args) == 3 and isinstance(args[1], str) and isinstance(args[2], (tuple, list)):
        return tuple(args[2])
    return tuple(args)


def start(book: Book) -> None:
    """Record from now on, in every thread MindSpore dispatches from; until the program ends. ImportError before MindSpore 2.10."""
    from mindspore import Tensor as MindSporeTensor
    from mindspore.utils import MsDispatchMode

    inside = threading.local()

    class Recorder(MsDispatchMode):  # type: ignore[misc]
        """MindSpore's callback for one primitive."""

        def __ms_dispatch__(self, func: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(inside, "busy", False) or not book.observing:
                return func(*args, **(kwargs or {}))
            inside.busy = True
            try:
                noted = note(func.name, args, caller(1))
            finally:
                inside.busy = False
            try:
                result = func(*args, **(kwargs or {}))
            except BaseException as error:
                finish(noted, None, f"{type(error).__name__}: {error}"[:4000])
                raise
            finish(noted, result, None)
            return result

    def note(name: str, args: Any, frame: Any) -> Noted | None:
        try:
            site = site_of(frame)
            book.turn(site)
            if not book.wanted(name, site):
                return None
            operands = plain_call(args)
            return Noted(name, site, arguments_text(operands, MindSporeTensor), book.before(list(tensors_in(operands, MindSporeTensor))))
        except Exception as error:  # noqa: BLE001 - the recording boundary: a debugger must not break the program
            book.give_up(error)
            return None

    def finish(noted: Noted | None, result: Any, error: str | None) -> None:
        if noted is None:
            return
        inside.busy = True
        try:
            book.add(noted, list(tensors_in(result, MindSporeTensor)), error)
        except Exception as failure:  # noqa: BLE001 - the recording boundary
            book.give_up(failure)
        finally:
            inside.busy = False

    mode = Recorder()
    mode.__enter__()

    def end() -> None:
        mode.__exit__(None, None, None)  # MindSpore dies when the mode outlives the interpreter
        book.close()

    atexit.register(end)
