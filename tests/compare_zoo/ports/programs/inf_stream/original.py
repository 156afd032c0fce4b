# SPDX-License-Identifier: Apache-2.0
"""Speech recognition of whole utterances: filterbank, causal convolutions, CTC best path. The
score of an utterance is its mean path confidence plus a hash of the label sequence."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

FRAME, HOP, BANDS, DIM, LABELS, BLANK = 32, 16, 12, 24, 9, 0


class Frontend(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(FRAME))
        self.register_buffer("fbank", torch.rand(FRAME // 2 + 1, BANDS) ** 3)
        self.register_buffer("cmvn_mean", -1.0 + 0.5 * torch.randn(BANDS))
        self.register_buffer("cmvn_std", 1.0 + torch.rand(BANDS))

    def forward(self, wave):
        wave = F.pad(wave, (1, 0))  # <- preemphasis
        wave = wave[:, 1:] - 0.97 * wave[:, :-1]  # <- preemphasis
        frames = wave.unfold(1, FRAME, HOP) * self.window
        power = torch.fft.rfft(frames).abs() ** 2 / FRAME
        feats = torch.log(power @ self.fbank + 1e-3)  # <- floor
        return (feats - self.cmvn_mean) / self.cmvn_std


class CausalBlock(nn.Module):
    def __init__(self, dim, kernel, dilation):
        super().__init__()
        self.left = (kernel - 1) * dilation
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, 2 * dim)
        self.depthwise = nn.Conv1d(dim, dim, kernel, dilation=dilation, groups=dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, x):
        y = F.glu(self.expand(self.norm(x)), dim=-1)  # <- glu
        y = F.pad(y.transpose(1, 2), (self.left, 0))  # <- leftcontext
        y = F.silu(self.depthwise(y)).transpose(1, 2)  # <- leftcontext
        return x + self.project(y)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.frontend = Frontend()
        self.embed = nn.Linear(BANDS, DIM)
        self.blocks = nn.ModuleList(CausalBlock(DIM, 3, d) for d in (1, 2, 3))
        self.ctc = nn.Linear(DIM, LABELS)

    def forward(self, wave):
        x = self.embed(self.frontend(wave))
        for block in self.blocks:
            x = block(x)
        return self.ctc(x).log_softmax(-1)


def collapse(path):
    labels, prev = [], BLANK
    for p in path:
        if p != BLANK and p != prev:  # <- collapse
            labels.append(p)
        prev = p  # <- collapse
    return labels


torch.manual_seed(0)
model = Recogniser().eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        if "norm" in name:
            p.add_(0.25 * torch.randn_like(p))
        else:
            p.normal_(0, 1.6 / p[0].numel() ** 0.5 if p.dim() > 1 else 0.4)
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(13)
losses = []
with torch.inference_mode():
    for seconds in range(3, 7):
        n = FRAME + HOP * (8 * seconds - 1)
        tone = torch.linspace(0.02, 0.6, seconds).repeat_interleave(n // seconds + 1)[:n]
        wave = torch.sin(tone.cumsum(0)) + 0.1 * torch.randn(n, generator=gen)
        logp = model(wave[None])[0]
        conf, path = logp.max(-1)
        labels = collapse(path.tolist())
        tail = sum(label * (i + 1) for i, label in enumerate(labels))
        losses.append(-conf.mean().item() + 0.01 * tail + 0.1 * len(labels))
print(losses)
