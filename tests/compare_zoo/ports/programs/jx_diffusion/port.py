# SPDX-License-Identifier: Apache-2.0
"""The diffusion steps in flax linen, with optax.incremental_update for the averaged copy."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import opscope

STEPS, SIDE, BATCH, TIME = 50, 8, 4, 16


def time_embedding(t):
    frequencies = jnp.exp(-np.log(1000.0) * jnp.arange(TIME // 2) / (TIME // 2))
    angles = t[:, None].astype(jnp.float32) * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)  # <- sin_cos


class ResBlock(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x, temb):
        x = nn.Conv(self.features, (3, 3), padding=1, name="conv1")(x)
        x = x + nn.Dense(self.features, name="temb")(nn.silu(temb))[:, None, None, :]  # <- sin_cos
        x = nn.GroupNorm(num_groups=2, epsilon=1e-5, name="norm")(x)
        return nn.Conv(self.features, (3, 3), padding=1, name="conv2")(nn.silu(x))


class UNet(nn.Module):
    @nn.compact
    def __call__(self, x, t):
        temb = time_embedding(t)  # <- sin_cos
        skip = ResBlock(8, name="enter")(x, temb)
        x = nn.max_pool(skip, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))  # <- pool_pads
        x = ResBlock(8, name="middle")(x, temb)
        x = jax.image.resize(x, skip.shape, method="nearest")
        x = jnp.concatenate([x, skip], axis=-1)  # <- skip_order
        return nn.Conv(2, (1, 1), name="final")(ResBlock(8, name="leave")(x, temb))  # <- skip_order


def load(path):
    params = {}
    for name, value in np.load(path).items():
        *scope, kind = name.split(".")
        place = params
        for part in scope:
            place = place.setdefault(part, {})
        if kind == "weight":
            kind = "scale" if value.ndim == 1 else "kernel"
        place[kind] = jnp.asarray(value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T)
    return params


model = UNet()
optimizer = optax.adam(1e-2)
alpha_bar = jnp.cumprod(1 - jnp.linspace(1e-3, 0.1, STEPS))


def mse(params, noisy, t, noise):
    return jnp.square(model.apply({"params": params}, noisy, t) - noise).mean()


@jax.jit
def step(params, average, opt_state, images, noise, t):
    level = alpha_bar[t][:, None, None, None]
    noisy = jnp.sqrt(level) * images + jnp.sqrt(1 - level) * noise  # <- noise_level
    loss, grads = jax.value_and_grad(mse)(params, noisy, t, noise)
    updates, opt_state = optimizer.update(grads, opt_state)
    params = optax.apply_updates(params, updates)
    average = optax.incremental_update(params, average, step_size=0.2)  # <- average
    return params, average, opt_state, loss, mse(average, noisy, t, noise)  # <- average


step = opscope.watch_jax(step, sys.argv[2])
params = load(sys.argv[1])
average, opt_state = params, optimizer.init(params)
random = np.random.RandomState(102)
losses = []
for _ in range(4):
    images = random.randn(BATCH, 2, SIDE, SIDE).astype(np.float32).transpose(0, 2, 3, 1)
    noise = random.randn(BATCH, 2, SIDE, SIDE).astype(np.float32).transpose(0, 2, 3, 1)
    t = random.randint(0, STEPS, (BATCH,))
    params, average, opt_state, loss, smooth = step(params, average, opt_state, images, noise, t)
    losses.append(float(loss) + float(smooth))
print(losses)
