# SPDX-License-Identifier: Apache-2.0
"""PatchTST (Nie et al., 2023): every channel of a series by itself, normalized and cut into patches,
an encoder written out, a head over the flattened patches, the normalization undone.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, PAST, FUTURE, PATCH, STRIDE, DIM, HEADS, HIDDEN, LAYERS = 3, 20, 6, 4, 2, 12, 3, 20, 2
BATCH, STEPS = 4, 4
PATCHES = (PAST - PATCH) // STRIDE + 2


class RevIN(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.affine_weight = nn.Parameter(1 + 0.2 * torch.randn(CHANNELS))
        self.affine_bias = nn.Parameter(0.2 * torch.randn(CHANNELS))

    def norm(self, x):
        self.mean = x.mean(1, keepdim=True).detach()
        variance = torch.var(x, dim=1, keepdim=True, unbiased=False)  # <- spread
        self.stdev = torch.sqrt(variance + self.eps).detach()  # <- spread
        return (x - self.mean) / self.stdev * self.affine_weight + self.affine_bias

    def denorm(self, x):
        x = (x - self.affine_bias) / (self.affine_weight + self.eps * self.eps)  # <- undone
        return x * self.stdev + self.mean  # <- undone


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.w_q, self.w_k, self.w_v, self.to_out = (nn.Linear(DIM, DIM) for _ in range(4))

    def forward(self, x):
        b, n, _ = x.shape
        q = self.w_q(x).view(b, n, HEADS, -1).transpose(1, 2)  # <- packed
        k = self.w_k(x).view(b, n, HEADS, -1).permute(0, 2, 3, 1)  # <- packed
        v = self.w_v(x).view(b, n, HEADS, -1).transpose(1, 2)
        scores = torch.matmul(q, k) * (DIM // HEADS) ** -0.5  # <- axis
        out = torch.matmul(F.softmax(scores, dim=-1), v)  # <- axis
        return self.to_out(out.transpose(1, 2).reshape(b, n, DIM))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = Attention()
        self.norm_attn, self.norm_ffn = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.ff1, self.ff2 = nn.Linear(DIM, HIDDEN), nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        x = self.norm_attn(x + self.self_attn(x))  # <- post
        return self.norm_ffn(x + self.ff2(F.gelu(self.ff1(x))))  # <- gelu


class PatchTST(nn.Module):
    def __init__(self):
        super().__init__()
        self.revin = RevIN()
        self.pad = nn.ReplicationPad1d((0, STRIDE))
        self.w_p = nn.Linear(PATCH, DIM)
        self.w_pos = nn.Parameter(torch.empty(PATCHES, DIM).uniform_(-0.2, 0.2))
        self.layers = nn.ModuleList(EncoderLayer() for _ in range(LAYERS))
        self.head = nn.Linear(DIM * PATCHES, FUTURE)

    def forward(self, x):
        z = self.revin.norm(x).permute(0, 2, 1)  # <- channels
        z = self.pad(z).unfold(-1, PATCH, STRIDE)  # <- padded
        u = self.w_p(z).reshape(-1, PATCHES, DIM) + self.w_pos  # <- channels
        for layer in self.layers:
            u = layer(u)
        u = u.view(-1, CHANNELS, PATCHES, DIM).permute(0, 1, 3, 2)  # <- flattened
        z = self.head(u.flatten(start_dim=-2))  # <- flattened
        return self.revin.denorm(z.permute(0, 2, 1))


torch.manual_seed(223)
model = PatchTST()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=5e-3, total_steps=STEPS + 1, pct_start=0.4, cycle_momentum=False
)  # <- cycle
rng = np.random.default_rng(227)
losses = []
for _ in range(STEPS):
    series = np.cumsum(rng.normal(size=(BATCH, PAST + FUTURE, CHANNELS)), axis=1)
    series = torch.from_numpy(series.astype(np.float32))
    forecast = model(series[:, :PAST])
    loss = nn.MSELoss()(forecast, series[:, PAST:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- cycle
    scheduler.step()  # <- cycle
    losses.append(loss.item())
