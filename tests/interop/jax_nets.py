# SPDX-License-Identifier: Apache-2.0
"""Nets of JAX that are trained for some steps under opscope.watch_jax, sound or with one fault.

python jax_nets.py FOLDER NET[-FAULT][+WAY]...

forward, apart, vmap and remat are no faults: the same is computed in another way.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax_weights import CLASSES, WIDTH, batches, weights

import opscope

CHOSEN: set[str] = set()
Tree = dict[str, Any]


def chosen(fault: str, sound: Any, wrong: Any) -> Any:
    return wrong if fault in CHOSEN else sound


def dense(tree: Tree, x: Any) -> Any:
    return x @ tree["kernel"] + tree["bias"]


def norm(tree: Tree, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    spread = ((x - mean) ** 2).mean(-1, keepdims=True)
    scaled = (x - mean) * jax.lax.rsqrt(spread + chosen("eps", 1e-5, 1e-2))
    return scaled * tree["scale"] + tree["bias"]


def crossed(logits: Any, labels: Any) -> Any:
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return losses.sum() if "sum" in CHOSEN else losses.mean()


# -- a perceptron ----------------------------------------------------------------------------------


def mlp(params: Tree, x: Any) -> Any:
    x = chosen("act", jnp.tanh, jax.nn.sigmoid)(dense(params["layer0"], x))
    x = jax.nn.relu(dense(params["layer1"], x))
    return dense(params["layer2"], x)


# -- a transformer ---------------------------------------------------------------------------------


def heads(x: Any) -> Any:
    return x.reshape(*x.shape[:-1], 2, WIDTH // 2).transpose(0, 2, 1, 3)


def attention(tree: Tree, x: Any) -> Any:
    query, key, value = (heads(dense(tree[name], x)) for name in ("query", "key", "value"))
    if "swap" in CHOSEN:
        query, key = key, query
    scores = query @ key.transpose(0, 1, 3, 2)
    if "scale" not in CHOSEN:
        scores = scores / jnp.sqrt(WIDTH // 2)
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool), k=chosen("mask", 0, 1))
    scores = jnp.where(mask, scores, -1e9)
    shares = jax.nn.softmax(scores, axis=chosen("axis", -1, -2))
    mixed = (shares @ value).transpose(0, 2, 1, 3).reshape(x.shape)
    return dense(tree["out"], mixed)


def block(tree: Tree, x: Any) -> Any:
    x = x + attention(tree, norm(tree["before"], x))
    wide = dense(tree["up"], norm(tree["after"], x))
    return x + dense(tree["down"], jax.nn.gelu(wide, approximate=chosen("gelu", True, False)))


def gpt(params: Tree, ids: Any) -> Any:
    x = params["words"][ids] + params["places"]
    for name in ("block0", "block1"):
        x = chosen("remat", block, jax.checkpoint(partial(block)))(params[name], x)
    return dense(params["head"], norm(params["last"], x))


# -- a convolutional net, of flax ------------------------------------------------------------------


class Conv(nn.Module):
    @nn.compact
    def __call__(self, x: Any, *, train: bool) -> Any:
        for i, width in enumerate((8, WIDTH)):
            padding = chosen("pads", [(1, 1), (1, 1)], [(0, 2), (0, 2)]) if i else "SAME"
            x = nn.Conv(width, (3, 3), padding=padding, use_bias=False, name=f"conv{i}")(x)
            x = nn.BatchNorm(
                use_running_average=not train,
                momentum=chosen("momentum", 0.9, 0.99),
                epsilon=chosen("eps", 1e-5, 1e-2),
                name=f"norm{i}",
            )(x)
            x = nn.relu(x)
            pool = chosen("pool", nn.max_pool, nn.avg_pool) if i == 0 else nn.max_pool
            x = pool(x, (2, 2), strides=(2, 2))
        return nn.Dense(CLASSES, name="head")(x.mean((1, 2)))


# -- a recurrent net -------------------------------------------------------------------------------


def lstm(params: Tree, ids: Any) -> Any:
    def turn(held: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
        hidden, cell = held
        tree = params["cell"]
        gates = x @ tree["given"] + hidden @ tree["held"] + tree["bias"]
        enter, forget, made, leave = jnp.split(gates, 4, axis=-1)
        if "gates" in CHOSEN:
            enter, forget = forget, enter
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(made)
        hidden = jax.nn.sigmoid(leave) * chosen("out", jnp.tanh, lambda cell: cell)(cell)
        return (hidden, cell), hidden

    x = params["words"][ids].swapaxes(0, 1)
    empty = jnp.zeros((x.shape[1], WIDTH))
    _, every = jax.lax.scan(turn, (empty, empty), x, reverse=chosen("turned", False, True))
    return dense(params["head"], every[-1])


# -- training --------------------------------------------------------------------------------------


def nudged(decay: float = 0.9, rate: float = 0.05) -> Any:
    """Momentum as TensorFlow has it: the rate is in what is kept. Seen where the rate falls."""
    rates = optax.exponential_decay(rate, 1, 0.5)
    return optax.chain(optax.scale_by_learning_rate(rates), optax.trace(decay))


def optimizer(net: str) -> Any:
    rate = chosen("rate", 1e-2, 1.02e-2)
    if net == "mlp":
        kept = optax.chain(
            optax.trace(0.9), optax.scale_by_learning_rate(optax.exponential_decay(0.05, 1, 0.5))
        )
        return nudged() if "form" in CHOSEN else kept
    if net == "gpt":
        return optax.adamw(rate, weight_decay=chosen("decay", 0.1, 0.0))
    if net == "conv":
        return optax.sgd(0.1, momentum=chosen("sgd", 0.9, 0.5))
    return optax.adam(rate, b2=chosen("b2", 0.999, 0.9))


def plain(run: str, net: str) -> None:
    model = {"mlp": mlp, "gpt": gpt, "lstm": lstm}[net]
    update = optimizer(net)

    def loss_of(params: Tree, x: Any, labels: Any) -> Any:
        given = jax.vmap(partial(model, params))(x) if "vmap" in CHOSEN else model(params, x)
        return crossed(given, labels)

    def graded(params: Tree, x: Any, labels: Any) -> Any:
        return jax.value_and_grad(loss_of)(params, x, labels)

    def updated(gradients: Tree, state: Any, params: Tree) -> Any:
        updates, state = update.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    def step(params: Tree, state: Any, x: Any, labels: Any) -> Any:
        loss, gradients = graded(params, x, labels)
        return *updated(gradients, state, params), loss

    if "apart" in CHOSEN:
        graded = opscope.watch_jax(jax.jit(graded), run)
        updated = opscope.watch_jax(jax.jit(updated), graded)
    else:
        step = opscope.watch_jax(jax.jit(step), run)
    params = weights(net)
    state = update.init(params)
    for x, labels in batches(net):
        params, state, loss = step(params, state, x, labels)
        print(float(loss))


def judged(run: str, net: str) -> None:
    """Forward passes alone."""
    model = {"mlp": mlp, "gpt": gpt, "lstm": lstm}[net]

    @jax.jit
    def forward(params: Tree, x: Any) -> Any:  # traced anew, as the faults chosen now have it
        return model(params, x)

    forward = opscope.watch_jax(forward, run)
    for x, _ in batches(net):
        print(float(forward(weights(net), x).sum()))


def normed(run: str) -> None:
    model, update = Conv(), optimizer("conv")
    params = weights("conv")
    first = {
        f"norm{i}": {"mean": jnp.zeros(n), "var": jnp.ones(n)} for i, n in ((0, 8), (1, WIDTH))
    }
    state = {"params": params, "batch_stats": first, "kept": update.init(params)}

    @jax.jit
    def step(state: Tree, x: Any, labels: Any) -> Any:
        def loss_of(params: Tree) -> Any:
            variables = {"params": params, "batch_stats": state["batch_stats"]}
            logits, new = model.apply(variables, x, train=True, mutable=["batch_stats"])
            return crossed(logits, labels), new["batch_stats"]

        (loss, means), gradients = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
        updates, kept = update.update(gradients, state["kept"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "batch_stats": means, "kept": kept}, loss

    step = opscope.watch_jax(step, run)
    for x, labels in batches("conv"):
        state, loss = step(state, x, labels)
        print(float(loss))


def record(folder: str, name: str) -> None:
    net, _, chosen_words = name.partition("-")
    CHOSEN.clear()
    CHOSEN.update(chosen_words.split("+"))
    run = f"{folder}/{name}"
    if "forward" in CHOSEN:
        judged(run, net)
    elif net == "conv":
        normed(run)
    else:
        plain(run, net)


if __name__ == "__main__":
    for word in sys.argv[2:]:
        record(sys.argv[1], word)
