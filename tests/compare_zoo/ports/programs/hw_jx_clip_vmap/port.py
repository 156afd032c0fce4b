# SPDX-License-Identifier: Apache-2.0
"""JAX port of the two towers: single-example functions under vmap, channels last, optax with labelled rates."""
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import opscope
import optax

N, LENGTH, SLOW = 10, 6, 0.8


class State(NamedTuple):
    optax: optax.OptState
    teacher: dict
    count: jax.Array


def load(path):
    w = {k: jnp.asarray(v) for k, v in np.load(path).items()}
    hwio = lambda a: a.transpose(2, 3, 1, 0)
    vision = {
        "stem": {"w": hwio(w["image.conv1.weight"]), "b": w["image.conv1.bias"]},
        "body": {"w": hwio(w["image.conv2.weight"]), "b": w["image.conv2.bias"]},
        # the features are flattened as (row, column, channel) here
        "head": w["image.proj.weight"].reshape(-1, 16, 4, 4).transpose(2, 3, 1, 0).reshape(256, -1),
    }
    language = {
        "table": w["text.bag.weight"],
        "hidden": {"w": w["text.fc.weight"].T, "b": w["text.fc.bias"]},
        "head": w["text.proj.weight"].T,
    }
    return {"vision": vision, "language": language, "log_temperature": -w["logit_scale"]}


def unit(z):
    return z / jnp.maximum(jnp.linalg.norm(z), 1e-12)


def conv(p, x, stride):
    y = jax.lax.conv_general_dilated(x[None], p["w"], (stride, stride), ((1, 1), (1, 1)),
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y[0] + p["b"]


def see(p, image):
    x = jax.nn.relu(conv(p["stem"], image, 2))
    x = jax.nn.relu(conv(p["body"], x, 1))
    return unit(x.ravel() @ p["head"])


def read(p, ids):
    present = (ids > 0).astype(jnp.float32)
    x = present @ p["table"][ids] / present.sum()
    return unit(jnp.tanh(x @ p["hidden"]["w"] + p["hidden"]["b"]) @ p["head"])


see_all, read_all = jax.vmap(see, (None, 0)), jax.vmap(read, (None, 0))


def loss_fn(params, teacher, images, texts):
    a, b = see_all(params["vision"], images), read_all(params["language"], texts)
    similarity = jnp.einsum("id,jd->ij", a, b) / jnp.exp(params["log_temperature"])
    match = jnp.diagonal(similarity)
    rows = jax.nn.logsumexp(similarity, axis=1) - match
    columns = jax.nn.logsumexp(similarity, axis=0) - match
    target = jax.lax.stop_gradient(see_all(teacher, images))
    # between unit vectors: |t - b|^2 = 2 - 2 t.b
    pull = jnp.square(target - b).sum(-1).mean()
    return 0.5 * (rows + columns).mean() + 0.25 * pull


params = load(sys.argv[1])
labels = {"vision": "towers", "language": "towers", "log_temperature": "temperature"}
tx = optax.multi_transform({"towers": optax.flatten(optax.adam(3e-3)), "temperature": optax.adam(2e-2)}, labels)
state = State(tx.init(params), params["vision"], jnp.zeros((), jnp.int32))


@jax.jit
def step(params, state, images, texts):
    loss, grads = jax.value_and_grad(loss_fn)(params, state.teacher, images, texts)
    updates, inner = tx.update(grads, state.optax, params)
    params = optax.apply_updates(params, updates)
    teacher = optax.incremental_update(params["vision"], state.teacher, 1 - SLOW)
    return params, State(inner, teacher, state.count + 1), loss


step = opscope.watch_jax(step, sys.argv[2])


def batches(seed, count):
    rs = np.random.RandomState(seed)
    for _ in range(count):
        kind = rs.randint(0, 5, size=N)
        images = rs.randn(N, 3, 8, 8) * 0.5 + np.sin(kind).reshape(N, 1, 1, 1)
        texts = rs.randint(1, 6, size=(N, LENGTH)) + 5 * kind.reshape(N, 1)
        ends = rs.randint(2, LENGTH + 1, size=N)
        texts = np.where(np.arange(LENGTH) < ends.reshape(N, 1), texts, 0)
        yield images.transpose(0, 2, 3, 1).astype(np.float32), texts.astype(np.int32)


losses = []
for images, texts in batches(77, 4):
    params, state, loss = step(params, state, images, texts)
    losses.append(loss.item())
print(losses)
