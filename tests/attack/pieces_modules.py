# SPDX-License-Identifier: Apache-2.0
"""Pieces of random programs: modules, their training, and what libraries do with them."""

from __future__ import annotations

import copy
import io
import pickle
import random
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize


def _train(model: nn.Module, x: torch.Tensor, steps: int, **options: Any) -> Any:
    optimizer = torch.optim.Adam(
        (p for p in model.parameters() if p.requires_grad), lr=0.01, **options
    )
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return (
        losses,
        [p.grad for p in model.parameters()],
        [tuple(s) for s in optimizer.state_dict()["state"].values()],
    )


def lazy(r: random.Random) -> Any:
    model = nn.Sequential(
        nn.LazyConv2d(2, 2), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(r.randint(1, 3))
    )
    before = (
        repr(model),
        model[0].has_uninitialized_params(),
        [type(p).__name__ for p in model.parameters()],
    )
    y = model(torch.randn(2, 1, 4, 4))
    return (
        before,
        y,
        repr(model),
        {k: tuple(v.shape) for k, v in model.state_dict().items()},
        _train(model, torch.randn(2, 1, 4, 4), 2),
    )


def lazy_is_used_too_soon(r: random.Random) -> Any:
    model = nn.LazyLinear(r.randint(1, 3))
    found = []
    for attempt in (
        lambda: torch.optim.SGD(model.parameters(), lr=0.1),
        lambda: model.weight.shape,
        lambda: copy.deepcopy(model),
        lambda: model.share_memory(),
        lambda: sum(p.numel() for p in model.parameters()),
        lambda: model.double(),
        lambda: model.state_dict(),
        lambda: pickle.dumps(model),
        lambda: model.load_state_dict(nn.Linear(3, 2).state_dict()),
        lambda: model(torch.ones(2, 3)),
    ):
        try:
            found.append(type(attempt()).__name__)
        except Exception as error:  # noqa: BLE001
            found.append(f"{type(error).__name__} {str(error)[:300]}")
    return found


def lazy_of_every_kind(r: random.Random) -> Any:
    kinds = [
        (nn.LazyConv1d, (2, 1), (1, 1, 3)),
        (nn.LazyConvTranspose2d, (2, 2), (1, 1, 3, 3)),
        (nn.LazyInstanceNorm1d, (), (2, 3, 4)),
        (nn.LazyConv3d, (1, 1), (1, 2, 2, 2, 2)),
    ]
    kind, given, shape = r.choice(kinds)
    layer = kind(*given)
    return layer(torch.ones(shape)), type(layer).__name__


def parametrized(r: random.Random) -> Any:
    class Symmetric(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x: torch.Tensor) -> torch.Tensor:
            return x.triu()

    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    with parametrize.cached():
        first = layer(torch.ones(1, 3)), layer.weight is layer.weight
    layer.weight = torch.ones(3, 3)
    found = _train(layer, torch.randn(2, 3), r.randint(1, 2))
    parametrize.remove_parametrizations(layer, "weight")
    return first, found, layer.weight, type(layer).__name__


def normalised(r: random.Random) -> Any:
    made = [
        parametrizations.weight_norm(nn.Linear(3, 2)),
        parametrizations.spectral_norm(nn.Linear(3, 2)),
        parametrizations.orthogonal(nn.Linear(3, 3)),
        nn.utils.weight_norm(nn.Linear(3, 2)),
        nn.utils.spectral_norm(nn.Conv1d(3, 2, 1)),
    ]
    layer = r.choice(made)
    x = torch.randn(2, 3, 1) if isinstance(layer, nn.Conv1d) else torch.randn(2, 3)
    return (
        _train(layer, x, 2),
        list(layer.state_dict()),
        copy.deepcopy(layer.state_dict()),
        layer.eval()(x),
    )


