# SPDX-License-Identifier: Apache-2.0
"""Programs of JAX that make NaN or infinities, and sound ones that have them on purpose.

python jax_unsound.py FOLDER PROGRAM...
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import opscope

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(0.5, 1.5, 8, dtype=np.float32).reshape(4, 2)


def log(w: Any, x: Any) -> Any:
    shares = jax.nn.relu(x @ w)
    return jnp.log(shares).sum()  # of nothing


def overflow(w: Any, x: Any) -> Any:
    wide = jnp.exp(100 * (x @ w))  # more than float32 holds
    return (wide / (1 + wide)).sum()


def division(w: Any, x: Any) -> Any:
    y = jax.nn.relu(-x @ w)
    shares = y / y.sum(-1, keepdims=True)  # of a row of zeros
    return jnp.sum(shares**2)


def gradient(w: Any, x: Any) -> Any:
    y = (x @ w) * (x @ w > 0)
    return jnp.where(y > 0, jnp.sqrt(y), 0.0).sum()  # sound forward, not its gradient


def half(w: Any, x: Any) -> Any:
    y = (300 * x).astype(jnp.float16) @ w.astype(jnp.float16)
    return (y * y).astype(jnp.float32).sum()  # more than float16 holds


def loop(w: Any, x: Any) -> Any:
    def turn(held: Any, row: Any) -> Any:
        held = held * held + 10 * (row @ w).sum()  # grows beyond all bounds
        return held, held

    last, _ = jax.lax.scan(turn, jnp.float32(3.0), jnp.tile(x, (4, 1)))
    return last


def masked(w: Any, x: Any) -> Any:
    y = x @ w
    scores = jnp.where(jnp.tril(jnp.ones((3, 3), bool)), y @ y.T, -jnp.inf)
    return (jax.nn.softmax(scores) @ y).sum()


def guarded(w: Any, x: Any) -> Any:
    y = jax.nn.relu(x @ w)
    safe = jnp.where(y > 0, y, 1.0)
    return jnp.where(y > 0, jnp.log(safe), 0.0).sum() + jax.nn.logsumexp(y)


def drawn(w: Any, x: Any) -> Any:
    key = jax.random.key(3)
    kept = jax.random.bernoulli(key, 0.5, x.shape)
    noise = jax.random.normal(jax.random.fold_in(key, 1), x.shape)
    return jnp.max((jnp.where(kept, x, 0) + noise) @ w, initial=-jnp.inf)


def choice(w: Any, x: Any) -> Any:
    best = jax.lax.top_k(x @ w, 1)[0].mean()
    return jax.lax.cond(best > 0, lambda y: y.sum(), lambda y: jnp.log(-y).sum(), x @ w)


def raised(w: Any, x: Any) -> Any:
    if x.shape[0] == 3:
        raise ValueError("the program's own")
    return x @ w


def main(folder: str, name: str) -> None:
    program = globals()[name]
    sound = jax.value_and_grad(program)
    watched = opscope.watch_jax(jax.jit(sound), f"{folder}/{name}")
    for _ in range(2):
        loss, gradients = watched(W, X)
        with jax.disable_jit():
            other, others = sound(W, X)
        assert np.array_equal(loss, other, equal_nan=True), (loss, other)
        assert np.array_equal(gradients, others, equal_nan=True)
    print(loss)


if __name__ == "__main__":
    for word in sys.argv[2:]:
        main(sys.argv[1], word)
