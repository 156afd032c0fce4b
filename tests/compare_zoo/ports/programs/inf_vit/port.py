# SPDX-License-Identifier: Apache-2.0
"""Land-cover tagger on einsum only: patches cut from channel-last tiles, fused qkv, and a bicubic
resampling matrix in place of interpolate."""
import sys
import torch
from torch import einsum


def cubic(d, a=-0.75):  # <- cubic
    """Keys' convolution kernel at distance d."""
    d = d.abs()
    near = (a + 2) * d ** 3 - (a + 3) * d ** 2 + 1  # <- cubic
    far = a * d ** 3 - 5 * a * d ** 2 + 8 * a * d - 4 * a  # <- cubic
    return torch.where(d <= 1, near, torch.where(d < 2, far, torch.zeros_like(d)))  # <- cubic


def resampler(old, new):
    """(new, old) matrix; samples over the border are those of the border."""
    matrix = torch.zeros(new, old, dtype=torch.float64)
    centre = (torch.arange(new, dtype=torch.float64) + 0.5) * old / new - 0.5
    base = centre.floor()
    for tap in range(-1, 3):
        weight = cubic(centre - base - tap)
        column = (base + tap).clamp(0, old - 1).long()
        matrix[torch.arange(new), column] += weight
    return matrix.float()


def standard(x, w, b):
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) * (var + 1e-6) ** -0.5 * w + b


class Tagger:
    PATCH, HEADS, GRID = 6, 3, 4

    def __init__(self, path):
        raw = torch.load(path, weights_only=True)
        self.raw = raw
        kernel = raw["patch_embed.proj.weight"]
        self.embed = kernel.permute(2, 3, 1, 0).reshape(-1, kernel.shape[0])  # <- patches
        self.layers = []
        while f"blocks.{len(self.layers)}.ls1.gamma" in raw:
            start = f"blocks.{len(self.layers)}."
            self.layers.append({k.removeprefix(start): v for k, v in raw.items()
                                if k.startswith(start)})

    def cut(self, tiles):
        n, height, width, bands = tiles.shape
        p = self.PATCH
        x = tiles.view(n, height // p, p, width // p, p, bands).transpose(2, 3)  # <- patches
        x = x.reshape(n, height // p, width // p, -1)  # <- patches
        return x @ self.embed + self.raw["patch_embed.proj.bias"]

    def place(self, x):
        n, rows, cols, dim = x.shape
        table = self.raw["pos_embed"][0]
        grid = table[1:].view(self.GRID, self.GRID, dim)
        up, across = resampler(self.GRID, rows), resampler(self.GRID, cols)
        x = x + einsum("ri,sj,ijd->rsd", up, across, grid)  # <- cubic
        first = (self.raw["cls_token"][0, 0] + table[0]).expand(n, 1, dim)
        return torch.cat([first, x.reshape(n, rows * cols, dim)], 1)

    def attention(self, p, x):
        n, t, dim = x.shape
        qkv = x @ p["attn.in_proj_weight"].mT + p["attn.in_proj_bias"]
        q, k, v = qkv.view(n, t, 3, self.HEADS, -1).unbind(2)
        mix = (einsum("nqhd,nkhd->nhqk", q, k) * q.shape[-1] ** -0.5).softmax(-1)
        out = einsum("nhqk,nkhd->nqhd", mix, v).reshape(n, t, dim)
        return out @ p["attn.out_proj.weight"].mT + p["attn.out_proj.bias"]

    def mlp(self, p, x):
        h = x @ p["mlp.0.weight"].mT + p["mlp.0.bias"]
        h = h * torch.special.ndtr(h)
        return h @ p["mlp.2.weight"].mT + p["mlp.2.bias"]

    def __call__(self, tiles):
        x = self.place(self.cut(tiles))
        for p in self.layers:
            y = self.attention(p, standard(x, p["norm1.weight"], p["norm1.bias"]))
            x = torch.addcmul(x, y, p["ls1.gamma"])  # <- layerscale
            y = standard(x, p["norm2.weight"], p["norm2.bias"])
            x = x + self.mlp(p, y) * p["ls2.gamma"]  # <- prenorm
        x = standard(x, self.raw["norm.weight"], self.raw["norm.bias"])
        patch_mean = x[:, 1:].mean(1)  # <- pooling
        a, b = self.raw["head.weight"].chunk(2, 1)
        return x[:, 0] @ a.mT + patch_mean @ b.mT + self.raw["head.bias"]  # <- pooling


tagger = Tagger(sys.argv[1])
gen = torch.Generator().manual_seed(101)
losses = []
with torch.no_grad():
    for _ in range(4):
        tiles = torch.rand(5, 4, 36, 30, generator=gen)
        tiles = torch.nn.functional.avg_pool2d(tiles, 3, stride=1, padding=1) * 4 - 2
        tags = torch.rand(5, 7, generator=gen) < 0.3
        logits = tagger(tiles.permute(0, 2, 3, 1).contiguous())
        signed = torch.where(tags, -logits, logits)
        losses.append(torch.logaddexp(signed, torch.zeros(())).mean().item())
print(losses)
