# SPDX-License-Identifier: Apache-2.0
"""A wav2vec-like encoder: strided Conv1d features, spans masked, grouped positional convolution,
nn.TransformerEncoder (time first, post-norm) and a contrastive loss with drawn negatives.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BATCH, SAMPLES, CONV, DIM, HEADS, NEGATIVES, FRAMES = 3, 170, 10, 16, 4, 5, 20


class FeatureExtractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv1d(1, CONV, 10, stride=4, bias=False)
        self.norm = nn.GroupNorm(CONV, CONV)
        self.conv1 = nn.Conv1d(CONV, CONV, 3, stride=2, bias=False)

    def forward(self, wave):
        wave = F.layer_norm(wave, wave.shape[-1:])  # <- loudness
        x = F.gelu(self.norm(self.conv0(wave.unsqueeze(1))))  # <- loudness
        return F.gelu(self.conv1(x))


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = FeatureExtractor()
        self.norm = nn.LayerNorm(CONV)
        self.project = nn.Linear(CONV, DIM)
        self.mask_emb = nn.Parameter(torch.rand(DIM))
        self.pos_conv = nn.Conv1d(DIM, DIM, 6, padding=3, groups=4)  # <- placed
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, 32, dropout=0.0, activation="gelu", batch_first=False
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.final = nn.Linear(DIM, 8)
        self.target = nn.Linear(CONV, 8)

    def forward(self, wave, mask):
        features = self.norm(self.features(wave).transpose(1, 2))  # <- flowing
        x = self.project(features)
        x = torch.where(mask.unsqueeze(-1), self.mask_emb, x)
        placed = F.gelu(self.pos_conv(x.transpose(1, 2))[:, :, :-1])  # <- placed
        x = x + placed.transpose(1, 2)  # <- placed
        x = self.encoder(x.transpose(0, 1)).transpose(0, 1)
        return self.final(x), self.target(features)  # <- flowing


def draw(generator):
    """Waves, masked frames and, for each frame, frames of the same wave other than itself."""
    time = torch.arange(SAMPLES) / 10
    wave = torch.sin(time * (1 + 3 * torch.rand(BATCH, 1, generator=generator)))
    wave = 0.1 * wave + 0.03 * torch.randn(BATCH, SAMPLES, generator=generator) + 0.1
    starts = torch.randint(0, FRAMES - 5, (BATCH, 2), generator=generator)
    frames = torch.arange(FRAMES)
    inside = (frames >= starts[..., None]) & (frames < starts[..., None] + 5)
    others = torch.randint(FRAMES - 1, (BATCH, FRAMES, NEGATIVES), generator=generator)
    others = others + (others >= frames[:, None]).long()  # <- distractors
    return wave, inside.any(1), others


torch.manual_seed(121)
model = Listener()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-3)
generator = torch.Generator().manual_seed(122)
losses = []
for _ in range(4):
    wave, mask, others = draw(generator)
    context, target = model(wave, mask)
    negatives = target[torch.arange(BATCH)[:, None, None], others]  # <- distractors
    candidates = torch.cat((target.unsqueeze(2), negatives), dim=2)  # <- distractors
    logits = F.cosine_similarity(context.unsqueeze(2), candidates, dim=-1) / 0.2
    loss = F.cross_entropy(logits[mask], torch.zeros(int(mask.sum()), dtype=torch.long))
    loss = loss + 0.05 * target.square().mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.features.parameters():
        p.grad.mul_(0.1)  # <- slowly
    optimizer.step()  # <- slowly
    losses.append(loss.item())
