# SPDX-License-Identifier: Apache-2.0
"""Self-supervised speech in small: conv features, span mask, transformer, contrastive loss."""
import sys

import torch
from torch import nn
import torch.nn.functional as F

DIM, FINAL, NEGATIVES, TEMPERATURE = 16, 12, 6, 0.1


class ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None  # <- feature_grad


class PositionalConv(nn.Module):
    def __init__(self, kernel=4, groups=2):
        super().__init__()
        self.conv = nn.Conv1d(DIM, DIM, kernel, padding=kernel // 2, groups=groups)
        self.remove = 1 if kernel % 2 == 0 else 0

    def forward(self, x):
        y = self.conv(x.transpose(1, 2))  # <- pos_trim
        return F.gelu(y[..., : y.shape[-1] - self.remove]).transpose(1, 2)  # <- pos_trim


class Wav2Vec(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv1d(1, 8, 10, stride=5, bias=False)
        self.gn = nn.GroupNorm(8, 8)  # <- group_axis
        self.conv1 = nn.Conv1d(8, 8, 3, stride=2, bias=False)
        self.feat_norm = nn.LayerNorm(8)
        self.proj = nn.Linear(8, DIM)
        self.mask_emb = nn.Parameter(torch.rand(DIM))
        self.pos = PositionalConv()
        self.layer = nn.TransformerEncoderLayer(
            DIM, 2, 32, dropout=0.0, activation="gelu", batch_first=True
        )
        self.final = nn.Linear(DIM, FINAL)
        self.target = nn.Linear(8, FINAL)

    def features(self, wave):
        x = F.gelu(self.gn(self.conv0(wave[:, None])))  # <- group_axis
        x = F.gelu(self.conv1(x)).transpose(1, 2)
        return self.feat_norm(ScaleGradient.apply(x, 0.1))  # <- feature_grad

    def forward(self, wave, mask):
        feats = self.features(wave)
        x = self.proj(feats)
        x = torch.where(mask[..., None], self.mask_emb, x)
        x = x + self.pos(x)  # <- pos_trim
        x = self.layer(x)
        batch = wave.shape[0]
        return self.final(x[mask]).view(batch, -1, FINAL), self.target(feats[mask]).view(
            batch, -1, FINAL), feats.pow(2).mean()


def contrastive(pred, target, negatives):
    """negatives: (B, M, K) masked positions of the same utterance, never the positive itself."""
    batch, m, dim = target.shape
    index = negatives.reshape(batch, -1, 1).expand(-1, -1, dim)
    picked = target.gather(1, index).view(batch, m, -1, dim)  # <- skip_self
    candidates = torch.cat([target[:, :, None], picked], dim=2)  # <- skip_self
    logits = F.cosine_similarity(pred[:, :, None], candidates, dim=-1)
    logits = logits / TEMPERATURE  # <- temperature
    return F.cross_entropy(logits.flatten(0, 1), torch.zeros(batch * m, dtype=torch.long))


torch.manual_seed(0)
model = Wav2Vec()
gen = torch.Generator().manual_seed(42)
mask = torch.zeros(3, 18, dtype=torch.bool)
for row, start in enumerate((2, 5, 9)):
    mask[row, start:start + 4] = True
    mask[row, start - 1 - row] = mask[row, 14] = True
M = int(mask[0].sum())
draws = torch.randint(0, M - 1, (4, 3, M, NEGATIVES), generator=gen)
own = torch.arange(M)[:, None]
negatives = draws + (draws >= own)  # <- skip_self
waves = torch.randn(4, 3, 190, generator=gen).cumsum(-1) * 0.1
torch.save(
    {"weights": model.state_dict(), "mask": mask, "draws": draws, "waves": waves}, sys.argv[1]
)

optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-4)
losses = []
for wave, negs in zip(waves, negatives):
    pred, target, penalty = model(wave, mask)
    loss = contrastive(pred, target, negs) + 0.1 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
