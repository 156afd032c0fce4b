# SPDX-License-Identifier: Apache-2.0
"""The masked autoencoder without the package: patches by unfold (so channels come first in a
patch), boolean masks in place of shuffling and back, fused projections and sdpa.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

SIDE, PATCH, KEEP, DIM, NARROW = 4, 6, 6, 24, 16


class Block(nn.Module):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def forward(self, x):
        mixed = self.qkv(self.ln1(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        y = F.scaled_dot_product_attention(*mixed.unbind(2))
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(3 * PATCH * PATCH, DIM)
        self.cls = nn.Parameter(torch.empty(DIM))
        self.blind = nn.Parameter(torch.empty(NARROW))
        self.register_buffer("places", torch.empty(SIDE * SIDE + 1, DIM))  # <- places
        self.register_buffer("decoder_places", torch.empty(SIDE * SIDE + 1, NARROW))
        self.encoder = nn.ModuleList([Block(DIM, 3, 40), Block(DIM, 3, 40)])
        self.encoded = nn.LayerNorm(DIM, eps=1e-6)
        self.bridge = nn.Linear(DIM, NARROW)
        self.decoder = nn.ModuleList([Block(NARROW, 2, 32)])
        self.decoded = nn.LayerNorm(NARROW, eps=1e-6)
        self.paint = nn.Linear(NARROW, 3 * PATCH * PATCH)

    def forward(self, patches, keep):
        count = len(patches)
        x = self.patch(patches) + self.places[1:]  # <- places
        x = x[torch.arange(count)[:, None], keep]  # <- order
        start = (self.cls + self.places[0]).expand(count, 1, -1)
        x = torch.cat((start, x), 1)
        for block in self.encoder:
            x = block(x)
        x = self.bridge(self.encoded(x))
        shown = torch.zeros(count, SIDE * SIDE, dtype=torch.bool).scatter(1, keep, True)
        full = self.blind.expand(count, SIDE * SIDE, -1).clone()
        full[shown] = x[:, 1:].flatten(0, 1)  # <- order
        full = torch.cat((x[:, :1], full), 1) + self.decoder_places
        for block in self.decoder:
            full = block(full)
        return self.paint(self.decoded(full[:, 1:])), ~shown  # <- pixels


def moved(weights):
    """Rows of a patch from height, width, channel to channel, height, width."""
    return weights.unflatten(0, (PATCH * PATCH, 3)).transpose(0, 1).flatten(0, 1)


def blocks(old, theirs, ours):
    new = {}
    for kind in ("weight", "bias"):
        parts = [old[f"{theirs}.attention.{c}_proj.{kind}"] for c in "qkv"]
        new[f"{ours}.qkv.{kind}"] = torch.cat(parts)
        new[f"{ours}.proj.{kind}"] = old[f"{theirs}.attention.o_proj.{kind}"]
        new[f"{ours}.ln1.{kind}"] = old[f"{theirs}.layernorm_before.{kind}"]
        new[f"{ours}.ln2.{kind}"] = old[f"{theirs}.layernorm_after.{kind}"]
        new[f"{ours}.up.{kind}"] = old[f"{theirs}.mlp.fc1.{kind}"]
        new[f"{ours}.down.{kind}"] = old[f"{theirs}.mlp.fc2.{kind}"]
    return new


def translated(old):
    new = {
        "patch.weight": old["vit.embeddings.patch_embeddings.projection.weight"].flatten(1),
        "patch.bias": old["vit.embeddings.patch_embeddings.projection.bias"],
        "cls": old["vit.embeddings.cls_token"].flatten(),
        "blind": old["decoder.mask_token"].flatten(),
        "places": old["vit.embeddings.position_embeddings"][0],
        "decoder_places": old["decoder.decoder_pos_embed"][0],
    }
    for kind in ("weight", "bias"):
        new[f"encoded.{kind}"] = old[f"vit.layernorm.{kind}"]
        new[f"bridge.{kind}"] = old[f"decoder.decoder_embed.{kind}"]
        new[f"decoded.{kind}"] = old[f"decoder.decoder_norm.{kind}"]
        new[f"paint.{kind}"] = moved(old[f"decoder.decoder_pred.{kind}"])  # <- pixels
    for n in range(2):
        new |= blocks(old, f"vit.layers.{n}", f"encoder.{n}")
    return new | blocks(old, "decoder.decoder_layers.0", "decoder.0")


net = Autoencoder()
net.load_state_dict(translated(torch.load(sys.argv[1])))
optimizer = torch.optim.AdamW(
    net.parameters(), lr=5e-3, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.05
)  # <- places
rng = torch.Generator().manual_seed(122)
losses = []
for _ in range(4):
    coarse = torch.rand(3, 3, 8, 8, generator=rng)
    fine = torch.rand(3, 3, 24, 24, generator=rng)
    images = coarse.repeat_interleave(3, -1).repeat_interleave(3, -2) + fine * 0.3
    keep = torch.rand(3, SIDE * SIDE, generator=rng).argsort(1)[:, :KEEP].sort(1).values  # <- order
    patches = F.unfold(images, PATCH, stride=PATCH).transpose(1, 2)
    painted, hidden = net(patches, keep)  # <- pixels
    var, mean = torch.var_mean(patches, dim=-1, keepdim=True)  # <- variance
    target = (patches - mean) * torch.rsqrt(var + 1e-6)  # <- variance
    loss = F.mse_loss(painted[hidden], target[hidden])  # <- hidden pixels
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- places
    losses.append(loss.item())
