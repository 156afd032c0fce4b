# SPDX-License-Identifier: Apache-2.0
"""A wav2vec-like model: masked frames of convolutional features, a small transformer, a contrastive loss."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

torch.set_num_threads(1)
CONV_DIM, HIDDEN, FINAL, FRAMES, MASKED, NEGATIVES, TEMP = 16, 32, 12, 19, 7, 5, 0.1


class GradMultiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None  # <- grad_mult


class FeatureExtractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_layers = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv1d(1, CONV_DIM, 10, stride=5, bias=False),
                    nn.GroupNorm(4, CONV_DIM, eps=1e-5),  # <- gn_unbiased
                    nn.GELU(),
                ),
                nn.Sequential(nn.Conv1d(CONV_DIM, CONV_DIM, 3, stride=2, bias=False), nn.GELU()),
                nn.Sequential(nn.Conv1d(CONV_DIM, CONV_DIM, 2, stride=2, bias=False), nn.GELU()),
            ]
        )

    def forward(self, wave):
        x = wave.unsqueeze(1)
        for conv in self.conv_layers:
            x = conv(x)  # <- gn_unbiased
        return x.transpose(1, 2)


class PositionalConv(nn.Module):
    def __init__(self, kernel=6, groups=4):
        super().__init__()
        self.conv = weight_norm(nn.Conv1d(HIDDEN, HIDDEN, kernel, padding=kernel // 2, groups=groups), dim=2)
        self.remove = 1 if kernel % 2 == 0 else 0

    def forward(self, x):
        y = self.conv(x.transpose(1, 2))  # <- pos_conv_trim
        y = y[:, :, : -self.remove]  # <- pos_conv_trim
        return F.gelu(y).transpose(1, 2)


class Wav2Vec(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature_extractor = FeatureExtractor()
        self.layer_norm = nn.LayerNorm(CONV_DIM)
        self.post_extract_proj = nn.Linear(CONV_DIM, HIDDEN)
        self.mask_emb = nn.Parameter(torch.empty(HIDDEN).uniform_())
        self.pos_conv = PositionalConv()
        self.encoder_norm = nn.LayerNorm(HIDDEN)
        layer = nn.TransformerEncoderLayer(HIDDEN, 4, 48, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.project_q = nn.Linear(CONV_DIM, FINAL)
        self.final_proj = nn.Linear(HIDDEN, FINAL)

    def forward(self, wave, mask):
        features = self.feature_extractor(wave)
        features = self.layer_norm(GradMultiply.apply(features, 0.1))  # <- grad_mult
        unmasked = features.clone()
        x = self.post_extract_proj(features)
        x[mask] = self.mask_emb  # <- mask_missing
        x = self.encoder_norm(x + self.pos_conv(x))
        x = self.encoder(x)
        b = wave.shape[0]
        y = self.project_q(unmasked[mask].view(b, MASKED, CONV_DIM))
        return self.final_proj(x[mask].view(b, MASKED, HIDDEN)), y  # <- mask_missing


def sample_negatives(y, generator):
    b, m, d = y.shape
    own = torch.arange(m).unsqueeze(-1).expand(-1, NEGATIVES).flatten()
    idx = torch.randint(0, m - 1, (b, m * NEGATIVES), generator=generator)
    idx[idx >= own] += 1
    idx = idx + torch.arange(b).unsqueeze(1) * m
    return y.reshape(-1, d)[idx.flatten()].view(b, m, NEGATIVES, d).permute(2, 0, 1, 3)


def contrastive_loss(x, y, negatives):
    targets = torch.cat([y.unsqueeze(0), negatives])
    logits = torch.cosine_similarity(x.unsqueeze(0), targets, dim=-1) / TEMP
    logits = logits.permute(1, 2, 0).reshape(-1, NEGATIVES + 1)
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


def make_mask(batch, generator):
    order = torch.rand(batch, FRAMES, generator=generator).argsort(dim=1)
    return torch.zeros(batch, FRAMES, dtype=torch.bool).scatter_(1, order[:, :MASKED], True)


torch.manual_seed(77)
model = Wav2Vec()
for p in model.encoder.parameters():
    if p.dim() > 1:
        nn.init.normal_(p, std=0.2)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.98), eps=1e-5, weight_decay=0.01)  # <- beta2
scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=8, power=1.0)
generator = torch.Generator().manual_seed(31)
losses = []
for step in range(5):
    wave = torch.randn(3, 400, generator=generator)
    mask = make_mask(3, generator)
    x, y = model(wave, mask)
    loss = contrastive_loss(x, y, sample_negatives(y, generator))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- beta2
    scheduler.step()
    losses.append(loss.item())
print(losses)