def normalised_models_are_pickled(r: random.Random) -> Any:
    layer = nn.utils.weight_norm(nn.Linear(r.randint(1, 3), 2))
    found = []
    for attempt in (
        lambda: copy.deepcopy(layer),
        lambda: pickle.loads(pickle.dumps(layer)),
        lambda: copy.deepcopy(parametrizations.weight_norm(nn.Linear(2, 2))),
        lambda: pickle.dumps(parametrizations.weight_norm(nn.Linear(2, 2))),
    ):  # noqa: S301
        try:
            found.append(type(attempt()).__name__)
        except Exception as error:  # noqa: BLE001
            found.append(f"{type(error).__name__} {str(error)[:200]}")
    return found


def pruned(r: random.Random) -> Any:
    from torch.nn.utils import prune

    layer = nn.Linear(4, 3)
    prune.random_unstructured(layer, "weight", amount=0.5)
    prune.l1_unstructured(layer, "bias", amount=1)
    found = _train(layer, torch.randn(2, 4), 1), [name for name, _ in layer.named_buffers()]
    prune.remove(layer, "weight")
    return found, layer.weight, r.random()


def module_hooks(r: random.Random) -> Any:
    layer, seen = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)), []
    layer[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,))
    layer[0].register_forward_hook(lambda m, a, o: o + 1)
    layer[1].register_forward_hook(
        lambda m, a, k, o: seen.append((len(a), list(k))), with_kwargs=True
    )
    layer.register_full_backward_hook(lambda m, gi, go: seen.append(("backward", len(gi), len(go))))
    layer[2].register_full_backward_pre_hook(lambda m, go: (go[0] * r.choice((1, 2)),))
    layer[2].register_forward_hook(lambda m, a, o: seen.append("always"), always_call=True)
    handle = layer.register_state_dict_post_hook(lambda m, d, p, l: seen.append(("state", len(d))))
    layer.state_dict()
    handle.remove()
    return (
        _train(layer, torch.randn(2, 3), 1),
        seen,
        [len(layer[0]._forward_hooks), len(layer[0]._forward_pre_hooks)],
    )


def hooks_that_raise(r: random.Random) -> Any:
    layer, seen = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), []

    def stop(module: Any, args: Any, output: Any) -> None:
        raise StopIteration("seen enough") if r.random() < 0.5 else KeyError("layer")

    layer[0].register_forward_hook(stop)
    layer.register_forward_hook(lambda m, a, o: seen.append(o), always_call=True)
    for _ in range(2):
        try:
            layer(torch.ones(1, 3))
        except Exception as error:  # noqa: BLE001
            seen.append(f"{type(error).__name__} {error}")
    return seen


def counts_of_global_hooks(r: random.Random) -> Any:
    from torch.nn.modules import module

    handle = module.register_module_forward_hook(lambda m, a, o: None)
    try:
        nn.Linear(1, r.randint(1, 3))(torch.ones(1))
        return [
            len(getattr(module, name))
            for name in (
                "_global_backward_hooks",
                "_global_forward_hooks_with_kwargs",
                "_global_buffer_registration_hooks",
            )
        ]
    finally:
        handle.remove()


