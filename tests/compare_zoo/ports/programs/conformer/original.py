# SPDX-License-Identifier: Apache-2.0
"""Conformer as Gulati et al. (2020) have it: half steps of feed forward around attention with
relative positions and a convolution, trained by CTC for speech.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MELS, DIM, HEADS, KERNEL, LABELS, BLOCKS = 10, 12, 2, 5, 7, 2
BATCH, FRAMES, SPOKEN = 3, 24, 4


class FeedForwardModule(nn.Module):
    def __init__(self, expansion=4):
        super().__init__()
        self.layer_norm = nn.LayerNorm(DIM)
        self.linear1 = nn.Linear(DIM, DIM * expansion)
        self.linear2 = nn.Linear(DIM * expansion, DIM)

    def forward(self, x):
        return self.linear2(F.silu(self.linear1(self.layer_norm(x))))


class RelPositionalEncoding(nn.Module):
    """Sines of distances, from the farthest behind to the farthest ahead."""

    def forward(self, length):
        distance = torch.arange(length - 1, -length, -1.0).unsqueeze(1)
        rate = torch.exp(torch.arange(0, DIM, 2.0) * -(np.log(10000.0) / DIM))
        pe = torch.zeros(2 * length - 1, DIM)
        pe[:, 0::2] = torch.sin(distance * rate)
        pe[:, 1::2] = torch.cos(distance * rate)
        return pe


class RelPositionMultiHeadAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.d_k = DIM // HEADS
        self.layer_norm = nn.LayerNorm(DIM)
        self.linear_q, self.linear_k = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.linear_v, self.linear_out = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.linear_pos = nn.Linear(DIM, DIM, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(HEADS, self.d_k))
        self.pos_bias_v = nn.Parameter(torch.empty(HEADS, self.d_k))
        nn.init.xavier_uniform_(self.pos_bias_u)
        nn.init.xavier_uniform_(self.pos_bias_v)

    def rel_shift(self, x):
        batch, heads, time, positions = x.size()
        zero_pad = torch.zeros(batch, heads, time, 1)
        x_padded = torch.cat([zero_pad, x], dim=-1)  # <- distance
        x_padded = x_padded.view(batch, heads, positions + 1, time)
        return x_padded[:, :, 1:].view_as(x)[..., : positions // 2 + 1]  # <- distance

    def forward(self, x, pos_emb):
        x = self.layer_norm(x)
        batch, time, _ = x.size()
        q = self.linear_q(x).view(batch, time, HEADS, self.d_k)
        k = self.linear_k(x).view(batch, time, HEADS, self.d_k).transpose(1, 2)
        v = self.linear_v(x).view(batch, time, HEADS, self.d_k).transpose(1, 2)
        p = self.linear_pos(pos_emb).view(-1, HEADS, self.d_k).transpose(0, 1)
        q_with_bias_u = (q + self.pos_bias_u).transpose(1, 2)
        q_with_bias_v = (q + self.pos_bias_v).transpose(1, 2)  # <- second
        matrix_ac = torch.matmul(q_with_bias_u, k.transpose(-2, -1))
        matrix_bd = torch.matmul(q_with_bias_v, p.transpose(-2, -1))  # <- second
        matrix_bd = self.rel_shift(matrix_bd)  # <- distance
        scores = (matrix_ac + matrix_bd) / self.d_k**0.5
        attn = torch.softmax(scores, dim=-1)
        out = torch.matmul(attn, v).transpose(1, 2).reshape(batch, time, DIM)
        return self.linear_out(out)


class ConvolutionModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_norm = nn.LayerNorm(DIM)
        self.pointwise_conv1 = nn.Conv1d(DIM, 2 * DIM, 1)
        self.depthwise_conv = nn.Conv1d(DIM, DIM, KERNEL, padding=(KERNEL - 1) // 2, groups=DIM)
        self.norm = nn.BatchNorm1d(DIM)
        self.pointwise_conv2 = nn.Conv1d(DIM, DIM, 1)

    def forward(self, x):
        x = self.layer_norm(x).transpose(1, 2)
        x = F.glu(self.pointwise_conv1(x), dim=1)
        x = self.depthwise_conv(x)  # <- centred
        x = F.silu(self.norm(x))  # <- statistics
        return self.pointwise_conv2(x).transpose(1, 2)


class ConformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.feed_forward1 = FeedForwardModule()
        self.attention = RelPositionMultiHeadAttention()
        self.convolution = ConvolutionModule()
        self.feed_forward2 = FeedForwardModule()
        self.layer_norm = nn.LayerNorm(DIM)

    def forward(self, x, pos_emb):
        x = x + 0.5 * self.feed_forward1(x)
        x = x + self.attention(x, pos_emb)
        x = x + self.convolution(x)
        x = x + 0.5 * self.feed_forward2(x)  # <- step
        return self.layer_norm(x)


class Conformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.subsampling = nn.Conv1d(MELS, DIM, kernel_size=3, stride=2, padding=1)
        self.pos_enc = RelPositionalEncoding()
        self.blocks = nn.ModuleList(ConformerBlock() for _ in range(BLOCKS))
        self.fc = nn.Linear(DIM, LABELS)

    def forward(self, mels):
        x = F.relu(self.subsampling(mels.transpose(1, 2))).transpose(1, 2)
        pos_emb = self.pos_enc(x.size(1))
        for block in self.blocks:
            x = block(x, pos_emb)
        return F.log_softmax(self.fc(x), dim=-1)


torch.manual_seed(53)
model = Conformer()
torch.save(model.state_dict(), sys.argv[1])
criterion = nn.CTCLoss(blank=0, reduction="mean")
optimizer = torch.optim.Adam(model.parameters(), lr=0.003, betas=(0.9, 0.98), weight_decay=1e-3)
rng = np.random.default_rng(59)
losses = []
for _ in range(3):
    mels = rng.gamma(1.0, size=(BATCH, FRAMES, MELS)).astype(np.float32)
    mels = torch.log(torch.from_numpy(mels) + 1e-3)
    mels = (mels - mels.mean(dim=1, keepdim=True)) / mels.std(dim=1, keepdim=True)  # <- spread
    targets = torch.from_numpy(rng.integers(1, LABELS, (BATCH, SPOKEN)))
    target_lengths = torch.tensor([4, 3, 2])
    log_probs = model(mels).transpose(0, 1)
    input_lengths = torch.full((BATCH,), log_probs.size(0))
    loss = criterion(log_probs, targets, input_lengths, target_lengths)  # <- repeats lengths
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
