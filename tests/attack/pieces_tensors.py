# SPDX-License-Identifier: Apache-2.0
"""Pieces of random programs: what is done with plain tensors."""

from __future__ import annotations

import copy
import io
import pickle
import random
import weakref
from typing import Any

import numpy as np
import torch


def _shape(r: random.Random) -> tuple[int, ...]:
    return tuple(r.choice((1, 2, 3, 5)) for _ in range(r.randint(1, 3)))


def operators_in_a_row(r: random.Random) -> Any:
    x = torch.randn(_shape(r))
    unary = [
        "exp",
        "log",
        "sqrt",
        "tanh",
        "relu",
        "abs",
        "neg",
        "sigmoid",
        "floor",
        "erf",
        "cos",
        "square",
        "sign",
        "t_",
        "cumsum",
        "sort",
        "flip",
    ]
    for _ in range(r.randint(3, 12)):
        name = r.choice(unary)
        if name == "cumsum":
            x = x.cumsum(-1)
        elif name == "sort":
            x = x.sort(-1).values
        elif name == "flip":
            x = x.flip(-1)
        elif name == "t_":
            x = x.transpose(0, -1)
        else:
            x = getattr(torch, name)(x)
        x = x + r.choice((0, 1, 0.5, True)) * r.choice((1, -2.0))
    return x


def in_place_and_views(r: random.Random) -> Any:
    base = torch.arange(24.0).reshape(2, 3, 4)
    views = [
        base[0],
        base[:, 1],
        base.permute(2, 0, 1),
        base.flatten()[::2],
        base.view(6, 4)[1:3],
        base.diagonal(),
        base.unfold(2, 2, 1),
    ]
    for _ in range(6):
        view = r.choice(views)
        action = r.choice(["add_", "mul_", "zero_", "clamp_", "copy_"])
        if action == "clamp_":
            view.clamp_(0, 7)
        elif action == "zero_":
            view.zero_()
        elif action == "copy_":
            view.copy_(torch.ones_like(view))
        else:
            getattr(view, action)(r.choice((2, 0.5, -1)))
    return base, [view.sum() for view in views], base._version


def out_arguments(r: random.Random) -> Any:
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    out = torch.empty(r.choice([(4, 4), (0,)]))
    torch.add(a, b, out=out)
    values, places = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.max(a, 0, out=(values, places))
    return out, values, places, torch.mm(a, b, out=torch.empty(4, 4))


def overlapping_writes(r: random.Random) -> Any:
    x = torch.zeros(1).expand(r.randint(2, 4))
    x.add_(1)


def complex_numbers(r: random.Random) -> Any:
    z = torch.randn(r.randint(2, 5), 3, dtype=torch.complex64)
    return (
        z.conj().mm(z.t().resolve_conj())
        if z.shape[0] == 3
        else (
            z.conj() * z,
            z.abs(),
            torch.view_as_real(z),
            z.mH @ z,
            z.real.neg(),
            z.imag,
            (z.conj().imag),
        )
    )


def quantised(r: random.Random) -> Any:
    q = torch.quantize_per_tensor(
        torch.randn(3, 4), r.choice((0.1, 0.05)), r.choice((0, 3)), torch.quint8
    )
    c = torch.quantize_per_channel(
        torch.randn(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3), 0, torch.qint8
    )
    return (
        q.int_repr(),
        q.dequantize(),
        c.dequantize(),
        q[1],
        (q.view(4, 3)).dequantize(),
        repr(q),
        copy.deepcopy(c).dequantize(),
    )


def quantised_module(r: random.Random) -> Any:
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
    ).eval()
    made = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    return made(torch.ones(r.randint(1, 3), 4))


def fake_quantised(r: random.Random) -> Any:
    x = torch.randn(3, requires_grad=True)
    y = torch.fake_quantize_per_tensor_affine(x, 0.1, r.randint(0, 3), -5, 5)
    y.sum().backward()
    return y, x.grad


