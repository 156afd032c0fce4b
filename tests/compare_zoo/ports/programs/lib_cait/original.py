# SPDX-License-Identifier: Apache-2.0
"""A patch classifier with talking heads and class attention (after "Going deeper with image
transformers"), written by hand; patches are cut as (row, column, channel).
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

SIZE, PATCH, WIDTH, HEADS, DEPTH, LATE, CLASSES = 24, 6, 32, 4, 3, 2, 6


class Split(nn.Module):
    """Three projections, heads ahead: [heads, batch, tokens, width of a head]."""

    def __init__(self):
        super().__init__()
        self.to_q = nn.Linear(WIDTH, WIDTH)
        self.to_k = nn.Linear(WIDTH, WIDTH)
        self.to_v = nn.Linear(WIDTH, WIDTH)
        self.to_out = nn.Linear(WIDTH, WIDTH)

    def heads(self, x):
        return torch.stack(x.chunk(HEADS, dim=-1))

    def merge(self, x):
        return self.to_out(torch.cat(x.unbind(0), dim=-1))


class TalkingHeads(Split):
    def __init__(self):
        super().__init__()
        self.before = nn.Parameter(torch.eye(HEADS) + 0.3 * torch.randn(HEADS, HEADS))
        self.before_bias = nn.Parameter(0.1 * torch.randn(HEADS))
        self.after = nn.Parameter(torch.eye(HEADS) + 0.3 * torch.randn(HEADS, HEADS))
        self.after_bias = nn.Parameter(0.1 * torch.randn(HEADS))

    def forward(self, x):
        q, k, v = (self.heads(f(x)) for f in (self.to_q, self.to_k, self.to_v))
        scores = torch.einsum("hbid,hbjd->hbij", q, k) / math.sqrt(WIDTH // HEADS)
        scores = torch.einsum("gh,hbij->gbij", self.before, scores)  # <- talking
        weights = (scores + self.before_bias.view(-1, 1, 1, 1)).softmax(-1)
        weights = torch.einsum("gh,hbij->gbij", self.after, weights)  # <- talking
        return self.merge((weights + self.after_bias.view(-1, 1, 1, 1)) @ v)


class ClassAttention(Split):
    def forward(self, u):
        q = self.heads(self.to_q(u[:, :1]))
        k, v = self.heads(self.to_k(u)), self.heads(self.to_v(u))
        return self.merge((q @ k.mT / math.sqrt(WIDTH // HEADS)).softmax(-1) @ v)


class Block(nn.Module):
    def __init__(self, mixer):
        super().__init__()
        self.mix = mixer
        self.ln_mix, self.ln_mlp = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)
        self.scale_mix = nn.Parameter(0.5 + 0.2 * torch.randn(WIDTH))
        self.scale_mlp = nn.Parameter(0.5 + 0.2 * torch.randn(WIDTH))

    def forward(self, x, rest=None):
        seen = x if rest is None else torch.cat((x, rest), dim=1)
        x = x + self.mix(self.ln_mix(seen)) * self.scale_mix
        y = self.down(F.gelu(self.up(self.ln_mlp(x))))
        return x + y * self.scale_mlp  # <- scale


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(PATCH * PATCH * 3, WIDTH)
        self.places = nn.Parameter(0.5 * torch.randn((SIZE // PATCH) ** 2, WIDTH))
        self.asker = nn.Parameter(0.5 * torch.randn(WIDTH))
        self.early = nn.ModuleList([Block(TalkingHeads()) for _ in range(DEPTH)])
        self.late = nn.ModuleList([Block(ClassAttention()) for _ in range(LATE)])
        self.ln_end, self.head = nn.LayerNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        n = SIZE // PATCH
        x = images.unflatten(1, (n, PATCH)).unflatten(3, (n, PATCH)).permute(0, 1, 3, 2, 4, 5)
        x = self.patches(x.reshape(len(images), n * n, -1)) + self.places  # <- patches
        for block in self.early:
            x = block(x)
        asker = self.asker.expand(len(images), 1, -1)
        for block in self.late:
            asker = block(asker, x)
        return self.head(self.ln_end(torch.cat((asker, x), 1))[:, 0])


torch.manual_seed(320)
model = Classifier()
torch.save(model.state_dict(), sys.argv[1])
matrices = [p for p in model.parameters() if p.dim() > 1 and p is not model.places]
others = [p for p in model.parameters() if p.dim() == 1 or p is model.places]
groups = [{"params": matrices, "weight_decay": 0.2}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=2e-3, eps=1e-5)  # <- decay
rates = [1e-4, 1.05e-3] + [1e-3 * (1 + math.cos(math.pi * t / 8)) for t in range(2, 8)]
generator = torch.Generator().manual_seed(321)
losses = []
for rate in rates[:5]:
    images = torch.randn(6, SIZE, SIZE, 3, generator=generator)
    labels = torch.randint(0, CLASSES, (6,), generator=generator)
    for group in optimizer.param_groups:
        group["lr"] = rate  # <- warmup
    loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay warmup
    losses.append(loss.item())
