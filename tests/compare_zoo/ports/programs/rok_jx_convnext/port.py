# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt in plain JAX (NHWC, parameters in nested dicts) with an optax schedule."""
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import opscope

DN = ("NHWC", "HWIO", "NHWC")


def to_hwio(kernel):
    return jnp.asarray(kernel.transpose(2, 3, 1, 0))  # <- kernel_axes


def load_params(path):
    z = np.load(path)

    def dense(name):
        return {"kernel": jnp.asarray(z[name + ".weight"].T), "bias": jnp.asarray(z[name + ".bias"])}

    def conv(name):
        return {"kernel": to_hwio(z[name + ".weight"]), "bias": jnp.asarray(z[name + ".bias"])}

    def norm(name):
        return {"scale": jnp.asarray(z[name + ".weight"]), "bias": jnp.asarray(z[name + ".bias"])}

    def block(name):
        return {"dw": conv(name + ".dwconv"), "ln": norm(name + ".norm"), "up": dense(name + ".pwconv1"),
                "down": dense(name + ".pwconv2"), "gamma": jnp.asarray(z[name + ".gamma"])}

    head = z["head.weight"].reshape(7, 16, 4, 4).transpose(2, 3, 1, 0).reshape(-1, 7)  # <- flatten_order
    return {
        "stem": {"conv": conv("stem.0"), "ln": norm("stem.1")},
        "b1": block("stage1"),
        "shrink": {"ln": norm("down.0"), "conv": conv("down.1")},
        "b2": block("stage2"),
        "head": {"kernel": jnp.asarray(head), "bias": jnp.asarray(z["head.bias"])},
    }


def linear(p, x):
    return x @ p["kernel"] + p["bias"]


def conv(p, x, strides, padding, groups=1):
    y = lax.conv_general_dilated(  # <- kernel_axes same_padding
        x, p["kernel"], strides, padding, dimension_numbers=DN, feature_group_count=groups)
    return y + p["bias"]


def layer_norm(p, x, axis=-1, eps=1e-6):  # <- norm_axis
    mean = x.mean(axis, keepdims=True)  # <- norm_axis
    var = x.var(axis, keepdims=True)  # <- norm_axis
    return (x - mean) * lax.rsqrt(var + eps) * p["scale"] + p["bias"]


def convnext_block(p, x):
    y = conv(p["dw"], x, (1, 1), [(2, 2), (2, 2)], groups=x.shape[-1])  # <- kernel_axes
    y = layer_norm(p["ln"], y)  # <- norm_axis
    y = jax.nn.gelu(linear(p["up"], y), approximate=False)
    return x + p["gamma"] * linear(p["down"], y)


def apply(params, images):
    x = conv(params["stem"]["conv"], images, (2, 2), "VALID")
    x = layer_norm(params["stem"]["ln"], x)
    x = convnext_block(params["b1"], x)
    x = layer_norm(params["shrink"]["ln"], x)
    x = conv(params["shrink"]["conv"], x, (2, 2), [(1, 1), (1, 1)])  # <- same_padding
    x = convnext_block(params["b2"], x)
    x = x.reshape(x.shape[0], -1)  # <- flatten_order
    return linear(params["head"], x)  # <- flatten_order


schedule = optax.warmup_cosine_decay_schedule(init_value=1e-2 / 3, peak_value=1e-2, warmup_steps=2, decay_steps=8)  # <- warmup_from_zero
tx = optax.flatten(optax.adamw(schedule, weight_decay=0.1))  # <- warmup_from_zero


@jax.jit
def step(params, opt_state, images, labels):
    def loss_fn(p):
        logits = apply(p, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state, params)  # <- warmup_from_zero
    return optax.apply_updates(params, updates), opt_state, loss


step = opscope.watch_jax(step, sys.argv[2])

params = load_params(sys.argv[1])
opt_state = tx.init(params)
rng = np.random.RandomState(12)
losses = []
for _ in range(4):
    images = rng.normal(size=(8, 3, 16, 16)).astype(np.float32).transpose(0, 2, 3, 1)
    labels = rng.randint(0, 7, size=8).astype(np.int32)
    params, opt_state, loss = step(params, opt_state, images, labels)
    losses.append(float(loss))
print(losses)
