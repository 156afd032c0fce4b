# SPDX-License-Identifier: Apache-2.0
"""A Transformer-XL language model as in the old repository: time first, kv of memory and segment in
one matrix, relative shift by padding and viewing, AdaGrad with clipping, memory carried on.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, HEADS, INNER, LAYERS, TGT, MEM, BATCH = 32, 24, 3, 40, 2, 6, 8, 4
HEAD = D // HEADS


class PositionalEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        inv_freq = 1 / (10000 ** (torch.arange(0.0, D, 2.0) / D))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, pos_seq):
        sinusoid = torch.ger(pos_seq, self.inv_freq)
        return torch.cat([sinusoid.sin(), sinusoid.cos()], dim=-1)


class RelMultiHeadAttn(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv_net = nn.Linear(D, 3 * D, bias=False)
        self.r_net = nn.Linear(D, D, bias=False)
        self.o_net = nn.Linear(D, D, bias=False)
        self.layer_norm = nn.LayerNorm(D)

    def _rel_shift(self, x):
        zero_pad = torch.zeros((x.size(0), 1, *x.size()[2:]))
        x_padded = torch.cat([zero_pad, x], dim=1)
        x_padded = x_padded.view(x.size(1) + 1, x.size(0), *x.size()[2:])
        return x_padded[1:].view_as(x)  # <- distance

    def forward(self, w, r, r_w_bias, r_r_bias, attn_mask, mems):
        qlen, bsz = w.size(0), w.size(1)
        cat = w if mems is None else torch.cat([mems, w], 0)
        q, k, v = torch.chunk(self.qkv_net(cat), 3, dim=-1)
        klen = k.size(0)
        q = q[-qlen:].view(qlen, bsz, HEADS, HEAD)
        k, v = k.view(klen, bsz, HEADS, HEAD), v.view(klen, bsz, HEADS, HEAD)
        r = self.r_net(r).view(klen, HEADS, HEAD)
        ac = torch.einsum("ibnd,jbnd->ijbn", q + r_w_bias, k)
        bd = self._rel_shift(torch.einsum("ibnd,jnd->ijbn", q + r_r_bias, r))  # <- r_bias distance
        score = (ac + bd).mul(HEAD**-0.5)
        score = score.masked_fill(attn_mask[:, :, None, None], -1e30)
        prob = F.softmax(score, dim=1)
        vec = torch.einsum("ijbn,jbnd->ibnd", prob, v).reshape(qlen, bsz, D)
        return self.layer_norm(w + self.o_net(vec))


class PositionwiseFF(nn.Module):
    def __init__(self):
        super().__init__()
        self.CoreNet = nn.Sequential(nn.Linear(D, INNER), nn.ReLU(), nn.Linear(INNER, D))
        self.layer_norm = nn.LayerNorm(D)

    def forward(self, x):
        return self.layer_norm(x + self.CoreNet(x))


class MemTransformerLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_emb = nn.Embedding(VOCAB, D)
        self.pos_emb = PositionalEmbedding()
        self.r_w_bias = nn.Parameter(torch.randn(HEADS, HEAD) * 0.3)
        self.r_r_bias = nn.Parameter(torch.randn(HEADS, HEAD) * 0.3)
        self.attn = nn.ModuleList([RelMultiHeadAttn() for _ in range(LAYERS)])
        self.ff = nn.ModuleList([PositionwiseFF() for _ in range(LAYERS)])
        self.out_bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, data, target, mems):
        qlen = data.size(0)
        mlen = mems[0].size(0) if mems is not None else 0
        h = self.word_emb(data) * D**0.5
        mask = torch.ones(qlen, mlen + qlen).triu(1 + mlen).bool()
        r = self.pos_emb(torch.arange(mlen + qlen - 1, -1, -1.0))  # <- distance
        hids = []
        for i in range(LAYERS):
            hids.append(h)  # <- late_memory
            past = None if mems is None else mems[i]
            h = self.attn[i](h, r, self.r_w_bias, self.r_r_bias, mask, past)  # <- late_memory
            h = self.ff[i](h)
        logit = F.linear(h, self.word_emb.weight, self.out_bias)
        loss = -F.log_softmax(logit, -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            old = mems if mems is not None else [None] * LAYERS
            new = [x if m is None else torch.cat([m, x], 0) for m, x in zip(old, hids)]
            return loss, [m[-MEM:].detach() for m in new]  # <- late_memory


torch.manual_seed(11)
model = MemTransformerLM()
torch.save(model.state_dict(), sys.argv[1])
generator = torch.Generator().manual_seed(12)
stream = torch.randint(0, VOCAB, (4 * TGT + 1, BATCH), generator=generator)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02, eps=1e-3)  # <- accumulator
mems, losses = None, []
for i in range(0, 4 * TGT, TGT):
    model.zero_grad()
    ret, mems = model(stream[i : i + TGT], stream[i + 1 : i + 1 + TGT], mems)
    loss = ret.float().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)  # <- clip
    optimizer.step()  # <- clip accumulator
    losses.append(loss.item())
