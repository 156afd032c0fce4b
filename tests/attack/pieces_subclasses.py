# SPDX-License-Identifier: Apache-2.0
"""Pieces of random programs: tensor subclasses of every kind that programs write."""

from __future__ import annotations

import copy
import io
import pickle
import random
from typing import Any

import torch
from torch.utils._pytree import tree_map, tree_map_only


class Plain(torch.Tensor):
    """Nothing of its own."""


class Metadata(torch.Tensor):
    """A subclass by __torch_function__ that carries a name along."""

    @staticmethod
    def __new__(cls, data: Any, name: str = "?") -> Any:
        made = torch.as_tensor(data).as_subclass(cls)
        made.name_ = name
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        if isinstance(result, cls):
            result.name_ = "+".join(
                sorted({getattr(a, "name_", "?") for a in args if isinstance(a, Metadata)})
            )
        return result


class Loud(torch.Tensor):
    """Notes every function it is asked for, attributes included."""

    heard: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs)


class Refusing(torch.Tensor):
    """Raises on attributes, as uninitialised parameters do."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__" or name in {"untyped_storage", "stride", "size", "data_ptr"}:
            raise ValueError("this tensor tells nothing")
        return super().__torch_function__(func, types, args, kwargs)


class Disabled(torch.Tensor):
    """Comes out of functions as a plain tensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl


class Wrapper(torch.Tensor):
    """A wrapper subclass: its elements lie in another tensor."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            dtype=inner.dtype,
            device=inner.device,
            requires_grad=inner.requires_grad,
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Wrapper({self.inner})"

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return Wrapper(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        unwrap = lambda each: each.inner if isinstance(each, Wrapper) else each  # noqa: E731
        result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map_only(torch.Tensor, Wrapper, result)


class Logged(torch.Tensor):
    """A subclass with memory of its own that notes the operators it meets."""

    heard: list[str] = []

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> Any:
        return torch.Tensor._make_subclass(cls, data)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard.append(str(func))
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))


class Declining(torch.Tensor):
    """Answers NotImplemented to what it does not know."""

    asked: list[str] = []

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:  # type: ignore[override]
        return "Declining"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked.append(str(func))
        if func in {torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor}:
            return func(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))
        return NotImplemented


class Stranger(torch.Tensor):
    """Takes what Declining declines."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(getattr(a, "inner", a) for a in args), **(kwargs or {}))


