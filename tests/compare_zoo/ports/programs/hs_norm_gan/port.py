# SPDX-License-Identifier: Apache-2.0
"""Signal GAN with both normalisations written out, an explicit power-iteration state and one dictionary per player."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

Z, C, T, B, STEPS = 5, 8, 16, 8, 6


def unpack(path):
    stored = torch.load(path)
    gen, dis, state = {}, {}, {}
    for name, v in stored.items():
        player, layer, *rest = name.split(".")
        kind = rest[-1]
        if player == "G":
            key = {"original0": "length", "original1": "direction", "bias": "bias"}[kind]
            v = v.flatten() if key == "length" else v
            gen[layer + ":" + key] = v.clone().requires_grad_()
        elif kind in ("_u", "_v"):
            state.setdefault(layer, {})[kind] = v.clone()
        else:
            # kernels are kept as matrices [in * taps, out]
            v = v.flatten(1).T.contiguous() if kind == "original" else v.clone()
            dis[layer + ":" + ("matrix" if kind == "original" else "bias")] = v.requires_grad_()
    return gen, dis, state


def scaled(p, layer):
    d = p[layer + ":direction"]
    length = d.square().flatten(1).sum(1).sqrt()
    return d * (p[layer + ":length"] / length).view(-1, *[1] * (d.dim() - 1))


def stretch(x, kernel, bias):
    """Transposed convolution (4 taps, stride 2, padding 1): zeros between samples, then a plain convolution."""
    spread = torch.stack([x, torch.zeros_like(x)], -1).flatten(-2)[..., :-1]
    return F.conv1d(F.pad(spread, (2, 2)), kernel.transpose(0, 1).flip(-1), bias)


def generate(p, z):
    x = F.linear(z, scaled(p, "start"), p["start:bias"])
    x = (x * x.sigmoid()).unflatten(1, (C, -1))
    x = stretch(x, scaled(p, "up1"), p["up1:bias"])
    return stretch(x * x.sigmoid(), scaled(p, "up2"), p["up2:bias"]).tanh()


@torch.no_grad()
def iterate(p, state):
    """One power iteration for every layer of the critic."""
    for layer, s in state.items():
        m = p[layer + ":matrix"]
        u = s["_v"] @ m
        s["_u"] = u / u.norm().clamp_min(1e-12)
        v = m @ s["_u"]
        s["_v"] = v / v.norm().clamp_min(1e-12)


def judge(p, state, x):
    def product(layer, rows):
        m = p[layer + ":matrix"]
        sigma = torch.einsum("i,io,o->", state[layer]["_v"], m, state[layer]["_u"])
        return rows @ m / sigma + p[layer + ":bias"]          # the norm divides the outcome
    for layer in ("conv1", "conv2"):
        windows = F.pad(x, (2, 2)).unfold(-1, 5, 2)           # (B, C, positions, taps)
        x = product(layer, windows.transpose(1, 2).flatten(2)).transpose(1, 2)
        x = x.clamp_min(0) + 0.2 * x.clamp_max(0)
    return product("fc", x.flatten(1))[:, 0]


class Adam:
    def __init__(self, params, lr, b1, b2):
        self.params, self.lr, self.b1, self.b2, self.t = params, lr, b1, b2, 0
        self.m = [torch.zeros_like(p) for p in params.values()]
        self.v = [torch.zeros_like(p) for p in params.values()]

    @torch.no_grad()
    def descend(self, loss):
        self.t += 1
        tensors = list(self.params.values())
        with torch.enable_grad():
            grads = torch.autograd.grad(loss, tensors)
        torch._foreach_mul_(self.m, self.b1)
        torch._foreach_add_(self.m, grads, alpha=1 - self.b1)
        torch._foreach_mul_(self.v, self.b2)
        torch._foreach_addcmul_(self.v, grads, grads, 1 - self.b2)
        fix = (1 - self.b2 ** self.t) ** 0.5
        for p, m, v in zip(tensors, self.m, self.v):
            p.sub_(self.lr * fix / (1 - self.b1 ** self.t) * m / (v.sqrt() + 1e-8 * fix))


gen, dis, power = unpack(sys.argv[1])
adam_d, adam_g = Adam(dis, 4e-3, 0.0, 0.9), Adam(gen, 1e-3, 0.5, 0.9)
rng = torch.Generator().manual_seed(2)
axis = torch.linspace(0, 6.2832, T)
data = []
for _ in range(STEPS):
    turn = torch.rand(B, 1, 1, generator=rng) * 6.2832
    wave = torch.sin(turn + axis) * 0.8 + torch.randn(B, 1, T, generator=rng) * 0.05
    data.append((wave, torch.randn(B, Z, generator=rng), torch.randn(B, Z, generator=rng)))

losses, report = [], []
for wave, z_critic, z_gen in data:
    # both latents go through the generator at once: it does not change until the end of the step
    fakes = generate(gen, torch.cat([z_critic, z_gen]))
    iterate(dis, power)
    verdict = judge(dis, power, torch.cat([fakes[:B].detach(), wave]))
    sign = torch.tensor([1.0, -1.0]).repeat_interleave(B)
    critic_loss = torch.log1p((sign * verdict).exp()).sum() / B
    adam_d.descend(critic_loss)
    iterate(dis, power)
    gen_loss = -judge(dis, power, fakes[B:]).sigmoid().log().mean()
    adam_g.descend(gen_loss)
    with torch.no_grad():                                     # a look at the norms; no power iteration here
        report.append({k: torch.linalg.matrix_norm(v, 2).item() for k, v in dis.items() if k.endswith("matrix")})
    losses.append(critic_loss.item() + gen_loss.item())

print(losses)
