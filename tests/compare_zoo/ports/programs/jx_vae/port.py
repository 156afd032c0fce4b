# SPDX-License-Identifier: Apache-2.0
"""The convolutional VAE in flax linen, channels last."""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import opscope

LATENT, BATCH, SIDE = 6, 5, 12


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        for i, features in ((1, 8), (2, 16)):
            x = nn.Conv(features, (4, 4), (2, 2), padding=1, name=f"conv{i}")(x)
            x = nn.GroupNorm(num_groups=4, epsilon=1e-3, name=f"gn{i}")(x)  # <- norm_eps
            x = nn.silu(x)
        return jnp.split(nn.Dense(2 * LATENT, name="stats")(x), 2, axis=-1)


class Decoder(nn.Module):
    @nn.compact
    def __call__(self, z):
        y = nn.silu(nn.Dense(16, name="grow")(z))
        y = nn.silu(
            nn.ConvTranspose(8, (4, 4), (2, 2), padding="SAME", name="deconv1")(y)
        )  # <- flipped
        return nn.ConvTranspose(1, (4, 4), (2, 2), padding="SAME", name="deconv2")(y)  # <- flipped


class VAE(nn.Module):
    def setup(self):
        self.encoder = Encoder()
        self.decoder = Decoder()

    def __call__(self, x, noise):
        mean, logvar = self.encoder(x)
        z = mean + noise * jnp.exp(0.5 * logvar)  # <- deviation
        return self.decoder(z), mean, logvar


def load(path):
    params = {"encoder": {}, "decoder": {}}
    for name, value in np.load(path).items():
        module, kind = name.split(".")
        part = "decoder" if module in ("grow", "deconv1", "deconv2") else "encoder"
        if module.startswith("deconv") and kind == "weight":
            value = value[:, :, ::-1, ::-1].transpose(2, 3, 0, 1)  # <- flipped
        elif value.ndim == 4:
            value = value.transpose(2, 3, 1, 0)
        elif value.ndim == 2:
            value = value.T
        if kind == "weight":
            kind = "scale" if module.startswith("gn") else "kernel"
        params[part].setdefault(module, {})[kind] = jnp.asarray(value)
    return params


model = VAE()
schedule = optax.cosine_decay_schedule(0.002, decay_steps=4)  # <- cosine
optimizer = optax.sgd(schedule, momentum=0.9)  # <- cosine


def loss_fn(params, images, noise):
    output, mean, logvar = model.apply({"params": params}, images, noise)
    rebuilt = jnp.square(output - images).sum((1, 2, 3)).mean()
    kl = -0.5 * (1 + logvar - mean**2 - jnp.exp(logvar)).sum((1, 2, 3)).mean()  # <- kl_sum
    return rebuilt + 0.2 * kl


@jax.jit
def step(params, opt_state, images, noise):
    loss, grads = jax.value_and_grad(loss_fn)(params, images, noise)
    updates, opt_state = optimizer.update(grads, opt_state, params)  # <- cosine
    return optax.apply_updates(params, updates), opt_state, loss  # <- cosine


step = opscope.watch_jax(step, sys.argv[2])
params = load(sys.argv[1])
opt_state = optimizer.init(params)
random = np.random.RandomState(82)
losses = []
for _ in range(4):
    waves = np.sin(random.rand(BATCH, 1, 1, 1) * np.arange(SIDE)[:, None] + np.arange(SIDE) * 0.5)
    images = (0.3 * waves).astype(np.float32).transpose(0, 2, 3, 1)
    noise = random.randn(BATCH, SIDE // 4, SIDE // 4, LATENT).astype(np.float32)
    params, opt_state, loss = step(params, opt_state, images, noise)
    losses.append(float(loss))
print(losses)
