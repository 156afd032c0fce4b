# SPDX-License-Identifier: Apache-2.0
"""Sound event tagger on log spectrograms from torch.stft; multi-label loss and exact matches."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(36)


class Tagger(nn.Module):
    def __init__(self, tags=6, bands=10):
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.bank = nn.Parameter(torch.rand(17, bands) * 0.3)
        self.bn = nn.BatchNorm1d(bands)
        self.conv = nn.Conv1d(bands, 14, 3, padding=1)
        self.out = nn.Linear(28, tags)

    def forward(self, wave):
        spec = torch.stft(
            wave, 32, hop_length=16, window=self.window, center=False, return_complex=True
        )
        power = spec.abs().pow(2)
        x = torch.log(self.bank.T @ power + 1e-2)
        x = F.gelu(self.conv(self.bn(x)))
        return self.out(torch.cat([x.mean(2), x.amax(2)], 1))


tagger = Tagger()
with torch.no_grad():
    tagger.bn.running_mean.normal_(1.0, 0.3)
    tagger.bn.running_var.uniform_(0.3, 1.0)
    tagger.bn.weight.uniform_(0.6, 1.4)
    tagger.bn.bias.normal_(0, 0.3)
    tagger.out.weight.normal_(0, 0.6)
torch.save(tagger.state_dict(), sys.argv[1])
tagger.eval()

g = torch.Generator().manual_seed(126)
losses = []
with torch.no_grad():
    for b in range(4):
        wave = torch.randn(5, 256, generator=g)
        labels = (torch.rand(5, 6, generator=g) < 0.4).float()
        scores = tagger(wave)
        losses.append(F.binary_cross_entropy_with_logits(scores, labels).item())
        exact = ((scores > 0) == labels.bool()).all(1).sum().item()
        print(f"batch {b}: bce {losses[-1]:.4f}, {exact} of 5 exact")
print(losses)
