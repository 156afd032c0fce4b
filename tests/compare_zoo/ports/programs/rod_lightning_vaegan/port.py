# SPDX-License-Identifier: Apache-2.0
"""The wave VAE-GAN as functions over parameter lists, with its own Adam and spectral norm."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

T, C, Z, B = 16, 6, 4, 6


class Bag(nn.Module):
    """Parameters and buffers without any layers."""

    def __init__(self, params, buffers=()):
        super().__init__()
        for name, value in params.items():
            setattr(self, name, nn.Parameter(value.clone()))
        for name, value in dict(buffers).items():
            self.register_buffer(name, value.clone())


def load(path):
    sd = torch.load(path)
    vae = Bag({
        "taps": sd["encoder.conv.weight"].flatten(1),
        "taps_b": sd["encoder.conv.bias"],
        "mean": sd["encoder.stats.weight"][:Z],
        "mean_b": sd["encoder.stats.bias"][:Z],
        "spread": sd["encoder.stats.weight"][Z:],
        "spread_b": sd["encoder.stats.bias"][Z:],
        "grow": sd["generator.grow.weight"],
        "grow_b": sd["generator.grow.bias"],
        "comb": sd["generator.deconv.weight"].squeeze(1),
        "comb_b": sd["generator.deconv.bias"],
    })
    hidden = "critic.hidden."
    power = hidden + "parametrizations.weight."
    critic = Bag(
        {
            "w": sd[power + "original"],
            "b": sd[hidden + "bias"],
            "s": sd["critic.score.weight"][0],
            "s_b": sd["critic.score.bias"],
        },
        {"u": sd[power + "0._u"], "v": sd[power + "0._v"]},
    )
    return vae, critic


def leak(x):
    return torch.maximum(x, 0.2 * x)


def encode(n, x):
    windows = F.pad(x, (1, 1)).unfold(1, 4, 2)
    h = leak(torch.einsum("btk,ck->bct", windows, n.taps) + n.taps_b[:, None]).flatten(1)
    return F.linear(h, n.mean, n.mean_b), F.linear(h, n.spread, n.spread_b)


def decode(n, z):
    h = leak(F.linear(z, n.grow, n.grow_b)).view(-1, C, T // 2)
    parts = torch.einsum("bct,ck->bkt", h, n.comb)
    wave = F.fold(parts, (1, T + 2), (1, 4), stride=(1, 2))[:, 0, 0, 1:-1]
    return torch.tanh(wave + n.comb_b)


def unit(x):
    return x / x.norm().clamp_min(1e-12)


def critic_features(n, x):
    with torch.no_grad():
        u = unit(n.w @ n.v)
        v = unit(n.w.T @ u)
        n.u, n.v = u, v  # <- power_vectors_lost
    sigma = torch.dot(u, n.w @ v)
    return leak(F.linear(x, n.w / sigma, n.b))


def critic_score(n, feats):
    return feats @ n.s + n.s_b


class Adam:
    def __init__(self, bag, lr):
        self.bag, self.lr, self.t = bag, lr, 0
        self.state = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in bag.parameters()]

    @torch.no_grad()
    def step(self, b1=0.5, b2=0.99):
        self.t += 1
        fix1, fix2 = 1 - b1**self.t, 1 - b2**self.t  # <- adam_uncorrected
        for p, m, v in self.state:
            m.lerp_(p.grad, 1 - b1)
            v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            p -= self.lr * (m / fix1) / ((v / fix2).sqrt() + 1e-8)  # <- adam_uncorrected


def critic_objective(vae, critic, x, noise):
    mean, logvar = encode(vae, x)
    fake = decode(vae, mean + noise * (logvar / 2).exp()).detach()  # <- fake_attached
    on_real = critic_score(critic, critic_features(critic, x))
    on_fake = critic_score(critic, critic_features(critic, fake))
    return (1 - on_real).clamp_min(0).mean() + (1 + on_fake).clamp_min(0).mean()


def vae_objective(vae, critic, x, noise):
    mean, logvar = encode(vae, x)
    fake = decode(vae, mean + noise * (logvar / 2).exp())
    kl = 0.5 * (mean.square() + logvar.exp() - logvar - 1).sum() / len(x)  # <- kl_mean
    wanted = critic_features(critic, x).detach()
    got = critic_features(critic, fake)
    pixel = (fake - x).abs().mean()  # <- l1_summed
    return pixel + 0.05 * kl + (got - wanted).square().mean() - 0.2 * critic_score(critic, got).mean()


def waves():
    gen = torch.Generator().manual_seed(88)
    phase = 6.28 * torch.rand(5 * B, 1, 1, generator=gen)
    pace = 0.3 + torch.rand(5 * B, 1, 1, generator=gen)
    x = 0.8 * torch.sin(phase + pace * torch.arange(T)).squeeze(1)
    return zip(x.split(B), torch.randn(5 * B, Z, generator=gen).split(B))


vae, critic = load(sys.argv[1])
turns = (
    (critic_objective, Adam(critic, 4e-3)),
    (vae_objective, Adam(vae, 6e-3)),
)
losses = []
for x, noise in waves():
    vae.zero_grad()
    critic.zero_grad()
    for objective, adam in turns:
        loss = objective(vae, critic, x, noise)
        loss.backward()
        adam.step()
        losses.append(loss.item())
print(losses)
