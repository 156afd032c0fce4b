# SPDX-License-Identifier: Apache-2.0
"""DINOv2 in own code: patches cut by reshaping, one matrix for queries, keys and values."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, DEPTH, PATCH, GRID, INNER, EPS = 32, 4, 2, 4, 4, 48, 1e-6


def patches(image):
    """Patches row by row, each flat with its channels first."""
    batch, colours, height, width = image.shape
    rows, columns = height // PATCH, width // PATCH
    cut = image.reshape(batch, colours, rows, PATCH, columns, PATCH)
    cut = cut.permute(0, 2, 4, 1, 3, 5)  # <- patches
    return cut.reshape(batch, rows * columns, colours * PATCH * PATCH), rows, columns  # <- patches


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, eps=EPS), nn.LayerNorm(WIDTH, eps=EPS)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.w12, self.w3 = nn.Linear(WIDTH, 2 * INNER), nn.Linear(INNER, WIDTH)
        self.ls1, self.ls2 = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        batch, count, _ = x.shape
        qkv = self.qkv(self.ln1(x))  # <- eps
        q, k, v = qkv.reshape(batch, count, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.ls1 * self.proj(y.transpose(1, 2).reshape(batch, count, WIDTH))
        gate, value = self.w12(self.ln2(x)).chunk(2, dim=-1)
        y = self.w3(F.silu(gate) * value)
        return x + self.ls2 * y  # <- layerscale layer


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cut = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.first = nn.Parameter(torch.zeros(WIDTH))
        self.places = nn.Parameter(torch.zeros(1 + GRID * GRID, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.ln = nn.LayerNorm(WIDTH, eps=EPS)

    def places_for(self, rows, columns):
        square = self.places[1:].T.reshape(1, WIDTH, GRID, GRID)  # <- grid
        wide = F.interpolate(square, size=(rows, columns), mode="bicubic")  # <- resized grid
        return torch.cat([self.places[:1], wide.flatten(2).squeeze(0).T])

    def forward(self, image):
        flat, rows, columns = patches(image)
        x = self.cut(flat)  # <- patches
        x = torch.cat([self.first.expand(len(x), 1, WIDTH), x], dim=1)
        x = x + self.places_for(rows, columns)
        return self.ln(self.blocks(x))


def loaded(old):
    new = {
        "first": old["embeddings.cls_token"].flatten(),
        "places": old["embeddings.position_embeddings"][0],
        "cut.weight": old["embeddings.patch_embeddings.projection.weight"].flatten(1),
        "cut.bias": old["embeddings.patch_embeddings.projection.bias"],
        "ln.weight": old["layernorm.weight"],
        "ln.bias": old["layernorm.bias"],
    }
    for n in range(DEPTH):
        of, to = f"encoder.layer.{n}.", f"blocks.{n}."
        for kind in ("weight", "bias"):
            new[f"{to}ln1.{kind}"] = old[f"{of}norm1.{kind}"]
            new[f"{to}ln2.{kind}"] = old[f"{of}norm2.{kind}"]
            qkv = [old[f"{of}attention.{part}_proj.{kind}"] for part in "qkv"]
            new[f"{to}qkv.{kind}"] = torch.cat(qkv)
            new[f"{to}proj.{kind}"] = old[f"{of}attention.o_proj.{kind}"]
            gate, up = old[f"{of}mlp.gate_proj.{kind}"], old[f"{of}mlp.up_proj.{kind}"]
            new[f"{to}w12.{kind}"] = torch.cat([gate, up])
            new[f"{to}w3.{kind}"] = old[f"{of}mlp.down_proj.{kind}"]
        new[f"{to}ls1"] = old[f"{of}layer_scale1.lambda1"]
        new[f"{to}ls2"] = old[f"{of}layer_scale2.lambda1"]  # <- layer
    return new


encoder = Encoder().eval()
encoder.load_state_dict(loaded(torch.load(sys.argv[1])))
rng = np.random.default_rng(43)
losses = []
for _ in range(3):
    image = torch.tensor(rng.normal(0.0, 1.0, (2, 3, 16, 24)), dtype=torch.float32)
    with torch.no_grad():
        features = encoder(image)
    losses.append(features.abs().mean().item())
