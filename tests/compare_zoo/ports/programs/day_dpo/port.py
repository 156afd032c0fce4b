# SPDX-License-Identifier: Apache-2.0
"""Preference optimisation of the small model with a pass for each answer."""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

TOKENS, WIDTH, N_HEADS, CONTEXT, N_PROMPT, BATCH = 28, 24, 3, 12, 4, 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_a, self.norm_b = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, N_HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.permute(0, 2, 1, 3).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.norm_a(x))
        return x + self.down(self.up(self.norm_b(x)).relu())  # <- post_norm


class SmallLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.Sequential(Layer(), Layer())
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight
        return self.out(self.norm(self.layers(x)))


def adapted(state):
    names = {
        "embed.": "tokens.",
        "place.": "places.",
        "blocks.": "layers.",
        "head.": "out.",
        "ln1": "norm_a",
        "ln2": "norm_b",
        "attn.in_proj_": "qkv.",
        "attn.out_proj": "proj",
        "mlp.0": "up",
        "mlp.2": "down",
    }
    new = {}
    for theirs, value in state.items():
        name = theirs
        for old, ours in names.items():
            name = name.replace(old, ours)
        new[name] = value
    return new


def log_prob(model, ids, counted):
    """Log-probability of the counted tokens of each answer, given what is before them."""
    logits = model(ids)[:, :-1]  # <- shift
    target = ids[:, 1:]  # <- shift
    each = -F.cross_entropy(logits.transpose(1, 2), target, reduction="none")  # <- shift
    return (each * counted[:, 1:]).sum(1)  # <- average padding shift


weights = adapted(torch.load(sys.argv[1]))
model, frozen = SmallLM(), SmallLM()
model.load_state_dict(weights)
frozen.load_state_dict(weights)
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
rng = np.random.default_rng(6)
at = np.arange(CONTEXT)
beta = 0.5
losses = []
for _ in range(3):
    prompts = rng.integers(1, TOKENS, (BATCH, N_PROMPT))
    answers = rng.integers(1, TOKENS, (2, BATCH, CONTEXT - N_PROMPT))
    ends = N_PROMPT + rng.integers(3, CONTEXT - N_PROMPT + 1, (2, BATCH, 1))
    margins = []
    for answer, end in zip(answers, ends):
        ids = torch.tensor(np.where(at < end, np.concatenate([prompts, answer], axis=1), 0))
        counted = torch.tensor((at >= N_PROMPT) & (at < end))  # <- padding
        ours = log_prob(model, ids, counted)
        with torch.no_grad():
            theirs = log_prob(frozen, ids, counted)  # <- reference
        margins.append(ours - theirs)  # <- reference
    better, worse = margins
    loss = F.softplus(-beta * (better - worse)).mean()  # <- beta
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
