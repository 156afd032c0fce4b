# SPDX-License-Identifier: Apache-2.0
"""Mean-teacher mixer written as pure functions over one flat parameter vector."""
import sys

import torch

torch.set_num_threads(1)

T, P, D, F_, OUT = 6, 4, 16, 24, 3
EPS = 1e-6  # <- norm_eps


class Vault:
    """All parameters in one vector; views are handed out by name."""

    def __init__(self, named):
        self.slots, at = {}, 0
        for name, value in named.items():
            self.slots[name] = (at, value.shape)
            at += value.numel()
        self.vector = torch.cat([v.reshape(-1) for v in named.values()])

    def views(self, vector):
        return {n: vector[a:a + s.numel()].view(s) for n, (a, s) in self.slots.items()}


def read(path):
    sd = torch.load(path)
    named = {"embed": sd["embed.weight"].T, "embed_b": sd["embed.bias"]}
    for i in (0, 1):
        b = f"blocks.{i}."
        named[f"nt{i}"] = torch.stack([sd[b + "norm_t.weight"], sd[b + "norm_t.bias"]])
        named[f"nc{i}"] = torch.stack([sd[b + "norm_c.weight"], sd[b + "norm_c.bias"]])
        named[f"mix{i}"], named[f"mix_b{i}"] = sd[b + "mix.weight"], sd[b + "mix.bias"]
        named[f"gv{i}"] = torch.cat([sd[b + "gate.weight"], sd[b + "value.weight"]]).T
        named[f"down{i}"] = sd[b + "down.weight"].T
    named["nf"] = torch.stack([sd["norm.weight"], sd["norm.bias"]])
    named["head"], named["head_b"] = sd["head.weight"].T, sd["head.bias"]
    return Vault(named)


def norm(x, wb):
    centred = x - x.mean(-1, keepdim=True)
    var = centred.square().mean(-1, keepdim=True)
    return centred / (var + EPS).sqrt() * wb[0] + wb[1]  # <- norm_eps


def forecast(w, series):
    x = series.reshape(-1, T, P) @ w["embed"] + w["embed_b"]
    for i in (0, 1):
        mixed = torch.einsum("btd,st->bsd", norm(x, w[f"nt{i}"]), w[f"mix{i}"])
        x = x + mixed + w[f"mix_b{i}"][:, None]
        gate, value = (norm(x, w[f"nc{i}"]) @ w[f"gv{i}"]).chunk(2, dim=-1)
        x = x + (gate * torch.sigmoid(gate) * value) @ w[f"down{i}"]
    return norm(x, w["nf"]).mean(1) @ w["head"] + w["head_b"]


def huber(diff, delta=0.4):
    a = diff.abs()
    return torch.where(a < delta, 0.5 * a * a, delta * (a - 0.5 * delta)).mean()  # <- huber_delta


def objective(vault, vector, slow, clean, noisy, future):
    guess = forecast(vault.views(vector), noisy)
    with torch.no_grad():
        soft = forecast(vault.views(slow), clean)
    gap = guess - future
    trust = gap.detach().abs().neg().exp()  # <- trust_grad
    return huber(gap) + 0.5 * (trust * (guess - soft).square()).mean()


class Adam:
    def __init__(self, size, lr, l2):
        self.lr, self.l2, self.t = lr, l2, 0
        self.m, self.v = torch.zeros(size), torch.zeros(size)

    def step(self, w, g):
        lr = self.lr * 0.5 ** (self.t // 2)
        self.t += 1
        g = g + self.l2 * w  # <- l2_decoupled
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.999 * self.v + 0.001 * g * g
        m_hat = self.m / (1 - 0.9**self.t)
        v_hat = self.v / (1 - 0.999**self.t)
        return w - lr * m_hat / (v_hat.sqrt() + 1e-8)  # <- l2_decoupled


def data():
    gen = torch.Generator().manual_seed(55)
    clean = 0.3 * torch.randn(60, T * P, generator=gen).cumsum(1)
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=gen)
    future = clean[:, -1:] + 0.5 * torch.randn(60, OUT, generator=gen)
    return [t.reshape(5, 2, 6, -1) for t in (clean, noisy, future)]


vault = read(sys.argv[1])
weights = vault.vector.clone()
slow = weights.clone()
adam = Adam(weights.numel(), lr=8e-3, l2=0.05)
losses = []
for update, window in enumerate(zip(*data()), start=1):
    grad = torch.zeros_like(weights)
    weights.requires_grad_()
    for clean, noisy, future in zip(*window):
        loss = objective(vault, weights, slow, clean, noisy, future)
        grad += torch.autograd.grad(loss, weights)[0] / 2
        losses.append(loss.item())
    grad *= min(1.0, 0.3 / (grad.norm().item() + 1e-6))
    weights = adam.step(weights.detach(), grad)
    keep = min(0.9, (1 + update) / (10 + update))  # <- ema_ramp
    slow = keep * slow + (1 - keep) * weights
print(losses)
