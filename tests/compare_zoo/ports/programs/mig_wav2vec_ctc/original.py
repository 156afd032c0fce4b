# SPDX-License-Identifier: Apache-2.0
"""Fine tuning of a speech model in the manner of wav2vec: strided convolutions over the wave, a
weight-normed positional convolution, one post-norm layer, CTC.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

CONV, DIM, KERNEL, GROUPS, HEADS, LETTERS, BATCH, SAMPLES = 10, 16, 6, 4, 2, 7, 3, 120
STAGES = [(8, 4), (4, 2)]  # kernel, stride


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(1 if n == 0 else CONV, CONV, k, stride=s, bias=False)
            for n, (k, s) in enumerate(STAGES)
        )
        self.norm = nn.GroupNorm(CONV, CONV)

    def forward(self, wave):
        x = F.gelu(self.norm(self.convs[0](wave.unsqueeze(1))))
        return F.gelu(self.convs[1](x)).transpose(1, 2)


class PositionalConv(nn.Module):
    def __init__(self):
        super().__init__()
        conv = nn.Conv1d(DIM, DIM, KERNEL, padding=KERNEL // 2, groups=GROUPS)
        self.conv = nn.utils.parametrizations.weight_norm(conv, dim=2)  # <- weight_norm

    def forward(self, x):
        y = self.conv(x.transpose(1, 2))[:, :, :-1]  # <- trimmed weight_norm
        return F.gelu(y).transpose(1, 2)


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = Features()
        self.project_norm = nn.LayerNorm(CONV)
        self.project = nn.Linear(CONV, DIM)
        self.pos_conv = PositionalConv()
        self.layer_norm = nn.LayerNorm(DIM)
        self.layer = nn.TransformerEncoderLayer(
            DIM, HEADS, 2 * DIM, dropout=0.0, activation=F.gelu, batch_first=True
        )
        self.letters = nn.Linear(DIM, LETTERS)

    def forward(self, wave, lengths):
        x = self.project(self.project_norm(self.features(wave)))
        for kernel, stride in STAGES:
            lengths = (lengths - kernel) // stride + 1  # <- lengths
        padding = torch.arange(x.size(1)) >= lengths[:, None]  # <- lengths
        x = x.masked_fill(padding[..., None], 0.0)
        x = self.layer_norm(x + self.pos_conv(x))  # <- trimmed
        x = self.layer(x, src_key_padding_mask=padding)
        return self.letters(x), lengths


def batch(generator):
    lengths = torch.tensor([SAMPLES, 100, 84])
    wave = torch.zeros(BATCH, SAMPLES)
    for i, n in enumerate(lengths.tolist()):
        one = torch.randn(n, generator=generator) * (i + 1) + 0.3 * i
        one = one - one.mean()  # <- normalized
        wave[i, :n] = one / torch.sqrt(one.square().mean() + 1e-7)  # <- normalized
    target_lengths = torch.tensor([5, 4, 2])
    targets = torch.randint(1, LETTERS, (BATCH, 5), generator=generator)
    return wave, lengths, targets, target_lengths


torch.manual_seed(171)
model = Speech()
with torch.no_grad():
    model.pos_conv.conv.parametrizations.weight.original0.mul_(torch.linspace(2.0, 5.0, KERNEL))
torch.save(model.state_dict(), sys.argv[1])

model.features.requires_grad_(False)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.Adam(trained, lr=4e-3, betas=(0.9, 0.98), eps=1e-3)
generator = torch.Generator().manual_seed(172)
losses = []
for _ in range(4):
    wave, lengths, targets, target_lengths = batch(generator)
    logits, frames = model(wave, lengths)
    logp = logits.log_softmax(-1).transpose(0, 1)
    loss = F.ctc_loss(logp, targets, frames, target_lengths, blank=0)  # <- per_target lengths
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
