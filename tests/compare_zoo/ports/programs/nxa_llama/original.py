# SPDX-License-Identifier: Apache-2.0
"""Llama as published: complex rotary embedding on pairs, repeated kv heads, SwiGLU, z-loss."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
DIM, N_HEADS, N_KV_HEADS, N_LAYERS, HIDDEN, VOCAB, SEQ = 32, 4, 2, 2, 48, 41, 14
HEAD_DIM = DIM // N_HEADS
Z_COEF, LR, WEIGHT_DECAY = 5e-2, 8e-3, 0.1


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):  # <- norm_eps
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)  # <- norm_eps
        return (x.float() * scale).type_as(x) * self.weight


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim))
    angles = torch.outer(torch.arange(end).float(), freqs)
    return torch.polar(torch.ones_like(angles), angles)


def apply_rotary_emb(xq, xk, freqs_cis):
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))  # <- key_permute
    freqs_cis = freqs_cis.view(1, xq_.shape[1], 1, xq_.shape[-1])
    xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
    xk_out = torch.view_as_real(xk_ * freqs_cis).flatten(3)  # <- key_permute
    return xq_out.type_as(xq), xk_out.type_as(xk)


def repeat_kv(x, n_rep):
    bs, slen, n_kv, head_dim = x.shape
    x = x[:, :, :, None, :].expand(bs, slen, n_kv, n_rep, head_dim)  # <- kv_grouping
    return x.reshape(bs, slen, n_kv * n_rep, head_dim)  # <- kv_grouping


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, N_HEADS * HEAD_DIM, bias=False)
        self.wk = nn.Linear(DIM, N_KV_HEADS * HEAD_DIM, bias=False)
        self.wv = nn.Linear(DIM, N_KV_HEADS * HEAD_DIM, bias=False)
        self.wo = nn.Linear(N_HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x, freqs_cis, mask):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, N_HEADS, HEAD_DIM)
        xk = self.wk(x).view(bsz, seqlen, N_KV_HEADS, HEAD_DIM)  # <- key_permute
        xv = self.wv(x).view(bsz, seqlen, N_KV_HEADS, HEAD_DIM)
        xq, xk = apply_rotary_emb(xq, xk, freqs_cis)
        keys = repeat_kv(xk, N_HEADS // N_KV_HEADS).transpose(1, 2)  # <- kv_grouping
        values = repeat_kv(xv, N_HEADS // N_KV_HEADS).transpose(1, 2)  # <- kv_grouping
        scores = torch.matmul(xq.transpose(1, 2), keys.transpose(2, 3)) / HEAD_DIM ** 0.5 + mask
        output = torch.matmul(F.softmax(scores.float(), dim=-1), values)
        return self.wo(output.transpose(1, 2).contiguous().view(bsz, seqlen, -1))


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)
        self.attention_norm, self.ffn_norm = RMSNorm(DIM), RMSNorm(DIM)

    def forward(self, x, freqs_cis, mask):
        h = x + self.attention(self.attention_norm(x), freqs_cis, mask)
        y = self.ffn_norm(h)
        return h + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([TransformerBlock() for _ in range(N_LAYERS)])
        self.norm = RMSNorm(DIM)
        self.output = nn.Linear(DIM, VOCAB, bias=False)
        nn.init.normal_(self.tok_embeddings.weight, std=0.02)
        nn.init.normal_(self.output.weight, std=0.2)
        self.freqs_cis = precompute_freqs_cis(HEAD_DIM, SEQ)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        mask = torch.triu(torch.full((tokens.shape[1],) * 2, float("-inf")), diagonal=1)
        for layer in self.layers:
            h = layer(h, self.freqs_cis, mask)
        return self.output(self.norm(h)).float()


torch.manual_seed(0)
model = Transformer()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-6,  # <- decay_form
                        weight_decay=WEIGHT_DECAY)  # <- decay_form
data = torch.randint(0, VOCAB, (4, 3, SEQ + 1), generator=torch.Generator().manual_seed(5))
losses = []
for batch in data:
    logits = model(batch[:, :-1])
    ce = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss = ce + Z_COEF * torch.logsumexp(logits, dim=-1).pow(2).mean()  # <- z_loss
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- decay_form
    losses.append(loss.item())
print(losses)
