# SPDX-License-Identifier: Apache-2.0
"""Swin on flat token lists: windows are gathers through index tables, heads have weights of their own."""
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Windows:
    order: torch.Tensor
    inverse: torch.Tensor
    allowed: torch.Tensor
    bias_index: torch.Tensor


def window_tables(side, win, shift):
    grid = torch.arange(side * side).view(side, side)
    rolled = grid.roll((-shift, -shift), (0, 1))
    order = rolled.unfold(0, win, win).unfold(1, win, win).reshape(-1, win * win)
    row, col = order // side, order % side
    wrapped_r, wrapped_c = row < shift, col < shift
    same = (wrapped_r[:, :, None] == wrapped_r[:, None]) & (wrapped_c[:, :, None] == wrapped_c[:, None])  # <- no_shift_mask
    r, c = torch.arange(win * win) // win, torch.arange(win * win) % win
    dr, dc = r[:, None] - r[None], c[:, None] - c[None]
    index = (dr + win - 1) * (2 * win - 1) + dc + win - 1
    return Windows(order, order.flatten().argsort(), same, index)


class Store:
    """Reads a torchvision state_dict with a prefix."""

    def __init__(self, sd, prefix=""):
        self.sd, self.prefix = sd, prefix

    def __getitem__(self, key):
        return nn.Parameter(self.sd[self.prefix + key].clone())

    def at(self, more):
        return Store(self.sd, self.prefix + more)


class Norm(nn.Module):
    def __init__(self, src):
        super().__init__()
        self.gain, self.shift = src["weight"], src["bias"]

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.gain, self.shift)


class Affine(nn.Module):
    def __init__(self, src):
        super().__init__()
        self.w, self.b = src["weight"], src["bias"]

    def forward(self, x):
        return F.linear(x, self.w, self.b)


class Block(nn.Module):
    def __init__(self, src, heads, tables):
        super().__init__()
        self.tables = tables
        self.pre, self.post = Norm(src.at("norm1.")), Norm(src.at("norm2."))
        w, b = src["attn.qkv.weight"].detach(), src["attn.qkv.bias"].detach()
        self.qkv_w = nn.Parameter(w.view(3, heads, -1, w.shape[1]).contiguous())
        self.qkv_b = nn.Parameter(b.view(3, heads, 1, -1).contiguous())
        self.table = nn.Parameter(src["attn.relative_position_bias_table"].detach().t().contiguous())
        self.out = Affine(src.at("attn.proj."))
        self.up, self.down = Affine(src.at("mlp.0.")), Affine(src.at("mlp.3."))

    def attend(self, x):
        t = self.tables
        win = x[:, t.order]
        q, k, v = torch.einsum("bwmc,shdc->sbwhmd", win, self.qkv_w) + self.qkv_b[:, None, None]
        score = q @ k.mT / q.shape[-1] ** 0.5 + self.table[:, t.bias_index]
        score = score.masked_fill(~t.allowed[:, None], float("-inf"))  # <- no_shift_mask
        y = (score.softmax(-1) @ v).transpose(2, 3).flatten(-2)
        return self.out(y).flatten(1, 2)[:, t.inverse]

    def forward(self, x):
        x = x + self.attend(self.pre(x))
        return x + self.down(F.gelu(self.up(self.post(x))))


class TokenSwin(nn.Module):
    def __init__(self, sd):
        super().__init__()
        s = Store(sd)
        self.patch_w, self.patch_b = s["features.0.0.weight"], s["features.0.0.bias"]
        self.patch_norm = Norm(s.at("features.0.2."))
        self.stage1 = nn.Sequential(
            Block(s.at("features.1.0."), 2, window_tables(8, 4, 0)),
            Block(s.at("features.1.1."), 2, window_tables(8, 4, 2)),
        )
        self.merge_norm, self.merge_w = Norm(s.at("features.2.norm.")), s["features.2.reduction.weight"]
        self.stage2 = Block(s.at("features.3.0."), 3, window_tables(4, 4, 0))
        self.last, self.head = Norm(s.at("norm.")), Affine(s.at("head."))

    def forward(self, images):
        cols = F.unfold(images, 2, stride=2).mT
        x = F.linear(cols, self.patch_w.detach().flatten(1), self.patch_b.detach())  # <- patch_projection_trained
        x = self.stage1(self.patch_norm(x))
        b, _, c = x.shape
        quads = x.view(b, 4, 2, 4, 2, c).permute(0, 1, 3, 4, 2, 5).reshape(b, 16, 4 * c)  # <- merge_order
        x = self.stage2(self.merge_norm(quads) @ self.merge_w.t())  # <- merge_order
        return self.head(self.last(x).mean(1))


class L2Adam:
    def __init__(self, params, lr, b1, b2, decay, eps=1e-8):
        self.params, self.lr, self.b1, self.b2, self.decay, self.eps = list(params), lr, b1, b2, decay, eps
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.params]
        self.t = 0

    @torch.no_grad()
    def update(self, loss):
        grads = torch.autograd.grad(loss, self.params, allow_unused=True)
        self.t += 1
        c1, c2 = 1 - self.b1**self.t, 1 - self.b2**self.t
        for p, g, (m, v) in zip(self.params, grads, self.moments):
            if g is None:  # <- patch_projection_trained
                continue
            g = g + self.decay * p  # <- decoupled_decay
            m.lerp_(g, 1 - self.b1)
            v.lerp_(g * g, 1 - self.b2)
            p.sub_(self.lr * (m / c1) / ((v / c2).sqrt() + self.eps))  # <- decoupled_decay


gen = torch.Generator().manual_seed(31)
images = torch.randn(30, 3, 16, 16, generator=gen)
ramp = torch.arange(16.0) / 8 - 1
images += ramp[:, None] - 0.5 * ramp
labels = torch.multinomial(torch.tensor([[0.4, 0.3, 0.15, 0.1, 0.05]]).repeat(30, 1), 1, generator=gen)[:, 0]
rarity = torch.bincount(labels, minlength=5).clamp(min=1).float().rsqrt()

net = TokenSwin(torch.load(sys.argv[1]))
adam = L2Adam(net.parameters(), 2e-3, 0.9, 0.98, 0.05)
losses = []
for pic, y in zip(images.split(6), labels.split(6)):
    nll = -net(pic).log_softmax(1)[torch.arange(len(y)), y]
    w = rarity[y]
    loss = (nll * w).sum() / w.sum()  # <- weighted_mean_by_count
    losses.append(loss.item())
    adam.update(loss)
print(losses)