def sparse(r: random.Random) -> Any:
    x = torch.eye(4).to_sparse()
    y = torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 2]], [1.0, 2.0, 3.0], (3, 3))
    csr = torch.eye(3).to_sparse_csr()
    return (
        (x @ torch.ones(4, 2)),
        y.coalesce(),
        y.t(),
        csr @ torch.ones(3),
        torch.sparse.sum(y),
        (x * r.randint(1, 3)),
        repr(y),
    )


def nested(r: random.Random) -> Any:
    parts = [torch.ones(n, 3) for n in (1, r.randint(2, 4))]
    old = torch.nested.nested_tensor(parts)
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    return (
        (old * 2).unbind(),
        torch.nested.to_padded_tensor(old, 0.0),
        (jagged * 2).values(),
        jagged.sin().unbind(),
        repr(old.size(0)),
    )


def numpy_shares(r: random.Random) -> Any:
    array = np.arange(6.0)
    tensor = torch.from_numpy(array)
    array[r.randint(0, 5)] = 9
    tensor.mul_(2)
    return (
        array.tolist(),
        tensor,
        np.asarray(tensor.view(2, 3)).sum(),
        torch.asarray(array) + 1,
        torch.tensor(np.float32(2)) * 3,
    )


def scalars(r: random.Random) -> Any:
    x = torch.tensor(r.choice((1, 2.5, True, 3 + 1j)))
    return (
        x.item(),
        repr(x),
        str(x.reshape(1)),
        f"{torch.tensor(2.5):.3f}",
        x == x,
        bool(x),
        (x + 1).dtype,
        torch.result_type(x, 2.0),
        torch.tensor([1, 2]) / 2,
    )


def printed(r: random.Random) -> Any:
    return (
        repr(torch.randn(r.randint(1, 40), 3)),
        str(torch.tensor([1e-9, 1e9, float("nan")])),
        repr(torch.empty(0)),
        repr(torch.ones(2, requires_grad=True) * 2),
    )


def indexing(r: random.Random) -> Any:
    x = torch.arange(20).reshape(4, 5)
    x[x > 10] = -1
    x[[0, 1], [1, 2]] += 3
    x[..., r.randint(0, 4)] *= 2
    return (
        x,
        x[None, :, ::2],
        x.gather(1, torch.zeros(4, 1, dtype=torch.long)),
        x.index_add(0, torch.tensor([0]), x[1:2]),
        torch.where(x > 0),
    )


def index_out_of_range(r: random.Random) -> Any:
    return torch.ones(3)[torch.tensor([r.choice((5, -9))])]


def shapes_that_do_not_fit(r: random.Random) -> Any:
    return torch.ones(2, 3) @ torch.ones(r.randint(4, 5), 2)


def wrong_types(r: random.Random) -> Any:
    return torch.nn.functional.linear(
        torch.ones(2, 2), torch.ones(2, 2, dtype=r.choice((torch.float64, torch.int32)))
    )


def many_errors_are_caught(r: random.Random) -> Any:
    found = []
    for attempt in (
        lambda: torch.ones(2) + torch.ones(3),
        lambda: torch.cat([torch.ones(2), torch.ones(2, 2)]),
        lambda: torch.tensor([]).max(),
        lambda: torch.linalg.inv(torch.zeros(2, 2)),
        lambda: torch.linalg.cholesky(-torch.eye(2)),
        lambda: torch.ones(2).view(3),
        lambda: torch.ones(2, requires_grad=True).add_(1),
        lambda: torch.empty(2, dtype=torch.bool) - True,
        lambda: torch.stack([]),
        lambda: torch.nn.functional.cross_entropy(torch.ones(1, 2), torch.tensor([7])),
        lambda: torch.ones(1).backward(),
        lambda: torch.ones(2**60),
        lambda: torch.randint(5, 1, (2,)),
        lambda: torch.ones(3).to("nowhere"),
        lambda: torch.full((2,), "x"),
    ):
        try:
            attempt()
        except Exception as error:  # noqa: BLE001
            found.append((type(error).__name__, str(error)[:300]))
    r.shuffle(found)
    return found


