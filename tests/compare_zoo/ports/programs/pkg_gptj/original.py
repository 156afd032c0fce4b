# SPDX-License-Identifier: Apache-2.0
"""GPT-J in the manner of its first JAX code, text by text: matrices of (in, out), a fused input,
attention and feed-forward side by side, rotations of a part of a head. It scores continuations.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, HEADS, HD, ROT, INNER, LAYERS, EPS = 46, 32, 4, 8, 4, 64, 2, 1e-5


def turn(x):
    """Neighbouring pairs of the first ROT entries of a head turned by the place of the word."""
    rates = 1.0 / (10000 ** (torch.arange(0, ROT, 2) / ROT))  # <- rotary_dim
    angles = torch.arange(x.shape[0])[:, None, None] * rates  # <- positions
    sin, cos = angles.sin(), angles.cos()  # <- positions rotary_dim
    even, odd, rest = x[..., 0:ROT:2], x[..., 1:ROT:2], x[..., ROT:]  # <- rotary_dim
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(
        -2
    )  # <- positions rotary_dim
    return torch.cat((turned, rest), -1)  # <- positions rotary_dim


class ParallelBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D, eps=EPS)
        # values, queries and keys, then the inner layer
        self.w_in = nn.Parameter(torch.randn(D, 3 * D + INNER) / D**0.5)
        self.b_in = nn.Parameter(0.2 * torch.randn(INNER))
        self.w_out = nn.Parameter(torch.randn(D + INNER, D) / (D + INNER) ** 0.5)
        self.b_out = nn.Parameter(0.2 * torch.randn(D))

    def forward(self, x):
        v, q, k, inner = (self.norm(x) @ self.w_in).split([D, D, D, INNER], dim=1)
        v, q, k = (t.unflatten(1, (HEADS, HD)) for t in (v, q, k))
        q, k = turn(q), turn(k)  # <- positions rotary_dim
        scores = torch.einsum("qhd,khd->hqk", q, k) / HD**0.5  # <- pad_mask positions rotary_dim
        hidden = torch.full((len(x), len(x)), float("-inf")).triu(1)
        weights = torch.softmax(scores + hidden, dim=-1)  # <- pad_mask
        mixed = torch.einsum("hqk,khd->qhd", weights, v).flatten(1)  # <- pad_mask
        inner = F.gelu(inner + self.b_in, approximate="tanh")  # <- gelu
        return x + torch.cat((mixed, inner), dim=1) @ self.w_out + self.b_out


class GPTJ(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(VOCAB, D))
        self.blocks = nn.ModuleList(ParallelBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(D, eps=EPS)
        self.proj = nn.Parameter(torch.randn(D, VOCAB) / D**0.5)
        self.proj_b = nn.Parameter(0.5 * torch.randn(VOCAB))

    def forward(self, ids):
        x = self.embed[ids]
        for block in self.blocks:
            x = block(x)
        return torch.addmm(self.proj_b, self.norm(x), self.proj)  # <- head_bias


def score(model, prompt, answer):
    """The log-probability of the answer after the prompt."""
    logits = model(torch.cat((prompt, answer)))
    first = len(prompt) - 1
    logp = F.log_softmax(logits[first : first + len(answer)], dim=-1)
    return logp[torch.arange(len(answer)), answer].sum()


torch.manual_seed(120)
model = GPTJ()
with torch.no_grad():
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.add_(0.3 * torch.randn(D))
            module.bias.add_(0.3 * torch.randn(D))
torch.save(model.state_dict(), sys.argv[1])
model.eval()
generator = torch.Generator().manual_seed(121)
losses = []
with torch.no_grad():
    for _ in range(4):
        prompts = torch.randint(1, VOCAB, (4, 7), generator=generator)
        sizes = torch.randint(2, 8, (4,), generator=generator).tolist()
        answers = torch.randint(1, VOCAB, (4, 3), generator=generator)
        scores = [score(model, p[:n], a) for p, n, a in zip(prompts, sizes, answers)]
        losses.append(-torch.stack(scores).mean().item())
