# SPDX-License-Identifier: Apache-2.0
"""An Audio Spectrogram Transformer in the manner of its authors (timm blocks, fused projections)
judges recordings of several lengths; no training.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

DIM, HEADS, DEPTH, PATCH, STRIDE, BINS, FRAMES, CLASSES = 24, 3, 3, 6, 4, 18, 18, 7
MEAN, STD = -4.2677393, 4.5689974


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        batch, size, _ = x.shape
        qkv = self.qkv(x).reshape(batch, size, 3, HEADS, -1).permute(2, 0, 3, 1, 4)  # <- swapped
        q, k, v = qkv[0], qkv[1], qkv[2]  # <- swapped
        attn = (q @ k.transpose(-2, -1)) * (DIM // HEADS) ** -0.5
        x = attn.softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(batch, size, DIM))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM, eps=1e-6), nn.LayerNorm(DIM, eps=1e-6)
        self.attn = Attention()
        self.fc1, self.fc2 = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class AST(nn.Module):
    def __init__(self):
        super().__init__()
        steps = (BINS - PATCH) // STRIDE + 1
        self.patch_embed = nn.Conv2d(1, DIM, PATCH, STRIDE)
        self.cls_token = nn.Parameter(torch.randn(1, 1, DIM))
        self.dist_token = nn.Parameter(torch.randn(1, 1, DIM))
        self.pos_embed = nn.Parameter(torch.randn(1, steps * steps + 2, DIM))
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.mlp_head = nn.Sequential(nn.LayerNorm(DIM, eps=1e-6), nn.Linear(DIM, CLASSES))

    def forward(self, x):
        """x: batch, frames, bins."""
        x = x.unsqueeze(1).transpose(2, 3)  # <- axes
        x = self.patch_embed(x).flatten(2).transpose(1, 2)  # <- axes precision
        ends = (t.expand(len(x), -1, -1) for t in (self.cls_token, self.dist_token))
        x = torch.cat((*ends, x), dim=1) + self.pos_embed
        x = self.norm(self.blocks(x))
        return self.mlp_head((x[:, 0] + x[:, 1]) / 2)


def recordings(generator, count):
    for _ in range(count):
        frames = torch.randint(8, FRAMES + 3, (), generator=generator).item()
        yield -5 + 4 * torch.randn(frames, BINS, generator=generator)


def prepared(fbank):
    missing = FRAMES - len(fbank)
    if missing > 0:
        fbank = nn.ZeroPad2d((0, 0, 0, missing))(fbank)  # <- padded
    fbank = fbank[:FRAMES]
    return (fbank - MEAN) / (STD * 2)  # <- normalised padded


torch.manual_seed(420)
model = AST().eval()
torch.save(model.state_dict(), sys.argv[1])
generator = torch.Generator().manual_seed(421)
losses = []
with torch.no_grad():
    for _ in range(4):
        batch = torch.stack([prepared(fbank) for fbank in recordings(generator, 3)])
        wanted = torch.randint(0, 2, (3, CLASSES), generator=generator).float()
        loss = F.binary_cross_entropy_with_logits(model(batch), wanted)
        losses.append(loss.item())
