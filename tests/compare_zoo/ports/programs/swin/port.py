# SPDX-License-Identifier: Apache-2.0
"""The same with unfold for windows, cat for rolls, SDPA for attention, everything channels first."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

S, W, C, H, SHIFT = 8, 4, 16, 2, 2


def cut(x):
    """batch, channels, S, S to batch, windows, W * W, channels."""
    x = x.unfold(2, W, W).unfold(3, W, W)  # <- windows
    return x.permute(0, 2, 3, 4, 5, 1).flatten(3, 4).flatten(1, 2)  # <- windows


def joined(x):
    x = x.unflatten(1, (S // W, S // W)).unflatten(3, (W, W))
    return x.permute(0, 5, 1, 3, 2, 4).reshape(-1, C, S, S)


def rolled(x, by):
    x = torch.cat((x[:, :, by:], x[:, :, :by]), 2)  # <- direction
    return torch.cat((x[..., by:], x[..., :by]), 3)  # <- direction


class Unit(nn.Module):
    def __init__(self, shifted):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.q, self.k, self.v, self.o = (nn.Linear(C, C) for _ in range(4))
        self.bias = nn.Parameter(torch.zeros(2 * W - 1, 2 * W - 1, H))
        self.up, self.down, self.shifted = nn.Linear(C, 32), nn.Linear(32, C), shifted

    def biases(self):
        place = torch.arange(W)
        apart = place[:, None] - place[None, :] + W - 1  # <- bias
        rows = apart[:, None, :, None].expand(W, W, W, W).reshape(W * W, W * W)
        columns = apart[None, :, None, :].expand(W, W, W, W).reshape(W * W, W * W)
        bias = self.bias[rows, columns].permute(2, 0, 1)[None]  # <- bias
        if not self.shifted:
            return bias[:, None]
        edge = torch.arange(S) // W * 2 + (torch.arange(S) % W >= W - SHIFT).long()  # <- mask
        edge[: S - W] = 0
        zones = (edge[:, None] * 4 + edge[None, :]).float()[None, None]
        zones = cut(zones)[..., 0][0]
        hidden = zones[:, None, :, None] != zones[:, None, None, :]  # <- mask
        return (
            bias.masked_fill(hidden, -100.0)[None] if False else bias[None] + hidden[None] * -100.0
        )  # <- mask

    def forward(self, x):
        y = self.ln1(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        if self.shifted:
            y = rolled(y, SHIFT)  # <- direction
        y = cut(y)
        q, k, v = (f(y).unflatten(-1, (H, -1)).transpose(2, 3) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.biases())  # <- mask bias scale
        y = joined(self.o(y.transpose(2, 3).flatten(3)))
        x = x + (rolled(y, -SHIFT) if self.shifted else y)  # <- back
        y = self.down(F.gelu(self.up(self.ln2(x.movedim(1, -1)))))
        return x + y.movedim(-1, 1)


net = nn.Sequential(Unit(False), Unit(True))
old, new = torch.load(sys.argv[1]), {}
places = {"norm1": "ln1", "norm2": "ln2", "proj": "o", "fc1": "up", "fc2": "down"}
for name, value in old.items():
    block, place, *kind = name.split(".")
    if place == "qkv":
        for one, part in zip("qkv", value.chunk(3)):
            new[f"{block}.{one}.{kind[0]}"] = part
    elif place == "table":
        new[f"{block}.bias"] = value.view(2 * W - 1, 2 * W - 1, H)
    elif place in places:
        new[f"{block}.{places[place]}.{kind[0]}"] = value
net.load_state_dict(new)
adamw = torch.optim.AdamW(net.parameters(), lr=2e-3)
rng = np.random.default_rng(22)
losses = []
for _ in range(2):
    x = torch.from_numpy(rng.standard_normal((2, S, S, C), dtype=np.float32)).permute(0, 3, 1, 2)
    y = torch.from_numpy(rng.standard_normal((2, S, S, C), dtype=np.float32)).permute(0, 3, 1, 2)
    loss = ((net(x) - y) ** 2).mean()
    adamw.zero_grad()
    loss.backward()
    adamw.step()
    losses.append(loss.item())
