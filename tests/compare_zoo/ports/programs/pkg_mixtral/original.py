# SPDX-License-Identifier: Apache-2.0
"""A small Mixtral in the manner of Mistral's own code: rotations as complex numbers, one module an
expert, weights of the chosen two by a softmax over their logits, a balancing loss over real words.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HIDDEN, HEADS, KV_HEADS, EXPERTS, TOP, LAYERS, PAD = 44, 32, 40, 4, 2, 4, 2, 2, 0
HEAD_DIM = DIM // HEADS


def rotary(x, freqs_cis):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs_cis[:, None]).flatten(3)  # <- rotary


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.wk = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.wv = nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.wo = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x, freqs_cis):
        b, t, _ = x.shape
        q = rotary(self.wq(x).view(b, t, HEADS, HEAD_DIM), freqs_cis)  # <- rotary
        k = rotary(self.wk(x).view(b, t, KV_HEADS, HEAD_DIM), freqs_cis)  # <- rotary
        v = self.wv(x).view(b, t, KV_HEADS, HEAD_DIM)
        k, v = (y.repeat_interleave(HEADS // KV_HEADS, dim=2).transpose(1, 2) for y in (k, v))
        mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)
        self.w3 = nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # <- gate_up


class MoeLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([FeedForward() for _ in range(EXPERTS)])
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)

    def forward(self, x):
        flat = x.flatten(0, 1)
        logits = self.gate(flat)
        best, chosen = torch.topk(logits, TOP)
        weights = F.softmax(best, dim=1)
        results = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            row, nth = torch.where(chosen == i)
            results[row] += weights[row, nth, None] * expert(flat[row])
        return results.view_as(x), (logits, chosen)


class Mixtral(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"attention": Attention(), "feed_forward": MoeLayer()})
            for _ in range(LAYERS)
        )
        for layer in self.layers:
            for name in ("attention_norm", "ffn_norm"):
                layer[name] = nn.RMSNorm(DIM, eps=1e-6)  # <- eps
        self.norm = nn.RMSNorm(DIM, eps=1e-6)  # <- eps
        self.output = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        freqs = 1.0 / (10000.0 ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
        freqs = torch.outer(torch.arange(tokens.size(1)).float(), freqs)
        freqs_cis = torch.polar(torch.ones_like(freqs), freqs)
        h, routed = self.tok_embeddings(tokens), []
        for layer in self.layers:
            h = h + layer["attention"](layer["attention_norm"](h), freqs_cis)  # <- eps
            r, route = layer["feed_forward"](layer["ffn_norm"](h))  # <- eps
            h = h + r
            routed.append(route)
        return self.output(self.norm(h)), routed  # <- eps


def balance(routed, kept):
    share = torch.cat([logits.softmax(-1)[kept] for logits, _ in routed]).mean(0)  # <- aux_pads
    use = torch.cat([F.one_hot(c, EXPERTS).sum(1)[kept] for _, c in routed])  # <- aux_pads
    return EXPERTS * (use.float().mean(0) * share).sum()  # <- aux_pads


torch.manual_seed(80)
model = Mixtral()
with torch.no_grad():
    for p in model.parameters():
        p.add_(0.1 * torch.randn(p.shape))
    model.tok_embeddings.weight.mul_(0.05)
    model.output.weight.mul_(0.3)
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-6, weight_decay=0.05)
generator = torch.Generator().manual_seed(81)
losses = []
for _ in range(4):
    tokens = torch.randint(1, VOCAB, (4, 9), generator=generator)
    size = torch.randint(4, 10, (4, 1), generator=generator)
    tokens[torch.arange(9) >= size] = PAD
    x, y = tokens[:, :-1], tokens[:, 1:]
    logits, routed = model(x)
    nll = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=PAD)  # <- shifted
    loss = nll + 0.02 * balance(routed, (x != PAD).flatten())  # <- aux_pads
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
