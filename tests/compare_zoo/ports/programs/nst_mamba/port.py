# SPDX-License-Identifier: Apache-2.0
"""S6 in closed form: the decay of every pair (t, s) comes from one cumulative sum."""
import sys

import torch

K, N, R = 4, 6, 3
ckpt = torch.load(sys.argv[1], weights_only=True)
names = sorted(ckpt)
theta = [ckpt[n].detach().clone().requires_grad_(True) for n in names]
W = dict(zip(names, theta))


def scale_norm(h, gain):
    ms = torch.linalg.vector_norm(h, dim=-1, keepdim=True) ** 2 / h.shape[-1]
    return gain * h / torch.sqrt(ms + 1e-5)


def swish(h):
    return h * torch.sigmoid(h)


def short_conv(h, kernel, bias):
    """h [B, T, C], kernel [C, 1, K]: a weighted sum of K shifted copies."""
    T = h.shape[1]
    before = torch.zeros(h.shape[0], K - 1, h.shape[2])
    wide = torch.cat([before, h], dim=1)  # <- conv_side
    taps = [wide[:, k:k + T] * kernel[:, 0, k] for k in range(K)]  # <- conv_side
    return sum(taps) + bias


def s6(u, step, rate, B, C):
    """sum over s <= t of exp(sum of step * rate in (s, t]) * step_s * B_s * u_s, read by C_t."""
    T = u.shape[1]
    total = (step.unsqueeze(-1) * rate).cumsum(1)
    reach = total[:, :, None] - total[:, None]  # <- decay_shift
    seen = torch.ones(T, T).tril().bool()[None, :, :, None, None]
    decay = reach.masked_fill(~seen, float("-inf")).exp()  # <- decay_shift
    inputs = (step * u).unsqueeze(-1) * B.unsqueeze(2)
    return torch.einsum("btsdn,bsdn,btn->btd", decay, inputs, C)


def mixer(h, i):
    p = f"mixers.{i}."
    both = h @ W[p + "in_proj.weight"].mT
    half = both.shape[-1] // 2
    u, gate = both[..., :half], both[..., half:]
    u = swish(short_conv(u, W[p + "conv1d.weight"], W[p + "conv1d.bias"]))
    sel = u @ W[p + "x_proj.weight"].mT
    raw = sel[..., :R] @ W[p + "dt_proj.weight"].mT
    step = torch.logaddexp(raw + W[p + "dt_proj.bias"], torch.zeros(()))  # <- dt_bias
    y = s6(u, step, -W[p + "A_log"].exp(), sel[..., R:R + N], sel[..., R + N:])
    out = (y + u * W[p + "D"]) * swish(gate)  # <- skip_gate
    return out @ W[p + "out_proj.weight"].mT


def objective(x, y):
    h = W["embedding.weight"][x]
    for i in range(2):
        h = h + mixer(scale_norm(h, W[f"norms.{i}.weight"]), i)
    logp = (scale_norm(h, W["norm_f.weight"]) @ W["embedding.weight"].mT).log_softmax(-1)
    return -logp.gather(2, y.unsqueeze(2)).sum() / y.numel()


class Adam:
    """Bias correction is folded into the step's size."""

    def __init__(self, params, lr=2e-3, b1=0.9, b2=0.999, eps=1e-6):  # <- adam_eps
        self.params, self.lr, self.b1, self.b2, self.eps, self.t = params, lr, b1, b2, eps, 0
        self.m = [torch.zeros_like(p) for p in params]
        self.v = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def apply(self, grads):
        self.t += 1
        fix = (1 - self.b2 ** self.t) ** 0.5
        torch._foreach_lerp_(self.m, grads, 1 - self.b1)
        torch._foreach_mul_(self.v, self.b2)
        torch._foreach_addcmul_(self.v, grads, grads, 1 - self.b2)
        for p, m, v in zip(self.params, self.m, self.v):
            den = v.sqrt() + self.eps * fix  # <- adam_eps
            p.addcdiv_(m, den, value=-self.lr * fix / (1 - self.b1 ** self.t))  # <- adam_eps


adam = Adam(theta)
gen = torch.Generator().manual_seed(21)
losses = []
for _ in range(4):
    seq = torch.randint(41, (4, 13), generator=gen)
    value = objective(seq[:, :-1], seq[:, 1:])
    adam.apply(list(torch.autograd.grad(value, theta)))
    losses.append(value.item())
print(losses)
