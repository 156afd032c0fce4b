# SPDX-License-Identifier: Apache-2.0
"""The same PatchTST upon torch's own transformer encoder: weights packed for its attention, patches
cut from a series with channels before time, the schedule in a function.
"""

import math
import sys

import numpy as np
import torch
from torch import nn

N_CHANNELS, SEEN, AHEAD, LONG, EVERY, WIDTH, DEPTH = 3, 20, 6, 4, 2, 12, 2


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        count = (SEEN + EVERY - LONG) // EVERY + 1
        self.gain, self.shift = (nn.Parameter(torch.zeros(N_CHANNELS, 1)) for _ in range(2))
        self.embed = nn.Linear(LONG, WIDTH)
        self.place = nn.Parameter(torch.zeros(count, WIDTH))
        layer = nn.TransformerEncoderLayer(
            d_model=WIDTH,
            nhead=3,
            dim_feedforward=20,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=False,
        )
        self.encoder = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.head = nn.Linear(count * WIDTH, AHEAD)

    def forward(self, series):
        """(batch, time, channels) of the past to the same of the future."""
        x = series.transpose(1, 2)  # <- channels
        with torch.no_grad():
            mean = x.mean(-1, keepdim=True)
            spread = (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()  # <- spread
        x = (x - mean) / spread * self.gain + self.shift
        x = nn.functional.pad(x.flatten(0, 1), (0, EVERY), mode="replicate")  # <- padded channels
        patches = x.unfold(-1, LONG, EVERY)  # <- padded
        y = self.encoder(self.embed(patches) + self.place)  # <- axis gelu post packed
        y = self.head(y.transpose(-2, -1).flatten(1))  # <- flattened
        y = y.view(-1, N_CHANNELS, AHEAD)
        y = (y - self.shift) / (self.gain + 1e-10)  # <- undone
        return (y * spread + mean).transpose(1, 2)  # <- undone


def unpacked(old):
    new = {
        "gain": old["revin.affine_weight"][:, None],
        "shift": old["revin.affine_bias"][:, None],
        "place": old["w_pos"],
    }
    names = {"embed": "w_p", "head": "head"}
    for n in range(DEPTH):
        to, of = f"encoder.layers.{n}.", f"layers.{n}."
        for kind in ("weight", "bias"):
            parts = [
                old[f"{of}self_attn.{part}.{kind}"] for part in ("w_q", "w_k", "w_v")
            ]  # <- packed
            new[f"{to}self_attn.in_proj_{kind}"] = torch.cat(parts)  # <- packed
        names |= {f"{to}self_attn.out_proj": f"{of}self_attn.to_out"}
        names |= {f"{to}linear1": f"{of}ff1", f"{to}linear2": f"{of}ff2"}
        names |= {f"{to}norm1": f"{of}norm_attn", f"{to}norm2": f"{of}norm_ffn"}
    for mine, theirs in names.items():
        for kind in ("weight", "bias"):
            new[f"{mine}.{kind}"] = old[f"{theirs}.{kind}"]
    return new


def rate(step):
    """One cycle of five steps: a cosine up from a 25th in two, then down to almost nothing."""
    top, bottom, rise = 5e-3, 5e-3 / 25 / 1e4, 0.4 * 5 - 1
    start, end, part = (5e-3 / 25, top, step / rise)
    if step > rise:
        start, end, part = (top, bottom, (step - rise) / (4 - rise))
    return end + (start - end) / 2 * (1 + math.cos(math.pi * part))  # <- cycle


net = Forecaster()
net.load_state_dict(unpacked(torch.load(sys.argv[1])))
adam = torch.optim.Adam(net.parameters(), foreach=True)
rng = np.random.default_rng(227)
losses = []
for step in range(4):
    adam.param_groups[0]["lr"] = rate(step)  # <- cycle
    walk = np.cumsum(rng.normal(size=(4, SEEN + AHEAD, N_CHANNELS)), axis=1)
    past, future = torch.tensor(walk.astype(np.float32)).split([SEEN, AHEAD], dim=1)
    loss = (net(past) - future).square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()  # <- cycle
    losses.append(loss.item())
