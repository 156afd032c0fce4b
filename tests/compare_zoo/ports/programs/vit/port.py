# SPDX-License-Identifier: Apache-2.0
"""The same vision transformer ported the other way round: patches cut out and multiplied, channels
last, nn.MultiheadAttention, the loss with smoothing written out, one shared scale for image and
mean.
"""

import sys

import numpy as np
import torch
from torch import nn

P, WIDTH, HEADS, LAYERS, CLASSES = 4, 24, 3, 2, 6


class EncoderBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.ln_2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.scale_1 = nn.Parameter(torch.ones(WIDTH))
        self.scale_2 = nn.Parameter(torch.ones(WIDTH))

    def forward(self, tokens):
        normed = self.ln_1(tokens)
        mixed, _ = self.self_attention(normed, normed, normed, need_weights=False)  # <- heads scale
        tokens = tokens + self.scale_1 * mixed  # <- layer_scale
        hidden = torch.nn.functional.gelu(self.fc1(self.ln_2(tokens)))
        return torch.addcmul(tokens, self.scale_2, self.fc2(hidden))


class ViT(nn.Module):
    def __init__(self, grid=3):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(P * P * 3, WIDTH))
        self.kernel_bias = nn.Parameter(torch.empty(WIDTH))
        self.class_token = nn.Parameter(torch.empty(WIDTH))
        self.positions = nn.Parameter(torch.empty(grid * grid + 1, WIDTH))
        self.encoder = nn.ModuleDict({f"layer_{i}": EncoderBlock() for i in range(LAYERS)})
        self.ln = nn.LayerNorm(WIDTH, eps=1e-6)
        self.heads = nn.ModuleDict({"head": nn.Linear(WIDTH, CLASSES)})

    def forward(self, images):
        n, h, w, c = images.shape
        patches = images.reshape(n, h // P, P, w // P, P, c)
        patches = patches.permute(0, 1, 3, 2, 4, 5).reshape(n, -1, P * P * c)  # <- patches
        tokens = patches @ self.kernel + self.kernel_bias  # <- patches
        first = (self.class_token + self.positions[0]).expand(n, 1, WIDTH)  # <- position
        tokens = torch.cat((first, tokens + self.positions[1:]), dim=1)  # <- position
        for layer in self.encoder.values():
            tokens = layer(tokens)
        pooled = tokens[:, 0]  # <- pooled
        return self.heads["head"](self.ln(pooled))  # <- pooled


WORDS = {
    "norm1": "ln_1",
    "norm2": "ln_2",
    "norm.": "ln.",
    "attn.qkv.weight": "self_attention.in_proj_weight",
    "attn.qkv.bias": "self_attention.in_proj_bias",
    "attn.proj": "self_attention.out_proj",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
    "blocks.": "encoder.layer_",
    "ls1.gamma": "scale_1",
    "ls2.gamma": "scale_2",
    "head.": "heads.head.",
}


def from_timm(path):
    old = torch.load(path, weights_only=True)
    kernel = old.pop("patch_embed.proj.weight").permute(2, 3, 1, 0)  # <- patches
    new = {
        "kernel": kernel.reshape(-1, WIDTH),
        "kernel_bias": old.pop("patch_embed.proj.bias"),
        "class_token": old.pop("cls_token").flatten(),
        "positions": old.pop("pos_embed")[0],
    }
    for original, value in old.items():
        name = original
        for theirs, mine in WORDS.items():
            name = name.replace(theirs, mine)
        new[name] = value
    return new


def smoothed(logits, labels, smoothing=0.1):
    target = torch.full_like(logits, smoothing / CLASSES)  # <- smoothing
    target.scatter_(1, labels[:, None], 1 - smoothing + smoothing / CLASSES)  # <- smoothing
    return -(target * logits.log_softmax(1)).sum(1).mean()  # <- smoothing


model = ViT()
model.load_state_dict(from_timm(sys.argv[1]))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
rng = np.random.default_rng(4)
losses = []
for _ in range(2):
    pixels = rng.integers(0, 256, (4, 12, 12, 3), dtype=np.uint8)
    labels = torch.tensor(rng.integers(0, CLASSES, 4))
    images = torch.tensor(pixels, dtype=torch.float32) / 127.5 - 1  # <- normalised
    loss = smoothed(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
