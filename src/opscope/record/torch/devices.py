# SPDX-License-Identifier: Apache-2.0
"""What a device of torch can be asked, whatever its kind: its streams, memory that it writes to
while the host goes on, and how statistics of each element type are worked out on it.

Nothing is known by name: a way to work statistics out is tried once, on one element whose
statistics are known, and waited for. What no way takes is not measured, and why is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from opscope.kernels import Statistics
from opscope.kernels.device import fused, lean


@dataclass(frozen=True)
class Way:
    """How statistics are worked out on a device: `launch` asks for words of a tensor, `read` makes
    a record of them on the host; `unsound` asks the device whether there is NaN or +Inf among the
    floats of which words tell.
    """

    title: str
    names: Sequence[str]
    launch: Callable[..., list[Any]]
    read: Callable[[NDArray[np.int16], Any, int], Statistics]
    unsound: Callable[[Any, Sequence[Any], int], Any]


@dataclass(frozen=True, eq=False)
class Launched:
    """A large tensor whose statistics are being worked out: pieces of words on the device, for the
    way's `read`.
    """

    ticket: int
    pieces: list[torch.Tensor]
    way: Way
    dtype: torch.dtype
    size: int


FUSED = Way("fused kernel", fused.NAMES, fused.launch, fused.read, fused.unsound)
LEAN = Way("plain operators", lean.NAMES, lean.launch, lean.read, lean.unsound)
WITHOUT_SUMS = Way(
    "plain operators without sums",
    lean.NAMES_WITHOUT_SUMS,
    partial(lean.launch, sums=False),
    partial(lean.read, sums=False),
    lean.unsound,
)
# Kinds of devices on which a kernel of our own is tried in the watched program: one that fails
# there could take the program with it. `opscope doctor --device` tries it on any, in a process of
# its own.
FUSED_ON = ("cuda", "xpu")


@dataclass(eq=False)
class Capability:
    """What one device was found to do; element types are tried when they are met."""

    device: torch.device
    fused_on: Sequence[str] = FUSED_ON
    ways: dict[torch.dtype, Way | None] = field(default_factory=dict)
    unmeasured: dict[torch.dtype, str] = field(default_factory=dict)
    comparands: lean.Comparands = field(default_factory=lean.Comparands)

    @cached_property
    def saturates(self) -> bool:
        """Whether what leaves its type ends at the largest value of it there, and raises the
        device's overflow status, as the device's module of torch says.
        """
        utilities = getattr(getattr(torch, self.device.type, None), "utils", None)
        has_infinity = getattr(utilities, "is_support_inf_nan", None)
        try:
            return has_infinity is not None and not has_infinity()
        except Exception:  # noqa: BLE001 - a module of another name or version; nothing is read then
            return False

    def way(self, dtype: torch.dtype) -> Way | None:
        """How statistics of a type are worked out; None where they are not, for the reason in
        `unmeasured`.

        A type that is tried is waited for: where calls are queued an operator fails after it has
        returned, and the program would be told.
        """
        if dtype not in self.ways:
            self.ways[dtype] = self._try(dtype)
        return self.ways[dtype]

    def _try(self, dtype: torch.dtype) -> Way | None:
        reasons = []
        for way in self._possible(dtype):
            why_not = self.why_not(way, dtype)
            if why_not is None:
                return way
            reasons.append(f"{way.title}: {why_not}")
        self.unmeasured[dtype] = "; ".join(reasons)
        return None

    def _possible(self, dtype: torch.dtype) -> tuple[Way, Way]:
        """Ways of which none raises an overflow status that the program might ask for."""
        quiet = self.saturates and fused.name_of(dtype) not in lean.SUMMED_SAFELY
        plain = WITHOUT_SUMS if quiet else LEAN
        return FUSED, replace(plain, launch=partial(plain.launch, comparands=self.comparands))

    def why_not(self, way: Way, dtype: torch.dtype) -> str | None:
        """Why a type is not measured this way; None where it is."""
        if fused.name_of(dtype) not in way.names:
            return "does not know the type"
        return (self.without_fused() if way is FUSED else None) or self._fails(way, dtype)

    def without_fused(self) -> str | None:
        """Why the fused kernel is not tried; None where it is."""
        if self.device.type not in self.fused_on:
            return f"not tried on {self.device.type}"
        return None if find_spec("triton") is not None else "triton is not installed"

    def _fails(self, way: Way, dtype: torch.dtype) -> str | None:
        """What goes wrong with one element that is 1; that there is no memory now says nothing of
        the type, and is raised.
        """
        stream = current_stream(self.device)
        stream.synchronize()
        try:
            with on(self.device):
                one = torch.ones(1, dtype=torch.uint8, device=self.device).to(dtype)
                words = torch.cat(way.launch(torch, one)).cpu().numpy()
            answer = way.read(words, dtype, 1)
        except Exception as error:  # whatever else it is, it is no way for this type
            if ran_out(error):
                raise
            return reason_of(error)
        right = (answer.pos, answer.min, answer.max) == (1, 1.0, 1.0) and answer.l2norm in {
            1.0,
            None,
        }
        return None if right else f"answers {answer}"


def unsound(launches: Sequence[Launched]) -> torch.Tensor | None:
    """Whether any of the tensors holds NaN or +Inf: a truth value on the device; None where no
    floats are among them.
    """
    ways: dict[Callable[..., Any], list[Launched]] = {}
    for each in launches:
        if each.dtype.is_floating_point or each.dtype.is_complex:
            ways.setdefault(each.way.unsound, []).append(each)
    truths = [
        ask(torch, [piece for each in of for piece in each.pieces], sum(each.size for each in of))
        for ask, of in ways.items()
    ]
    return torch.stack(truths).any() if truths[1:] else truths[0] if truths else None


def ran_out(error: BaseException) -> bool:
    """Whether a device had no memory for something: who asked is told at once, and nothing that was
    asked before is dropped.
    """
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def reason_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:200]


@contextmanager
def unseen() -> Iterator[None]:
    """Run operators of our own: below every dispatch and function mode, outside of autograd and
    autocast.
    """
    with ExitStack() as stack:
        stack.enter_context(torch._C._DisableTorchDispatch())
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch._C._DisableAutocast())
        stack.enter_context(torch.no_grad())
        yield


class InOrder:
    """Stands for the stream of a device that has none: what it is asked is done before the call
    returns.
    """

    def synchronize(self) -> None:
        return


def current_stream(device: torch.device) -> Any:
    """The stream in which the calling thread's operators on a device run."""
    ask = _from_backend(device, "current_stream")
    return InOrder() if ask is None else ask(device)


