# SPDX-License-Identifier: Apache-2.0
"""A one-block conformer on random filter banks with torch's CTC and SGD with Nesterov momentum."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(21)

FEATS, DIM, HEADS, KERNEL, LABELS, BATCH, STEPS = 10, 24, 3, 5, 7, 4, 5
MAX_DIST = 12


class Subsample(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(FEATS, DIM, 3, stride=2, padding=1)
        self.conv2 = nn.Conv1d(DIM, DIM, 3, stride=2, padding=1)

    def forward(self, x, lengths):
        x = F.relu(self.conv1(x.transpose(1, 2)))
        x = F.relu(self.conv2(x)).transpose(1, 2)
        for _ in range(2):
            lengths = (lengths + 2 - 3) // 2 + 1  # <- out_length
        return x, lengths


class RelativeAttention(nn.Module):
    """A learned bias for each head and each (clipped) distance of key to query."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)
        self.bias = nn.Embedding(2 * MAX_DIST + 1, HEADS)

    def forward(self, x, pad):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        steps = torch.arange(t)
        distance = (steps[None, :] - steps[:, None]).clamp(-MAX_DIST, MAX_DIST)  # <- rel_sign
        bias = self.bias(distance + MAX_DIST).permute(2, 0, 1)  # <- rel_sign
        mask = bias.masked_fill(pad[:, None, None, :], float("-inf"))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(b, t, DIM))


class ConvModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.expand = nn.Conv1d(DIM, 2 * DIM, 1)
        self.depth = nn.Conv1d(DIM, DIM, KERNEL, padding=KERNEL // 2, groups=DIM)
        self.scale = nn.GroupNorm(1, DIM)
        self.shrink = nn.Conv1d(DIM, DIM, 1)

    def forward(self, x, pad):
        y = F.glu(self.expand(self.norm(x).transpose(1, 2)), dim=1)
        y = y.masked_fill(pad[:, None], 0.0)
        return self.shrink(F.silu(self.scale(self.depth(y)))).transpose(1, 2)


class FeedForward(nn.Sequential):
    def __init__(self):
        super().__init__(nn.LayerNorm(DIM), nn.Linear(DIM, 2 * DIM), nn.SiLU(), nn.Linear(2 * DIM, DIM))


class Conformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = Subsample()
        self.ff1, self.ff2 = FeedForward(), FeedForward()
        self.norm_att = nn.LayerNorm(DIM)
        self.att = RelativeAttention()
        self.conv = ConvModule()
        self.norm = nn.LayerNorm(DIM)
        self.ctc = nn.Linear(DIM, LABELS)

    def forward(self, x, lengths):
        x, lengths = self.front(x, lengths)
        pad = torch.arange(x.size(1)) >= lengths[:, None]
        x = x + 0.5 * self.ff1(x)
        x = x + self.att(self.norm_att(x), pad)
        x = x + self.conv(x, pad)
        x = x + 0.5 * self.ff2(x)
        return self.ctc(self.norm(x)).log_softmax(-1), lengths


def utterances():
    gen = torch.Generator().manual_seed(8)
    sound = torch.randn(LABELS, FEATS, generator=gen)
    for _ in range(STEPS):
        lengths = torch.randint(37, 52, (BATCH,), generator=gen)
        targets = torch.randint(1, LABELS, (BATCH, 5), generator=gen)
        targets[0, 1] = targets[0, 0]
        target_lengths = torch.randint(3, 6, (BATCH,), generator=gen)
        x = torch.zeros(BATCH, 52, FEATS)
        for i, (n, m) in enumerate(zip(lengths.tolist(), target_lengths.tolist())):
            x[i, :n] = sound[targets[i, (torch.arange(n) * m) // n]]
            x[i, :n] += 0.3 * torch.randn(n, FEATS, generator=gen)
        yield x, lengths, targets, target_lengths


model = Conformer()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)  # <- nesterov
ctc = nn.CTCLoss(blank=0)  # <- ctc_skip ctc_norm
losses = []
for x, lengths, targets, target_lengths in utterances():
    log_probs, out_lengths = model(x, lengths)
    loss = ctc(log_probs.transpose(0, 1), targets, out_lengths, target_lengths)  # <- ctc_skip ctc_norm
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()  # <- nesterov
    losses.append(loss.item())
print(losses)