def inference_tensors(r: random.Random) -> Any:
    with torch.inference_mode():
        x = torch.randn(3)
        y = x * 2
        x.add_(1)
        with torch.inference_mode(False):
            z = y.clone() + 1
    caught = None
    try:
        torch.ones(3, requires_grad=True) * y
    except RuntimeError as error:
        caught = str(error)
    return x, y, z, y.is_inference(), z.is_inference(), caught, r.random()


def version_counters(r: random.Random) -> Any:
    w = torch.randn(3, requires_grad=True)
    y = w.exp()
    z = y * w
    y.data.add_(1) if r.random() < 0.5 else y.detach().mul_(2)
    try:
        z.sum().backward()
    except RuntimeError as error:
        return str(error), y._version
    return w.grad, y._version


def gradients(r: random.Random) -> Any:
    w = torch.randn(3, 3, requires_grad=True)
    (first,) = torch.autograd.grad((w @ w).sum() * r.randint(1, 3), w, create_graph=True)
    first.pow(2).sum().backward()
    seen: list[Any] = []
    v = torch.ones(3, requires_grad=True)
    v.register_hook(lambda g: seen.append(g.clone()))
    u = v * 2
    u.retain_grad()
    u.register_hook(lambda g: g * 3)
    torch.autograd.backward(u.sum())
    return (
        w.grad,
        seen,
        u.grad,
        v.grad,
        type(u.grad_fn).__name__,
        [type(n[0]).__name__ for n in u.grad_fn.next_functions],
    )


def post_accumulate_hooks(r: random.Random) -> Any:
    w = torch.randn(3, requires_grad=True)
    seen = []
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
    node = w.expand_as(w).grad_fn.next_functions[0][0]
    node.register_prehook(lambda grads: seen.append(len(grads)))
    (w * r.randint(1, 3)).sum().backward()
    return seen, w.grad


def backward_twice(r: random.Random) -> Any:
    w = torch.ones(2, requires_grad=True)
    y = (w.exp() * r.randint(1, 3)).sum()
    y.backward()
    y.backward()


def autograd_node_order(r: random.Random) -> Any:
    w = torch.ones(2, requires_grad=True)
    y = w * 2
    before = torch._C._autograd._get_sequence_nr()
    z = (y + 1).exp()
    return (
        torch._C._autograd._get_sequence_nr() - before,
        z.grad_fn._sequence_nr() - y.grad_fn._sequence_nr(),
        r.random(),
    )


def copies(r: random.Random) -> Any:
    x = torch.randn(3, 3)[:, : r.randint(1, 3)]
    deep, shallow = copy.deepcopy(x), copy.copy(x)
    x.add_(1)
    buffer = io.BytesIO()
    torch.save({"x": x, "shared": [x.t(), x]}, buffer)
    buffer.seek(0)
    back = torch.load(buffer, weights_only=r.random() < 0.5)
    return (
        deep,
        shallow,
        pickle.loads(pickle.dumps(x)),
        back,
        back["x"].data_ptr() == back["shared"][1].data_ptr(),
    )  # noqa: S301


def weak_references(r: random.Random) -> Any:
    died = []
    x = torch.ones(r.randint(1, 5))
    weakref.finalize(x, died.append, "x")
    y = x * 2
    held = weakref.ref(y)
    kept = weakref.WeakKeyDictionary({x: 1})
    storage = x.untyped_storage()
    use = (
        torch._C._storage_Use_Count(storage._cdata)
        if hasattr(torch._C, "_storage_Use_Count")
        else 0
    )
    del x
    first = list(died), len(kept), held() is y
    del y
    return first, held() is None, use, storage.nbytes()


def reference_counts(r: random.Random) -> Any:
    import sys

    x = torch.ones(r.randint(1, 3))
    y = x.view(-1)
    z = x + y
    return (
        sys.getrefcount(x),
        sys.getrefcount(y),
        sys.getrefcount(z),
        x._use_count() if hasattr(x, "_use_count") else 0,
    )


