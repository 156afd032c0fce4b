# SPDX-License-Identifier: Apache-2.0
"""Pieces of random programs: torch.func, forward mode, fake tensors, functionalisation, dispatch
and function modes.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.func import (
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


def _loss(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.exp()).sum()


def mapped(r: random.Random) -> Any:
    x = torch.randn(3, 4)
    return (
        vmap(torch.dot)(x, x),
        vmap(lambda a: a.sort().values, in_dims=1, out_dims=1)(x),
        vmap(lambda a: torch.rand(2) + a.sum(), randomness="different")(x),
        vmap(vmap(lambda a: a * r.randint(1, 3)))(x),
        vmap(lambda a: {"s": a.sum(), "t": (a, a[0])})(x),
        vmap(lambda a: a.clone().add_(1))(x),
        vmap(lambda a: a * 2, chunk_size=2)(x),
    )


def mapping_fails(r: random.Random) -> Any:
    found = []
    for attempt in (
        lambda: vmap(lambda a: a.item())(torch.ones(3)),
        lambda: vmap(lambda a: torch.rand(2))(torch.ones(3)),
        lambda: vmap(lambda a: torch.zeros(3).add_(a))(torch.ones(3)),
        lambda: vmap(lambda a: 3)(torch.ones(3)),
        lambda: vmap(lambda a: 1 / 0)(torch.ones(3)),
        lambda: grad(lambda a: a)(torch.ones(3)),
        lambda: vmap(lambda a: a if a > 0 else -a)(torch.ones(3)),
        lambda: vmap(lambda a, b: a + b)(torch.ones(3), torch.ones(2)),
        lambda: grad(lambda a: a.int().sum())(torch.ones(2)),
    ):
        try:
            found.append(attempt())
        except Exception as error:  # noqa: BLE001
            found.append((type(error).__name__, str(error)[:200]))
    r.shuffle(found)
    return found


def derived(r: random.Random) -> Any:
    x, t = torch.randn(3), torch.ones(3)
    return (
        grad(_loss)(x),
        jvp(_loss, (x,), (t,)),
        vjp(torch.sin, x)[1](t),
        jacrev(torch.exp)(x),
        jacfwd(torch.tanh)(x),
        hessian(_loss)(x),
        grad(grad(lambda a: a.pow(3).sum()))(x[0]),
        linearize(torch.sin, x)[1](t),
        vmap(grad(lambda a: a**2))(x),
        torch.autograd.functional.hvp(_loss, x, t),
        r.random(),
    )


def forward_mode(r: random.Random) -> Any:
    import torch.autograd.forward_ad as fwd

    with fwd.dual_level():
        x = fwd.make_dual(torch.randn(3), torch.ones(3))
        y = x.sin() * r.randint(1, 3)
        unpacked = fwd.unpack_dual(y)
        layer = torch.nn.Linear(3, 2)
        z = fwd.unpack_dual(layer(x))
        return (
            unpacked.primal,
            unpacked.tangent,
            z.tangent,
            fwd.unpack_dual(x.view(3, 1).t()).tangent,
        )


def per_sample_gradients(r: random.Random) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    params = {k: v.detach() for k, v in model.named_parameters()}

    def loss(p: Any, x: torch.Tensor) -> torch.Tensor:
        return functional_call(model, p, (x[None],)).pow(2).sum()

    return vmap(grad(loss), in_dims=(None, 0))(params, torch.randn(r.randint(2, 4), 3))


def ensemble(r: random.Random) -> Any:
    models = [torch.nn.Linear(3, 2) for _ in range(r.randint(2, 4))]
    params, buffers = stack_module_state(models)
    base = torch.nn.Linear(3, 2, device="meta")
    return vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(
        params, buffers, torch.ones(1, 3)
    )


def called_with_others(r: random.Random) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    made = functional_call(
        model, {"0.weight": torch.eye(2) * r.randint(1, 3)}, (torch.ones(3, 2),), strict=False
    )
    try:
        functional_call(model, {"0.weight": torch.ones(3, 3)}, (torch.ones(1, 2),))
    except RuntimeError as error:
        return made, str(error)[:300], model[0].weight
    return made


def functionalised(r: random.Random) -> Any:
    def act(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[:1].add_(1)
        y.view(3).mul_(r.choice((2, 2)))
        return y

    return (
        functionalize(act)(torch.randn(3)),
        vmap(functionalize(act))(torch.randn(2, 3)),
        grad(lambda x: functionalize(act)(x).sum())(torch.randn(3)),
    )


def fake(r: random.Random) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    found: list[Any] = []
    with FakeTensorMode() as mode:
        x = torch.randn(3, r.randint(1, 4))
        model = torch.nn.Linear(x.shape[1], 2)
        y = model(x).relu_().add_(1)
        found += [tuple(y.shape), type(y).__name__, repr(y)]
        for attempt in (
            lambda: y.sum().item(),
            lambda: y @ y @ y,
            lambda: torch.ones(2).nonzero(),
            lambda: y.numpy(),
            lambda: bool(y.sum() > 0),
        ):
            try:
                found.append(attempt())
            except Exception as error:  # noqa: BLE001
                found.append((type(error).__name__, str(error)[:200]))
    real = torch.nn.Linear(3, 2)
    for attempt in (
        lambda: real(mode.from_tensor(torch.ones(1, 3))),
        lambda: mode.from_tensor(torch.ones(2)) + torch.ones(2),
        lambda: torch.ones(2).exp(),
    ):
        try:
            with mode:
                found.append(repr(attempt()))
        except Exception as error:  # noqa: BLE001
            found.append((type(error).__name__, str(error)[:300]))
    return found, (torch.ones(2, dtype=torch.float16) * 60000 * 2)


def fake_while_writing(r: random.Random) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    real = torch.full((3,), 3e38)
    with FakeTensorMode(allow_non_fake_inputs=True):
        y = real * r.randint(1, 2)
        z = torch.ones(3)
        z.mul_(real)
    real.mul_(2)
    return repr(y), repr(z), real


class _Doubles(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.exp.default else result


class _Raises(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.sin.default:
            raise PermissionError("no sines")
        return func(*args, **(kwargs or {}))


class _Declines(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.tanh:
            raise PermissionError("no tanh")
        return func(*args, **(kwargs or {}))


def own_modes(r: random.Random) -> Any:
    x = torch.randn(3)
    found: list[Any] = []
    with _Doubles():
        found.append(x.exp())
        with _Raises():
            for attempt in (lambda: x.sin(), lambda: torch.nn.Linear(3, 1)(x)):
                try:
                    found.append(attempt())
                except PermissionError as error:
                    found.append(str(error))
    with _Functions():
        try:
            torch.tanh(x)
        except PermissionError as error:
            found.append(str(error))
        torch.nn.Linear(3, 1)(x)
    try:
        with _Declines():
            found.append(x + r.randint(1, 3))
    except TypeError as error:
        found.append(str(error))
    return found


def stacks_of_modes(r: random.Random) -> Any:
    from torch.utils._python_dispatch import (
        _get_current_dispatch_mode,
        is_traceable_wrapper_subclass,
    )

    with _Doubles() as mode:
        inside = _get_current_dispatch_mode() is mode, torch.randn(1).exp()
    return (
        inside,
        is_traceable_wrapper_subclass(torch.ones(1)),
        r.random(),
        torch.overrides.has_torch_function((torch.ones(1),)),
    )


def backward_under_function_mode(r: random.Random) -> Any:
    heard: list[str] = []

    class Hears(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            heard.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hears():
        loss = model(torch.randn(2, 3)).pow(2).sum() * r.randint(1, 3)
        torch.autograd.backward(loss)
        optimizer.step()
    return heard, loss


def counted(r: random.Random) -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(r.randint(1, 3), 4)).sum().backward()
    return counter.get_total_flops(), sorted(
        (name, len(counts)) for name, counts in counter.get_flop_counts().items()
    )


def checked_schema(r: random.Random) -> Any:
    from torch._subclasses.schema_check_mode import SchemaCheckMode

    with SchemaCheckMode() as mode:
        torch.ones(r.randint(1, 3)).add_(1).relu()
    return list(mode.ops)


def offloaded(r: random.Random) -> Any:
    w = torch.randn(3, requires_grad=True)
    with (
        torch.autograd.graph.save_on_cpu(),
        torch.autograd.graph.allow_mutation_on_saved_tensors() as _,
    ):
        y = w.exp() * r.randint(1, 3)
        y.sum().backward()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (_ for _ in ()).throw(OSError("disk")), lambda t: t
    ):
        try:
            w.exp()
        except OSError as error:
            return w.grad, str(error)
    return None


def autocasts(r: random.Random) -> Any:
    layer = torch.nn.Linear(4, 4)
    x = torch.randn(2, 4)
    with torch.autocast("cpu", r.choice((torch.bfloat16, torch.float16))):
        y = layer(x)
        with torch.autocast("cpu", enabled=False):
            z = layer(x)
        w = torch.nn.functional.bilinear(x, x, torch.randn(3, 4, 4))
    y.float().sum().backward()
    return y, z, w, layer.weight.grad


def lazily_conjugated(r: random.Random) -> Any:
    a = torch.randn(3, 3, dtype=torch.complex64)
    return (
        torch.linalg.pinv(a),
        a.conj().clone(),
        torch.linalg.eigvals(a).abs().sort().values > 0,
        a.conj() @ a * r.randint(1, 2),
    )


def higher_order(r: random.Random) -> Any:
    from torch._higher_order_ops import associative_scan, while_loop

    found: list[Any] = [
        torch.cond(
            torch.tensor(r.random() < 0.5), lambda x: x + 1, lambda x: x - 1, (torch.ones(2),)
        )
    ]
    for attempt in (
        lambda: while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), torch.ones(2))
        ),
        lambda: associative_scan(lambda a, b: a + b, torch.arange(4.0), 0, combine_mode="generic"),
    ):
        try:
            found.append(attempt())
        except Exception as error:  # noqa: BLE001
            found.append((type(error).__name__, str(error)[:200]))
    return found