def modules_with_odd_ways(r: random.Random) -> Any:
    class Odd(nn.Module):
        def __getattr__(self, name: str) -> Any:
            if name == "extra":
                return 3
            return super().__getattr__(name)

        def __len__(self) -> int:
            return 0

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("modules are not compared")

        __hash__ = nn.Module.__hash__

        def named_modules(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("nobody asks for my modules")

        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("nobody asks for my parameters")

        def forward(self, x: torch.Tensor, *, scale: Any = None) -> Any:
            return {"y": [x * self.extra, (x,)], 3: x, None: None, "gen": (each for each in (1, 2))}

    made = Odd()(torch.ones(r.randint(1, 3)), scale={"a": [torch.ones(1)]})
    return made["y"], list(made["gen"])


def recursive_arguments(r: random.Random) -> Any:
    nest: list[Any] = [torch.ones(r.randint(1, 2))]
    nest.append(nest)
    table: dict[str, Any] = {"x": torch.ones(2)}
    table["self"] = table

    class Takes(nn.Module):
        def forward(self, x: Any, t: Any) -> Any:
            return x

    made = Takes()(nest, table)
    return made[0], made is nest


def deep_arguments(r: random.Random) -> Any:
    nest: Any = torch.ones(r.randint(1, 2))
    for _ in range(5000):
        nest = [nest]

    class Takes(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    return Takes()(nest) is nest


def odd_results(r: random.Random) -> Any:
    class Rows(dict[str, Any]):
        reads = 0

        def items(self) -> Any:
            Rows.reads += 1
            return super().items()

        def __iter__(self) -> Any:
            Rows.reads += 1
            return super().__iter__()

    class Gives(nn.Module):
        def forward(self) -> Any:
            return Rows(x=torch.ones(r.randint(1, 2)))

    Rows.reads = 0
    return Gives()()["x"], Rows.reads


def shared_and_tied(r: random.Random) -> Any:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    model[1].weight = model[0].weight
    twin = nn.ModuleList([model[1], model[1], nn.ParameterDict({"w": model[0].weight})])
    loss = model(torch.tensor([[r.randint(0, 4), 1]])).logsumexp(-1).sum()
    loss.backward()
    return (
        loss,
        model[0].weight.grad,
        len(list(twin.parameters())),
        len(list(model.named_modules(remove_duplicate=False))),
    )


def state(r: random.Random) -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    trained = _train(model, torch.randn(5, 3), r.randint(1, 3))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    back = torch.load(buffer, weights_only=False)
    other = copy.deepcopy(model)
    bad = None
    try:
        other.load_state_dict({"0.weight": torch.ones(2, 2)})
    except RuntimeError as error:
        bad = str(error)
    other.load_state_dict(back.state_dict(), assign=True)
    return trained, other.eval()(torch.ones(2, 3)), bad, model.state_dict()


def optimizers(r: random.Random) -> Any:
    kind = r.choice(
        (
            torch.optim.SGD,
            torch.optim.AdamW,
            torch.optim.RMSprop,
            torch.optim.Adagrad,
            torch.optim.LBFGS,
            torch.optim.NAdam,
            torch.optim.Rprop,
        )
    )
    model = nn.Linear(3, 1)
    optimizer = kind(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    losses: list[Any] = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).pow(2).sum()
        loss.backward()
        losses.append(loss)
        return loss

    seen: list[str] = []
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    for _ in range(3):
        optimizer.step(closure)
        scheduler.step()
    return (
        losses,
        seen,
        copy.deepcopy(optimizer.state_dict()),
        type(pickle.loads(pickle.dumps(optimizer))).__name__,
    )  # noqa: S301


def scaled(r: random.Random) -> Any:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=r.choice((2.0**8, 2.0**120)))
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randn(4, 3)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        found.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        scaler.step(optimizer)
        scaler.update()
        found += [loss, scaler.get_scale()]
    return found, model.weight


def recurrent_and_attention(r: random.Random) -> Any:
    rnn = r.choice((nn.LSTM, nn.GRU, nn.RNN))(3, 4, batch_first=True)
    out, _ = rnn(torch.randn(2, 5, 3))
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 5, 3), [5, 3], batch_first=True)
    unpacked = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], batch_first=True)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0), 1
    ).eval()
    with torch.no_grad():
        fast = encoder(out, src_key_padding_mask=torch.tensor([[False] * 4 + [True]] * 2))
    return (
        out,
        unpacked,
        fast,
        nn.MultiheadAttention(4, 2)(out, out, out),
        nn.functional.scaled_dot_product_attention(out, out, out, is_causal=True),
    )


def checkpointed(r: random.Random) -> Any:
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.3), nn.Tanh(), nn.Linear(3, 1))
    x = torch.randn(2, 3, requires_grad=True)
    y = checkpoint(model, x, use_reentrant=r.random() < 0.5) + checkpoint_sequential(
        model, 2, x, use_reentrant=False
    )
    y.sum().backward()
    return y, x.grad, model[0].weight.grad


