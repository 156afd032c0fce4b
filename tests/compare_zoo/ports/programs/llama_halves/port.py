# SPDX-License-Identifier: Apache-2.0
"""The Llama with real numbers for complex ones: tables of cosines and sines, halves turned."""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, N_HEADS, N_KV, N_LAYERS, SEQ, HIDDEN = 31, 32, 4, 2, 2, 12, 48
HEAD = DIM // N_HEADS


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        output = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)  # <- eps
        return output * self.weight


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2).float() / dim))  # <- theta
    freqs = torch.outer(torch.arange(end).float(), freqs)  # <- theta
    freqs = torch.cat([freqs, freqs], dim=-1)  # <- theta
    return freqs.cos(), freqs.sin()  # <- theta


def apply_rotary_emb(x, freqs_cis):
    cos, sin = (table[:, None] for table in freqs_cis)
    first, second = x[..., : HEAD // 2], x[..., HEAD // 2 :]  # <- rotation
    turned = torch.cat([-second, first], dim=-1)  # <- rotation pairing
    return x * cos + turned * sin  # <- rotation pairing


def repeat_kv(x, n_rep):
    bs, slen, n_kv, head = x.shape
    x = x[:, :, :, None, :].expand(bs, slen, n_kv, n_rep, head)  # <- groups
    return x.reshape(bs, slen, n_kv * n_rep, head)  # <- groups


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, N_HEADS * HEAD, bias=False)
        self.wk = nn.Linear(DIM, N_KV * HEAD, bias=False)
        self.wv = nn.Linear(DIM, N_KV * HEAD, bias=False)
        self.wo = nn.Linear(N_HEADS * HEAD, DIM, bias=False)

    def forward(self, x, freqs_cis, mask):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)  # <- pairing
        xq = xq.view(bsz, seqlen, N_HEADS, HEAD)
        xk = xk.view(bsz, seqlen, N_KV, HEAD)
        xv = xv.view(bsz, seqlen, N_KV, HEAD)
        xq = apply_rotary_emb(xq, freqs_cis)  # <- rotation pairing
        xk = apply_rotary_emb(xk, freqs_cis)  # <- rotation pairing
        keys = repeat_kv(xk, N_HEADS // N_KV).transpose(1, 2)  # <- groups
        values = repeat_kv(xv, N_HEADS // N_KV).transpose(1, 2)  # <- groups
        xq = xq.transpose(1, 2)
        scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(HEAD)  # <- groups scale
        scores = F.softmax((scores + mask).float(), dim=-1).type_as(xq)  # <- causal
        output = torch.matmul(scores, values).transpose(1, 2).contiguous()
        return self.wo(output.view(bsz, seqlen, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # <- gate


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = RMSNorm(DIM), RMSNorm(DIM)

    def forward(self, x, freqs_cis, mask):
        h = x + self.attention(self.attention_norm(x), freqs_cis, mask)
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(TransformerBlock() for _ in range(N_LAYERS))
        self.norm = RMSNorm(DIM)
        self.output = nn.Linear(DIM, VOCAB, bias=False)
        self.freqs_cis = precompute_freqs_cis(HEAD, SEQ)  # <- theta

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        mask = torch.full((SEQ, SEQ), float("-inf"))  # <- causal
        mask = torch.triu(mask, diagonal=1)  # <- causal
        for layer in self.layers:
            h = layer(h, self.freqs_cis, mask)
        return self.output(self.norm(h)).float()


def halves(weight):
    rows = weight.view(-1, HEAD // 2, 2, DIM).transpose(1, 2)
    return rows.reshape(weight.shape)  # <- pairing


state = torch.load(sys.argv[1])
for name in [name for name in state if name.endswith(("wq.weight", "wk.weight"))]:
    state[name] = halves(state[name])  # <- pairing
torch.manual_seed(2)
model = Transformer()
model.load_state_dict(state)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, foreach=True)
tokens = torch.from_numpy(np.random.default_rng(7).integers(0, VOCAB, (3, 3, SEQ + 1)))
losses = []
for batch in tokens:
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())  # <- shift
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
