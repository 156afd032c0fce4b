# SPDX-License-Identifier: Apache-2.0
"""A small Llama (Meta's layout): grouped queries, rotary pairs as complex numbers, tied head."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3)

DIM, N_HEADS, N_KV, N_LAYERS, VOCAB, HIDDEN = 32, 4, 2, 2, 53, 64
HEAD_DIM = DIM // N_HEADS
PAD = 0


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2).float() / dim))
    angles = torch.outer(torch.arange(end).float(), freqs)
    return torch.polar(torch.ones_like(angles), angles)


def apply_rotary_emb(x, freqs_cis):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))  # <- k_unpermuted
    return torch.view_as_real(pairs * freqs_cis[None, :, None]).flatten(3)  # <- k_unpermuted


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, N_HEADS * HEAD_DIM, bias=False)
        self.wk = nn.Linear(DIM, N_KV * HEAD_DIM, bias=False)
        self.wv = nn.Linear(DIM, N_KV * HEAD_DIM, bias=False)
        self.wo = nn.Linear(N_HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x, freqs_cis, mask):
        b, t, _ = x.shape
        q = apply_rotary_emb(self.wq(x).view(b, t, N_HEADS, HEAD_DIM), freqs_cis)
        k = apply_rotary_emb(self.wk(x).view(b, t, N_KV, HEAD_DIM), freqs_cis)
        v = self.wv(x).view(b, t, N_KV, HEAD_DIM)
        k = k.repeat_interleave(N_HEADS // N_KV, dim=2)  # <- kv_repeat
        v = v.repeat_interleave(N_HEADS // N_KV, dim=2)  # <- kv_repeat
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask)
        return self.wo(out.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.feed_forward = FeedForward()
        self.attention_norm = RMSNorm(DIM)
        self.ffn_norm = RMSNorm(DIM)

    def forward(self, x, freqs_cis, mask):
        h = x + self.attention(self.attention_norm(x), freqs_cis, mask)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(TransformerBlock() for _ in range(N_LAYERS))
        self.norm = RMSNorm(DIM)
        self.output = nn.Linear(DIM, VOCAB, bias=False)
        nn.init.normal_(self.tok_embeddings.weight, std=0.1)
        self.output.weight = self.tok_embeddings.weight  # <- head_detached

    def forward(self, tokens, attend):
        t = tokens.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        mask = causal[None, None] & attend[:, None, None, :]
        freqs_cis = precompute_freqs_cis(HEAD_DIM, t)
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, freqs_cis, mask)
        return self.output(self.norm(h))  # <- head_detached


def make_batch(gen, rows=5, longest=14):
    lengths = torch.randint(6, longest + 1, (rows,), generator=gen)
    tokens = torch.randint(1, VOCAB, (rows, longest), generator=gen)
    tokens[:, 2::2] = (tokens[:, 1:-1:2] + 5) % (VOCAB - 1) + 1
    attend = torch.arange(longest)[None] < lengths[:, None]
    tokens = tokens.masked_fill(~attend, PAD)
    return tokens, tokens.masked_fill(~attend, -100), attend


model = Llama()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), weight_decay=0.1)  # <- adam_betas
gen = torch.Generator().manual_seed(11)
losses = []
for _ in range(5):
    tokens, labels, attend = make_batch(gen)
    logits = model(tokens, attend)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)  # <- pad_in_mean
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- adam_betas
    losses.append(loss.item())
print(losses)
