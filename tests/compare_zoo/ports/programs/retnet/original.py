# SPDX-License-Identifier: Apache-2.0
"""RetNet as Sun et al. (2023) have it, in its parallel form: retention of several scales under a
mask of decays, rotated queries and keys, a norm a head, a swish gate, a language model's loss.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, FFN, LAYERS = 29, 16, 2, 32, 2
BATCH, LENGTH = 4, 9


def rotate_every_two(x):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)  # <- pairs


def theta_shift(x, sin, cos):
    return x * cos + rotate_every_two(x) * sin  # <- pairs angles


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6, elementwise_affine=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim)) if elementwise_affine else None

    def forward(self, x):
        out = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)  # <- perhead
        return out if self.weight is None else out * self.weight


class RetNetRelPos(nn.Module):
    def __init__(self):
        super().__init__()
        angle = 1.0 / (10000 ** torch.linspace(0, 1, DIM // HEADS // 2))  # <- angles
        angle = angle.unsqueeze(-1).repeat(1, 2).flatten()
        decay = torch.log(1 - 2 ** (-5 - torch.arange(HEADS, dtype=torch.float)))  # <- decays
        self.register_buffer("angle", angle)
        self.register_buffer("decay", decay)

    def forward(self, slen):
        index = torch.arange(slen).to(self.decay)
        sin = torch.sin(index[:, None] * self.angle[None, :])  # <- angles
        cos = torch.cos(index[:, None] * self.angle[None, :])  # <- angles
        mask = torch.tril(torch.ones(slen, slen))  # <- present
        distance = index[:, None] - index[None, :]
        mask = torch.masked_fill(distance, ~mask.bool(), float("inf"))  # <- present
        mask = torch.exp(mask * self.decay[:, None, None])  # <- decays
        mask = torch.nan_to_num(mask)
        mask = mask / mask.sum(dim=-1, keepdim=True).sqrt()
        return (sin, cos), mask


class MultiScaleRetention(nn.Module):
    def __init__(self):
        super().__init__()
        self.key_dim = DIM // HEADS
        self.scaling = self.key_dim**-0.5
        self.q_proj = nn.Linear(DIM, DIM, bias=False)
        self.k_proj = nn.Linear(DIM, DIM, bias=False)
        self.v_proj = nn.Linear(DIM, DIM, bias=False)
        self.g_proj = nn.Linear(DIM, DIM, bias=False)
        self.out_proj = nn.Linear(DIM, DIM, bias=False)
        self.group_norm = RMSNorm(DIM // HEADS, elementwise_affine=False)
        for proj in (self.q_proj, self.k_proj, self.v_proj, self.g_proj):
            nn.init.xavier_uniform_(proj.weight, gain=2**-0.5)

    def forward(self, x, rel_pos):
        (sin, cos), inner_mask = rel_pos
        bsz, tgt_len, _ = x.size()
        q, k, v, g = self.q_proj(x), self.k_proj(x), self.v_proj(x), self.g_proj(x)
        k *= self.scaling
        q = q.view(bsz, tgt_len, HEADS, self.key_dim).transpose(1, 2)
        k = k.view(bsz, tgt_len, HEADS, self.key_dim).transpose(1, 2)
        v = v.view(bsz, tgt_len, HEADS, self.key_dim).transpose(1, 2)
        qr = theta_shift(q, sin, cos)
        kr = theta_shift(k, sin, cos)
        qk_mat = qr @ kr.transpose(-1, -2)
        qk_mat = qk_mat * inner_mask  # <- present
        output = torch.matmul(qk_mat, v).transpose(1, 2)  # <- present
        output = self.group_norm(output).reshape(bsz, tgt_len, DIM)  # <- perhead
        output = F.silu(g) * output  # <- gate
        return self.out_proj(output)


class GLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(DIM, FFN, bias=False)
        self.gate = nn.Linear(DIM, FFN, bias=False)
        self.fc2 = nn.Linear(FFN, DIM, bias=False)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)) * self.gate(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.retention = MultiScaleRetention()
        self.retention_layer_norm = RMSNorm(DIM)
        self.ffn = GLU()
        self.final_layer_norm = RMSNorm(DIM)

    def forward(self, x, rel_pos):
        x = x + self.retention(self.retention_layer_norm(x), rel_pos)
        return x + self.ffn(self.final_layer_norm(x))


class RetNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, DIM)
        self.rel_pos = RetNetRelPos()
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.layer_norm = RMSNorm(DIM)
        self.output_projection = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        rel_pos = self.rel_pos(tokens.size(1))
        for layer in self.layers:
            x = layer(x, rel_pos)
        return self.output_projection(self.layer_norm(x))


torch.manual_seed(17)
model = RetNet()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, betas=(0.9, 0.98), weight_decay=0.05)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 4))
rng = np.random.default_rng(23)
losses = []
for _ in range(3):
    text = torch.from_numpy(rng.integers(0, VOCAB, (BATCH, LENGTH + 1)))
    src, target = text[:, :-1], text[:, 1:]
    logits = model(src)
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), target.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- warmup
    scheduler.step()  # <- warmup
    losses.append(loss.item())
