# SPDX-License-Identifier: Apache-2.0
"""The relative attention of Transformer-XL (Dai et al. 2019) as XLNet has it: a memory of earlier
segments, scores shifted by padding, sinusoids of distances.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D_MODEL, N_HEAD, D_HEAD, D_INNER, N_LAYER = 31, 24, 3, 8, 40, 2
SEG_LEN, MEM_LEN, BATCH = 6, 8, 4


class RelativeAttention(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("q", "k", "v", "o", "r"):
            setattr(self, name, nn.Parameter(0.2 * torch.randn(D_MODEL, N_HEAD, D_HEAD)))
        self.r_w_bias = nn.Parameter(0.2 * torch.randn(N_HEAD, D_HEAD))
        self.r_r_bias = nn.Parameter(0.2 * torch.randn(N_HEAD, D_HEAD))
        self.layer_norm = nn.LayerNorm(D_MODEL, eps=1e-12)
        self.scale = 1 / D_HEAD**0.5

    @staticmethod
    def rel_shift(x):
        b, n, i, j = x.shape
        x = torch.cat([x.new_zeros(b, n, i, 1), x], dim=3)  # <- shift
        x = x.view(b, n, j + 1, i)[:, :, 1:]  # <- shift
        return x.reshape(b, n, i, j)  # <- shift

    def forward(self, h, mems, pos_emb, attn_mask):
        cat = torch.cat([mems, h], dim=0)  # <- memory
        q = torch.einsum("ibh,hnd->ibnd", h, self.q)
        k = torch.einsum("ibh,hnd->ibnd", cat, self.k)
        v = torch.einsum("ibh,hnd->ibnd", cat, self.v)
        k_r = torch.einsum("ih,hnd->ind", pos_emb, self.r)
        ac = torch.einsum("ibnd,jbnd->bnij", q + self.r_w_bias, k)  # <- bias
        bd = torch.einsum("ibnd,jnd->bnij", q + self.r_r_bias, k_r)  # <- bias
        bd = self.rel_shift(bd)
        attn_score = (ac + bd) * self.scale  # <- scale
        attn_score = attn_score.masked_fill(attn_mask, -1e30)  # <- masked
        attn_prob = F.softmax(attn_score, dim=3)
        attn_vec = torch.einsum("bnij,jbnd->ibnd", attn_prob, v)
        attn_out = torch.einsum("ibnd,hnd->ibh", attn_vec, self.o)
        return self.layer_norm(attn_out + h)  # <- residual


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_1 = nn.Linear(D_MODEL, D_INNER)
        self.layer_2 = nn.Linear(D_INNER, D_MODEL)
        self.layer_norm = nn.LayerNorm(D_MODEL, eps=1e-12)

    def forward(self, x):
        out = self.layer_2(F.gelu(self.layer_1(x)))
        return self.layer_norm(out + x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rel_attn, self.ff = RelativeAttention(), FeedForward()

    def forward(self, h, mems, pos_emb, attn_mask):
        return self.ff(self.rel_attn(h, mems, pos_emb, attn_mask))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embedding = nn.Embedding(VOCAB, D_MODEL)
        nn.init.normal_(self.word_embedding.weight, std=0.3)
        self.layer = nn.ModuleList(Layer() for _ in range(N_LAYER))
        self.lm_bias = nn.Parameter(torch.zeros(VOCAB))

    @staticmethod
    def relative_positional_encoding(klen):
        pos_seq = torch.arange(klen - 1, -1, -1.0)
        inv_freq = 1 / 10000 ** (torch.arange(0, D_MODEL, 2.0) / D_MODEL)
        sinusoid = torch.outer(pos_seq, inv_freq)
        return torch.cat([sinusoid.sin(), sinusoid.cos()], dim=-1)  # <- sinusoid

    def forward(self, ids, mems):
        qlen, mlen = len(ids), len(mems[0])
        pos_emb = self.relative_positional_encoding(mlen + qlen)
        ones = torch.ones(qlen, mlen + qlen, dtype=torch.bool)
        attn_mask = torch.triu(ones, diagonal=1 + mlen)  # <- masked
        h = self.word_embedding(ids) * math.sqrt(D_MODEL)
        new_mems = []
        for layer, mem in zip(self.layer, mems):
            new_mems.append(torch.cat([mem, h], dim=0)[-MEM_LEN:].detach())  # <- memory
            h = layer(h, mem, pos_emb, attn_mask)
        return F.linear(h, self.word_embedding.weight, self.lm_bias), new_mems


torch.manual_seed(12)
model = Model()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)  # <- cosine
text = np.random.default_rng(3).integers(0, VOCAB, (3 * SEG_LEN + 1, BATCH))
mems = [torch.zeros(0, BATCH, D_MODEL) for _ in range(N_LAYER)]
losses = []
for start in range(0, 3 * SEG_LEN, SEG_LEN):
    data = torch.from_numpy(text[start : start + SEG_LEN])
    target = torch.from_numpy(text[start + 1 : start + SEG_LEN + 1])
    optimizer.zero_grad()
    logits, mems = model(data, mems)
    loss = F.cross_entropy(logits.view(-1, VOCAB), target.view(-1))
    loss.backward()
    optimizer.step()  # <- cosine
    scheduler.step()  # <- cosine
    losses.append(loss.item())
