# SPDX-License-Identifier: Apache-2.0
"""ViT in einsum style under torch.compile; mixing happens in the loss, not in the labels."""
import sys

import torch
from torch import nn
from torch.nn import functional as F


class PreNormResidual(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.inner = inner
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return torch.addcmul(x, self.inner(self.norm(x)), self.scale)  # <- branch_scale


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.w_in = nn.Parameter(torch.zeros(3, heads, dim // heads, dim))
        self.b_in = nn.Parameter(torch.zeros(3, heads, 1, dim // heads))
        self.w_out = nn.Parameter(torch.zeros(heads, dim // heads, dim))
        self.b_out = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        q, k, v = torch.einsum("bnd,shed->sbhne", x, self.w_in) + self.b_in[:, None]
        mixed = F.scaled_dot_product_attention(q, k, v)
        return torch.einsum("bhne,hed->bnd", mixed, self.w_out) + self.b_out


class SimpleViT(nn.Module):
    def __init__(self, dim=32, heads=4, depth=2, patch=4, side=4, classes=8):
        super().__init__()
        self.patch, self.side = patch, side
        self.to_token = nn.Linear(3 * patch * patch, dim)
        self.cls = nn.Parameter(torch.zeros(dim))
        self.positions = nn.Parameter(torch.zeros(side * side + 1, dim))
        layers = []
        for _ in range(depth):
            mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
            layers += [PreNormResidual(dim, SelfAttention(dim, heads)), PreNormResidual(dim, mlp)]
        self.layers = nn.ModuleList(layers)
        self.out = nn.Sequential(nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, classes))

    def forward(self, images):
        b, s, p = images.shape[0], self.side, self.patch
        patches = images.reshape(b, 3, s, p, s, p).permute(0, 2, 4, 1, 3, 5)  # <- patch_axes
        tokens = self.to_token(patches.reshape(b, s * s, 3 * p * p))  # <- patch_axes
        tokens = torch.cat([self.cls.expand(b, 1, -1), tokens], dim=1)  # <- class_place
        x = tokens + self.positions  # <- class_place
        for layer in self.layers:
            x = layer(x)
        return self.out(x[:, 0])  # <- class_place


def translate(sd, heads=4):
    new = {"to_token.weight": sd["patch_embed.proj.weight"].flatten(1),
           "to_token.bias": sd["patch_embed.proj.bias"],
           "cls": sd["cls_token"].flatten(), "positions": sd["pos_embed"][0]}
    for end in ("weight", "bias"):
        new["out.0." + end], new["out.1." + end] = sd["norm." + end], sd["head." + end]
    for n in range(2):
        old, a, m = f"blocks.{n}.", f"layers.{2 * n}.", f"layers.{2 * n + 1}."
        for part, norm, scale in ((a, "norm1.", "ls1.gamma"), (m, "norm2.", "ls2.gamma")):
            new[part + "scale"] = sd[old + scale]
            for end in ("weight", "bias"):
                new[part + "norm." + end] = sd[old + norm + end]
        new[a + "inner.w_in"] = sd[old + "attn.qkv.weight"].view(3, heads, -1, 32)
        new[a + "inner.b_in"] = sd[old + "attn.qkv.bias"].view(3, heads, 1, -1)
        new[a + "inner.w_out"] = sd[old + "attn.proj.weight"].t().reshape(heads, -1, 32)
        new[a + "inner.b_out"] = sd[old + "attn.proj.bias"]
        new.update({m + "inner." + k.split("mlp.")[1]: v for k, v in sd.items()
                    if k.startswith(old + "mlp.")})
    return new


class Trainer:
    def __init__(self, path):
        self.net = SimpleViT()
        self.net.load_state_dict(translate(torch.load(path, weights_only=True)))
        self.run = torch.compile(self.net, backend="aot_eager")
        self.lr, self.decay = 2e-3, 0.3
        self.opt = torch.optim.Adam(self.net.parameters(), lr=self.lr)  # <- decoupled

    def step(self, images, labels, lam):
        mixed = torch.lerp(images.flip(0), images, lam)
        scores = self.run(mixed)
        straight = F.cross_entropy(scores, labels, label_smoothing=0.1)  # <- mixed_label
        flipped = F.cross_entropy(scores, labels.flip(0), label_smoothing=0.1)  # <- mixed_label
        loss = lam * straight + (1 - lam) * flipped  # <- mixed_label
        self.opt.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.net.parameters():
                p.mul_(1 - self.lr * self.decay)  # <- decoupled
        self.opt.step()  # <- decoupled
        return loss.item()


trainer = Trainer(sys.argv[1])
source = torch.Generator().manual_seed(99)
losses = []
for n in range(4):
    x = torch.randn(6, 3, 16, 16, generator=source)
    y = torch.randint(0, 8, (6,), generator=source)
    losses.append(trainer.step(x, y, 0.3 + 0.15 * n))
print(losses)