class Quantised(torch.Tensor):
    """Weights as int8 with scales, as quantisation libraries hold them; linear layers are its
    own.
    """

    @staticmethod
    def __new__(cls, data: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype)

    def __init__(self, data: torch.Tensor, scale: torch.Tensor) -> None:
        self.int_data, self.scale = data, scale

    @classmethod
    def of(cls, weight: torch.Tensor) -> Any:
        scale = weight.detach().abs().amax(1, keepdim=True) / 127
        return cls((weight.detach() / scale).round().to(torch.int8), scale)

    def dequantize(self) -> torch.Tensor:
        return self.int_data.to(self.scale.dtype) * self.scale

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Quantised{tuple(self.shape)}"

    def __tensor_flatten__(self) -> Any:
        return ["int_data", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, meta: Any, size: Any, stride: Any) -> Any:
        return cls(inner["int_data"], inner["scale"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.linear:
            return torch.nn.functional.linear(args[0], args[1].dequantize(), *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in {
            torch.ops.aten.detach.default,
            torch.ops.aten.clone.default,
            torch.ops.aten._to_copy.default,
        }:
            return cls(args[0].int_data.clone(), args[0].scale.clone())
        raise NotImplementedError(f"{func} on Quantised")


class Parametered(torch.nn.Parameter):
    """A subclass of Parameter."""


class Dictionary:
    """A dictionary of tensors with a batch size, which answers some functions of torch itself."""

    def __init__(self, source: dict[str, torch.Tensor]) -> None:
        self.source = source

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.stack:
            return cls(
                {k: torch.stack([each.source[k] for each in args[0]]) for k in args[0][0].source}
            )
        if func is torch.clone:
            return cls({k: v.clone() for k, v in args[0].source.items()})
        return NotImplemented


def plain(r: random.Random) -> Any:
    x = torch.randn(3).as_subclass(Plain)
    y = (x * r.randint(1, 3)).exp()
    return y, y.sum(), type(y[0]), type(torch.ones(3) + x), copy.copy(y), y.tolist()


def carries_metadata(r: random.Random) -> Any:
    a, b = Metadata([1.0, 2.0], "a"), Metadata([3.0, 4.0], "b")
    c = (a + b * r.randint(1, 3)).sum()
    layer = torch.nn.Linear(2, 2)
    return (
        c,
        c.name_,
        torch.cat([a, b]).name_,
        layer(a).name_,
        pickle.loads(pickle.dumps(a)),
        torch.nn.Parameter(a),
    )  # noqa: S301


def hears_only_the_program(r: random.Random) -> Any:
    Loud.heard.clear()
    x = torch.randn(3, 3).as_subclass(Loud)
    y = torch.nn.Linear(3, 3)(x).relu()
    z = y.exp()
    z.mul_(r.randint(1, 3))
    y.sum().backward()
    return y, z, list(Loud.heard)


def refuses_attributes(r: random.Random) -> Any:
    x = torch.ones(r.randint(1, 3)).as_subclass(Refusing)
    y = x + 1
    y.add_(2)
    torch.nn.Identity()(y)
    try:
        return y.shape
    except ValueError as error:
        return str(error), torch.Tensor.as_subclass(y, torch.Tensor)


def disabled(r: random.Random) -> Any:
    x = torch.ones(3).as_subclass(Disabled)
    y = x * r.randint(1, 4)
    with torch._C.DisableTorchFunctionSubclass():
        z = Metadata([1.0], "a") + 1
    with torch._C.DisableTorchFunction():
        w = Metadata([1.0], "a") + 1
    return type(x), type(y), y, type(z), type(w)


def wraps(r: random.Random) -> Any:
    x = Wrapper(torch.randn(3, 3, requires_grad=r.random() < 0.5))
    y = (x @ x).relu() + 1
    y.add_(1)
    return y.inner, repr(x), (x.sum()).inner, type(y[0]), torch.nn.functional.softmax(x, 0).inner


def wraps_and_trains(r: random.Random) -> Any:
    layer = torch.nn.Linear(3, 2)
    layer.weight = torch.nn.Parameter(Wrapper(layer.weight.detach()))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(r.randint(1, 3)):
        loss = layer(torch.ones(2, 3)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses


def logs(r: random.Random) -> Any:
    Logged.heard.clear()
    x = Logged(torch.ones(3))
    try:
        y = x * r.randint(1, 3)
        y.add_(1)
    except Exception as error:  # noqa: BLE001
        return str(error), Logged.heard
    return y, list(Logged.heard)


def declines(r: random.Random) -> Any:
    Declining.asked.clear()
    x = Declining(torch.ones(2))
    found = [x * 2, torch.add(x, 1)]
    for attempt in (
        lambda: torch.exp(x),
        lambda: x.sum(),
        lambda: torch.sub(x, 1),
        lambda: x - 1,
        lambda: torch.stack([x, x]),
    ):
        try:
            found.append(attempt())
        except TypeError as error:
            found.append(str(error))
    r.shuffle(found)
    return found, list(Declining.asked)


def a_stranger_takes_it(r: random.Random) -> Any:
    Declining.asked.clear()
    a, b = Declining(torch.ones(2)), Stranger(torch.full((2,), 3.0))
    pair = [a, b] if r.random() < 0.5 else [b, a]
    return torch.sub(*pair), Declining.asked, torch.maximum(*pair)


def quantised_weights(r: random.Random) -> Any:
    layer = torch.nn.Linear(4, 3)
    layer.weight = torch.nn.Parameter(Quantised.of(layer.weight), requires_grad=False)
    found = [
        layer(torch.ones(r.randint(1, 2), 4)),
        repr(layer.weight),
        layer.state_dict()["weight"].int_data,
    ]
    try:
        found.append(layer.weight + 1)
    except NotImplementedError as error:
        found.append(str(error))
    return found


def parameter_kinds(r: random.Random) -> Any:
    p = Parametered(torch.ones(3))
    b = torch.nn.Buffer(torch.ones(2))
    u = torch.nn.UninitializedParameter()
    found = [p * 2, isinstance(b, torch.nn.Parameter), type(p + 1), repr(u)]
    for attempt in (
        lambda: u.shape,
        lambda: u + 1,
        lambda: copy.deepcopy(u),
        lambda: u.share_memory_(),
        lambda: u.half(),
        lambda: u.data,
    ):
        try:
            found.append(type(attempt()))
        except Exception as error:  # noqa: BLE001
            found.append(str(error))
    u.materialize((r.randint(1, 3),))
    return found, type(u), tuple(u.shape)


def tensor_like(r: random.Random) -> Any:
    items = [
        Dictionary({"a": torch.ones(2) * i, "b": torch.zeros(3)}) for i in range(r.randint(1, 3))
    ]
    found: list[Any] = [torch.stack(items).source, torch.clone(items[0]).source]
    try:
        torch.exp(items[0])
    except TypeError as error:
        found.append(str(error))
    return found


def masked(r: random.Random) -> Any:
    from torch.masked import masked_tensor

    x = masked_tensor(torch.arange(4.0), torch.tensor([True, False, True, True]))
    y = masked_tensor(torch.ones(4), torch.tensor([True, False, True, True]))
    found: list[Any] = [
        (x + y).get_data(),
        (x * r.randint(1, 3)).get_mask(),
        x.sum().get_data(),
        repr(x),
        x.to_tensor(0),
    ]
    for attempt in (lambda: torch.linalg.norm(x), lambda: x.sort(), lambda: x @ x):
        try:
            found.append(attempt().get_data())
        except Exception as error:  # noqa: BLE001
            found.append((type(error).__name__, str(error)[:200]))
    return found


def saved(r: random.Random) -> Any:
    buffer = io.BytesIO()
    torch.save([torch.ones(r.randint(1, 3)).as_subclass(Plain), Metadata([1.0], "m")], buffer)
    buffer.seek(0)
    back = torch.load(buffer, weights_only=False)
    return back, [type(each).__name__ for each in back], back[1].name_


def two_tensor(r: random.Random) -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.ones(3), torch.full((3,), 2.0))
    y = (x * r.randint(1, 3)).exp()
    return y.a, y.b, repr(x), type(y.sum())


def logging_tensor(r: random.Random) -> Any:
    from torch.testing._internal.logging_tensor import (
        LoggingTensor,
        LoggingTensorMode,
        capture_logs,
    )

    with capture_logs() as logs:
        x = LoggingTensor(torch.ones(2))
        y = x * r.randint(1, 3) + 1
    with capture_logs(is_mode=True) as more, LoggingTensorMode():
        z = torch.ones(2).exp() + 1
    return y.elem, logs, z, more


def properties(r: random.Random) -> Any:
    class Odd(torch.Tensor):
        @property
        def dtype(self) -> Any:
            return "odd"

        @property
        def shape(self) -> Any:
            return ("odd",)

        @property
        def device(self) -> Any:
            raise RuntimeError("no device")

        def stride(self, *args: Any) -> Any:
            return "odd"

        def storage_offset(self) -> Any:
            return "odd"

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"odd {name}")

        def __len__(self) -> int:
            raise RuntimeError("no length")

        def __bool__(self) -> bool:
            raise RuntimeError("no truth")

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no equality")

        __hash__ = torch.Tensor.__hash__

    x = torch.ones(3).as_subclass(Odd)
    y = x.add(r.randint(1, 3))
    torch.nn.Identity()(y)
    torch.nn.Linear(3, 1)(y)
    return y.as_subclass(torch.Tensor), y.dtype, y.shape