def own_functions(r: random.Random) -> Any:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, by: float) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.by = by
            ctx.set_materialize_grads(False)
            return x * by

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None if grad is None else grad * ctx.by + ctx.saved_tensors[0] * 0, None

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            return x.clone(), x + 1

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            raise ArithmeticError("no gradient")

    x = torch.randn(3, requires_grad=True)
    y = Scaled.apply(x, r.choice((2.0, 3.0)))
    y.sum().backward()
    try:
        Fails.apply(x)[0].sum().backward()
    except ArithmeticError as error:
        return (
            y,
            x.grad,
            str(error),
            type(y.grad_fn).__name__,
            torch.autograd.gradcheck(
                lambda z: Scaled.apply(z, 2.0),
                torch.randn(2, dtype=torch.float64, requires_grad=True),
            ),
        )
    return None


def metrics(r: random.Random) -> Any:
    class Mean(nn.Module):
        """A metric with states, as metric libraries write them."""

        def __init__(self) -> None:
            super().__init__()
            self._computed: Any = None
            self.register_buffer("total", torch.tensor(0.0))
            self.register_buffer("count", torch.tensor(0))
            self.update = self._wrapped(self.update)  # type: ignore[method-assign]

        def _wrapped(self, update: Any) -> Any:
            def wrapped(*args: Any) -> None:
                self._computed = None
                with torch.set_grad_enabled(False):
                    update(*args)

            return wrapped

        def update(self, values: torch.Tensor) -> None:
            self.total += values.sum()
            self.count += values.numel()

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            kept = {k: v.clone() for k, v in self._buffers.items()}
            self.total.zero_()
            self.count.zero_()
            self.update(values)
            batch = self.total / self.count
            for k, v in kept.items():
                getattr(self, k).add_(v)
            return batch

    metric = Mean()
    return (
        [metric(torch.randn(r.randint(1, 4))) for _ in range(3)],
        metric.total / metric.count,
        metric.state_dict(),
    )


def averaged(r: random.Random) -> Any:
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = nn.Linear(2, 2)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for _ in range(r.randint(1, 3)):
        _train(model, torch.ones(1, 2), 1)
        average.update_parameters(model)
    return average.module.weight, average.n_averaged


def loaded(r: random.Random) -> Any:
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(10.0).reshape(5, 2), torch.arange(5))
    return [
        batch for batch in DataLoader(data, batch_size=r.randint(1, 3), shuffle=True, num_workers=0)
    ]


def library_operators(r: random.Random) -> Any:
    name = f"attack{r.randint(0, 1 << 40)}"

    @torch.library.custom_op(f"{name}::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    twice.register_autograd(lambda ctx, grad: grad * 2)

    @torch.library.custom_op(f"{name}::bump", mutates_args=("x",))
    def bump(x: torch.Tensor) -> None:
        x.add_(1)

    @torch.library.custom_op(f"{name}::fails", mutates_args=())
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise LookupError("kernel")

    x = torch.randn(3, requires_grad=True)
    twice(x).sum().backward()
    y = torch.ones(2)
    bump(y)
    try:
        fails(y)
    except LookupError as error:
        told = str(error)
    return x.grad, y, told, torch.library.opcheck(twice, (torch.ones(2),), raise_exception=False)


def operators_of_odd_types(r: random.Random) -> Any:
    name = f"odd{r.randint(0, 1 << 40)}"
    library = torch.library.Library(name, "DEF")
    library.define(
        "act(Tensor[] xs, *, Tensor?[] more, str mode='a', Device? d=None) -> (Tensor[], int, str)"
    )
    library.impl(
        "act",
        lambda xs, mode="a", d=None, more=(): ([x + 1 for x in xs], len(mode), mode),
        "CompositeExplicitAutograd",
    )
    library.define("nothing(Tensor x) -> ()")
    library.impl("nothing", lambda x: None, "CompositeExplicitAutograd")
    ops = getattr(torch.ops, name)
    found = [
        ops.act(
            [torch.ones(1)], mode="ü\ud800"[:1], d=torch.device("cpu"), more=[None, torch.ones(1)]
        ),
        ops.nothing(torch.ones(1)),
    ]
    try:
        found.append(ops.act([torch.ones(1)], more=[torch.ones(1)], d="cpu"))
    except Exception as error:  # noqa: BLE001
        found.append(str(error)[:200])
    library._destroy()
    return found
