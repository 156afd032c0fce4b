# SPDX-License-Identifier: Apache-2.0
"""Functional DDPM training step: a dict of parameters, plain functions, hand-written Adam."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

STEPS = 40
GROUPS = 4
RENAME = [("down1", "enc0"), ("down2", "enc1"), ("up2", "dec1"), ("up1", "dec0"), ("time.mlp.0", "t_in"),
          ("time.mlp.2", "t_out"), ("out.0", "norm_out"), ("out.2", "conv_out"), ("pool", "stride")]


def load_params(path):
    params = {}
    for key, value in torch.load(path).items():
        for old, new in RENAME:
            if key.startswith(old + "."):
                key = new + key[len(old):]
        layer, kind = key.rsplit(".", 1)
        if layer in ("t_in", "t_out") or layer.endswith(".time"):
            value = value.t() if kind == "weight" else value
        params[f"{layer}/{kind[0]}"] = value.clone().contiguous().requires_grad_()
    return params


def conv(p, name, x, stride=1):
    w = p[name + "/w"]
    return F.conv2d(x, w, p[name + "/b"], stride=stride, padding=w.shape[-1] // 2)


def affine(p, name, x):
    return x @ p[name + "/w"] + p[name + "/b"]


def swish(x):
    return x * x.sigmoid()


def group_norm(p, name, x, eps=1e-5):
    b, c, h, w = x.shape
    grouped = x.reshape(b, GROUPS, -1)  # <- gn_groups
    var, mean = torch.var_mean(grouped, dim=-1, correction=0, keepdim=True)  # <- gn_groups
    y = ((grouped - mean) * torch.rsqrt(var + eps)).reshape(b, c, h, w)  # <- gn_groups
    return y * p[name + "/w"].view(c, 1, 1) + p[name + "/b"].view(c, 1, 1)


def res_block(p, name, x, emb):
    h = conv(p, name + ".conv1", swish(group_norm(p, name + ".norm1", x)))
    h = h + affine(p, name + ".time", swish(emb))[..., None, None]
    h = conv(p, name + ".conv2", swish(group_norm(p, name + ".norm2", h)))
    if name + ".skip/w" in p:
        x = conv(p, name + ".skip", x)
    return x + h


def time_features(t, dim=16):
    k = torch.arange(dim // 2, dtype=torch.float32)
    angle = torch.outer(t.float(), 10000.0 ** (-k / (dim // 2 - 1)))
    return torch.hstack((angle.sin(), angle.cos()))


def unet(p, noisy, t, cond):
    emb = affine(p, "t_out", swish(affine(p, "t_in", time_features(t))))
    h = conv(p, "conv_in", torch.cat((noisy, cond), 1))
    stack = []
    h = res_block(p, "enc0", h, emb)
    stack.append(h)
    h = res_block(p, "enc1", conv(p, "stride", h, stride=2), emb)
    stack.append(h)
    h = res_block(p, "mid", h, emb)
    h = res_block(p, "dec1", torch.cat((h, stack.pop()), 1), emb)  # <- skip_order
    h = h.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    h = res_block(p, "dec0", torch.cat((h, stack.pop()), 1), emb)
    return conv(p, "conv_out", swish(group_norm(p, "norm_out", h)))


def schedule():
    keep = 1.0 - torch.linspace(1e-3, 0.12, STEPS)
    log_bar = keep.double().log().cumsum(0)
    bar = log_bar.exp().float()  # <- alpha_bar
    return bar.sqrt(), (1.0 - bar).sqrt()  # <- alpha_bar


def train_loss(p, clean, t, noise, sig, sigma, condition):
    a, s = sig[t][:, None, None, None], sigma[t][:, None, None, None]  # <- alpha_bar
    noisy = a * clean + s * noise  # <- alpha_bar
    guess = torch.zeros_like(noisy)
    if condition:
        guess = ((noisy - s * unet(p, noisy, t, guess)) / a).clamp(-1.0, 1.0)  # <- selfcond_grad
        guess = guess.detach()  # <- selfcond_grad
    return (unet(p, noisy, t, guess) - noise).square().mean()  # <- selfcond_grad


class Adam:
    def __init__(self, params, lr, b1, b2, eps=1e-8):
        self.params, self.lr, self.b1, self.b2, self.eps = params, lr, b1, b2, eps
        self.m = {k: torch.zeros_like(v) for k, v in params.items()}
        self.v = {k: torch.zeros_like(v) for k, v in params.items()}
        self.t = 0

    @torch.no_grad()
    def update(self, grads):
        self.t += 1
        c1, c2 = 1 - self.b1 ** self.t, 1 - self.b2 ** self.t  # <- adam_bias
        for (k, w), g in zip(self.params.items(), grads):
            self.m[k].lerp_(g, 1 - self.b1)
            self.v[k].mul_(self.b2).addcmul_(g, g, value=1 - self.b2)
            w -= self.lr * (self.m[k] / c1) / ((self.v[k] / c2).sqrt() + self.eps)  # <- adam_bias


params = load_params(sys.argv[1])
adam = Adam(params, 2e-3, 0.9, 0.99)
sig, sigma = schedule()
rng = torch.Generator().manual_seed(99)

losses = []
for it in range(5):
    clean = torch.rand(4, 2, 8, 8, generator=rng).mul(2).sub(1)
    t = torch.randint(0, STEPS, (4,), generator=rng)
    noise = torch.randn(4, 2, 8, 8, generator=rng)
    loss = train_loss(params, clean, t, noise, sig, sigma, bool(it & 1))
    adam.update(torch.autograd.grad(loss, list(params.values())))  # <- adam_bias
    losses.append(float(loss))
print(losses)
