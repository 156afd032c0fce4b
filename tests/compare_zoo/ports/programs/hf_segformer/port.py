# SPDX-License-Identifier: Apache-2.0
"""SegFormer in own code: maps keep their channels last, what is not spatial is a plain product."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LABELS, DECODED, UNKNOWN = 5, 20, 255


def conv(x, layer):
    """A convolution over a map whose channels are last."""
    return layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def resized(x, size):
    x = x.permute(0, 3, 1, 2)
    x = F.interpolate(x, size=size, mode="bilinear", align_corners=False)  # <- corners
    return x.permute(0, 2, 3, 1)


class Reduction(nn.Module):
    def __init__(self, dim, ratio):
        super().__init__()
        self.ratio = ratio
        self.fold, self.norm = nn.Linear(dim * ratio * ratio, dim), nn.LayerNorm(dim)

    def forward(self, x):
        r = self.ratio
        x = x.unfold(1, r, r).unfold(2, r, r)
        return self.norm(self.fold(x.flatten(3)))  # <- folded


class Attention(nn.Module):
    def __init__(self, dim, heads, ratio):
        super().__init__()
        self.heads, self.head = heads, dim // heads
        self.q, self.kv, self.out = (
            nn.Linear(dim, dim),
            nn.Linear(dim, 2 * dim),
            nn.Linear(dim, dim),
        )
        self.reduction = Reduction(dim, ratio) if ratio > 1 else nn.Identity()

    def forward(self, x):
        q = self.q(x).flatten(1, 2).unflatten(-1, (self.heads, self.head))
        kv = self.kv(self.reduction(x)).flatten(1, 2)
        k, v = kv.unflatten(-1, (2, self.heads, self.head)).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k)
        weights = torch.softmax(scores * self.head**-0.5, dim=-1)  # <- scale
        read = torch.einsum("bhqk,bkhd->bqhd", weights, v)
        return self.out(read.reshape(x.shape))


class Block(nn.Module):
    def __init__(self, dim, heads, ratio):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads, ratio)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.depthwise = nn.Conv2d(2 * dim, 2 * dim, 3, padding=1, groups=2 * dim)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(conv(self.up(self.norm2(x)), self.depthwise)))


class Stage(nn.Module):
    def __init__(self, of, dim, patch, stride, heads, ratio):
        super().__init__()
        self.cut = nn.Conv2d(of, dim, patch, stride, patch // 2)
        self.cut_norm, self.norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.block = Block(dim, heads, ratio)

    def forward(self, x):
        return self.norm(self.block(self.cut_norm(conv(x, self.cut))))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.fine, self.coarse = Stage(3, 16, 7, 4, 2, 2), Stage(16, 24, 3, 2, 3, 1)

    def forward(self, image):
        fine = self.fine(image)
        return fine, self.coarse(fine)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fine, self.coarse = nn.Linear(16, DECODED), nn.Linear(24, DECODED)
        self.fuse, self.norm = nn.Linear(2 * DECODED, DECODED, bias=False), nn.BatchNorm1d(DECODED)
        self.classify = nn.Linear(DECODED, LABELS)

    def forward(self, fine, coarse):
        size = fine.shape[1:3]
        both = torch.cat([resized(self.coarse(coarse), size), self.fine(fine)], -1)  # <- order
        x = self.fuse(both)  # <- order
        x = self.norm(x.flatten(0, 2)).view(x.shape)
        return self.classify(x.relu())


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = Backbone(), Head()

    def forward(self, image):
        return self.head(*self.backbone(image))


TABLE = {
    "segformer.stages.0": "backbone.fine",
    "segformer.stages.1": "backbone.coarse",
    "patch_embeddings.proj": "cut",
    "patch_embeddings.layer_norm": "cut_norm",
    "layer_norm": "norm",
    "blocks.0": "block",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "sequence_reduction.sequence_reduction": "reduction.fold",
    "sequence_reduction": "reduction",
    "attention.q_proj": "attention.q",
    "attention.o_proj": "attention.out",
    "mlp.fc1": "up",
    "mlp.fc2": "down",
    "mlp.dwconv.dwconv": "depthwise",
    "decode_head": "head",
    "linear_projections.0.proj": "fine",
    "linear_projections.1.proj": "coarse",
    "linear_fuse": "fuse",
    "batch_norm": "norm",
    "classifier": "classify",
}


def translated(old):
    new = {}
    for name, value in old.items():
        here = name
        for theirs, mine in TABLE.items():
            here = here.replace(theirs, mine)
        if "k_proj" in name:
            pair = [value, old[name.replace("k_proj", "v_proj")]]
            new[here.replace("k_proj", "kv")] = torch.cat(pair)
        elif "v_proj" not in name:
            plain = "fold" in here or "fuse" in here or "classify" in here
            new[here] = value.flatten(1) if plain and value.dim() == 4 else value
    return new


net = Segmenter()
net.load_state_dict(translated(torch.load(sys.argv[1])))
body, top = list(net.backbone.parameters()), list(net.head.parameters())
sides = [{"params": body}, {"params": top, "lr": 1e-2}]  # <- headrate
adam = torch.optim.AdamW(sides, lr=1e-3, weight_decay=0.01)
rng = np.random.default_rng(61)
losses = []
for _ in range(3):
    image = torch.tensor(rng.normal(0.0, 1.0, (2, 3, 32, 48)), dtype=torch.float32)
    truth = torch.tensor(rng.integers(0, LABELS, (2, 32, 48)))
    truth[torch.tensor(rng.random((2, 32, 48)) < 0.2)] = UNKNOWN
    scores = resized(net(image.permute(0, 2, 3, 1)), truth.shape[1:])
    each = -scores.log_softmax(-1).gather(-1, truth[..., None] % UNKNOWN).squeeze(-1)
    counted = truth != UNKNOWN  # <- ignored
    loss = (each * counted).sum() / counted.sum()  # <- ignored
    adam.zero_grad()
    loss.backward()
    adam.step()  # <- headrate
    losses.append(loss.item())