def on(device: torch.device) -> Any:
    """Makes a device the current one: a kernel of our own is launched on that, in its stream."""
    manager = _from_backend(device, "device")
    return nullcontext() if manager is None else manager(device)


def _from_backend(device: torch.device, name: str) -> Any:
    """What torch's module of an accelerator has under a name; None where it has not, and of the
    CPU.
    """
    module = None if device.type == "cpu" else getattr(torch, device.type, None)
    return getattr(module, name, None)


def answers(device: torch.device) -> bool:
    """Whether a device still does what it is asked."""
    try:
        current_stream(device).synchronize()
    except Exception:  # noqa: BLE001 - whatever it is, it is no answer
        return False
    return True


def overflow_status(device: torch.device) -> bool:
    """Whether a device that saturates has its overflow status raised. Waits for the device; reading
    clears nothing.
    """
    operators = getattr(torch.ops, device.type)
    with on(device):
        words = operators.npu_get_float_status(torch.zeros(8, device=device)).cpu()
    return bool(words[0] != 0)


def captures(device: torch.device) -> bool:
    """Whether the operators of the calling thread are written into a graph, to run later."""
    ask = getattr(getattr(torch, device.type, None), "is_current_stream_capturing", None)
    return ask is not None and device.type != "cpu" and bool(ask())


def host_memory(size: int) -> torch.Tensor:
    """Bytes that a device can write to while the host goes on, where there is such memory."""
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        return torch.empty(size, dtype=torch.uint8)