def resized_storage(r: random.Random) -> Any:
    x = torch.ones(4)
    storage = x.untyped_storage()
    storage.resize_(0)
    storage.resize_(4 * r.randint(4, 8))
    x.fill_(3)
    y = torch.empty(0).set_(storage, 1, (2,), (1,))
    x.resize_(2)
    return x, y, storage.nbytes()


def freed_storage_is_read(r: random.Random) -> Any:
    x = torch.ones(4, 4)
    x.untyped_storage().resize_(0)
    y = x.t()
    x.untyped_storage().resize_(64)
    x.fill_(r.randint(1, 4))
    return y


def swapped_data(r: random.Random) -> Any:
    p = torch.nn.Parameter(torch.ones(3))
    before = p.data_ptr()
    p.data = torch.full((r.randint(3, 5),), 2.0)
    q = torch.nn.Parameter(torch.zeros(2))
    torch.utils.swap_tensors(p, q)
    return p, q, before == p.data_ptr()


def generators(r: random.Random) -> Any:
    g = torch.Generator().manual_seed(r.randint(0, 9))
    state = torch.get_rng_state()
    a = (
        torch.rand(3, generator=g),
        torch.randn(2),
        torch.randperm(5, generator=g),
        torch.bernoulli(torch.full((3,), 0.5)),
    )
    torch.set_rng_state(state)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        b = torch.rand(2)
    return a, b, torch.rand(1), g.initial_seed(), torch.nn.functional.dropout(torch.ones(8))


def low_precision(r: random.Random) -> Any:
    x = torch.randn(4) * r.choice((1, 1e5))
    kinds = (
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int8,
        torch.uint16,
        torch.uint64,
    )
    return (
        [x.abs().to(kind).to(torch.float32) for kind in kinds],
        x.half() * x.half(),
        x.bfloat16() @ x.bfloat16(),
    )


def linear_algebra(r: random.Random) -> Any:
    a = torch.randn(3, 3, dtype=torch.float64)
    s = a @ a.t() + torch.eye(3) * r.randint(1, 3)
    return (
        torch.linalg.qr(a),
        torch.linalg.solve(s, a),
        torch.linalg.cholesky(s),
        torch.linalg.det(a),
        torch.einsum("ij,jk->ik", a, s),
        torch.fft.fft(a),
    )


def foreach(r: random.Random) -> Any:
    xs = [torch.randn(n) for n in (1, 2, r.randint(1, 4))]
    torch._foreach_mul_(xs, 2.0)
    return xs, torch._foreach_add(xs, xs), torch._foreach_norm(xs)


def meta_tensors(r: random.Random) -> Any:
    x = torch.empty(r.randint(1, 5), 3, device="meta")
    model = torch.nn.Linear(3, 4, device="meta")
    y = model(x)
    try:
        y.sum().item()
    except Exception as error:  # noqa: BLE001
        return tuple(y.shape), type(error).__name__, str(error)[:200]
    return y


def default_settings(r: random.Random) -> Any:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("cpu")
    try:
        return torch.ones(2) * r.random(), torch.tensor(1.0).dtype, torch.linspace(0, 1, 3)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def custom_comparison(r: random.Random) -> Any:
    torch.testing.assert_close(torch.ones(3), torch.ones(3) + r.choice((0.0, 1.0)))


def dlpack(r: random.Random) -> Any:
    x = torch.arange(float(r.randint(2, 6)))
    return (
        torch.from_dlpack(x),
        np.from_dlpack(x).tolist(),
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x * 2)),
    )


def empty_and_huge(r: random.Random) -> Any:
    return (
        torch.empty(0, 3).sum(0),
        torch.zeros(0).mean(),
        torch.ones(1).expand(1 << 40).shape,
        torch.zeros(3, 0) @ torch.zeros(0, 2),
        r.random(),
    )


def many_dimensions(r: random.Random) -> Any:
    x = torch.ones((1,) * r.choice((20, 64)))
    return x.sum(), x.flatten().shape


def very_many_dimensions(r: random.Random) -> Any:
    x = torch.ones((1,) * r.choice((65, 100)))
    y = x + 1
    return y.dim(), y.flatten()
